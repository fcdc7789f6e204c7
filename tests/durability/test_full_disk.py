"""A disk that fills up in the middle of publishing: nothing confirmed is lost, and it goes on."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.exceptions import NackError

from tests.conftest import BrokerProcess
from tests.small_disk import SmallDisk, mounted
from tests.waiting import eventually

KIB = 1024
MESSAGES = 60


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted(tmp_path / "data", 8 * KIB) as disk:
        yield disk


@pytest.fixture
def server(disk: SmallDisk) -> Iterator[BrokerProcess]:
    limits = ("--disk-free-limit", "0", "--disk-free-hard-limit", "0")
    bound = ("--transient-bytes-per-queue", "64KiB")
    broker = BrokerProcess(disk.place, *limits, *bound, prefix=disk.inside)
    broker.start()
    yield broker
    assert broker.stop() == 0
    assert "Traceback" not in broker.log_path.read_text()


def publish_all(uri: str, confirmed: list[bytes], refused: list[bytes]) -> None:
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(MESSAGES):
            body = b"%06d" % number + bytes(4 * KIB)
            try:
                channel.basic_publish("", "q", body, pika.BasicProperties(delivery_mode=2))
                confirmed.append(body)
            except NackError:
                refused.append(body)


def drain(uri: str) -> list[bytes]:
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        channel = connection.channel()
        bodies = []
        while (got := channel.basic_get("q"))[0] is not None:
            bodies.append(got[2])
        return bodies


def test_publishers_wait_for_room_and_nothing_confirmed_is_lost(
    disk: SmallDisk, server: BrokerProcess
) -> None:
    with pika.BlockingConnection(pika.URLParameters(server.uri)) as connection:
        connection.channel().queue_declare("q", durable=True)
    disk.fill(leave=100 * KIB)
    confirmed: list[bytes] = []
    refused: list[bytes] = []
    publisher = threading.Thread(target=publish_all, args=(server.uri, confirmed, refused))
    publisher.start()
    eventually(lambda: "publishers wait for room" in server.log_path.read_text())
    seen = len(confirmed)
    assert 0 < seen < MESSAGES
    assert publisher.is_alive()
    disk.free()
    publisher.join(10)
    assert not publisher.is_alive()
    assert len(confirmed) > seen
    assert len(confirmed) + len(refused) == MESSAGES
    assert drain(server.uri) == confirmed
    server.kill()
    server.start()
    assert drain(server.uri) == confirmed


def test_publishers_wait_for_room_for_a_transient_queue_too(
    disk: SmallDisk, server: BrokerProcess
) -> None:
    with pika.BlockingConnection(pika.URLParameters(server.uri)) as connection:
        connection.channel().queue_declare("q")
    disk.fill(leave=100 * KIB)
    confirmed: list[bytes] = []
    refused: list[bytes] = []
    publisher = threading.Thread(target=publish_all, args=(server.uri, confirmed, refused))
    publisher.start()
    eventually(lambda: "publishers wait for room" in server.log_path.read_text())
    assert 0 < len(confirmed) < MESSAGES
    disk.free()
    publisher.join(10)
    assert not publisher.is_alive()
    assert len(confirmed) + len(refused) == MESSAGES
    assert drain(server.uri) == confirmed
    left = list((disk.path / "transient").iterdir())
    assert left
    server.kill()
    server.start()
    eventually(lambda: not any(path.exists() for path in left))
