"""Timestamps that the broker puts on messages as they come in (RabbitMQ's message interceptor)."""

from enum import StrEnum

from leveret.amqp.properties import PropertyView
from leveret.amqp.tables import Field

HEADER = "timestamp_in_ms"
"""RabbitMQ's name: the property `timestamp` has seconds only."""


class Timestamping(StrEnum):
    """Which messages get a timestamp."""

    NEVER = "never"
    MISSING = "missing"
    ALWAYS = "always"


def stamped(properties: PropertyView, rule: Timestamping, now_ms: int) -> bytes | None:
    """The payload of a content header with a timestamp of *now_ms*; None if it keeps its own."""
    if rule is Timestamping.MISSING and properties.timestamp is not None:
        return None
    headers = dict(properties.headers or {})
    headers[HEADER] = Field("l", now_ms)
    return properties.with_changes(timestamp=now_ms // 1000, headers=headers)
