"""Outcome: what becomes of a delivery."""

from enum import Enum, auto


class Outcome(Enum):
    """How a delivery ends. The last two make the message ready again."""

    ACKED = auto()
    REJECTED = auto()
    """Refused for good: dead-lettered where there is a dead letter exchange."""
    RETURNED = auto()
    """Given back by its consumer (basic.nack, basic.recover)."""
    FAILED = auto()
    """Not managed: basic.reject with requeue, or the channel or connection was lost."""
