"""x-message-ttl and the property expiration: when messages die of age."""

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.clients.blocking import Consumer, drain, publish, ready_count, wait_until
from tests.conftest import BrokerProcess
from tests.features.steps import (
    Connect,
    Restart,
    declare,
    declare_with_dead,
    fetch,
    reply_text,
    restarts,
    send,
    take,
    take_bodies,
    wait_for_message_death,
)
from tests.waiting import eventually

LONG = 600_000


def test_messages_die_in_order_after_the_ttl_of_their_queue(
    channel: BlockingChannel, name: str
) -> None:
    dead = declare_with_dead(channel, name, message_ttl=50)
    publish(channel, name, *"abc")
    assert take_bodies(channel, dead, 3) == ["a", "b", "c"]
    assert ready_count(channel, name) == 0


@pytest.mark.parametrize(("queue_ttl", "expiration"), [(50, str(LONG)), (LONG, "50"), (50, "50")])
def test_the_lower_of_both_counts(
    channel: BlockingChannel, name: str, queue_ttl: int, expiration: str
) -> None:
    dead = declare_with_dead(channel, name, message_ttl=queue_ttl)
    send(channel, name, "a", expiration=expiration)
    assert take(channel, dead).body == "a"


def test_a_message_whose_time_is_not_over_stays(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, message_ttl=LONG)
    send(channel, name, "a", expiration=str(LONG))
    wait_for_message_death(channel, 100)
    fetched = take(channel, name)
    assert (fetched.body, fetched.properties.expiration) == ("a", str(LONG))


def test_expiration_works_in_a_queue_without_arguments(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    send(channel, name, "a", "b", expiration="40")
    send(channel, name, "c")
    eventually(lambda: ready_count(channel, name) == 1)
    assert drain(channel, name) == ["c"]


def test_only_the_head_is_looked_at(channel: BlockingChannel, name: str) -> None:
    dead = declare_with_dead(channel, name)
    send(channel, name, "long")
    send(channel, name, "short", expiration="20")
    wait_for_message_death(channel, 60)
    assert ready_count(channel, name) == 2
    assert ready_count(channel, dead) == 0
    assert take(channel, name).body == "long"
    assert take(channel, dead).body == "short"
    assert fetch(channel, name) is None


def test_a_consumer_is_never_sent_what_is_over_its_time(
    channel: BlockingChannel, name: str
) -> None:
    dead = declare_with_dead(channel, name)
    for body in ("1", "2"):
        send(channel, name, body)
        send(channel, name, f"{body} short", expiration="20")
    wait_for_message_death(channel, 60)
    consumer = Consumer(channel, name, auto_ack=True)
    consumer.wait_for(2)
    assert take_bodies(channel, dead, 2) == ["1 short", "2 short"]
    assert consumer.bodies == [b"1", b"2"]


@pytest.mark.parametrize(("queue_ttl", "expiration"), [(0, None), (None, "0"), (LONG, "0")])
def test_no_time_at_all_is_delivered_at_once_or_dies(
    channel: BlockingChannel, name: str, queue_ttl: int | None, expiration: str | None
) -> None:
    limits = {} if queue_ttl is None else {"message_ttl": queue_ttl}
    dead = declare_with_dead(channel, name, **limits)
    send(channel, name, "nobody", expiration=expiration)
    assert take(channel, dead).body == "nobody"
    channel.basic_qos(prefetch_count=1)
    consumer = Consumer(channel, name)
    send(channel, name, "first", "second", expiration=expiration)
    assert consumer.wait_for(1)[0].body == b"first"
    assert take(channel, dead).body == "second"
    assert ready_count(channel, name) == 0


def test_requeueing_does_not_give_new_time(channel: BlockingChannel, name: str) -> None:
    dead = declare_with_dead(channel, name, message_ttl=150)
    publish(channel, name, "a")

    def get_and_requeue() -> None:
        fetched = fetch(channel, name)
        if fetched is not None:
            channel.basic_nack(fetched.tag, requeue=True)

    eventually(lambda: ready_count(channel, dead) == 1, pump=get_and_requeue)
    assert fetch(channel, name) is None


def test_what_is_unacked_does_not_die_but_returned_it_does(
    channel: BlockingChannel, name: str
) -> None:
    dead = declare_with_dead(channel, name, message_ttl=60)
    publish(channel, name, "a", "b")
    held = fetch(channel, name)
    assert held is not None
    assert take(channel, dead).body == "b"
    assert ready_count(channel, dead) == 0
    channel.basic_nack(held.tag, requeue=True)
    assert take(channel, dead).body == "a"


def test_a_dead_letter_lives_without_the_expiration_it_died_of(
    channel: BlockingChannel, name: str
) -> None:
    dead = declare_with_dead(channel, name)
    send(channel, name, "a", expiration="20", priority=3, headers={"k": "v"})
    letter = take(channel, dead)
    assert letter.properties.expiration is None
    assert letter.properties.priority == 3
    assert letter.properties.delivery_mode == 2
    assert letter.headers["k"] == "v"
    (death,) = letter.headers["x-death"]  # type: ignore[misc]
    assert death["original-expiration"] == "20"
    assert death["reason"] == "expired"


def test_without_a_dead_letter_exchange_it_is_gone(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, message_ttl=30)
    publish(channel, name, *"abc")
    eventually(lambda: ready_count(channel, name) == 0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("10s", '{leftover_string,"s"}'),
        ("abc", "no_integer"),
        ("", "no_integer"),
        ("-1", "{value_negative,-1}"),
        ("315360000001", "{value_too_large,315360000001}"),
    ],
)
def test_an_expiration_that_is_none(
    channel: BlockingChannel, name: str, text: str, reason: str
) -> None:
    declare(channel, name)

    def publish_and_ask() -> None:
        send(channel, name, "a", expiration=text)
        ready_count(channel, name)

    expected = f"PRECONDITION_FAILED - invalid expiration '{text}': {reason}"
    assert reply_text(publish_and_ask) == expected


@restarts
def test_time_goes_on_over_a_restart(
    shared_broker: BrokerProcess, connect: Connect, name: str, restart: Restart
) -> None:
    channel = connect(shared_broker).channel()
    channel.confirm_delivery()
    dead = declare_with_dead(channel, name, message_ttl=1500)
    plain = declare(channel, f"{name}-plain")
    publish(channel, name, "a", "b")
    send(channel, plain, "short", expiration="1500")
    send(channel, plain, "long", expiration=str(LONG))
    restart(shared_broker, channel)
    channel = connect(shared_broker).channel()
    assert take_bodies(channel, dead, 2) == ["a", "b"]
    eventually(lambda: ready_count(channel, plain) == 1)
    assert take(channel, plain).body == "long"


def test_what_was_delivered_when_the_broker_was_killed_dies_too(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    connection = connect(shared_broker)
    channel = connection.channel()
    channel.confirm_delivery()
    dead = declare_with_dead(channel, name, message_ttl=800)
    consumer = Consumer(channel, name)
    publish(channel, name, "a")
    consumer.wait_for(1)
    wait_until(connection, lambda: True)
    shared_broker.kill()
    shared_broker.start()
    channel = connect(shared_broker).channel()
    assert take(channel, dead).body == "a"
