"""What `leveret message show`, `leveret queue browse`, `rewind`, `move` and `copy` write."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pika
import pytest
from click.testing import CliRunner
from pika.adapters.blocking_connection import BlockingChannel

from leveret.server.main import main
from tests.conftest import BrokerProcess
from tests.server.test_control import complaint, connect, leveret, run

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("history") / "data").start()
    yield broker
    broker.kill()


@pytest.fixture
def channel(shared: BrokerProcess) -> Iterator[BlockingChannel]:
    with closing(connect(shared)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True)
        yield channel
        channel.queue_delete("orders")


def publish(channel: BlockingChannel, *bodies: bytes, **properties: object) -> None:
    for body in bodies:
        channel.basic_publish(
            "", "orders", body, pika.BasicProperties(delivery_mode=2, **properties)
        )


def test_a_message_is_shown_by_its_id(shared: BrokerProcess, channel: BlockingChannel) -> None:
    publish(channel, b"old", message_id="m1")
    publish(channel, b"caf\xc3\xa9\n", message_id="m1", headers={"tries": 1}, timestamp=0)
    assert channel.basic_get("orders", auto_ack=True)[2] == b"old"
    done = leveret(shared, "message", "show", "--queue", "orders", "--id", "m1")
    lines = done.stdout.splitlines()
    assert lines[:3] == [
        "offset            1",
        "state             ready: it waits for a consumer",
        "deliveries        0",
    ]
    assert re.fullmatch(rf"time {{14}}{TIME}", lines[3])
    assert "exchange          (default)" in lines
    assert "message id        m1" in lines
    assert lines[-4:] == ["header tries: 1", "", "the body:", "café"]
    assert done.stderr == "1 older with this id at offset 0\n"
    found = json.loads(run(shared, "message", "show", "--queue", "orders", "--id", "m1", "--json"))
    assert (found["offset"], found["body"], found["other_offsets"]) == (1, "café\n", [0])


def test_a_body_is_written_as_it_is(shared: BrokerProcess, channel: BlockingChannel) -> None:
    body = bytes(range(256)) * 1000
    publish(channel, body)
    command = [sys.executable, "-m", "leveret.server", "message", "show", "--queue", "orders"]
    command += ["--data-dir", str(shared.data_dir), "--offset", "0"]
    done = subprocess.run([*command, "--body"], capture_output=True, check=True, timeout=15)
    assert done.stdout == body
    shown = run(shared, "message", "show", "--queue", "orders", "--offset", "0")
    assert "the first 256 bytes of the body:\n00 01 02 03" in shown


def test_browsing_is_a_table_with_more_to_come(
    shared: BrokerProcess, channel: BlockingChannel
) -> None:
    publish(channel, b"one two\nthree", b"b", b"c", message_id="m")
    assert channel.basic_get("orders", auto_ack=True)[2] == b"one two\nthree"
    done = leveret(shared, "queue", "browse", "orders", "--limit", "2", "--body")
    head, *rows = [re.split(r"  +", line) for line in done.stdout.splitlines()]
    assert head[:4] == ["offset", "time", "state", "size"]
    assert [[row[0], row[2], row[3], *row[4:]] for row in rows] == [
        ["0", "settled", "13", "orders", "m", "one two three"],
        ["1", "ready", "1", "orders", "m", "b"],
    ]
    assert all(re.fullmatch(TIME, row[1]) for row in rows)
    assert done.stderr == "more: --from 2\n"
    again = run(shared, "queue", "browse", "orders", "--from", "2").splitlines()
    assert [line.split()[0] for line in again] == ["offset", "2"]
    since = run(shared, "queue", "browse", "orders", "--from", rows[0][1], "--json")
    assert [row["offset"] for row in json.loads(since)] == [0, 1, 2]
    assert run(shared, "queue", "browse", "orders", "--until", "1h ago", "--json") == "[]\n"


def test_rewinding_and_moving_say_what_they_did(
    shared: BrokerProcess, channel: BlockingChannel
) -> None:
    publish(channel, b"abc", b"de", b"f")
    channel.queue_purge("orders")
    rewind = ("queue", "rewind", "orders", "--to", "10m ago", "--until", "2")
    dry = run(shared, *rewind, "--dry-run").splitlines()
    assert dry[0] == "2 messages (5 bytes) would be ready again"
    assert re.fullmatch(rf"first: offset 0, {TIME}", dry[1])
    assert re.fullmatch(rf"last: offset 1, {TIME}", dry[2])
    assert run(shared, *rewind).startswith("2 messages (5 bytes) are ready again\n")
    assert run(shared, *rewind) == "0 messages (0 bytes) are ready again\n"
    channel.queue_declare("parked", durable=True)
    move = ("queue", "move", "orders", "--to-queue", "parked")
    assert run(shared, *move, "--limit", "1", "--dry-run").startswith(
        "1 message (3 bytes) would be moved\n"
    )
    assert run(shared, *move, "--limit", "1").startswith("1 message (3 bytes) moved\n")
    copied = json.loads(run(shared, "queue", "copy", "orders", "--to-queue", "parked", "--json"))
    assert (copied["count"], copied["bytes"], copied["first"][0]) == (1, 2, 1)
    found = [channel.basic_get("parked", auto_ack=True)[2] for _ in "12"]
    assert found == [b"abc", b"de"]


def test_mistakes_are_one_line(shared: BrokerProcess, channel: BlockingChannel) -> None:
    publish(channel, b"x")
    done = leveret(shared, "queue", "move", "orders", "--to-exchange", "amq.fanout")
    assert (done.returncode, done.stdout, done.stderr) == (
        1,
        "0 messages (0 bytes) moved\n",
        "leveret: not moved, for nothing is bound for it: 1 message\n",
    )
    for arguments, reason in (
        (("queue", "browse", "orders", "--from", "x"), "'x' is no place in a queue"),
        (("queue", "move", "orders"), "either --to-queue or --to-exchange"),
        (("queue", "copy", "orders", "--to-queue", "q", "--routing-key", "k"), "--to-exchange"),
        (("message", "show", "--queue", "orders"), "either --offset or --id"),
        (("message", "show", "--queue", "orders", "--offset", "1"), "no message at offset 1"),
        (("message", "show", "--queue", "orders", "--id", "?"), "has no message with the id '?'"),
    ):
        assert reason in complaint(shared, *arguments)


@pytest.mark.parametrize("command", ["browse", "rewind", "move", "copy"])
def test_help_is_set_like_that_of_other_commands(command: str) -> None:
    lines = CliRunner().invoke(main, ["queue", command, "--help"]).output.splitlines()
    paragraphs = lines[: lines.index("  A PLACE is an offset, 'first', or a time:")]
    assert not [line for line in paragraphs if line.startswith("   ") or "    " in line[2:]]
