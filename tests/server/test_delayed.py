"""`leveret delayed`: what operators see of waiting messages, and how they stop them."""

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.clients.blocking import ready_count
from tests.conftest import BrokerProcess
from tests.server.test_control import complaint, connect, leveret, listed, run
from tests.waiting import eventually

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("delayed") / "data").start()
    yield broker
    broker.kill()


@pytest.fixture
def channel(shared: BrokerProcess) -> Iterator[BlockingChannel]:
    with closing(connect(shared)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare(
            "reminders", "x-delayed-message", arguments={"x-delayed-type": "fanout"}
        )
        yield channel
        ids = [str(row["id"]) for row in listed(shared, "delayed", "list", "--limit", "9999")]
        if ids:
            run(shared, "delayed", "cancel", *ids)
        channel.exchange_delete("reminders")


def delay(channel: BlockingChannel, delay_ms: int, key: str = "", body: bytes = b"x") -> None:
    properties = pika.BasicProperties(headers={"x-delay": delay_ms}, message_id=f"m{delay_ms}")
    channel.basic_publish("reminders", key, body, properties)


def test_list_is_a_table_with_times_to_read(
    shared: BrokerProcess, channel: BlockingChannel
) -> None:
    delay(channel, 2 * HOUR_MS + 59_000, "user.7", b"12345")
    delay(channel, 50 * HOUR_MS + 59_000, "user.8")
    soon, later = listed(shared, "delayed", "list")
    assert (soon["exchange"], soon["routing_key"], soon["size"]) == ("reminders", "user.7", 5)
    times = [datetime.fromtimestamp(int(str(row["due_ms"])) / 1000) for row in (soon, later)]
    lines = run(shared, "delayed", "list").splitlines()
    assert [line.split() for line in lines] == [
        ["id", "due", "in", "size", "exchange", "routing_key", "message_id"],
        [str(soon["id"]), f"{times[0]:%H:%M:%S}", "2h0min", "5", "reminders", "user.7", "m7259000"],
        [
            str(later["id"]),
            f"{times[1]:%Y-%m-%d}",
            "2d2h",
            "1",
            "reminders",
            "user.8",
            "m180059000",
        ],
    ]


def test_list_is_paged(shared: BrokerProcess, channel: BlockingChannel) -> None:
    for number in range(5):
        delay(channel, HOUR_MS + 1000 * number, str(number))
    first = leveret(shared, "delayed", "list", "--limit", "2")
    assert [line.split()[5] for line in first.stdout.splitlines()[1:]] == ["0", "1"]
    head, _, after = first.stderr.strip().partition(" --after ")
    assert head == "more:"
    second = listed(shared, "delayed", "list", "--limit", "3", "--after", after)
    assert [row["routing_key"] for row in second] == ["2", "3", "4"]


def test_list_of_one_exchange_looks_through_all(
    shared: BrokerProcess, channel: BlockingChannel
) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    properties = pika.BasicProperties(headers={"x-delay": HOUR_MS})
    for _ in range(1500):
        channel.basic_publish("", queue, b"other", properties)
    delay(channel, 2 * HOUR_MS)
    (row,) = listed(shared, "delayed", "list", "--exchange", "reminders")
    assert row["message_id"] == f"m{2 * HOUR_MS}"
    assert listed(shared, "delayed", "list", "--exchange", "nobody") == []


def test_cancelled_message_is_not_sent_not_even_after_a_kill(broker: BrokerProcess) -> None:
    with closing(connect(broker)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        for body, delay_ms in ((b"first", 1500), (b"cancelled", 1600), (b"last", 1700)):
            properties = pika.BasicProperties(headers={"x-delay": delay_ms})
            channel.basic_publish("", "q", body, properties)
        ids = [str(row["id"]) for row in listed(broker, "delayed", "list")]
        assert run(broker, "delayed", "cancel", ids[1]) == ""
    broker.kill()
    broker.start()
    assert complaint(broker, "delayed", "cancel", ids[1], "77") == (
        f"leveret: no message waits with the id {ids[1]}, 77"
    )
    with closing(connect(broker)) as connection:
        channel = connection.channel()

        eventually(lambda: ready_count(channel, "q") == 2)
        assert [channel.basic_get("q", auto_ack=True)[2] for _ in "12"] == [b"first", b"last"]
    assert listed(broker, "delayed", "list") == []


def test_mistakes_are_one_line(shared: BrokerProcess) -> None:
    assert complaint(shared, "delayed", "list", "--vhost", "x") == (
        "leveret: vhost 'x' does not exist"
    )
    assert complaint(shared, "delayed", "list", "--after", "17") == (
        "leveret: --after is like 1700000000000:17, not '17'"
    )
