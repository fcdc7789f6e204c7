"""x-max-length and x-max-length-bytes: how much may be ready, and what gives way."""

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.clients.blocking import Consumer, drain, publish, ready_count
from tests.conftest import BrokerProcess
from tests.features.steps import (
    Connect,
    Restart,
    declare,
    declare_with_dead,
    fetch,
    restarts,
    send,
    take,
    take_bodies,
)


def test_the_oldest_give_way(channel: BlockingChannel, name: str) -> None:
    dead = declare_with_dead(channel, name, max_length=2)
    publish(channel, name, *"abcde")
    assert ready_count(channel, name) == 2
    assert take_bodies(channel, dead, 3) == ["a", "b", "c"]
    assert drain(channel, name) == ["d", "e"]


def test_without_a_dead_letter_exchange_they_are_gone(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, max_length=2)
    publish(channel, name, *"abcde")
    assert drain(channel, name) == ["d", "e"]


def test_bytes_of_bodies_count(channel: BlockingChannel, name: str) -> None:
    dead = declare_with_dead(channel, name, max_length_bytes=10)
    send(channel, name, "four", "five5", "six666", headers={"h": "x" * 100})
    assert take_bodies(channel, dead, 2) == ["four", "five5"]
    publish(channel, name, "", "four")
    assert ready_count(channel, name) == 3
    publish(channel, name, "x")
    assert drain(channel, name) == ["", "four", "x"]


def test_a_message_larger_than_the_limit_does_not_stay(channel: BlockingChannel, name: str) -> None:
    dead = declare_with_dead(channel, name, max_length_bytes=3)
    publish(channel, name, "a", "large", "b")
    assert take_bodies(channel, dead, 2) == ["a", "large"]
    assert drain(channel, name) == ["b"]


def test_the_first_limit_reached_counts(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, max_length=3, max_length_bytes=5)
    publish(channel, name, "1", "2", "3", "4")
    assert drain(channel, name) == ["2", "3", "4"]
    publish(channel, name, "1", "22", "333")
    assert drain(channel, name) == ["22", "333"]


def test_what_is_delivered_does_not_count(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, max_length=2, max_length_bytes=2)
    publish(channel, name, "a", "b")
    held = fetch(channel, name)
    assert held is not None
    publish(channel, name, "c")
    assert ready_count(channel, name) == 2
    channel.basic_ack(held.tag)
    assert drain(channel, name) == ["b", "c"]


@pytest.mark.parametrize("limit", [{"max_length": 2}, {"max_length_bytes": 2}])
def test_a_requeued_message_is_the_oldest(
    channel: BlockingChannel, name: str, limit: dict[str, object]
) -> None:
    dead = declare_with_dead(channel, name, **limit)
    publish(channel, name, "a")
    held = fetch(channel, name)
    assert held is not None
    publish(channel, name, "b", "c")
    channel.basic_nack(held.tag, requeue=True)
    assert take(channel, dead).body == "a"
    assert drain(channel, name) == ["b", "c"]


@pytest.mark.parametrize("limit", [{"max_length": 0}, {"max_length_bytes": 0}])
def test_nothing_may_wait(channel: BlockingChannel, name: str, limit: dict[str, object]) -> None:
    dead = declare_with_dead(channel, name, **limit)
    publish(channel, name, "nobody")
    assert take(channel, dead).body == "nobody"
    channel.basic_qos(prefetch_count=1)
    consumer = Consumer(channel, name)
    publish(channel, name, "first")
    (first,) = consumer.wait_for(1)
    publish(channel, name, "second")
    assert take(channel, dead).body == "second"
    channel.basic_ack(first.method.delivery_tag)
    publish(channel, name, "third")
    consumer.wait_for(2)
    assert consumer.bodies == [b"first", b"third"]


def test_a_full_queue_keeps_what_a_consumer_takes(channel: BlockingChannel, name: str) -> None:
    dead = declare_with_dead(channel, name, max_length=1)
    consumer = Consumer(channel, name, auto_ack=True)
    publish(channel, name, *map(str, range(200)))
    assert ready_count(channel, name) == 0
    consumer.wait_for(200 - ready_count(channel, dead))
    assert consumer.bodies == [str(n).encode() for n in range(200)]


def test_purging_makes_room(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, max_length_bytes=3)
    publish(channel, name, "abc")
    assert channel.queue_purge(name).method.message_count == 1
    publish(channel, name, "a", "b", "c")
    assert drain(channel, name) == ["a", "b", "c"]


@restarts
def test_limits_hold_over_a_restart(
    shared_broker: BrokerProcess, connect: Connect, name: str, restart: Restart
) -> None:
    channel = connect(shared_broker).channel()
    channel.confirm_delivery()
    counted = declare_with_dead(channel, name, max_length=3)
    sized = declare_with_dead(channel, f"{name}-bytes", max_length_bytes=4)
    publish(channel, name, *"abcd")
    publish(channel, f"{name}-bytes", "aa", "bb", "cc")
    held = fetch(channel, f"{name}-bytes")
    assert held is not None
    restart(shared_broker, channel)
    channel = connect(shared_broker).channel()
    assert ready_count(channel, name) == 3
    assert ready_count(channel, f"{name}-bytes") == 2
    assert take(channel, counted).body == "a"
    assert take(channel, sized).body == "aa"
    publish(channel, name, "e")
    publish(channel, f"{name}-bytes", "d")
    assert take(channel, counted).body == "b"
    assert take(channel, sized).body == "bb"
    assert drain(channel, name) == ["c", "d", "e"]
    assert drain(channel, f"{name}-bytes") == ["cc", "d"]


def test_a_transient_queue_has_limits_too(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True, arguments={"x-max-length": 7})
    for number in range(20):
        channel.basic_publish("", name, str(number).encode())
    assert drain(channel, name) == [str(number) for number in range(13, 20)]
