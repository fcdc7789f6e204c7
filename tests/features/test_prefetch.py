"""basic.qos: how much a consumer, or a channel, may hold."""

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ConnectionClosedByBroker

from tests.clients.blocking import Consumer, publish, ready_count
from tests.conftest import BrokerProcess
from tests.features.steps import Connect, declare, fetch


def ack(
    channel: BlockingChannel, consumer: Consumer, place: int, *, multiple: bool = False
) -> None:
    channel.basic_ack(consumer.deliveries[place].method.delivery_tag, multiple)


def held(channel: BlockingChannel, name: str, *consumers: Consumer) -> list[int]:
    """How much each consumer was sent by now."""
    ready_count(channel, name)
    channel.connection.process_data_events(time_limit=0)
    return [len(consumer.deliveries) for consumer in consumers]


def test_the_limit_is_of_each_consumer_to_come(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    channel.basic_qos(prefetch_count=2)
    two = Consumer(channel, name)
    channel.basic_qos(prefetch_count=3)
    three = Consumer(channel, name)
    publish(channel, name, *map(str, range(10)))
    assert ready_count(channel, name) == 5
    assert held(channel, name, two, three) == [2, 3]
    ack(channel, two, 0)
    assert ready_count(channel, name) == 4
    assert held(channel, name, two, three) == [3, 3]


def test_none_is_no_limit(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    channel.basic_qos(prefetch_count=1)
    channel.basic_qos(prefetch_count=0)
    consumer = Consumer(channel, name)
    publish(channel, name, *map(str, range(300)))
    consumer.wait_for(300)


def test_gets_do_not_count(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    publish(channel, name, *map(str, range(5)))
    for _ in range(2):
        assert fetch(channel, name) is not None
    channel.basic_qos(prefetch_count=1)
    consumer = Consumer(channel, name)
    consumer.wait_for(1)
    assert ready_count(channel, name) == 2
    channel.basic_qos(prefetch_count=2, global_qos=True)
    other = Consumer(channel, name)
    other.wait_for(1)
    assert ready_count(channel, name) == 1


def test_a_consumer_without_acks_has_no_limit(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    channel.basic_qos(prefetch_count=1)
    consumer = Consumer(channel, name, auto_ack=True)
    publish(channel, name, *map(str, range(50)))
    consumer.wait_for(50)


def test_the_limit_of_a_channel_is_shared(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    other = declare(channel, f"{name}-other")
    channel.basic_qos(prefetch_count=3, global_qos=True)
    consumers = [Consumer(channel, queue) for queue in (name, other)]
    publish(channel, name, *map(str, range(5)))
    publish(channel, other, *map(str, range(5)))
    assert ready_count(channel, name) + ready_count(channel, other) == 7
    assert sum(held(channel, name, *consumers)) == 3
    channel.basic_ack(0, multiple=True)
    assert ready_count(channel, name) + ready_count(channel, other) == 4


def test_changing_the_limit_of_a_channel_acts_at_once(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    channel.basic_qos(prefetch_count=1, global_qos=True)
    consumer = Consumer(channel, name)
    publish(channel, name, *map(str, range(5)))
    assert ready_count(channel, name) == 4
    channel.basic_qos(prefetch_count=3, global_qos=True)
    assert ready_count(channel, name) == 2
    channel.basic_qos(prefetch_count=0, global_qos=True)
    assert ready_count(channel, name) == 0
    consumer.wait_for(5)


def test_both_limits_apply(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    channel.basic_qos(prefetch_count=4, global_qos=True)
    channel.basic_qos(prefetch_count=3)
    one, two = Consumer(channel, name), Consumer(channel, name)
    publish(channel, name, *map(str, range(10)))
    assert ready_count(channel, name) == 6
    assert sorted(held(channel, name, one, two)) in ([1, 3], [2, 2])
    channel.basic_qos(prefetch_count=0, global_qos=True)
    assert ready_count(channel, name) == 4
    assert held(channel, name, one, two) == [3, 3]


def test_requeueing_makes_room(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    channel.basic_qos(prefetch_count=1)
    consumer = Consumer(channel, name)
    publish(channel, name, "a", "b")
    consumer.wait_for(1)
    channel.basic_nack(consumer.deliveries[0].method.delivery_tag, requeue=True)
    consumer.wait_for(2)
    assert consumer.bodies == [b"a", b"a"]
    channel.basic_reject(consumer.deliveries[1].method.delivery_tag, requeue=False)
    consumer.wait_for(3)
    assert consumer.bodies == [b"a", b"a", b"b"]


def test_what_a_cancelled_consumer_holds_is_nobodys_limit(
    channel: BlockingChannel, name: str
) -> None:
    declare(channel, name)
    channel.basic_qos(prefetch_count=1)
    first = Consumer(channel, name)
    publish(channel, name, "a", "b")
    first.wait_for(1)
    channel.basic_cancel(first.tag)
    second = Consumer(channel, name)
    assert second.wait_for(1)[0].body == b"b"


def test_bytes_are_not_implemented(shared_broker: BrokerProcess, connect: Connect) -> None:
    channel = connect(shared_broker).channel()
    with pytest.raises(
        ConnectionClosedByBroker, match=r"540.*NOT_IMPLEMENTED - prefetch_size!=0 \(7\)"
    ):
        channel.basic_qos(prefetch_size=7)


def test_a_quorum_queue_has_no_shared_limit(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    channel = connect(shared_broker).channel()
    declare(channel, name, queue_type="quorum")
    channel.basic_qos(prefetch_count=1, global_qos=True)
    with pytest.raises(
        ConnectionClosedByBroker,
        match=f"540.*NOT_IMPLEMENTED - queue '{name}' in vhost '/' does not support global qos",
    ):
        Consumer(channel, name)
