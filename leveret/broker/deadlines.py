"""Deadlines: which deliveries of a channel have been unacknowledged for too long."""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from leveret.broker.unacked import UnackedLedger
from leveret.queues.consumers import Consumer


class Deadline(NamedTuple):
    """Delivery tags that were sent together, and when they are to be settled."""

    due_ms: int
    tags: range


class Deadlines:
    """Deadlines of the deliveries to consumers that have a timeout; the oldest first of each."""

    __slots__ = ("_by_consumer",)

    def __init__(self) -> None:
        self._by_consumer: dict[Consumer, deque[Deadline]] = {}

    def set(self, consumer: Consumer, tags: range, now_ms: int) -> None:
        """*consumer*, which has a timeout, was sent deliveries tagged *tags*."""
        assert consumer.timeout_ms is not None
        deadlines = self._by_consumer.setdefault(consumer, deque())
        deadlines.append(Deadline(now_ms + consumer.timeout_ms, tags))

    def take_late(
        self, now_ms: int, unacked: UnackedLedger
    ) -> Iterator[tuple[Consumer, list[int]]]:
        """Each consumer with those of its tags that are *unacked* and over their time."""
        for consumer, deadlines in list(self._by_consumer.items()):
            late: list[int] = []
            while deadlines:
                deadline = deadlines[0]
                outstanding = [tag for tag in deadline.tags if tag in unacked]
                if outstanding and deadline.due_ms > now_ms:
                    break
                late += outstanding
                deadlines.popleft()
            if not deadlines:
                del self._by_consumer[consumer]
            if late:
                yield consumer, late
