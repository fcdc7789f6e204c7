"""What is published arrives unchanged: bodies of any length, properties, headers, names."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.clients.blocking import Consumer
from tests.conftest import BrokerProcess

Connect = Callable[..., pika.BlockingConnection]
FRAME = 131_072 - 8
LENGTHS = [0, 1, FRAME - 1, FRAME, FRAME + 1, 2 * FRAME, 3 * FRAME + 17, 5 * 1024 * 1024]

HEADERS = {
    "string": "text",
    "empty": "",
    "umlaut": "größer 队列 🐇",
    "bytes": b"\x00\xff\xce",
    "true": True,
    "false": False,
    "zero": 0,
    "negative": -1,
    "32 bit": -(2**31),
    "64 bit": 2**62,
    "decimal": Decimal("3.14"),
    "none": None,
    "when": datetime(2024, 2, 29, 12, 30, 15, tzinfo=UTC),
    "list": [1, "two", None, [3], {"four": 4}],
    "table": {"inner": {"innermost": [True]}, "empty": {}},
    "schlüssel": 1,
}
PROPERTIES = pika.BasicProperties(
    content_type="application/json",
    content_encoding="gzip",
    headers=HEADERS,
    delivery_mode=2,
    priority=7,
    correlation_id="ä-1",
    reply_to="answers",
    expiration="600000",
    message_id="m" * 255,
    timestamp=1_700_000_000,
    type="order.created",
    user_id="guest",
    app_id="shop",
    cluster_id="c",
)


def body_of(length: int) -> bytes:
    return bytes(range(256)) * (length // 256) + bytes(length % 256)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_body_of_any_length_arrives_whole(
    channel: BlockingChannel, name: str, length: int
) -> None:
    channel.queue_declare(name, durable=True)
    channel.confirm_delivery()
    body = body_of(length)
    channel.basic_publish("", name, body, PROPERTIES, mandatory=True)
    channel.basic_publish("", name, b"next", mandatory=True)
    consumer = Consumer(channel, name)
    assert [len(received) for received in (d.body for d in consumer.wait_for(2))] == [length, 4]
    assert consumer.deliveries[0].body == body
    assert consumer.deliveries[0].properties == PROPERTIES


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("publisher_frame", "consumer_frame"), [(131_072, 4096), (4096, 131_072)])
def test_peers_may_use_frames_of_different_size(
    shared_broker: BrokerProcess,
    connect: Connect,
    name: str,
    publisher_frame: int,
    consumer_frame: int,
    length: int,
) -> None:
    publisher = connect(shared_broker, frame_max=publisher_frame).channel()
    reader = connect(shared_broker, frame_max=consumer_frame).channel()
    publisher.queue_declare(name)
    publisher.confirm_delivery()
    for _ in range(2):
        publisher.basic_publish("", name, body_of(length), mandatory=True)
    assert reader.basic_get(name)[2] == body_of(length)
    assert Consumer(reader, name).wait_for(1)[0].body == body_of(length)


def test_all_properties_and_types_of_headers_arrive_unchanged(
    channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name)
    channel.basic_publish("", name, b"", PROPERTIES)
    channel.basic_publish("", name, b"", pika.BasicProperties())
    assert channel.basic_get(name)[1] == PROPERTIES
    assert channel.basic_get(name)[1] == pika.BasicProperties()


@pytest.mark.parametrize("field", [*vars(PROPERTIES)])
def test_each_property_alone_arrives_unchanged(
    channel: BlockingChannel, name: str, field: str
) -> None:
    properties = pika.BasicProperties(**{field: getattr(PROPERTIES, field)})
    channel.queue_declare(name, exclusive=True)
    channel.basic_publish("", name, b"body", properties)
    _, received, body = channel.basic_get(name)
    assert (received, body) == (properties, b"body")


@pytest.mark.parametrize(
    "text", ["grüße", "队列", "🐇", "{curly}", "a b", "q" * 255, "é" * 127, "per%cent/sla#sh*"]
)
def test_names_of_any_text_work(channel: BlockingChannel, text: str) -> None:
    exchange, queue, tag = text, text, text
    channel.exchange_declare(exchange, "topic", auto_delete=True)
    assert channel.queue_declare(queue, exclusive=True).method.queue == queue
    channel.queue_bind(queue, exchange, text)
    channel.basic_publish(exchange, text, b"body", mandatory=True)
    method, _, _ = channel.basic_get(queue)
    assert (method.exchange, method.routing_key) == (exchange, text)
    consumer = Consumer(channel, queue, consumer_tag=tag)
    channel.basic_publish(exchange, text, b"body")
    [delivery] = consumer.wait_for(1)
    assert delivery.method.consumer_tag == tag
    assert (delivery.method.exchange, delivery.method.routing_key) == (exchange, text)
    channel.queue_delete(queue)
