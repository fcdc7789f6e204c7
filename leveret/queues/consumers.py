"""Consumers of one queue: who is next, and how many messages each may still take."""

from collections.abc import Iterator
from typing import Protocol

from leveret.storage.batch import Batch

UNLIMITED = 1 << 31


class Outlet(Protocol):
    """The channel through which a consumer's deliveries leave."""

    def credit(self) -> int:
        """How many more messages the channel takes in this turn, all its consumers together."""

    @property
    def has_shared_limit(self) -> bool:
        """Do the channel's consumers share a prefetch limit (basic.qos with global)?"""

    def deliver(
        self, consumer: "Consumer", batch: Batch, offsets: range, *, redelivered: bool
    ) -> None:
        """Send the messages of *batch*, which lie at *offsets* of the queue, to *consumer*."""

    def cancelled(self, consumer: "Consumer") -> None:
        """The queue is gone: tell the client, if it wants to know."""


class Consumer:
    """A subscription: a queue, a channel, a tag and its limits.

    `unacked` counts what was delivered to it and is not settled; `prefetch` 0 is no limit.
    """

    __slots__ = ("exclusive", "no_ack", "outlet", "prefetch", "tag", "unacked")

    def __init__(
        self, outlet: Outlet, tag: str, *, no_ack: bool, exclusive: bool, prefetch: int
    ) -> None:
        self.outlet = outlet
        self.tag = tag
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.prefetch = prefetch
        self.unacked = 0

    def credit(self) -> int:
        """How many messages it may be sent now."""
        room = self.outlet.credit()
        if self.no_ack or not self.prefetch:
            return room
        return min(room, self.prefetch - self.unacked)


class ConsumerList:
    """The consumers of a queue in the order of their turns (round robin)."""

    __slots__ = ("_consumers", "_next")

    def __init__(self) -> None:
        self._consumers: list[Consumer] = []
        self._next = 0

    def __len__(self) -> int:
        return len(self._consumers)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self._consumers)

    @property
    def is_exclusive(self) -> bool:
        """Does one consumer hold the queue for itself?"""
        return any(consumer.exclusive for consumer in self._consumers)

    def add(self, consumer: Consumer) -> None:
        """A new consumer; its first turn comes after everybody's."""
        self._consumers.insert(self._next, consumer)
        if len(self._consumers) > 1:
            self._next = (self._next + 1) % len(self._consumers)

    def remove(self, consumer: Consumer) -> None:
        """A consumer is gone; the turns of the others stay."""
        place = self._consumers.index(consumer)
        del self._consumers[place]
        if place < self._next:
            self._next -= 1
        if self._next >= len(self._consumers):
            self._next = 0

    def in_turn(self) -> list[tuple[Consumer, int]]:
        """Those that may be sent messages now, next one first, each with its credit."""
        if len(self._consumers) == 1:
            consumer = self._consumers[0]
            credit = consumer.credit()
            return [(consumer, credit)] if credit > 0 else []
        turns = self._consumers[self._next :] + self._consumers[: self._next]
        return [(consumer, credit) for consumer in turns if (credit := consumer.credit()) > 0]

    def served(self, consumer: Consumer) -> None:
        """*consumer* got the last message: the one behind it is next."""
        if len(self._consumers) > 1:
            self._next = (self._consumers.index(consumer) + 1) % len(self._consumers)
