"""Data directories of earlier formats, each made by the last version that wrote it and killed."""

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from leveret.storage.data_directory import FORMAT
from tests.conftest import BrokerProcess
from tests.waiting import eventually

FIXTURES = sorted((Path(__file__).parent / "formats").glob("*.tar.xz"))

pytestmark = pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.name.split(".")[0])


@pytest.fixture
def channel(
    fixture: Path, tmp_path: Path, make_broker: Callable[..., BrokerProcess]
) -> Iterator[BlockingChannel]:
    unpack(fixture, tmp_path)
    broker = make_broker().start()
    connection = pika.BlockingConnection(pika.URLParameters(broker.uri))
    yield connection.channel()
    connection.close()


def unpack(fixture: Path, directory: Path) -> Path:
    with tarfile.open(fixture) as archive:
        if hasattr(tarfile, "data_filter"):  # not before 3.11.4, and never without later on
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(directory)
    return directory / "data"


def contents(channel: BlockingChannel, queue: str) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        method, properties, body = got
        key = method.exchange, method.routing_key
        found.append((*key, method.redelivered, properties.message_id, properties.headers, body))
    return found


def count(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def test_every_message_is_there(channel: BlockingChannel, tmp_path: Path) -> None:
    assert json.loads((tmp_path / "data" / "format.json").read_text()) == {"format": FORMAT}
    eventually(lambda: count(channel, "plain") == 60)
    filler = b"x" * 30_000
    assert contents(channel, "plain") == [
        ("events", f"a.{i}", i < 60, str(i), {"n": i}, b"plain %d " % i + filler)
        for i in [*range(10, 20), *range(50, 100)]
    ]
    assert contents(channel, "levels") == [
        ("", "levels", False, None, None, b"level %d" % i) for i in [2, 5, 8, 1, 4, 7, 0, 3, 6]
    ]
    counts = [{"x-acquired-count": 2, "x-delivery-count": 0}, None, None]
    assert contents(channel, "quorum") == [
        ("", "quorum", i == 0, None, counts[i], b"quorum %d" % i) for i in range(3)
    ]
    key = {"x-deduplication-header": "k1"}
    assert contents(channel, "unique") == [("once", "u", False, None, key, b"unique")]
    assert contents(channel, "empty") == []


def test_delayed_messages_wait_or_have_come(channel: BlockingChannel, tmp_path: Path) -> None:
    """Which of the two depends on the day of the test."""
    command = [sys.executable, "-m", "leveret.server", "delayed", "list", "--json"]

    def known() -> int:
        listed = subprocess.check_output([*command, "--data-dir", str(tmp_path / "data")])
        return len(json.loads(listed)) + count(channel, "waiting")

    eventually(lambda: known() == 4)


def test_bindings_and_remembered_keys_are_there(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    persistent = pika.BasicProperties(delivery_mode=2)
    channel.basic_publish("events", "a.b", b"new", persistent)
    assert count(channel, "plain") == 61
    persistent.headers = {"x-deduplication-header": "k1"}
    channel.basic_publish("once", "u", b"again", persistent)
    assert count(channel, "unique") == 1
    persistent.headers = {"x-deduplication-header": "k2"}
    channel.basic_publish("once", "u", b"other", persistent)
    assert count(channel, "unique") == 2


def test_what_was_left_is_there_after_another_kill(
    fixture: Path, tmp_path: Path, make_broker: Callable[..., BrokerProcess]
) -> None:
    unpack(fixture, tmp_path)
    broker = make_broker().start()
    for taken in (3, 4):
        connection = pika.BlockingConnection(pika.URLParameters(broker.uri))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "plain", b"new", pika.BasicProperties(delivery_mode=2))
        for _ in range(taken):
            channel.basic_get("plain", auto_ack=True)
        connection.close()
        broker.kill()
        broker.start()
    connection = pika.BlockingConnection(pika.URLParameters(broker.uri))
    left = contents(connection.channel(), "plain")
    assert [message[1] for message in left] == [
        *(f"a.{i}" for i in [17, 18, 19, *range(50, 100)]),
        "plain",
        "plain",
    ]
    connection.close()


def test_a_newer_format_is_refused_in_one_line(fixture: Path, tmp_path: Path) -> None:
    data = unpack(fixture, tmp_path)
    (data / "format.json").write_text(json.dumps({"format": FORMAT + 1}))
    command = [sys.executable, "-m", "leveret.server", "serve", "--port", "0"]
    refused = subprocess.run([*command, "--data-dir", str(data)], capture_output=True, text=True)
    assert refused.returncode != 0
    assert refused.stderr.count("\n") == 1
    assert f"has format {FORMAT + 1} of a newer leveret" in refused.stderr


def test_a_newer_file_stops_its_queue_with_one_line(
    fixture: Path, tmp_path: Path, make_broker: Callable[..., BrokerProcess]
) -> None:
    data = unpack(fixture, tmp_path)
    log = data / "vhosts" / "1" / "queues" / "2" / f"{0:020}.log"
    newer = b"LVLG\0" + bytes([FORMAT + 1]) + log.read_bytes()[6:]
    log.write_bytes(newer)
    broker = make_broker().start()
    line = f"{log}: expected LVLG of format version up to {FORMAT}, found"
    eventually(lambda: line in broker.log_path.read_text())
    assert log.read_bytes() == newer
