"""x-delayed-retry-...: returned messages wait before their next try."""

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
    take,
    wait_for_message_death,
)
from tests.waiting import eventually

LONG = 600_000


def give_back(channel: BlockingChannel, queue: str, how: str) -> None:
    """Get a message and return it by reject (a failure) or nack."""
    fetched = eventually(lambda: fetch(channel, queue))
    settle = {"reject": channel.basic_reject, "nack": channel.basic_nack}[how]
    settle(fetched.tag, requeue=True)


@pytest.mark.parametrize(
    ("retry_type", "how", "waits"),
    [
        ("all", "reject", True),
        ("all", "nack", True),
        ("failed", "reject", True),
        ("failed", "nack", False),
        ("returned", "reject", False),
        ("returned", "nack", True),
        ("disabled", "reject", False),
        ("disabled", "nack", False),
    ],
)
def test_which_messages_wait(
    channel: BlockingChannel, name: str, retry_type: str, how: str, waits: bool
) -> None:
    declare(channel, name, delayed_retry_type=retry_type, delayed_retry_min=LONG)
    publish(channel, name, "a", "b")
    give_back(channel, name, how)
    assert drain(channel, name) == (["b"] if waits else ["a", "b"])


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_they_come_back_at_their_place(
    channel: BlockingChannel, name: str, queue_type: str
) -> None:
    declare(channel, name, queue_type=queue_type, delayed_retry_type="all", delayed_retry_min=50)
    publish(channel, name, *"abc")
    give_back(channel, name, "nack")
    assert ready_count(channel, name) == 2
    eventually(lambda: ready_count(channel, name) == 3)
    fetched = fetch(channel, name)
    assert fetched is not None
    assert (fetched.body, fetched.redelivered) == ("a", True)
    assert fetched.headers == {"x-acquired-count": 1, "x-delivery-count": 0}
    assert drain(channel, name) == ["b", "c"]


def test_a_consumer_is_sent_them_when_it_is_time(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, delayed_retry_type="all", delayed_retry_min=40)
    publish(channel, name, "a")
    consumer = Consumer(channel, name)
    for count in range(1, 4):
        delivery = consumer.wait_for(count)[-1]
        channel.basic_reject(delivery.method.delivery_tag)
    last = consumer.wait_for(4)[-1]
    assert last.properties.headers["x-delivery-count"] == 3


def test_the_time_grows_up_to_a_maximum(channel: BlockingChannel, name: str) -> None:
    growing = declare(channel, name, delayed_retry_type="all", delayed_retry_min=100)
    limited = declare(
        channel,
        f"{name}-limited",
        delayed_retry_type="all",
        delayed_retry_min=100,
        delayed_retry_max=100,
    )
    tries = {growing: 0, limited: 0}
    publish(channel, growing, "a")
    publish(channel, limited, "a")

    def try_again() -> None:
        for queue in tries:
            fetched = fetch(channel, queue)
            if fetched is not None:
                tries[queue] += 1
                channel.basic_nack(fetched.tag)

    eventually(lambda: tries[limited] == 6, pump=try_again)
    assert tries[growing] < 6


def test_zero_is_no_time(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, delayed_retry_type="all", delayed_retry_min=0)
    publish(channel, name, "a")
    give_back(channel, name, "nack")
    assert drain(channel, name) == ["a"]


def test_waiting_messages_are_not_purged_but_go_with_their_queue(
    channel: BlockingChannel, name: str
) -> None:
    declare(channel, name, delayed_retry_type="all", delayed_retry_min=60)
    publish(channel, name, "a", "b")
    give_back(channel, name, "nack")
    assert channel.queue_purge(name).method.message_count == 1
    assert take(channel, name).body == "a"
    publish(channel, name, "c")
    give_back(channel, name, "nack")
    channel.queue_delete(name)
    declare(channel, name)
    wait_for_message_death(channel, 100)
    assert ready_count(channel, name) == 0


def test_a_limit_of_deliveries_goes_first(channel: BlockingChannel, name: str) -> None:
    dead = declare_with_dead(
        channel, name, delayed_retry_type="all", delayed_retry_min=20, delivery_limit=2
    )
    publish(channel, name, "a")
    for _ in range(3):
        give_back(channel, name, "reject")
    assert take(channel, dead).body == "a"


@restarts
def test_waiting_messages_survive_a_restart(
    shared_broker: BrokerProcess, connect: Connect, name: str, restart: Restart
) -> None:
    channel = connect(shared_broker).channel()
    channel.confirm_delivery()
    declare(channel, name, delayed_retry_type="all", delayed_retry_min=LONG)
    publish(channel, name, "a", "b")
    give_back(channel, name, "reject")
    assert ready_count(channel, name) == 1
    restart(shared_broker, channel)
    channel = connect(shared_broker).channel()
    assert take(channel, name).headers == {"x-acquired-count": 1, "x-delivery-count": 1}
    assert take(channel, name).body == "b"
