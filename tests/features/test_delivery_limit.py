"""x-delivery-limit, and the headers that tell how often a message was tried."""

from collections.abc import Callable

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.clients.blocking import Consumer, publish, ready_count
from tests.conftest import BrokerProcess
from tests.features.steps import (
    Connect,
    Fetched,
    Restart,
    declare,
    declare_with_dead,
    fetch,
    restarts,
    take,
)
from tests.waiting import eventually

Settle = Callable[[BlockingChannel, int], None]

types = pytest.mark.parametrize("queue_type", ["classic", "quorum"])


def reject(channel: BlockingChannel, tag: int) -> None:
    channel.basic_reject(tag, requeue=True)


def nack(channel: BlockingChannel, tag: int) -> None:
    channel.basic_nack(tag, requeue=True)


def recover(channel: BlockingChannel, tag: int) -> None:
    channel.basic_recover(requeue=True)


def counts(fetched: Fetched | None) -> tuple[object, object]:
    """x-delivery-count and x-acquired-count."""
    assert fetched is not None
    return fetched.headers.get("x-delivery-count"), fetched.headers.get("x-acquired-count")


@types
def test_one_rejection_more_than_the_limit(
    channel: BlockingChannel, name: str, queue_type: str
) -> None:
    dead = declare_with_dead(channel, name, queue_type=queue_type, delivery_limit=2)
    publish(channel, name, "a", "b")
    seen = []
    for _ in range(3):
        fetched = fetch(channel, name)
        assert fetched is not None
        seen.append((fetched.body, *counts(fetched)))
        reject(channel, fetched.tag)
    assert seen == [("a", None, None), ("a", 1, 1), ("a", 2, 2)]
    letter = take(channel, dead)
    (death,) = letter.headers["x-death"]  # type: ignore[misc]
    assert (letter.body, death["reason"], death["queue"]) == ("a", "delivery_limit", name)
    assert counts(letter) == (None, None)
    assert counts(fetch(channel, name)) == (None, None)


def test_a_limit_of_nothing(channel: BlockingChannel, name: str) -> None:
    dead = declare_with_dead(channel, name, delivery_limit=0)
    publish(channel, name, "a")
    fetched = fetch(channel, name)
    assert fetched is not None
    assert not fetched.redelivered
    reject(channel, fetched.tag)
    assert take(channel, dead).body == "a"


def test_without_a_dead_letter_exchange_it_is_gone(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, delivery_limit=0)
    publish(channel, name, "a")
    fetched = fetch(channel, name)
    assert fetched is not None
    reject(channel, fetched.tag)
    assert ready_count(channel, name) == 0


@types
@pytest.mark.parametrize("give_back", [nack, recover])
def test_giving_back_is_no_failure(
    channel: BlockingChannel, name: str, queue_type: str, give_back: Settle
) -> None:
    declare(channel, name, queue_type=queue_type, delivery_limit=1)
    publish(channel, name, "a")
    for acquired in range(5):
        fetched = fetch(channel, name)
        assert counts(fetched) == ((0, acquired) if acquired else (None, None))
        assert fetched is not None
        give_back(channel, fetched.tag)
    assert ready_count(channel, name) == 1


def test_losing_a_channel_or_connection_is_one(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    channel = connect(shared_broker).channel()
    dead = declare_with_dead(channel, name, delivery_limit=2)
    publish(channel, name, "a", "b")
    consumer_channel = connect(shared_broker).channel()
    Consumer(consumer_channel, name).wait_for(2)
    consumer_channel.close()
    connection = connect(shared_broker)
    consumer = Consumer(connection.channel(), name)
    assert [delivery.properties.headers for delivery in consumer.wait_for(2)] == [
        {"x-acquired-count": 1, "x-delivery-count": 1}
    ] * 2
    connection.close()
    fetched = eventually(lambda: fetch(channel, name))
    assert counts(fetched) == (2, 2)
    reject(channel, fetched.tag)
    assert take(channel, dead).body == "a"
    assert take(channel, name).body == "b"


def test_a_quorum_queue_counts_without_a_limit(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, queue_type="quorum")
    publish(channel, name, "a")
    for settle in (reject, nack, reject):
        fetched = fetch(channel, name)
        assert fetched is not None
        settle(channel, fetched.tag)
    assert counts(fetch(channel, name)) == (2, 3)


def test_a_classic_queue_does_not_count_for_nothing(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    publish(channel, name, "a")
    fetched = fetch(channel, name)
    assert fetched is not None
    reject(channel, fetched.tag)
    assert counts(fetch(channel, name)) == (None, None)


@types
@restarts
def test_counts_survive_a_restart(
    shared_broker: BrokerProcess, connect: Connect, name: str, restart: Restart, queue_type: str
) -> None:
    channel = connect(shared_broker).channel()
    channel.confirm_delivery()
    dead = declare_with_dead(channel, name, queue_type=queue_type, delivery_limit=2)
    publish(channel, name, "a", "b")
    for settle in (nack, reject, reject):
        fetched = fetch(channel, name)
        assert fetched is not None
        settle(channel, fetched.tag)
    ready_count(channel, name)
    restart(shared_broker, channel)
    channel = connect(shared_broker).channel()
    fetched = fetch(channel, name)
    assert fetched is not None
    assert (fetched.body, *counts(fetched)) == ("a", 2, 3)
    reject(channel, fetched.tag)
    assert take(channel, dead).body == "a"
    assert counts(fetch(channel, name)) == (None, None)


def test_what_goes_down_with_the_broker_has_failed(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    channel = connect(shared_broker).channel()
    channel.confirm_delivery()
    dead = declare_with_dead(channel, name, delivery_limit=1)
    publish(channel, name, "a")
    fetched = fetch(channel, name)
    assert fetched is not None
    reject(channel, fetched.tag)
    assert counts(fetch(channel, name)) == (1, 1)
    ready_count(channel, name)
    shared_broker.kill()
    shared_broker.start()
    channel = connect(shared_broker).channel()
    assert fetch(channel, name) is None
    assert take(channel, dead).body == "a"
    assert ready_count(channel, name) == 0


def test_a_transient_queue_has_a_limit_too(channel: BlockingChannel, name: str) -> None:
    dead = declare(channel, f"{name}-dead")
    channel.queue_declare(
        name,
        exclusive=True,
        arguments={
            "x-delivery-limit": 1,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": dead,
        },
    )
    publish(channel, name, "a")
    for expected in ((None, None), (1, 1)):
        fetched = fetch(channel, name)
        assert fetched is not None
        assert counts(fetched) == expected
        reject(channel, fetched.tag)
    letter = take(channel, dead)
    assert letter.body == "a"
    assert counts(letter) == (None, None)
