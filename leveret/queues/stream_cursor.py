"""StreamCursor: where one consumer of a stream is."""

from collections.abc import Callable, Iterable

from leveret.queues.batch_cache import BatchCache
from leveret.queues.outcome import Outcome
from leveret.storage.batch import Batch

Read = Callable[[int], list[Batch]]
"""Reads messages from an offset on."""


class StreamCursor:
    """It begins at *offset*; what it has read ahead stays in memory until it is taken."""

    __slots__ = ("_ahead", "next_offset")

    def __init__(self, offset: int) -> None:
        self.next_offset = offset
        self._ahead = BatchCache(offset)

    def take(self, count: int, max_bytes: int, read: Read) -> list[Batch]:
        """The next messages: at most *count*, about *max_bytes*; *read* has more of them."""
        ahead = self._ahead
        if ahead.start == ahead.end:
            batches = read(self.next_offset)
            if not batches:
                return []
            ahead.restart(batches[0].first_offset)
            for batch in batches:
                ahead.add(batch)
        taken = ahead.take(ahead.start + count, max_bytes)
        self.next_offset = taken[-1].next_offset
        return taken

    def delivered(self, offsets: Iterable[int]) -> None:
        """These messages were sent to the consumer, which nobody remembers."""

    def settled(self, offsets: Iterable[int], outcome: Outcome) -> None:
        """The consumer has answered to these."""


class NamedCursor(StreamCursor):
    """A cursor that knows how far its consumer has come, and tells *on_settled* when it moves."""

    __slots__ = ("_on_settled", "_unsettled", "name")

    def __init__(self, offset: int, name: str, on_settled: Callable[["NamedCursor"], None]) -> None:
        super().__init__(offset)
        self.name = name
        self._on_settled = on_settled
        self._unsettled: set[int] = set()

    def delivered(self, offsets: Iterable[int]) -> None:
        """These messages were sent to the consumer."""
        self._unsettled.update(offsets)

    def settled(self, offsets: Iterable[int], outcome: Outcome) -> None:
        """The consumer is done with these, unless it gave them back."""
        if outcome in (Outcome.ACKED, Outcome.REJECTED):
            self._unsettled.difference_update(offsets)
            self._on_settled(self)

    @property
    def settled_up_to(self) -> int:
        """The offset of the first message that it is not done with."""
        return min(self._unsettled, default=self.next_offset)
