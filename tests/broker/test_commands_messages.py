"""What operators are answered about single messages."""

import json
from pathlib import Path

import pytest

from leveret.broker.commands import run_command
from tests.broker.test_duplicates import declare, open_channel
from tests.broker.world import World


def test_headers_are_json_whatever_they_hold(tmp_path: Path) -> None:
    world = World(tmp_path)
    peer = open_channel(world)
    declare(peer, "q")
    numbers = {"nan": float("nan"), "lists": [float("inf"), {"deep": float("-inf")}], "one": 1.5}
    peer.publish(1, "q", b"x", headers=numbers)
    answer = json.dumps(run_command(world.broker, "show_message", {"queue": "q", "offset": 0}))
    found = json.loads(answer, parse_constant=pytest.fail)
    assert found["headers"] == {"nan": "nan", "lists": ["inf", {"deep": "-inf"}], "one": 1.5}
    world.close()
