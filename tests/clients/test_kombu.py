"""kombu's use of what RabbitMQ has beyond AMQP 0-9-1."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import BrokerProcess
from tests.programs import Program
from tests.wire.test_blocked import ROOM, Alarm, alarm, disk, server

__all__ = ["alarm", "disk", "server"]

PROGRAM = str(Path(__file__).parent / "programs" / "use_kombu_extensions.py")


@pytest.mark.parametrize(
    ("scenario", "printed"),
    [
        ("refusals", ["refused", "returned ['nowhere']"]),
        ("cancelled", ["cancelled ['tag']"]),
        ("arguments", ["[(0, 'maxlen'), (1, 'expired')]"]),
        ("priorities", ["[1, 3, 2, 0, 4]", "{1: 0, 2: 3}"]),
        ("everybody", ["2"]),
        ("delayed classic", ["[1, 2]"]),
        ("delayed quorum", ["[1, 2]"]),
    ],
)
def test_extension(
    run: Callable[..., Program], shared_broker: BrokerProcess, scenario: str, printed: list[str]
) -> None:
    assert run(PROGRAM, shared_broker.uri, *scenario.split()).finish() == printed


@pytest.mark.slow
def test_publisher_hears_that_it_is_blocked(
    run: Callable[..., Program], server: BrokerProcess, alarm: Alarm
) -> None:
    alarm.set(ROOM)
    publisher = run(PROGRAM, server.uri, "blocked")
    publisher.wait_for("blocked")
    alarm.clear()
    assert publisher.finish() == ["blocked", "unblocked", "confirmed"]
