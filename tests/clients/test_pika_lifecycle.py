"""Queues, consumers and connections come and go: what pika is told, and how errors read."""

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from tests.clients.blocking import Consumer, drain, publish, ready_count, wait_until
from tests.conftest import BrokerProcess

Connect = Callable[..., pika.BlockingConnection]
ChannelAction = Callable[[BlockingChannel, str], object]


@pytest.fixture
def other(shared_broker: BrokerProcess, connect: Connect) -> BlockingChannel:
    """A channel on another connection than *channel*."""
    return connect(shared_broker).channel()


def closing(channel: BlockingChannel, action: Callable[[], object]) -> tuple[int, str]:
    """The code and text with which the broker closes *channel* for *action*."""

    def act() -> None:
        action()
        channel.queue_declare("", exclusive=True)  # hears of a publish or an ack that failed

    with pytest.raises(ChannelClosedByBroker) as raised:
        act()
    again = channel.connection.channel()
    assert again.queue_declare("", exclusive=True).method.queue.startswith("amq.gen-")
    return raised.value.reply_code, raised.value.reply_text


# ---- life cycle of queues


def test_the_server_names_a_queue_and_the_channel_remembers_it(channel: BlockingChannel) -> None:
    names = {channel.queue_declare("", exclusive=True).method.queue for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("amq.gen-") and len(name) == 30 for name in names)
    last = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind("", "amq.fanout")
    channel.basic_publish("amq.fanout", "", b"x", mandatory=True)
    assert channel.basic_get("")[0].routing_key == ""
    assert Consumer(channel, "").tag.startswith("ctag")
    assert channel.queue_delete("").method.message_count == 0
    assert closing(channel, lambda: channel.queue_declare(last, passive=True))[0] == 404


def test_declare_tells_messages_and_consumers(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    publish(channel, name, "a", "b", "c")
    channel.basic_get(name)
    channel.basic_qos(prefetch_count=1)
    Consumer(channel, name)
    Consumer(channel, name)
    again = channel.queue_declare(name).method
    assert (again.queue, again.message_count, again.consumer_count) == (name, 0, 2)


def test_purge_drops_what_is_ready_and_leaves_what_is_held(
    channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name)
    publish(channel, name, *"abcd")
    channel.basic_get(name)
    assert channel.queue_purge(name).method.message_count == 3
    assert ready_count(channel, name) == 0
    channel.basic_nack(1)
    publish(channel, name, "e")
    assert drain(channel, name) == ["a", "e"]


def test_delete_answers_the_messages_that_went_with_it(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    publish(channel, name, *"abcd")
    channel.basic_get(name)
    assert channel.queue_delete(name).method.message_count == 3
    channel.basic_ack(1)  # the delivery vanished with the queue, its tag may still be settled
    assert channel.queue_delete(name).method.message_count == 0
    assert channel.queue_declare(name, exclusive=True).method.message_count == 0


def test_an_auto_delete_queue_goes_with_its_last_consumer(
    channel: BlockingChannel, other: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name, auto_delete=True)
    channel.basic_get(name)
    first, second = Consumer(channel, name), Consumer(other, name)
    channel.basic_cancel(first.tag)
    assert ready_count(channel, name) == 0
    publish(channel, name, "dropped")
    second.wait_for(1)
    other.close()
    code, text = closing(channel, lambda: channel.queue_declare(name, passive=True))
    assert (code, text) == (404, f"NOT_FOUND - no queue '{name}' in vhost '/'")


def test_an_exclusive_queue_is_for_its_connection_and_goes_with_it(
    shared_broker: BrokerProcess, connect: Connect, channel: BlockingChannel, name: str
) -> None:
    owner = connect(shared_broker)
    owner.channel().queue_declare(name, exclusive=True)
    publish(channel, name, "anyone may publish")
    assert drain(owner.channel(), name) == ["anyone may publish"]
    actions: list[ChannelAction] = [
        lambda it, queue: it.queue_declare(queue, passive=True),
        lambda it, queue: it.queue_declare(queue),
        lambda it, queue: it.basic_consume(queue, print),
        lambda it, queue: it.basic_get(queue),
        lambda it, queue: it.queue_bind(queue, "amq.direct"),
        lambda it, queue: it.queue_purge(queue),
        lambda it, queue: it.queue_delete(queue),
    ]
    for action in actions:
        intruder = channel.connection.channel()
        code, text = closing(intruder, lambda: action(intruder, name))  # noqa: B023
        assert code == 405
        assert text.startswith(
            f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{name}'"
        )
    owner.close()
    assert channel.queue_declare(name, exclusive=True).method.message_count == 0


def test_a_consumer_hears_that_its_queue_is_deleted(
    channel: BlockingChannel, other: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name)
    cancelled = []
    channel.add_on_cancel_callback(cancelled.append)
    consumer = Consumer(channel, name)
    publish(channel, name, "a")
    consumer.wait_for(1)
    other.queue_delete(name)
    wait_until(channel.connection, lambda: cancelled)
    assert [frame.method.consumer_tag for frame in cancelled] == [consumer.tag]
    channel.basic_ack(1)
    assert channel.queue_declare(name, exclusive=True).method.consumer_count == 0


def test_an_exclusive_consumer_has_the_queue_to_itself(
    channel: BlockingChannel, other: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name)
    consumer = Consumer(channel, name, exclusive=True)
    expected = (403, f"ACCESS_REFUSED - queue '{name}' in vhost '/' in exclusive use")
    assert closing(other, lambda: other.basic_consume(name, print)) == expected
    channel.basic_cancel(consumer.tag)
    Consumer(channel, name)
    late = channel.connection.channel()
    assert closing(late, lambda: late.basic_consume(name, print, exclusive=True)) == expected


# ---- errors of a channel


def missing(kind: str) -> tuple[int, str]:
    return 404, f"NOT_FOUND - no {kind} 'absent' in vhost '/'"


MISSING: dict[str, tuple[ChannelAction, tuple[int, str]]] = {
    "passive queue": (lambda it, _: it.queue_declare("absent", passive=True), missing("queue")),
    "passive exchange": (
        lambda it, _: it.exchange_declare("absent", passive=True),
        missing("exchange"),
    ),
    "consume": (lambda it, _: it.basic_consume("absent", print), missing("queue")),
    "get": (lambda it, _: it.basic_get("absent"), missing("queue")),
    "purge": (lambda it, _: it.queue_purge("absent"), missing("queue")),
    "publish": (lambda it, _: it.basic_publish("absent", "", b""), missing("exchange")),
    "bind queue": (lambda it, _: it.queue_bind("absent", "amq.direct"), missing("queue")),
    "bind to exchange": (lambda it, name: it.queue_bind(name, "absent"), missing("exchange")),
    "bind exchange": (
        lambda it, _: it.exchange_bind("absent", "amq.direct"),
        missing("exchange"),
    ),
}


@pytest.mark.parametrize("case", MISSING)
def test_what_is_missing_is_not_found(channel: BlockingChannel, name: str, case: str) -> None:
    action, expected = MISSING[case]
    channel.queue_declare(name, exclusive=True)
    assert closing(channel, lambda: action(channel, name)) == expected


REFUSED: dict[str, tuple[ChannelAction, tuple[int, str]]] = {
    "queue durable": (
        lambda it, name: it.queue_declare(name, durable=True),
        (
            406,
            "PRECONDITION_FAILED - inequivalent arg 'durable' for queue '{}' in vhost '/': "
            "received 'true' but current is 'false'",
        ),
    ),
    "queue auto-delete": (
        lambda it, name: it.queue_declare(name, auto_delete=True),
        (
            406,
            "PRECONDITION_FAILED - inequivalent arg 'auto_delete' for queue '{}' in vhost '/': "
            "received 'true' but current is 'false'",
        ),
    ),
    "exchange type": (
        lambda it, name: it.exchange_declare(name, "topic"),
        (
            406,
            "PRECONDITION_FAILED - inequivalent arg 'type' for exchange '{}' in vhost '/': "
            "received 'topic' but current is 'direct'",
        ),
    ),
    "exchange type unknown": (
        lambda it, name: it.exchange_declare(name + "x", "no such type"),
        (406, "PRECONDITION_FAILED - unknown exchange type 'no such type'"),
    ),
    "reserved queue": (
        lambda it, _: it.queue_declare("amq.mine"),
        (
            403,
            "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'",
        ),
    ),
    "reserved exchange": (
        lambda it, _: it.exchange_declare("amq.mine", "direct"),
        (
            403,
            "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'",
        ),
    ),
    "predeclared exchange": (
        lambda it, _: it.exchange_delete("amq.topic"),
        (
            403,
            "ACCESS_REFUSED - deletion of system exchange 'amq.topic' in vhost '/' not allowed",
        ),
    ),
    "default exchange": (
        lambda it, name: it.queue_bind(name, "", "key"),
        (403, "ACCESS_REFUSED - operation not permitted on the default exchange"),
    ),
    "queue in use": (
        lambda it, name: (it.basic_consume(name, print), it.queue_delete(name, if_unused=True)),
        (406, "PRECONDITION_FAILED - queue '{}' in vhost '/' in use"),
    ),
    "queue not empty": (
        lambda it, name: (
            it.basic_publish("", name, b"x"),
            it.queue_delete(name, if_empty=True),
        ),
        (406, "PRECONDITION_FAILED - queue '{}' in vhost '/' not empty"),
    ),
    "exchange in use": (
        lambda it, name: (
            it.queue_bind(name, name),
            it.exchange_delete(name, if_unused=True),
        ),
        (406, "PRECONDITION_FAILED - exchange '{}' in vhost '/' in use"),
    ),
    "unknown delivery tag": (
        lambda it, _: it.basic_ack(5),
        (406, "PRECONDITION_FAILED - unknown delivery tag 5"),
    ),
    "reject of unknown": (
        lambda it, _: it.basic_reject(1),
        (406, "PRECONDITION_FAILED - unknown delivery tag 1"),
    ),
    "second ack": (
        lambda it, name: (
            it.basic_publish("", name, b"x"),
            it.basic_get(name),
            it.basic_ack(1),
            it.basic_ack(1),
        ),
        (406, "PRECONDITION_FAILED - unknown delivery tag 1"),
    ),
    "user of another": (
        lambda it, name: it.basic_publish("", name, b"", pika.BasicProperties(user_id="eve")),
        (
            406,
            "PRECONDITION_FAILED - user_id property set to 'eve' but authenticated user was "
            "'guest'",
        ),
    ),
    "commit without select": (
        lambda it, _: it.tx_commit(),
        (406, "PRECONDITION_FAILED - channel is not transactional"),
    ),
    "confirms in a transaction": (
        lambda it, _: (it.tx_select(), it.confirm_delivery()),
        (406, "PRECONDITION_FAILED - cannot switch from tx to confirm mode"),
    ),
    "internal exchange": (
        lambda it, name: (
            it.exchange_declare(name + "i", "fanout", internal=True, auto_delete=True),
            it.basic_publish(name + "i", "", b""),
        ),
        (403, "ACCESS_REFUSED - cannot publish to internal exchange '{}i' in vhost '/'"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_may_not_be_closes_the_channel_only(
    channel: BlockingChannel, name: str, case: str
) -> None:
    action, (code, text) = REFUSED[case]
    channel.queue_declare(name)
    channel.exchange_declare(name, "direct")
    assert closing(channel, lambda: action(channel, name)) == (code, text.format(name))


def test_an_error_leaves_the_other_channels_alone(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    consumer = Consumer(channel, name)
    for _ in range(3):
        broken = channel.connection.channel()
        assert closing(broken, lambda: broken.basic_ack(9))[0] == 406  # noqa: B023
    publish(channel, name, "still here")
    assert consumer.wait_for(1)[0].body == b"still here"


def test_redeclaring_the_same_changes_nothing(channel: BlockingChannel, name: str) -> None:
    for _ in range(2):
        channel.queue_declare(name, durable=True, arguments={"x-own": 1})
        channel.exchange_declare(name, "topic", durable=True)
        channel.queue_bind(name, name, "k")
    publish(channel, name, "a")
    channel.basic_publish(name, "k", b"b")
    channel.queue_declare(name, durable=True)
    assert drain(channel, name) == ["a", "b"]


# ---- transactions


def test_a_transaction_publishes_and_acks_at_commit(
    channel: BlockingChannel, other: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name, durable=True)
    publish(channel, name, "old")
    channel.tx_select()
    channel.basic_get(name)
    publish(channel, name, "new 1", "new 2")
    channel.basic_ack(1)
    channel.queue_declare(name, durable=True)  # whatever went out before this has been worked off
    assert ready_count(other, name) == 0
    channel.tx_commit()
    assert ready_count(other, name) == 2
    channel.close()
    assert drain(other, name) == ["new 1", "new 2"]


def test_a_rolled_back_transaction_leaves_nothing(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, durable=True)
    publish(channel, name, "old")
    channel.tx_select()
    channel.basic_get(name)
    publish(channel, name, "never")
    channel.basic_ack(1)
    channel.tx_rollback()
    channel.tx_commit()
    assert ready_count(channel, name) == 0  # still held: rolling back an ack does not requeue
    channel.basic_nack(1)
    channel.tx_commit()
    assert drain(channel, name) == ["old"]


def test_closing_the_channel_rolls_back(
    channel: BlockingChannel, other: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name)
    channel.tx_select()
    publish(channel, name, "never")
    channel.close()
    assert ready_count(other, name) == 0


def test_unroutable_messages_of_a_transaction_return_at_commit(channel: BlockingChannel) -> None:
    returned = []
    channel.add_on_return_callback(lambda *parts: returned.append(parts[3]))
    channel.tx_select()
    channel.basic_publish("", "nowhere", b"x", mandatory=True)
    channel.queue_declare("", exclusive=True)
    channel.tx_commit()
    wait_until(channel.connection, lambda: returned)
    assert returned == [b"x"]


# ---- connections


def test_wrong_password_and_unknown_vhost_are_told(
    shared_broker: BrokerProcess, connect: Connect
) -> None:
    with pytest.raises(ProbableAuthenticationError, match="ACCESS_REFUSED - Login was refused"):
        connect(shared_broker, credentials=pika.PlainCredentials("guest", "wrong"))
    with pytest.raises((ProbableAccessDeniedError, ConnectionClosedByBroker)) as raised:
        connect(shared_broker, virtual_host="foo")
    assert "vhost foo not found" in str(raised.value)


def test_a_hard_error_closes_the_connection(
    shared_broker: BrokerProcess, connect: Connect, channel: BlockingChannel
) -> None:
    doomed = connect(shared_broker).channel()
    with pytest.raises(ConnectionClosedByBroker) as raised:
        doomed.basic_qos(prefetch_size=1)
    assert raised.value.reply_code == 540
    assert raised.value.reply_text == "NOT_IMPLEMENTED - prefetch_size!=0 (1)"
    channel.queue_declare("", exclusive=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_broker_says_goodbye_when_it_stops(
    broker: BrokerProcess, connect: Connect, number: int
) -> None:
    connection = connect(broker)
    channel = connection.channel()
    with ThreadPoolExecutor() as pool:
        status = pool.submit(broker.stop, number)
        with pytest.raises(ConnectionClosedByBroker) as raised:
            wait_until(connection, lambda: False)
        assert status.result() == 0
    assert raised.value.reply_code == 320
    assert raised.value.reply_text.startswith("CONNECTION_FORCED - ")
    assert "shutdown" in raised.value.reply_text
    assert channel.is_closed


def test_a_connection_with_heartbeats_stays_open_while_idle(
    shared_broker: BrokerProcess, connect: Connect
) -> None:
    connection = connect(shared_broker, heartbeat=1)
    channel = connection.channel()
    connection.process_data_events(time_limit=4)  # more than the silence that either side bears
    assert channel.queue_declare("", exclusive=True).method.queue


def test_a_client_that_falls_silent_is_dropped(
    shared_broker: BrokerProcess, connect: Connect, channel: BlockingChannel, name: str
) -> None:
    """Its exclusive queue is free again, and what it held is ready again."""
    channel.queue_declare(name)
    publish(channel, name, "held")
    silent = connect(shared_broker, heartbeat=1)
    holder = silent.channel()
    holder.queue_declare(f"{name}-exclusive", exclusive=True)
    holder.basic_get(name)
    assert ready_count(channel, name) == 0
    wait_until(channel.connection, lambda: ready_count(channel, name) == 1)
    channel.queue_declare(f"{name}-exclusive", exclusive=True)
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        silent.process_data_events(time_limit=5)
