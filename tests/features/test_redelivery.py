"""What comes back: at which place, in which order, to whom; and the client's flow control."""

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ConnectionClosedByBroker

from tests.clients.blocking import Consumer, drain, publish, ready_count, wait_until
from tests.conftest import BrokerProcess
from tests.features.steps import Connect, Fetched, Restart, declare, fetch, restarts

types = pytest.mark.parametrize("queue_type", ["classic", "quorum"])


def fetch_all(channel: BlockingChannel, queue: str, count: int) -> list[Fetched]:
    fetched = [fetch(channel, queue) for _ in range(count)]
    return [message for message in fetched if message is not None]


@types
def test_messages_come_back_to_their_place_whatever_the_order(
    channel: BlockingChannel, name: str, queue_type: str
) -> None:
    declare(channel, name, queue_type=queue_type)
    publish(channel, name, *"abcdefgh")
    held = fetch_all(channel, name, 6)
    for place in (4, 0, 2):
        channel.basic_nack(held[place].tag, requeue=True)
    again = fetch_all(channel, name, 5)
    assert [(message.body, message.redelivered) for message in again] == [
        ("a", True),
        ("c", True),
        ("e", True),
        ("g", False),
        ("h", False),
    ]
    channel.basic_nack(again[-1].tag, multiple=True, requeue=True)
    assert drain(channel, name) == list("abcdefgh")


def test_a_multiple_nack_leaves_later_ones(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    publish(channel, name, *"abcd")
    held = fetch_all(channel, name, 4)
    channel.basic_nack(held[1].tag, multiple=True, requeue=True)
    assert drain(channel, name) == ["a", "b"]
    channel.basic_ack(held[2].tag)
    channel.basic_reject(held[3].tag, requeue=True)
    assert drain(channel, name) == ["d"]


def test_a_consumer_gets_its_own_message_back(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    channel.basic_qos(prefetch_count=2)
    consumer = Consumer(channel, name)
    publish(channel, name, *"abc")
    first, second = consumer.wait_for(2)
    channel.basic_nack(first.method.delivery_tag, requeue=True)
    assert consumer.wait_for(3)[2].body == b"a"
    channel.basic_ack(second.method.delivery_tag)
    assert consumer.wait_for(4)[3].body == b"c"
    redelivered = [delivery.method.redelivered for delivery in consumer.deliveries]
    assert redelivered == [False, False, True, False]


@types
def test_recover_gives_everything_back(
    channel: BlockingChannel, name: str, queue_type: str
) -> None:
    declare(channel, name, queue_type=queue_type)
    publish(channel, name, *"abc")
    held = fetch_all(channel, name, 3)
    channel.basic_ack(held[1].tag)
    channel.basic_recover(requeue=True)
    again = fetch_all(channel, name, 2)
    assert [(message.body, message.redelivered) for message in again] == [("a", True), ("c", True)]
    channel.basic_recover(requeue=True)
    assert drain(channel, name) == ["a", "c"]


def test_recover_without_requeue_is_not_implemented(
    shared_broker: BrokerProcess, connect: Connect
) -> None:
    channel = connect(shared_broker).channel()
    with pytest.raises(ConnectionClosedByBroker, match=r"540.*NOT_IMPLEMENTED - requeue=false"):
        channel.basic_recover(requeue=False)


def test_a_closed_channel_and_connection_give_back(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    connection = connect(shared_broker)
    channel, other = connection.channel(), connect(shared_broker).channel()
    declare(channel, name)
    publish(channel, name, *"abcd")
    fetch_all(channel, name, 2)
    second = connection.channel()
    fetch_all(second, name, 1)
    channel.close()
    assert [message.body for message in fetch_all(other, name, 2)] == ["a", "b"]
    other.basic_recover(requeue=True)
    connection.close()
    wait_until(other.connection, lambda: ready_count(other, name) == 4)
    again = fetch_all(other, name, 4)
    assert [(message.body, message.redelivered) for message in again] == [
        ("a", True),
        ("b", True),
        ("c", True),
        ("d", False),
    ]


@restarts
def test_order_and_flag_survive_a_restart(
    shared_broker: BrokerProcess, connect: Connect, name: str, restart: Restart
) -> None:
    channel = connect(shared_broker).channel()
    channel.confirm_delivery()
    declare(channel, name)
    publish(channel, name, *"abcdef")
    held = fetch_all(channel, name, 4)
    channel.basic_ack(held[1].tag)
    channel.basic_nack(held[2].tag, requeue=True)
    ready_count(channel, name)
    restart(shared_broker, channel)
    channel = connect(shared_broker).channel()
    again = fetch_all(channel, name, 5)
    assert [(message.body, message.redelivered) for message in again] == [
        ("a", True),
        ("c", True),
        ("d", True),
        ("e", False),
        ("f", False),
    ]


# ---- channel.flow


def test_a_client_can_hold_its_deliveries(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    other = channel.connection.channel()
    consumer = Consumer(channel, name, auto_ack=True)
    assert channel.flow(False) is False
    publish(other, name, *"abc")
    assert ready_count(other, name) == 3
    assert fetch(other, name) is not None
    assert channel.flow(True) is True
    consumer.wait_for(2)
    assert consumer.bodies == [b"b", b"c"]


def test_a_held_channel_leaves_messages_to_others(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    other = channel.connection.channel()
    held, ready = Consumer(channel, name, auto_ack=True), Consumer(other, name, auto_ack=True)
    channel.flow(False)
    publish(other, name, *"abcd")
    ready.wait_for(4)
    assert held.bodies == []
    channel.flow(True)
    publish(other, name, "e", "f")
    held.wait_for(1)
