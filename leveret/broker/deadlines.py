"""Deadlines: which deliveries of a channel have been unacknowledged for too long."""

from collections.abc import Iterator
from typing import NamedTuple

from leveret.broker.unacked import Holder, UnackedLedger


class Deadline(NamedTuple):
    """Delivery tags that were sent together, and when they are to be settled."""

    due_ms: int
    tags: range


class Deadlines:
    """Deadlines of the deliveries to consumers that have a timeout.

    Those of settled deliveries are kept until somebody asks what is late.
    """

    __slots__ = ("_by_holder",)

    def __init__(self) -> None:
        self._by_holder: dict[Holder, list[Deadline]] = {}

    def set(self, holder: Holder, tags: range, due_ms: int) -> None:
        """*holder* was sent deliveries tagged *tags*, to be settled at *due_ms*."""
        self._by_holder.setdefault(holder, []).append(Deadline(due_ms, tags))

    def take_late(self, now_ms: int, unacked: UnackedLedger) -> Iterator[tuple[Holder, list[int]]]:
        """Each holder with those of its tags that are *unacked* and over their time."""
        for holder, deadlines in list(self._by_holder.items()):
            late: list[int] = []
            waiting: list[Deadline] = []
            for deadline in deadlines:
                outstanding = [tag for tag in deadline.tags if tag in unacked]
                if outstanding and deadline.due_ms > now_ms:
                    waiting.append(deadline)
                else:
                    late += outstanding
            if waiting:
                self._by_holder[holder] = waiting
            else:
                del self._by_holder[holder]
            if late:
                yield holder, late
