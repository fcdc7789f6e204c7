"""Streams: every consumer reads all of it, from where it likes."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import cast

import pytest
from click.testing import CliRunner, Result
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import BasicProperties

from leveret.queues.stream_offsets import read_offsets
from leveret.server.commands.client import ask
from leveret.server.main import main
from tests.clients.blocking import Consumer, publish, ready_count, wait_until
from tests.conftest import BrokerProcess
from tests.features.steps import (
    Connect,
    Restart,
    arguments,
    declare,
    reply_text,
    restarts,
    send,
    take,
)
from tests.waiting import eventually

TEN = [str(number) for number in range(10)]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", "--segment-bytes", "1MiB")
    yield broker.start()
    broker.stop()


def declare_stream(channel: BlockingChannel, queue: str, **values: object) -> str:
    channel.basic_qos(prefetch_count=100)
    return declare(channel, queue, queue_type="stream", **values)


def read(channel: BlockingChannel, queue: str, **values: object) -> Consumer:
    """Consume; acknowledges nothing. `offset` is where it begins."""
    return Consumer(channel, queue, arguments=arguments(**values))


def from_place(channel: BlockingChannel, queue: str, place: object) -> list[str]:
    """All that is read from *place* on, but for a last message that comes now."""
    consumer = read(channel, queue, stream_offset=place)
    mark = f"mark-{consumer.tag}"
    publish(channel, queue, mark)
    wait_until(channel.connection, lambda: mark.encode() in consumer.bodies)
    channel.basic_cancel(consumer.tag)
    return [body.decode() for body in consumer.bodies if not body.startswith(b"mark")]


def offsets(consumer: Consumer) -> list[int]:
    return [delivery.properties.headers["x-stream-offset"] for delivery in consumer.deliveries]


def row(broker: BrokerProcess, queue: str) -> dict[str, object]:
    rows = cast("list[dict[str, object]]", ask(broker.data_dir, "list_queues"))
    return next(row for row in rows if row["name"] == queue)


# ---- reading


def test_every_consumer_gets_every_message(channel: BlockingChannel, name: str) -> None:
    declare_stream(channel, name)
    early = read(channel, name)
    publish(channel, name, *TEN)
    late = read(channel, name, stream_offset="first")
    for consumer in (early, late):
        consumer.wait_for(10)
        assert [body.decode() for body in consumer.bodies] == TEN
        assert offsets(consumer) == list(range(10))
        assert not any(delivery.method.redelivered for delivery in consumer.deliveries)
    channel.basic_ack(0, multiple=True)
    assert ready_count(channel, name) == 10


def test_a_message_is_what_was_published(channel: BlockingChannel, name: str) -> None:
    declare_stream(channel, name)
    channel.exchange_declare(name, "fanout", auto_delete=True)
    channel.queue_bind(name, name)
    consumer = read(channel, name)
    properties = BasicProperties("text/plain", headers={"a": 1}, message_id="m", delivery_mode=1)
    channel.basic_publish(name, "key", b"x" * 300_000, properties)
    channel.basic_publish(name, "key", b"", BasicProperties(headers={"x-stream-offset": "mine"}))
    first, second = consumer.wait_for(2)
    assert (first.method.exchange, first.method.routing_key) == (name, "key")
    assert first.body == b"x" * 300_000
    assert first.properties.headers == {"x-stream-offset": 0, "a": 1}
    assert (first.properties.content_type, first.properties.message_id) == ("text/plain", "m")
    assert second.properties.headers == {"x-stream-offset": 1}


def test_where_a_consumer_begins(channel: BlockingChannel, name: str) -> None:
    declare_stream(channel, name)
    channel.confirm_delivery()
    publish(channel, name, *TEN)
    assert from_place(channel, name, "last") == ["9"]
    assert from_place(channel, name, -2) == ["9"]
    assert from_place(channel, name, "first") == TEN
    assert from_place(channel, name, "next") == []
    assert from_place(channel, name, 7) == ["7", "8", "9"]
    assert from_place(channel, name, -1000) == TEN
    assert from_place(channel, name, "1h") == TEN
    assert from_place(channel, name, datetime(2020, 1, 1, tzinfo=UTC)) == TEN
    assert from_place(channel, name, datetime(2099, 1, 1, tzinfo=UTC)) == []


def test_a_time_between_two_messages(channel: BlockingChannel, name: str) -> None:
    declare_stream(channel, name)
    channel.confirm_delivery()
    publish(channel, name, "before")
    second = int(time.time()) + 1
    eventually(lambda: time.time() >= second)
    publish(channel, name, "after")
    assert from_place(channel, name, datetime.fromtimestamp(second, UTC)) == ["after"]


def test_a_place_that_is_yet_to_come(channel: BlockingChannel, name: str) -> None:
    declare_stream(channel, name)
    consumer = read(channel, name, stream_offset=3)
    publish(channel, name, *TEN)
    consumer.wait_for(7)
    assert offsets(consumer) == list(range(3, 10))


# ---- credit


@pytest.mark.parametrize("settle", ["basic_ack", "basic_nack", "basic_reject"])
def test_a_settled_delivery_makes_room_for_one(
    channel: BlockingChannel, name: str, settle: str
) -> None:
    declare_stream(channel, name)
    publish(channel, name, *TEN)
    channel.basic_qos(prefetch_count=3)
    consumer = read(channel, name, stream_offset="first")
    for number in range(10):
        consumer.wait_for(min(number + 3, 10))
        ready_count(channel, name)
        assert len(consumer.deliveries) == min(number + 3, 10)
        getattr(channel, settle)(consumer.deliveries[number].method.delivery_tag)
    assert [body.decode() for body in consumer.bodies] == TEN


def test_a_closed_channel_takes_nothing_with_it(channel: BlockingChannel, name: str) -> None:
    declare_stream(channel, name)
    publish(channel, name, *TEN)
    other = channel.connection.channel()
    other.basic_qos(prefetch_count=5)
    read(other, name, stream_offset="first").wait_for(5)
    other.close()
    assert from_place(channel, name, "first") == TEN


def test_many_readers_of_a_long_stream(small: BrokerProcess, connect: Connect, name: str) -> None:
    channel = connect(small).channel()
    declare_stream(channel, name, stream_max_segment_size_bytes=100_000)
    for number in range(2000):
        channel.basic_publish("", name, b"%04d" % number * 100)
    readers = [read(channel, name, stream_offset=place) for place in ("first", 500, 1000, 1900)]
    wanted = [2000, 1500, 1000, 100]

    acknowledged = 0

    def drive() -> bool:
        nonlocal acknowledged
        newest = max(
            (r.deliveries[-1].method.delivery_tag for r in readers if r.deliveries), default=0
        )
        if newest > acknowledged:
            channel.basic_ack(newest, multiple=True)
            acknowledged = newest
        return [len(reader.deliveries) for reader in readers] == wanted

    wait_until(channel.connection, drive)
    for reader, count in zip(readers, wanted, strict=True):
        assert offsets(reader) == list(range(2000 - count, 2000))
    channel.queue_delete(name)


# ---- what stays


@restarts
def test_a_stream_survives(broker: BrokerProcess, connect: Connect, restart: Restart) -> None:
    channel = connect(broker).channel()
    channel.confirm_delivery()
    declare_stream(channel, "s")
    send(channel, "s", *TEN)
    channel.basic_publish("", "s", b"transient", BasicProperties(delivery_mode=1))
    read(channel, "s", stream_offset="first").wait_for(11)
    channel.basic_ack(0, multiple=True)
    restart(broker, channel)
    channel = connect(broker).channel()
    declare_stream(channel, "s")
    assert ready_count(channel, "s") == 11
    consumer = read(channel, "s", stream_offset="first")
    publish(channel, "s", "new")
    consumer.wait_for(12)
    assert [body.decode() for body in consumer.bodies] == [*TEN, "transient", "new"]
    assert offsets(consumer) == list(range(12))
    assert from_place(channel, "s", "last") == ["new"]


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({"max_length_bytes": 300_000}, 400),
        ({"max_length": 150, "stream_max_segment_size_bytes": 50_000}, 250),
    ],
)
def test_the_oldest_segments_go(
    small: BrokerProcess, connect: Connect, name: str, limits: dict[str, object], most: int
) -> None:
    channel = connect(small).channel()
    declare_stream(channel, name, **limits)
    slow = read(channel, name, stream_offset="first")
    for _ in range(1000):
        channel.basic_publish("", name, bytes(1000))
    assert 100 < eventually(lambda: ready_count(channel, name)) < most
    assert cast("int", row(small, name)["disk_bytes"]) < most * 1200

    def is_at_the_end() -> bool:
        channel.basic_ack(0, multiple=True)
        return bool(slow.deliveries) and offsets(slow)[-1] == 999

    wait_until(channel.connection, is_at_the_end)
    assert offsets(slow) == sorted(offsets(slow))
    assert len(slow.deliveries) < 1000  # what is gone was left out
    consumer = read(channel, name, stream_offset="first")
    consumer.wait_for(100)
    assert offsets(consumer)[0] == 1000 - ready_count(channel, name)
    channel.queue_delete(name)


def test_a_policy_bounds_a_stream(small: BrokerProcess, connect: Connect, name: str) -> None:
    channel = connect(small).channel()
    declare_stream(channel, name, stream_max_segment_size_bytes=50_000)
    for _ in range(400):
        channel.basic_publish("", name, bytes(1000))
    assert ready_count(channel, name) == 400
    ask(
        small.data_dir,
        "set_policy",
        vhost="/",
        name="short",
        pattern=f"^{name}$",
        apply_to="streams",
        definition={"max-age": "1s", "message-ttl": 1},
    )
    second = time.time() + 1.1
    eventually(lambda: time.time() > second)
    publish(channel, name, *["x" * 60_000] * 2)
    assert eventually(lambda: ready_count(channel, name) < 10)
    ask(small.data_dir, "clear_policy", vhost="/", name="short")
    channel.queue_delete(name)


# ---- filters


def publish_filtered(channel: BlockingChannel, queue: str, *values: str | None) -> None:
    for value in values:
        headers = {} if value is None else {"x-stream-filter-value": value}
        send(channel, queue, str(value), headers=headers)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"stream_filter": "eu"}, ["eu", "eu"]),
        ({"stream_filter": ["eu", "us"]}, ["eu", "us", "eu"]),
        ({"stream_filter": ["us"], "stream_match_unfiltered": True}, ["None", "us", "None"]),
    ],
)
def test_a_filter(
    channel: BlockingChannel, name: str, values: dict[str, object], expected: list[str]
) -> None:
    declare_stream(channel, name)
    channel.basic_qos(prefetch_count=1)
    early = read(channel, name, **values)
    publish_filtered(channel, name, "eu", None, "asia", *["asia"] * 3000, "us", "eu", None)
    late = read(channel, name, stream_offset="first", **values)

    def step() -> bool:
        channel.basic_ack(0, multiple=True)
        return len(early.deliveries) == len(late.deliveries) == len(expected)

    wait_until(channel.connection, step)
    ready_count(channel, name)
    for consumer in (early, late):
        assert [body.decode() for body in consumer.bodies] == expected


def test_a_filter_moves_a_named_consumer_on(
    shared_broker: BrokerProcess, channel: BlockingChannel, name: str
) -> None:
    declare_stream(channel, name)
    consumer = named(channel, name, "a", stream_filter="eu")
    publish_filtered(channel, name, "us", "eu", "us", "us")
    consumer.wait_for(1)
    channel.basic_ack(0, multiple=True)
    assert eventually(lambda: lags(shared_broker, name) == {"a": 4})


def test_a_filter_that_is_none(channel: BlockingChannel, name: str) -> None:
    declare_stream(channel, name)
    text = reply_text(lambda: read(channel, name, stream_filter=[1]))
    assert text == (
        f"PRECONDITION_FAILED - invalid arg 'x-stream-filter' for queue '{name}' in vhost '/': "
        "not a string, nor an array of strings"
    )


# ---- named consumers


def lags(broker: BrokerProcess, queue: str) -> dict[object, object]:
    rows = ask(broker.data_dir, "list_stream_offsets", queue=queue)
    return {row["name"]: row["offset"] for row in cast("list[dict[str, object]]", rows)}


def named(channel: BlockingChannel, queue: str, name: str, **values: object) -> Consumer:
    return read(channel, queue, stream_consumer_name=name, **values)


@restarts
def test_a_named_consumer_goes_on_where_it_was(
    broker: BrokerProcess, connect: Connect, restart: Restart
) -> None:
    channel = connect(broker).channel()
    channel.confirm_delivery()
    declare_stream(channel, "s")
    publish(channel, "s", *TEN)
    consumer = named(channel, "s", "reader", stream_offset="first")
    consumer.wait_for(10)
    for number in (0, 1, 2, 4):
        channel.basic_ack(consumer.deliveries[number].method.delivery_tag)
    assert eventually(lambda: lags(broker, "s")) == {"reader": 3}
    eventually(
        lambda: (
            [read_offsets(path) for path in broker.data_dir.glob("vhosts/*/queues/*/offsets")]
            == [{"reader": 3}]
        )
    )
    restart(broker, channel)
    channel = connect(broker).channel()
    channel.basic_qos(prefetch_count=100)
    consumer = named(channel, "s", "reader")
    consumer.wait_for(7)
    assert offsets(consumer) == list(range(3, 10))
    assert lags(broker, "s") == {"reader": 3}


def test_what_a_named_consumer_gives_back_comes_again(
    shared_broker: BrokerProcess, channel: BlockingChannel, name: str
) -> None:
    declare_stream(channel, name)
    first = named(channel, name, "a")
    publish(channel, name, *TEN)
    tags = [delivery.method.delivery_tag for delivery in first.wait_for(10)]
    channel.basic_reject(tags[0], requeue=False)
    channel.basic_nack(tags[1], requeue=False)
    channel.basic_ack(tags[2])
    channel.basic_nack(tags[3], requeue=True)
    channel.basic_ack(tags[9], multiple=False)
    channel.basic_cancel(first.tag)
    assert lags(shared_broker, name) == {"a": 3}
    second = named(channel, name, "a")
    second.wait_for(7)
    assert offsets(second) == list(range(3, 10))
    third = named(channel, name, "a", stream_offset=8)
    third.wait_for(2)
    assert offsets(third) == [8, 9]


def test_a_new_name_begins_with_what_is_new_and_is_remembered(
    shared_broker: BrokerProcess, channel: BlockingChannel, name: str
) -> None:
    declare_stream(channel, name)
    publish(channel, name, *TEN)
    consumer = Consumer(
        channel,
        name,
        consumer_tag="tag",
        arguments={"x-stream-automatic-offset-tracking": True},
    )
    channel.basic_cancel(consumer.tag)
    publish(channel, name, "missed")
    assert lags(shared_broker, name) == {"tag": 10}
    assert named(channel, name, "tag").wait_for(1)[0].body == b"missed"


def test_operators_set_and_reset_offsets(
    shared_broker: BrokerProcess, channel: BlockingChannel, name: str
) -> None:
    def leveret(*words: str) -> Result:
        command = ["stream", "offsets", *words, "--data-dir", str(shared_broker.data_dir)]
        return CliRunner().invoke(main, command)

    declare_stream(channel, name)
    publish(channel, name, *TEN)
    ready_count(channel, name)
    assert leveret("set", name, "reader", "4").exit_code == 0
    assert leveret("list", name).output.split() == ["name", "offset", "lag", "reader", "4", "6"]
    consumer = named(channel, name, "reader")
    consumer.wait_for(6)
    assert offsets(consumer)[0] == 4
    assert leveret("reset", name, "reader").exit_code == 0
    assert lags(shared_broker, name) == {}
    assert "knows no consumer called 'reader'" in leveret("reset", name, "reader").output
    declare(channel, f"{name}-q")
    assert "is not a stream" in leveret("list", f"{name}-q").output
    channel.queue_delete(f"{name}-q")


def test_a_name_that_is_none(channel: BlockingChannel, name: str) -> None:
    declare_stream(channel, name)
    text = reply_text(lambda: named(channel, name, ""))
    assert text == (
        f"PRECONDITION_FAILED - invalid arg 'x-stream-consumer-name' for queue '{name}' in vhost "
        "'/': not a name of 1 to 255 bytes"
    )


# ---- beside other queues


def test_operators_see_it_and_copy_from_it(
    shared_broker: BrokerProcess, channel: BlockingChannel, name: str
) -> None:
    declare_stream(channel, name)
    channel.queue_declare(f"{name}-copy", durable=True)
    publish(channel, name, *TEN)
    read(channel, name, stream_offset="first").wait_for(10)
    shown = row(shared_broker, name)
    assert (shown["type"], shown["messages"], shown["messages_unacknowledged"]) == (
        "stream",
        10,
        10,
    )
    assert (shown["first_offset"], shown["next_offset"]) == (0, 10)
    assert cast("int", shown["disk_bytes"]) > 0
    ask(shared_broker.data_dir, "copy_messages", queue=name, to_queue=f"{name}-copy")
    copied = take(channel, f"{name}-copy")
    assert (copied.body, copied.headers["x-stream-offset"]) == ("0", 0)
    with pytest.raises(Exception, match="is a stream: its messages can only be copied"):
        ask(shared_broker.data_dir, "move_messages", queue=name, to_queue=f"{name}-copy")
    channel.queue_delete(f"{name}-copy")


def test_a_stream_gets_dead_letters(channel: BlockingChannel, name: str) -> None:
    declare_stream(channel, name)
    source = declare(channel, f"{name}-q", dead_letter_exchange="", dead_letter_routing_key=name)
    consumer = read(channel, name)
    publish(channel, source, "bad")
    channel.basic_reject(channel.basic_get(source)[0].delivery_tag, requeue=False)
    (letter,) = consumer.wait_for(1)
    assert letter.properties.headers["x-stream-offset"] == 0
    assert letter.properties.headers["x-first-death-queue"] == source
    channel.queue_delete(source)


def test_a_deleted_stream_cancels_its_consumers(channel: BlockingChannel, name: str) -> None:
    declare_stream(channel, name)
    publish(channel, name, *TEN)
    consumer = read(channel, name, stream_offset="first")
    consumer.wait_for(10)
    assert channel.queue_delete(name).method.message_count == 10
    wait_until(channel.connection, lambda: consumer.tag not in channel.consumer_tags)
    declare_stream(channel, name)
    assert ready_count(channel, name) == 0
