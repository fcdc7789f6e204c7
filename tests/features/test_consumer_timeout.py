"""x-consumer-timeout: deliveries that nobody settles in time."""

from collections.abc import Callable

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.clients.blocking import Consumer, drain, publish, ready_count, wait_until
from tests.conftest import BrokerProcess
from tests.features.steps import (
    Connect,
    arguments,
    declare,
    declare_with_dead,
    fetch,
    reply_text,
    take,
)
from tests.waiting import eventually

Settle = Callable[[BlockingChannel, int], None]


def close_text(channel: BlockingChannel) -> str:
    """Wait until the broker closes *channel*; answers why."""
    return reply_text(lambda: eventually(lambda: channel.basic_qos(prefetch_count=1)))


def expected_text(channel: BlockingChannel, timeout_ms: int) -> str:
    return (
        f"PRECONDITION_FAILED - delivery acknowledgement on channel {channel.channel_number} timed "
        f"out. Timeout value used: {timeout_ms} ms. This timeout value can be configured, see "
        "consumers doc guide to learn more"
    )


@pytest.mark.parametrize(
    ("of_queue", "of_consumer", "in_force"),
    [(150, None, 150), (None, 150, 150), (150, 60_000, 150), (60_000, 150, 150)],
)
def test_the_channel_is_closed_and_the_message_comes_back(
    shared_broker: BrokerProcess,
    connect: Connect,
    name: str,
    of_queue: int | None,
    of_consumer: int | None,
    in_force: int,
) -> None:
    connection = connect(shared_broker)
    channel, other = connection.channel(), connection.channel()
    declare(channel, name, **({"consumer_timeout": of_queue} if of_queue else {}))
    publish(channel, name, "a", "b")
    channel.basic_qos(prefetch_count=1)
    own = arguments(consumer_timeout=of_consumer) if of_consumer else None
    consumer = Consumer(channel, name, arguments=own)
    consumer.wait_for(1)
    assert close_text(channel) == expected_text(channel, in_force)
    fetched = fetch(other, name)
    assert fetched is not None
    assert (fetched.body, fetched.redelivered) == ("a", True)
    assert ready_count(other, name) == 1


def test_gets_and_consumers_without_acks_have_all_the_time(
    channel: BlockingChannel, name: str
) -> None:
    declare(channel, name, consumer_timeout=20)
    publish(channel, name, "a", "b")
    fetched = fetch(channel, name)
    assert fetched is not None
    consumer = Consumer(channel, name, auto_ack=True)
    consumer.wait_for(1)
    witness = declare(channel, f"{name}-witness", consumer_timeout=300)
    late = channel.connection.channel()
    publish(channel, witness, "w")
    Consumer(late, witness).wait_for(1)
    close_text(late)
    channel.basic_ack(fetched.tag)
    assert ready_count(channel, name) == 0


def test_who_acks_in_time_goes_on(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, consumer_timeout=60_000)
    witness = declare(channel, f"{name}-witness", consumer_timeout=100)
    consumer = Consumer(channel, name)
    publish(channel, name, "a")
    consumer.wait_for(1)
    late = channel.connection.channel()
    publish(channel, witness, "w")
    Consumer(late, witness).wait_for(1)
    close_text(late)
    channel.basic_ack(consumer.deliveries[0].method.delivery_tag)
    assert ready_count(channel, name) == 0


def test_a_cancelled_consumer_still_has_to_settle(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    channel = connect(shared_broker).channel()
    declare(channel, name, consumer_timeout=150)
    publish(channel, name, "a")
    consumer = Consumer(channel, name)
    consumer.wait_for(1)
    channel.basic_cancel(consumer.tag)
    assert close_text(channel) == expected_text(channel, 150)


# ---- x-consumer-timeout-action


def ack(channel: BlockingChannel, tag: int) -> None:
    channel.basic_ack(tag)


def ack_up_to(channel: BlockingChannel, tag: int) -> None:
    channel.basic_ack(tag, multiple=True)


def nack(channel: BlockingChannel, tag: int) -> None:
    channel.basic_nack(tag)


@pytest.mark.parametrize("settle", [ack, ack_up_to, nack])
def test_only_the_late_delivery_comes_back_and_the_late_answer_is_ignored(
    shared_broker: BrokerProcess, connect: Connect, name: str, settle: Settle
) -> None:
    connection = connect(shared_broker)
    channel, other = connection.channel(), connection.channel()
    requeue = {"consumer_timeout": 300, "consumer_timeout_action": "requeue"}
    declare(channel, name, **requeue)
    channel.basic_qos(prefetch_count=2)
    consumer = Consumer(channel, name)
    publish(channel, name, "a", "b")
    late, in_time = consumer.wait_for(2)
    channel.basic_ack(in_time.method.delivery_tag)
    wait_until(connection, lambda: len(consumer.deliveries) > 2)
    again = consumer.deliveries[2]
    assert (again.body, again.method.redelivered) == (b"a", True)
    settle(channel, late.method.delivery_tag)
    channel.basic_ack(again.method.delivery_tag)
    assert ready_count(other, name) == 0
    channel.basic_cancel(consumer.tag)
    assert ready_count(channel, name) == 0


def test_another_consumer_gets_what_one_forgot(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    stuck, ready = connect(shared_broker).channel(), connect(shared_broker).channel()
    declare(stuck, name, consumer_timeout=100, consumer_timeout_action="requeue")
    stuck.basic_qos(prefetch_count=1)
    holder = Consumer(stuck, name)
    publish(stuck, name, "a")
    (late,) = holder.wait_for(1)
    stuck.basic_cancel(holder.tag)
    consumer = Consumer(ready, name, auto_ack=True)
    assert consumer.wait_for(1)[0].method.redelivered
    stuck.basic_ack(late.method.delivery_tag)
    assert ready_count(stuck, name) == 0
    stuck.basic_ack(late.method.delivery_tag)
    text = reply_text(lambda: ready_count(stuck, name))
    assert text == "PRECONDITION_FAILED - unknown delivery tag 1"


def test_a_late_answer_in_a_transaction_is_ignored(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, consumer_timeout=100, consumer_timeout_action="requeue")
    channel.tx_select()
    channel.basic_qos(prefetch_count=1)
    consumer = Consumer(channel, name)
    other = channel.connection.channel()
    publish(other, name, "a")
    late, again = consumer.wait_for(2)[:2]
    assert again.method.redelivered
    channel.basic_cancel(consumer.tag)
    channel.basic_ack(late.method.delivery_tag)
    channel.tx_commit()
    eventually(lambda: ready_count(other, name) == 1)
    assert drain(other, name) == ["a"]


def test_being_late_is_a_failure_to_the_delivery_limit(channel: BlockingChannel, name: str) -> None:
    dead = declare_with_dead(
        channel,
        name,
        consumer_timeout=50,
        consumer_timeout_action="requeue",
        delivery_limit=1,
    )
    consumer = Consumer(channel, name)
    publish(channel, name, "a")
    last = consumer.wait_for(2)[-1]
    assert last.properties.headers["x-delivery-count"] == 1
    assert take(channel, dead).body == "a"


def test_a_restart_keeps_the_timeout(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    channel = connect(shared_broker).channel()
    channel.confirm_delivery()
    declare(channel, name, consumer_timeout=50, consumer_timeout_action="requeue")
    publish(channel, name, "a")
    shared_broker.kill()
    shared_broker.start()
    channel = connect(shared_broker).channel()
    consumer = Consumer(channel, name)
    assert [delivery.method.redelivered for delivery in consumer.wait_for(2)] == [False, True]
