"""Consumers of one queue: who is next, and how many messages each may still take."""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Protocol

from leveret.queues.stream_cursor import StreamCursor
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
        self, consumer: "Consumer", batch: Batch, offsets: Sequence[int], *, redelivered: bool
    ) -> None:
        """Send the messages of *batch*, which lie at *offsets* of the queue, to *consumer*."""

    def cancelled(self, consumer: "Consumer") -> None:
        """The queue is gone: tell the client, if it wants to know."""


class Consumer:
    """A subscription: a queue, a channel, a tag and its limits.

    `unacked` counts what was delivered to it and is not settled; `prefetch` 0 is no limit. The
    higher `priority` goes first. `timeout_ms` limits how long a delivery may stay unacked.
    `cursor` is where it is in a stream.
    """

    __slots__ = (
        "cursor",
        "exclusive",
        "no_ack",
        "outlet",
        "prefetch",
        "priority",
        "tag",
        "timeout_ms",
        "unacked",
    )

    def __init__(
        self,
        outlet: Outlet,
        tag: str,
        *,
        no_ack: bool,
        exclusive: bool,
        prefetch: int,
        priority: int = 0,
        timeout_ms: int | None = None,
        cursor: StreamCursor | None = None,
    ) -> None:
        self.outlet = outlet
        self.tag = tag
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.prefetch = prefetch
        self.priority = priority
        self.timeout_ms = timeout_ms
        self.cursor = cursor
        self.unacked = 0

    def credit(self) -> int:
        """How many messages it may be sent now."""
        room = self.outlet.credit()
        if self.no_ack or not self.prefetch:
            return room
        return min(room, self.prefetch - self.unacked)


_PRIORITY = attrgetter("priority")


class ConsumerList:
    """The consumers of a queue: those of the highest priority first, equals round robin.

    With `single_active` one of them gets everything until it goes; the first of the highest
    priority is next. With `by_priority` that one also takes over from a lower one as soon as that
    has settled what it has.
    """

    __slots__ = ("_active", "_consumers", "_has_ranks", "_next", "by_priority", "single_active")

    def __init__(self, *, single_active: bool = False, by_priority: bool = False) -> None:
        self.single_active = single_active
        self.by_priority = by_priority
        self._consumers: list[Consumer] = []
        self._next = 0
        self._has_ranks = False
        self._active: Consumer | None = None

    def __len__(self) -> int:
        return len(self._consumers)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self._consumers)

    @property
    def is_exclusive(self) -> bool:
        """Does one consumer hold the queue for itself?"""
        return any(consumer.exclusive for consumer in self._consumers)

    @property
    def active(self) -> Consumer | None:
        """The single active consumer, if there is one."""
        return self._active

    def add(self, consumer: Consumer) -> None:
        """A new consumer; its first turn comes after everybody's."""
        self._consumers.insert(self._next, consumer)
        if len(self._consumers) > 1:
            self._next = (self._next + 1) % len(self._consumers)
        if self.single_active:
            # In the order of their arrival: nobody takes turns.
            self._consumers.remove(consumer)
            self._consumers.append(consumer)
            if self._active is None:
                self._active = consumer
        self._rank()

    def remove(self, consumer: Consumer) -> None:
        """A consumer is gone; the turns of the others stay."""
        place = self._consumers.index(consumer)
        del self._consumers[place]
        if place < self._next:
            self._next -= 1
        if self._next >= len(self._consumers):
            self._next = 0
        if consumer is self._active:
            self._active = self._successor()
        self._rank()

    def _rank(self) -> None:
        self._has_ranks = len({consumer.priority for consumer in self._consumers}) > 1

    def _successor(self) -> Consumer | None:
        return max(self._consumers, key=_PRIORITY, default=None)

    def in_turn(self) -> list[tuple[Consumer, int]]:
        """Those that may be sent messages now, next one first, each with its credit."""
        if self.single_active:
            return self._active_in_turn()
        if len(self._consumers) == 1:
            consumer = self._consumers[0]
            credit = consumer.credit()
            return [(consumer, credit)] if credit > 0 else []
        turns = self._consumers[self._next :] + self._consumers[: self._next]
        able = [(consumer, credit) for consumer in turns if (credit := consumer.credit()) > 0]
        if self._has_ranks and able:
            highest = max(consumer.priority for consumer, _ in able)
            return [turn for turn in able if turn[0].priority == highest]
        return able

    def _active_in_turn(self) -> list[tuple[Consumer, int]]:
        active = self._active
        if active is None:
            return []
        if self.by_priority and self._has_ranks:
            successor = self._successor()
            if successor is not None and successor.priority > active.priority:
                if active.unacked:
                    return []
                self._active = active = successor
        credit = active.credit()
        return [(active, credit)] if credit > 0 else []

    def served(self, consumer: Consumer) -> None:
        """*consumer* got the last message: the one behind it is next."""
        if len(self._consumers) > 1 and not self.single_active:
            self._next = (self._consumers.index(consumer) + 1) % len(self._consumers)
