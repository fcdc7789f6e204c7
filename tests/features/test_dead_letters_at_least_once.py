"""x-dead-letter-strategy at-least-once: nothing dies before its dead letter is safe."""

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.clients.blocking import drain, publish, ready_count
from tests.conftest import BrokerProcess
from tests.features.steps import Connect, declare, fetch, send, take, take_bodies
from tests.waiting import eventually

AT_LEAST_ONCE = {"dead_letter_strategy": "at-least-once", "overflow": "reject-publish"}


def declare_safe(channel: BlockingChannel, queue: str, dead: str, **values: object) -> str:
    return declare(
        channel,
        queue,
        queue_type="quorum",
        dead_letter_exchange="",
        dead_letter_routing_key=dead,
        **AT_LEAST_ONCE,
        **values,
    )


def reject(channel: BlockingChannel, queue: str) -> None:
    fetched = eventually(lambda: fetch(channel, queue))
    channel.basic_reject(fetched.tag, requeue=False)


def test_dead_letters_arrive_in_order_and_once(channel: BlockingChannel, name: str) -> None:
    dead = declare(channel, f"{name}-dead")
    declare_safe(channel, name, dead)
    publish(channel, name, *map(str, range(50)))
    for _ in range(50):
        reject(channel, name)
    assert take_bodies(channel, dead, 50) == [str(number) for number in range(50)]
    assert ready_count(channel, name) == ready_count(channel, dead) == 0


def test_each_way_to_die(channel: BlockingChannel, name: str) -> None:
    dead = declare(channel, f"{name}-dead")
    declare_safe(channel, name, dead, delivery_limit=0)
    send(channel, name, "expired", expiration="1")
    assert take(channel, dead).headers["x-first-death-reason"] == "expired"
    publish(channel, name, "rejected", "limit")
    reject(channel, name)
    assert take(channel, dead).headers["x-first-death-reason"] == "rejected"
    fetched = fetch(channel, name)
    assert fetched is not None
    channel.basic_reject(fetched.tag)
    assert take(channel, dead).headers["x-first-death-reason"] == "delivery_limit"


def test_without_refusing_publishes_it_is_at_most_once(channel: BlockingChannel, name: str) -> None:
    dead = f"{name}-dead"
    declare(
        channel,
        name,
        dead_letter_exchange="",
        dead_letter_routing_key=dead,
        dead_letter_strategy="at-least-once",
    )
    publish(channel, name, "lost", "kept")
    reject(channel, name)
    ready_count(channel, name)
    declare(channel, dead)
    reject(channel, name)
    assert take(channel, dead).body == "kept"
    assert ready_count(channel, dead) == 0


def test_a_target_that_is_missing_or_full_gets_them_later(
    channel: BlockingChannel, name: str
) -> None:
    missing, full = f"{name}-missing", f"{name}-full"
    declare(channel, full, max_length=2, overflow="reject-publish")
    publish(channel, full, "0", "0")
    for queue, dead in ((f"{name}-a", missing), (f"{name}-b", full)):
        declare_safe(channel, queue, dead)
        publish(channel, queue, "1", "2")
        reject(channel, queue)
        reject(channel, queue)
        assert ready_count(channel, queue) == 0
    declare_safe(channel, f"{name}-deleted", missing)
    publish(channel, f"{name}-deleted", "3")
    reject(channel, f"{name}-deleted")
    channel.queue_delete(f"{name}-deleted")
    assert drain(channel, full) == ["0", "0"]
    declare(channel, missing)
    assert take_bodies(channel, missing, 2) == ["1", "2"]
    assert take_bodies(channel, full, 2) == ["1", "2"]
    assert ready_count(channel, missing) == 0


@pytest.mark.parametrize("is_rejected", [True, False])
def test_a_kill_before_the_dead_letter_is_safe_loses_nothing(
    shared_broker: BrokerProcess, connect: Connect, name: str, is_rejected: bool
) -> None:
    channel = connect(shared_broker).channel()
    channel.confirm_delivery()
    dead = f"{name}-dead"
    declare_safe(channel, name, dead, **({} if is_rejected else {"message_ttl": 30}))
    publish(channel, name, "a", "b")
    if is_rejected:
        reject(channel, name)
        reject(channel, name)
    eventually(lambda: ready_count(channel, name) == 0)
    shared_broker.kill()
    shared_broker.start()
    channel = connect(shared_broker).channel()
    if is_rejected:
        # What was not settled is a delivery that was cut off: it is ready again.
        assert ready_count(channel, name) == 2
        declare(channel, dead)
        reject(channel, name)
        reject(channel, name)
    else:
        eventually(lambda: ready_count(channel, name) == 0)
        declare(channel, dead)
    assert take_bodies(channel, dead, 2) == ["a", "b"]
    assert ready_count(channel, dead) == 0


def test_what_arrived_does_not_come_twice_after_a_restart(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    channel = connect(shared_broker).channel()
    channel.confirm_delivery()
    dead = declare(channel, f"{name}-dead")
    declare_safe(channel, name, dead)
    publish(channel, name, *map(str, range(10)))
    for _ in range(5):
        reject(channel, name)
    eventually(lambda: ready_count(channel, dead) == 5)
    ready_count(channel, name)
    channel.connection.close()
    shared_broker.restart()
    channel = connect(shared_broker).channel()
    assert drain(channel, dead) == list("01234")
    assert drain(channel, name) == list("56789")
