"""Consumers: priorities, exclusive ones, and being told that the queue is gone."""

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic

from tests.clients.blocking import Consumer, publish, ready_count, wait_until
from tests.conftest import BrokerProcess
from tests.features.steps import Connect, declare, fetch, reply_text


def test_the_highest_priority_gets_all_it_can_take(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    channel.basic_qos(prefetch_count=2)
    low, high = (
        Consumer(channel, name, arguments={"x-priority": priority}) for priority in (-5, 10)
    )
    plain = Consumer(channel, name)
    publish(channel, name, *map(str, range(5)))
    assert ready_count(channel, name) == 0
    low.wait_for(1)
    assert [consumer.bodies for consumer in (high, plain, low)] == [
        [b"0", b"1"],
        [b"2", b"3"],
        [b"4"],
    ]
    channel.basic_ack(high.deliveries[0].method.delivery_tag)
    publish(channel, name, "5", "6")
    assert high.wait_for(3)[-1].body == b"5"
    assert low.wait_for(2)[-1].body == b"6"


def test_equals_take_turns(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    consumers = [
        Consumer(channel, name, auto_ack=True, arguments={"x-priority": 3}) for _ in range(3)
    ]
    publish(channel, name, *map(str, range(9)))
    for consumer in consumers:
        consumer.wait_for(3)
    assert sorted(consumer.bodies for consumer in consumers) == [
        [b"%d" % number for number in range(first, 9, 3)] for first in range(3)
    ]


def test_on_one_channel_the_order_holds_whoever_is_next(
    channel: BlockingChannel, name: str
) -> None:
    received = []

    def note(_: object, method: Basic.Deliver, __: object, body: bytes) -> None:
        received.append((method.consumer_tag, body))

    declare(channel, name)
    for tag in ("a", "b", "c"):
        channel.basic_consume(name, note, auto_ack=True, consumer_tag=tag)
    channel.tx_select()
    publish(channel, name, *map(str, range(6)))
    channel.tx_commit()
    wait_until(channel.connection, lambda: len(received) == 6)
    assert received == list(zip("abcabc", (b"0", b"1", b"2", b"3", b"4", b"5"), strict=True))


@pytest.mark.parametrize("priority", [2**40, -(2**40), 0])
def test_priorities_are_integers_of_any_size(
    channel: BlockingChannel, name: str, priority: int
) -> None:
    declare(channel, name)
    Consumer(channel, name, arguments={"x-priority": priority})


def test_a_priority_that_is_none(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    text = reply_text(lambda: Consumer(channel, name, arguments={"x-priority": "high"}))
    assert text == (
        f"PRECONDITION_FAILED - invalid arg 'x-priority' for queue '{name}' in vhost '/': "
        '"expected integer, got longstr"'
    )


# ---- exclusive


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (True, True)])
def test_an_exclusive_consumer_is_alone(
    shared_broker: BrokerProcess, connect: Connect, name: str, first: bool, second: bool
) -> None:
    connection = connect(shared_broker)
    channel, other = connection.channel(), connection.channel()
    declare(channel, name)
    consumer = Consumer(channel, name, exclusive=first, auto_ack=True)
    text = reply_text(lambda: Consumer(other, name, exclusive=second))
    assert text == f"ACCESS_REFUSED - queue '{name}' in vhost '/' in exclusive use"
    publish(channel, name, "a")
    consumer.wait_for(1)
    channel.basic_cancel(consumer.tag)
    Consumer(connection.channel(), name, exclusive=second)


def test_others_may_get_beside_an_exclusive_consumer(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    channel, other = connect(shared_broker).channel(), connect(shared_broker).channel()
    declare(channel, name)
    channel.basic_qos(prefetch_count=1)
    consumer = Consumer(channel, name, exclusive=True)
    publish(channel, name, "a", "b")
    consumer.wait_for(1)
    fetched = fetch(other, name)
    assert fetched is not None
    assert fetched.body == "b"


# ---- told that it is over


class Cancelled(Consumer):
    """A consumer that notes which of its tags the broker cancelled."""

    def __init__(self, channel: BlockingChannel, queue: str, **options: object) -> None:
        self.cancelled: list[str] = []
        channel.add_on_cancel_callback(
            lambda frame: self.cancelled.append(frame.method.consumer_tag)
        )
        super().__init__(channel, queue, **options)


def test_a_deleted_queue_cancels_its_consumers(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    connection, other = connect(shared_broker), connect(shared_broker).channel()
    channel = connection.channel()
    channel.basic_qos(prefetch_count=1)
    declare(channel, name)
    consumer = Cancelled(channel, name)
    publish(channel, name, "a", "b")
    (held,) = consumer.wait_for(1)
    assert other.queue_delete(name).method.message_count == 1
    wait_until(connection, lambda: consumer.cancelled)
    assert consumer.cancelled == [consumer.tag]
    channel.basic_ack(held.method.delivery_tag)
    declare(channel, name)
    Consumer(channel, name, consumer_tag=consumer.tag)
    publish(channel, name, "c")
    assert ready_count(channel, name) == 0


def test_a_client_that_does_not_understand_is_not_told(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    properties = {"capabilities": {"consumer_cancel_notify": False}}
    connection = connect(shared_broker, client_properties=properties)
    other = connect(shared_broker).channel()
    channel = connection.channel()
    declare(channel, name)
    consumer = Cancelled(channel, name)
    other.queue_delete(name)
    declare(channel, name)
    assert consumer.cancelled == []


def test_an_auto_delete_queue_goes_with_its_last_consumer(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    connection: pika.BlockingConnection = connect(shared_broker)
    channel, other = connection.channel(), connection.channel()
    channel.queue_declare(name, auto_delete=True)
    publish(channel, name, "a")
    fetched = fetch(channel, name)
    assert fetched is not None
    channel.basic_nack(fetched.tag)
    first, _ = Consumer(channel, name), Consumer(other, name)
    channel.basic_cancel(first.tag)
    assert ready_count(channel, name) == 0
    other.close()
    text = reply_text(lambda: ready_count(channel, name))
    assert text == f"NOT_FOUND - no queue '{name}' in vhost '/'"
