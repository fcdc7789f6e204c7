"""Deduplication exchange: drops what came before, sends the rest everywhere (RabbitMQ's plugin)."""

from collections.abc import Collection
from dataclasses import dataclass

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.properties import PropertyView
from leveret.exchanges.deduplication import (
    CACHE_PERSISTENCE,
    CACHE_SIZE,
    DEDUPLICATION,
    DeduplicationArguments,
)
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange import Exchange


@dataclass(eq=False)
class DeduplicationExchange(Exchange):
    """Routes as a fanout exchange. The argument `x-cache-size` is required.

    `x-cache-persistence` is checked only: the cache of a durable exchange is on disk anyway.
    """

    type_name = DEDUPLICATION

    def __post_init__(self) -> None:
        super().__post_init__()
        if CACHE_SIZE not in self.arguments:
            raise PreconditionFailed(
                f"Missing or invalid argument, '{CACHE_SIZE}' must be an integer greater than 0"
            )
        persistence = self.arguments.get(CACHE_PERSISTENCE)
        if persistence is not None and persistence.value not in ("disk", "memory"):
            raise PreconditionFailed(
                f"Invalid argument, '{CACHE_PERSISTENCE}' must be either 'disk' or 'memory'"
            )
        self.deduplication = DeduplicationArguments.read(self.arguments, self)

    def destinations(self, routing_key: str, properties: PropertyView) -> Collection[Destination]:
        """All destinations."""
        return self.bindings_by_destination
