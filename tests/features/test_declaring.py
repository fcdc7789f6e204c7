"""Declaring queues: names, types, arguments that are wrong, different or of no matter."""

import re

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.clients.blocking import publish, ready_count
from tests.conftest import BrokerProcess
from tests.features.steps import Connect, Restart, arguments, declare, reply_text, restarts, take

VALUES: dict[str, tuple[object, object]] = {
    "x-expires": (60_000, 70_000),
    "x-message-ttl": (60_000, 0),
    "x-dead-letter-exchange": ("", "amq.direct"),
    "x-max-length": (10, 11),
    "x-max-length-bytes": (10, 11),
    "x-overflow": ("reject-publish", "drop-head"),
    "x-single-active-consumer": (True, False),
    "x-delivery-limit": (3, 4),
    "x-dead-letter-strategy": ("at-least-once", "at-most-once"),
    "x-delayed-retry-type": ("all", "failed"),
    "x-delayed-retry-min": (10, 20),
    "x-delayed-retry-max": (10, 20),
    "x-consumer-timeout": (60_000, 70_000),
    "x-consumer-timeout-action": ("requeue", "close"),
    "x-message-deduplication": (True, False),
    "x-cache-size": (10, 20),
    "x-cache-ttl": (10, 20),
    "x-deduplication-header": ("a", "b"),
    "x-retain-age": ("7D", "12h"),
    "x-retain-bytes": (1_000_000, 0),
    "x-queue-type": ("classic", "quorum"),
    "x-max-priority": (5, 6),
}
"""Arguments of a queue, with two values each."""
TYPES = {int: "signedint", str: "longstr", bool: "bool"}


def declare_raw(channel: BlockingChannel, queue: str, values: dict[str, object]) -> str:
    return channel.queue_declare(queue, durable=True, arguments=values).method.queue


def shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def refusal(channel: BlockingChannel, queue: str, **values: object) -> str:
    text = reply_text(lambda: declare(channel, queue, **values))
    start = "PRECONDITION_FAILED - "
    assert text.startswith(start)
    return text[len(start) :]


# ---- names


def test_a_server_named_queue(channel: BlockingChannel) -> None:
    names = {channel.queue_declare("", exclusive=True).method.queue for _ in range(3)}
    assert len(names) == 3
    assert all(re.fullmatch(r"amq\.gen-[\w-]{22}", name) for name in names)
    for name in names:
        channel.queue_declare(name, passive=True)


def test_a_durable_server_named_queue_lasts(shared_broker: BrokerProcess, connect: Connect) -> None:
    channel = connect(shared_broker).channel()
    channel.confirm_delivery()
    queue = declare(channel, "", message_ttl=60_000)
    publish(channel, queue, "a")
    shared_broker.kill()
    shared_broker.start()
    channel = connect(shared_broker).channel()
    assert declare(channel, queue, message_ttl=60_000) == queue
    assert take(channel, queue).body == "a"


def test_the_queue_declared_last_is_meant(channel: BlockingChannel) -> None:
    name = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind("", "amq.direct", "")
    channel.basic_publish("amq.direct", name, b"a")
    assert channel.basic_get("", auto_ack=True)[2] == b"a"


# ---- quorum queues


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"durable": True, "auto_delete": True}, "invalid property 'auto-delete'"),
        ({"durable": True, "exclusive": True}, "invalid property 'exclusive-owner'"),
        ({"durable": False}, "invalid property 'non-durable'"),
    ],
)
def test_what_a_quorum_queue_cannot_be(
    channel: BlockingChannel, name: str, options: dict[str, bool], text: str
) -> None:
    quorum = arguments(queue_type="quorum")
    answer = reply_text(lambda: channel.queue_declare(name, arguments=quorum, **options))
    assert answer == f"PRECONDITION_FAILED - {text} for queue '{name}' in vhost '/'"


def test_a_quorum_queue_has_a_name(channel: BlockingChannel) -> None:
    text = refusal(channel, "", queue_type="quorum")
    assert text == "Cannot declare a server-named queue for type rabbit_quorum_queue"


# ---- wrong values


@pytest.mark.parametrize(
    ("argument", "value", "text"),
    [
        ("x-message-ttl", -1, "{value_negative,-1}"),
        ("x-message-ttl", 315_360_000_001, "{value_too_large,315360000001}"),
        ("x-message-ttl", "10", '"expected integer, got longstr"'),
        ("x-expires", 0, "{value_zero,0}"),
        ("x-expires", -5, "{value_negative,-5}"),
        ("x-max-length", -1, "{value_negative,-1}"),
        ("x-max-length-bytes", "1", '"expected integer, got longstr"'),
        ("x-overflow", "drop-tail", "invalid_overflow"),
        ("x-dead-letter-routing-key", "k", "routing_key_but_no_dlx_defined"),
        ("x-single-active-consumer", "true", "{unacceptable_type,longstr}"),
        ("x-max-priority", 256, "{max_value_exceeded,256}"),
        ("x-queue-type", "fast", "\"unsupported queue type 'fast'\""),
        ("x-delivery-limit", -1, "{value_negative,-1}"),
        ("x-consumer-timeout", -1, "{value_negative,-1}"),
    ],
)
def test_a_wrong_value(
    channel: BlockingChannel, name: str, argument: str, value: object, text: str
) -> None:
    answer = reply_text(lambda: declare_raw(channel, name, {argument: value}))
    expected = f"invalid arg '{argument}' for queue '{name}' in vhost '/': {text}"
    assert answer == f"PRECONDITION_FAILED - {expected}"
    channel.connection.channel().queue_declare(name)


def test_a_dead_letter_exchange_of_another_type(channel: BlockingChannel, name: str) -> None:
    text = refusal(channel, name, dead_letter_exchange=7)
    assert text == (
        f"invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue '{name}' in vhost '/'"
    )


def test_arguments_of_streams(channel: BlockingChannel, name: str) -> None:
    text = refusal(channel, name, max_age="1h")
    assert text == (
        f"invalid arg 'x-max-age' for queue '{name}' in vhost '/' of queue type "
        "rabbit_classic_queue"
    )


# ---- declaring again


@pytest.mark.parametrize("argument", VALUES)
def test_the_same_again_and_something_else(
    channel: BlockingChannel, name: str, argument: str
) -> None:
    value, other = VALUES[argument]
    connection = channel.connection
    declare_raw(channel, name, {argument: value})
    declare_raw(channel, name, {argument: value})
    start = f"PRECONDITION_FAILED - inequivalent arg '{argument}' for queue '{name}' in vhost '/': "
    answer = reply_text(lambda: declare_raw(channel, name, {argument: other}))
    assert answer == f"{start}received '{shown(other)}' but current is '{shown(value)}'"
    if argument != "x-queue-type":
        answer = reply_text(lambda: declare_raw(connection.channel(), name, {}))
        current = f"the value '{shown(value)}' of type '{TYPES[type(value)]}'"
        assert answer == f"{start}received none but current is {current}"


def test_adding_an_argument_is_something_else(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    assert refusal(channel, name, message_ttl=10) == (
        f"inequivalent arg 'x-message-ttl' for queue '{name}' in vhost '/': "
        "received the value '10' of type 'signedint' but current is none"
    )


def test_the_width_of_an_integer_is_of_no_matter(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, message_ttl=10)
    assert (
        channel.queue_declare(
            name, durable=True, arguments={"x-message-ttl": 10, "x-queue-type": "classic"}
        ).method.queue
        == name
    )


@pytest.mark.parametrize(
    "values",
    [
        {"queue_mode": "lazy"},
        {"queue_mode": "default", "queue_version": 1},
        {"queue_version": 2},
        {"mine": [1, {"a": True}]},
        {"queue_leader_locator": "balanced"},
    ],
)
def test_arguments_of_no_matter(
    channel: BlockingChannel, name: str, values: dict[str, object]
) -> None:
    declare(channel, name, **values)
    declare(channel, name)
    publish(channel, name, "a")
    assert take(channel, name).body == "a"


def test_durability_and_auto_delete_matter(channel: BlockingChannel, name: str) -> None:
    connection = channel.connection
    channel.queue_declare(name, durable=True)
    assert reply_text(lambda: channel.queue_declare(name)) == (
        f"PRECONDITION_FAILED - inequivalent arg 'durable' for queue '{name}' in vhost '/': "
        "received 'false' but current is 'true'"
    )
    again = connection.channel()
    assert reply_text(lambda: again.queue_declare(name, durable=True, auto_delete=True)) == (
        f"PRECONDITION_FAILED - inequivalent arg 'auto_delete' for queue '{name}' in vhost '/': "
        "received 'true' but current is 'false'"
    )


@restarts
def test_arguments_survive_a_restart(
    shared_broker: BrokerProcess, connect: Connect, name: str, restart: Restart
) -> None:
    channel = connect(shared_broker).channel()
    values = {argument: value for argument, (value, _) in VALUES.items()}
    declare_raw(channel, name, values | {"x-mine": "kept"})
    restart(shared_broker, channel)
    channel = connect(shared_broker).channel()
    declare_raw(channel, name, values)
    assert ready_count(channel, name) == 0
    other = reply_text(lambda: declare_raw(channel, name, values | {"x-max-length": 12}))
    assert other.endswith("received '12' but current is '10'")
