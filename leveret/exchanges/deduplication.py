"""Deduplication: what an exchange was told about finding messages that came before.

There are two ways to ask for it: the exchange type `x-message-deduplication` (RabbitMQ's plugin),
and the argument `x-message-deduplication: true` on an exchange of any type (LavinMQ).
"""

import re
from dataclasses import dataclass
from typing import Self

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.tables import Field, Table
from leveret.exchanges.arguments import flag_argument, positive_integer, text_argument

DEDUPLICATION = "x-message-deduplication"
CACHE_SIZE = "x-cache-size"
CACHE_TTL = "x-cache-ttl"
CACHE_PERSISTENCE = "x-cache-persistence"
DEDUPLICATION_HEADER = "x-deduplication-header"
DEFAULT_CACHE_SIZE = 128


@dataclass(frozen=True, slots=True)
class DeduplicationArguments:
    """How many values of which header are remembered, and for how long (None: no limit)."""

    cache_size: int = DEFAULT_CACHE_SIZE
    cache_ttl_ms: int | None = None
    header: str = DEDUPLICATION_HEADER

    @classmethod
    def asked_for(cls, arguments: Table, owner: object) -> Self | None:
        """What an exchange of any type asks for, None unless `x-message-deduplication` is true.

        Raises PreconditionFailed, naming *owner*.
        """
        return (
            cls.read(arguments, owner) if flag_argument(arguments, DEDUPLICATION, owner) else None
        )

    @classmethod
    def read(cls, arguments: Table, owner: object) -> Self:
        """Read and check *arguments*. Raises PreconditionFailed, naming *owner*."""
        size = _above_zero(arguments, CACHE_SIZE)
        return cls(
            DEFAULT_CACHE_SIZE if size is None else size,
            _above_zero(arguments, CACHE_TTL),
            text_argument(arguments, DEDUPLICATION_HEADER, owner) or DEDUPLICATION_HEADER,
        )


def _above_zero(arguments: Table, name: str) -> int | None:
    argument = arguments.get(name)
    if argument is None:
        return None
    if isinstance(argument.value, str) and re.fullmatch("[0-9]+", argument.value):
        argument = Field("l", int(argument.value))  # the plugin takes digits, too
    value = positive_integer(argument)
    if value is None:
        raise PreconditionFailed(f"Invalid argument, '{name}' must be an integer greater than 0")
    return value
