"""QueueArguments: the optional arguments of a queue, checked once and typed (RabbitMQ's x-...).

The same names without `x-` are the keys of policies; `with_policy` merges them. Reply texts are
those of RabbitMQ.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, NamedTuple, Self

from leveret.amqp.constants import SHORT_STRING_MAX
from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.tables import INTEGER_TAGS, Field, Table, type_name
from leveret.storage.retention import Retention

MAX_EXPIRY_MS = 315_360_000_000
"""Ten years, the longest time that RabbitMQ takes for a TTL."""
MAX_PRIORITY = 255
MAX_STREAM_SEGMENT_BYTES = 3_000_000_000
"""What RabbitMQ takes; a segment here is never larger than 1 GiB."""

_INTERVAL = re.compile(r"([0-9]+)([YMDhms])")
_SECONDS = {"Y": 365 * 86400, "M": 30 * 86400, "D": 86400, "h": 3600, "m": 60, "s": 1}
"""Units of an interval, as RabbitMQ counts them in x-max-age."""


class QueueType(StrEnum):
    """Types of queue that can be declared."""

    CLASSIC = "classic"
    QUORUM = "quorum"
    STREAM = "stream"


class Overflow(StrEnum):
    """What gives way when a queue is full."""

    DROP_HEAD = "drop-head"
    REJECT_PUBLISH = "reject-publish"
    REJECT_PUBLISH_DLX = "reject-publish-dlx"


class DeadLetterStrategy(StrEnum):
    """Whether a message stays in its queue until its dead letter is safe."""

    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"


class RetryType(StrEnum):
    """Which returned messages are held back before they are ready again."""

    DISABLED = "disabled"
    ALL = "all"
    FAILED = "failed"
    RETURNED = "returned"


class TimeoutAction(StrEnum):
    """What happens when a delivery is not acknowledged in time."""

    CLOSE = "close"
    REQUEUE = "requeue"


class InvalidArgument(ValueError):
    """A value that the argument cannot have; the message is the end of RabbitMQ's reply text."""


@dataclass(frozen=True, slots=True)
class QueueArguments:
    """What a queue does beyond keeping messages. None: not asked for. Times are milliseconds."""

    queue_type: QueueType = QueueType.CLASSIC
    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: Overflow | None = None
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    dead_letter_strategy: DeadLetterStrategy | None = None
    max_priority: int | None = None
    single_active_consumer: bool = False
    delivery_limit: int | None = None
    delayed_retry_type: RetryType | None = None
    delayed_retry_min_ms: int | None = None
    delayed_retry_max_ms: int | None = None
    consumer_timeout_ms: int | None = None
    consumer_timeout_action: TimeoutAction | None = None
    deduplicates: bool = False
    cache_size: int | None = None
    cache_ttl_ms: int | None = None
    deduplication_header: str | None = None
    retain_age_ms: int | None = None
    retain_bytes: int | None = None
    max_age_ms: int | None = None
    segment_bytes: int | None = None
    filter_bytes: int | None = None

    @classmethod
    def parse(cls, table: Table, queue_name: str, vhost_name: str) -> Self:
        """Check the arguments of a declare.

        Unknown names are ignored, as RabbitMQ does. Raises PreconditionFailed.
        """
        where = f"queue '{queue_name}' in vhost '{vhost_name}'"
        values: dict[str, object] = {}
        for name, field in table.items():
            rule = RULES.get(name)
            if rule is None:
                continue
            try:
                values[rule.field] = rule.check(field)
            except InvalidArgument as error:
                if name == "x-dead-letter-exchange":
                    raise PreconditionFailed(
                        f"invalid type '{type_name(field)}' for arg '{name}' in {where}"
                    ) from None
                raise PreconditionFailed(f"invalid arg '{name}' for {where}: {error}") from None
        parsed = cls(**values)  # type: ignore[arg-type]  # each check answers its field's type
        for name in table:
            if name in _FOREIGN[parsed.queue_type]:
                raise PreconditionFailed(
                    f"invalid arg '{name}' for {where} "
                    f"of queue type rabbit_{parsed.queue_type}_queue"
                )
        if "x-dead-letter-routing-key" in table and parsed.dead_letter_exchange is None:
            raise PreconditionFailed(
                f"invalid arg 'x-dead-letter-routing-key' for {where}: "
                "routing_key_but_no_dlx_defined"
            )
        return parsed

    def with_policy(self, definition: Mapping[str, object]) -> Self:
        """These arguments with those of a policy, whose keys are the names without `x-`.

        Numbers: the smaller wins. Others: the argument wins, but for the overflow of a quorum
        queue. Of a stream the policy wins. Keys that are not of queues of this type are ignored.
        Raises InvalidArgument.
        """
        changes: dict[str, object] = {}
        for key, value in definition.items():
            rule = RULES.get(f"x-{key}")
            if rule is None or not rule.in_policies:
                continue
            theirs = rule.check(_as_field(value))
            if f"x-{key}" in _FOREIGN[self.queue_type]:
                continue
            ours = getattr(self, rule.field)
            if ours is None or self.queue_type is QueueType.STREAM:
                changes[rule.field] = theirs
            elif isinstance(ours, int):
                changes[rule.field] = min(ours, theirs)
            elif rule.field == "overflow" and self.queue_type is QueueType.QUORUM:
                changes[rule.field] = theirs
        return replace(self, **changes)  # type: ignore[arg-type]  # as in parse

    @property
    def is_plain(self) -> bool:
        """Is there nothing but first in, first out?"""
        return all(
            getattr(self, field.name) == field.default
            for field in fields(self)
            if field.name not in _NOT_RULES
        ) and (self.queue_type is QueueType.CLASSIC)

    @property
    def retention(self) -> Retention | None:
        """How long the settled messages stay on disk; None: no longer than they must."""
        if self.retain_age_ms is None and self.retain_bytes is None:
            return None
        if 0 in (self.retain_age_ms, self.retain_bytes):
            return None
        return Retention(self.retain_age_ms, self.retain_bytes)

    @property
    def counts_tries(self) -> bool:
        """Must it be known how often a message was handed out, and how often that failed?"""
        return (
            self.queue_type is QueueType.QUORUM
            or self.delivery_limit is not None
            or self.delayed_retry_min_ms is not None
        )


_NOT_RULES = frozenset(("queue_type", "retain_age_ms", "retain_bytes"))
"""Fields that change nothing in how messages come and go."""


class _Rule(NamedTuple):
    """An argument: its field in QueueArguments, its check, and whether policies may set it."""

    field: str
    check: Callable[[Field], Any]
    in_policies: bool = True


def _as_field(value: object) -> Field:
    """A value of a policy's JSON as a client would send it."""
    if isinstance(value, bool):
        return Field("t", value)
    if isinstance(value, int):
        return Field("l", value)
    if isinstance(value, float):
        return Field("d", value)
    if isinstance(value, str):
        return Field("S", value)
    raise InvalidArgument(f"unexpected value {value!r}")


def integer(field: Field) -> int:
    """Check for an integer of any width."""
    if field.tag not in INTEGER_TAGS:
        raise InvalidArgument(f'"expected integer, got {type_name(field)}"')
    assert isinstance(field.value, int)
    return field.value


def natural(field: Field) -> int:
    """Check for an integer that is not negative."""
    value = integer(field)
    if value < 0:
        raise InvalidArgument(f"{{value_negative,{value}}}")
    return value


def expiry(field: Field) -> int:
    """Check for a time to live in milliseconds."""
    value = natural(field)
    if value > MAX_EXPIRY_MS:
        raise InvalidArgument(f"{{value_too_large,{value}}}")
    return value


def _positive_expiry(field: Field) -> int:
    value = expiry(field)
    if not value:
        raise InvalidArgument("{value_zero,0}")
    return value


def _positive(field: Field) -> int:
    value = natural(field)
    if not value:
        raise InvalidArgument("{value_zero,0}")
    return value


def _retain_age(field: Field) -> int:
    """Check for an interval: a number of seconds, or a number with its unit; in milliseconds."""
    if field.tag in INTEGER_TAGS:
        return natural(field) * 1000
    return interval(field, "invalid_retain_age")


def _max_age(field: Field) -> int:
    return interval(field, "invalid_max_age")


def interval(field: Field, reason: str) -> int:
    """Check for a number with its unit; in milliseconds. *reason* is why it is refused."""
    match = _INTERVAL.fullmatch(_text(field))
    if match is None:
        raise InvalidArgument(reason)
    return int(match[1]) * _SECONDS[match[2]] * 1000


def _segment_bytes(field: Field) -> int:
    value = _positive(field)
    if value > MAX_STREAM_SEGMENT_BYTES:
        raise InvalidArgument(f"{{value_too_large,{value}}}")
    return value


def _filter_bytes(field: Field) -> int:
    value = natural(field)
    if not 16 <= value <= 255:
        raise InvalidArgument(f"{{value_out_of_range,{value}}}")
    return value


def _max_priority(field: Field) -> int:
    value = natural(field)
    if value > MAX_PRIORITY:
        raise InvalidArgument(f"{{max_value_exceeded,{value}}}")
    return value


def _boolean(field: Field) -> bool:
    if field.tag != "t":
        raise InvalidArgument(f"{{unacceptable_type,{type_name(field)}}}")
    return bool(field.value)


def _text(field: Field) -> str:
    if field.tag != "S" or not isinstance(field.value, str):
        raise InvalidArgument(f"{{unacceptable_type,{type_name(field)}}}")
    return field.value


def _short_text(field: Field) -> str:
    text = _text(field)
    if len(text.encode()) > SHORT_STRING_MAX:
        raise InvalidArgument(f"longer than {SHORT_STRING_MAX} bytes")
    return text


def _one_of(choices: type[StrEnum], reason: str) -> Callable[[Field], StrEnum]:
    def check(field: Field) -> StrEnum:
        text = _text(field)
        try:
            return choices(text)
        except ValueError:
            raise InvalidArgument(reason) from None

    return check


def _queue_type(field: Field) -> QueueType:
    text = _text(field)
    try:
        return QueueType(text)
    except ValueError:
        raise InvalidArgument(f"\"unsupported queue type '{text}'\"") from None


RULES: Mapping[str, _Rule] = {
    "x-queue-type": _Rule("queue_type", _queue_type, in_policies=False),
    "x-message-ttl": _Rule("message_ttl_ms", expiry),
    "x-expires": _Rule("expires_ms", _positive_expiry),
    "x-max-length": _Rule("max_length", natural),
    "x-max-length-bytes": _Rule("max_length_bytes", natural),
    "x-overflow": _Rule("overflow", _one_of(Overflow, "invalid_overflow")),
    "x-dead-letter-exchange": _Rule("dead_letter_exchange", _text),
    "x-dead-letter-routing-key": _Rule("dead_letter_routing_key", _short_text),
    "x-dead-letter-strategy": _Rule(
        "dead_letter_strategy", _one_of(DeadLetterStrategy, "invalid_dlx_strategy")
    ),
    "x-max-priority": _Rule("max_priority", _max_priority, in_policies=False),
    "x-single-active-consumer": _Rule("single_active_consumer", _boolean, in_policies=False),
    "x-delivery-limit": _Rule("delivery_limit", natural),
    "x-delayed-retry-type": _Rule(
        "delayed_retry_type", _one_of(RetryType, "invalid_delayed_retry_type")
    ),
    "x-delayed-retry-min": _Rule("delayed_retry_min_ms", expiry),
    "x-delayed-retry-max": _Rule("delayed_retry_max_ms", expiry),
    "x-consumer-timeout": _Rule("consumer_timeout_ms", natural),
    "x-consumer-timeout-action": _Rule(
        "consumer_timeout_action", _one_of(TimeoutAction, "invalid_consumer_timeout_action")
    ),
    "x-message-deduplication": _Rule("deduplicates", _boolean, in_policies=False),
    "x-cache-size": _Rule("cache_size", _positive, in_policies=False),
    "x-cache-ttl": _Rule("cache_ttl_ms", _positive_expiry, in_policies=False),
    "x-deduplication-header": _Rule("deduplication_header", _text, in_policies=False),
    "x-retain-age": _Rule("retain_age_ms", _retain_age),
    "x-retain-bytes": _Rule("retain_bytes", natural),
    "x-max-age": _Rule("max_age_ms", _max_age),
    "x-stream-max-segment-size-bytes": _Rule("segment_bytes", _segment_bytes),
    "x-stream-filter-size-bytes": _Rule("filter_bytes", _filter_bytes),
}
"""The arguments that mean something here; x-queue-mode and x-queue-version mean nothing."""

_OF_STREAMS = frozenset(
    (
        "x-max-age",
        "x-stream-max-segment-size-bytes",
        "x-stream-filter-size-bytes",
        "x-initial-cluster-size",
    )
)
_FOR_STREAMS = _OF_STREAMS | {"x-queue-type", "x-max-length", "x-max-length-bytes"}
_FOREIGN: Mapping[QueueType, frozenset[str]] = {
    QueueType.CLASSIC: _OF_STREAMS
    | {"x-quorum-initial-group-size", "x-quorum-target-group-size", "x-max-in-memory-length"},
    QueueType.QUORUM: _OF_STREAMS,
    QueueType.STREAM: frozenset(
        (
            *(RULES.keys() - _FOR_STREAMS),
            "x-quorum-initial-group-size",
            "x-quorum-target-group-size",
            "x-max-in-memory-length",
        )
    ),
}
"""Arguments that RabbitMQ refuses for the type. Those that a type lacks there are served here."""
