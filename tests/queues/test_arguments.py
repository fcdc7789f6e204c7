"""Queue arguments: what is accepted, RabbitMQ's words for what is not, and policies."""

import pytest

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.tables import Field, Table
from leveret.queues.arguments import InvalidArgument, Overflow, QueueArguments, QueueType

BAD_VALUES = [
    ("x-max-priority", Field("I", 256), "{max_value_exceeded,256}"),
    ("x-max-length", Field("I", -1), "{value_negative,-1}"),
    ("x-max-length-bytes", Field("b", -1), "{value_negative,-1}"),
    ("x-expires", Field("I", 0), "{value_zero,0}"),
    ("x-message-ttl", Field("l", 315360000001), "{value_too_large,315360000001}"),
    ("x-message-ttl", Field("S", "10"), '"expected integer, got longstr"'),
    ("x-overflow", Field("S", "drop-tail"), "invalid_overflow"),
    ("x-overflow", Field("t", True), "{unacceptable_type,bool}"),
    ("x-single-active-consumer", Field("S", "true"), "{unacceptable_type,longstr}"),
    ("x-dead-letter-routing-key", Field("S", "k"), "routing_key_but_no_dlx_defined"),
    ("x-queue-type", Field("S", "bag"), "\"unsupported queue type 'bag'\""),
    ("x-delivery-limit", Field("I", -2), "{value_negative,-2}"),
]


@pytest.mark.parametrize(("name", "value", "text"), BAD_VALUES)
def test_a_bad_value_is_refused_in_the_words_of_rabbitmq(
    name: str, value: Field, text: str
) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        QueueArguments.parse({name: value}, "q", "/")
    assert refused.value.explanation == f"invalid arg '{name}' for queue 'q' in vhost '/': {text}"


def test_a_dead_letter_exchange_that_is_no_string_is_refused() -> None:
    with pytest.raises(PreconditionFailed) as refused:
        QueueArguments.parse({"x-dead-letter-exchange": Field("I", 5)}, "q", "/")
    assert refused.value.explanation == (
        "invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue 'q' in vhost '/'"
    )


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_an_argument_of_a_stream_is_refused(queue_type: str) -> None:
    table: Table = {"x-queue-type": Field("S", queue_type), "x-max-age": Field("S", "1D")}
    with pytest.raises(PreconditionFailed) as refused:
        QueueArguments.parse(table, "q", "/")
    assert refused.value.explanation == (
        "invalid arg 'x-max-age' for queue 'q' in vhost '/' "
        f"of queue type rabbit_{queue_type}_queue"
    )


def test_unknown_and_outlived_arguments_are_ignored() -> None:
    table: Table = {
        "x-queue-mode": Field("S", "lazy"),
        "x-queue-version": Field("I", 2),
        "x-colour": Field("S", "blue"),
    }
    assert QueueArguments.parse(table, "q", "/").is_plain


def test_every_argument_makes_a_queue_that_is_not_plain() -> None:
    assert QueueArguments.parse({}, "q", "/").is_plain
    for table in (
        {"x-message-ttl": Field("I", 0)},
        {"x-max-length": Field("I", 0)},
        {"x-single-active-consumer": Field("t", True)},
        {"x-queue-type": Field("S", "quorum")},
    ):
        assert not QueueArguments.parse(table, "q", "/").is_plain


def test_of_numbers_the_smaller_wins() -> None:
    arguments = QueueArguments(message_ttl_ms=5000, max_length=10)
    merged = arguments.with_policy({"message-ttl": 1000, "max-length": 20, "expires": 9})
    assert (merged.message_ttl_ms, merged.max_length, merged.expires_ms) == (1000, 10, 9)


def test_of_names_the_argument_wins() -> None:
    arguments = QueueArguments(dead_letter_exchange="mine", overflow=Overflow.DROP_HEAD)
    definition = {
        "dead-letter-exchange": "theirs",
        "dead-letter-routing-key": "key",
        "overflow": "reject-publish",
    }
    merged = arguments.with_policy(definition)
    assert merged.dead_letter_exchange == "mine"
    assert merged.dead_letter_routing_key == "key"
    assert merged.overflow is Overflow.DROP_HEAD


def test_the_overflow_of_a_quorum_queue_is_its_policys() -> None:
    arguments = QueueArguments(queue_type=QueueType.QUORUM, overflow=Overflow.DROP_HEAD)
    assert arguments.with_policy({"overflow": "reject-publish"}).overflow is Overflow.REJECT_PUBLISH


def test_a_policy_leaves_alone_what_only_a_declare_can_say() -> None:
    assert QueueArguments().with_policy({"max-priority": 5, "alternate-exchange": "x"}).is_plain


def test_a_policy_with_a_bad_value_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="value_negative"):
        QueueArguments().with_policy({"max-length": -1})
