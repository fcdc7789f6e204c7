"""StreamCursor: where one consumer of a stream is."""

from collections.abc import Callable, Iterable

from leveret.queues.batch_cache import BatchCache
from leveret.queues.outcome import Outcome
from leveret.queues.stream_filter import StreamFilter
from leveret.storage.batch import Batch

Read = Callable[[int], list[Batch]]
"""Reads messages from an offset on."""


class StreamCursor:
    """It begins at *offset*; what it has read ahead stays in memory until it is taken.

    With a `filter` it passes over all else.
    """

    __slots__ = ("_ahead", "_read_up_to", "filter", "next_offset")

    def __init__(self, offset: int) -> None:
        self.next_offset = offset
        self.filter: StreamFilter | None = None
        self._ahead = BatchCache(offset)
        self._read_up_to = offset

    def take(self, count: int, max_bytes: int, read: Read) -> list[Batch]:
        """The next messages: at most *count*, about *max_bytes*; *read* has more of them.

        There may be none though there are more behind `next_offset`, which has moved then.
        """
        ahead = self._ahead
        if ahead.start == ahead.end:
            self._read_ahead(read(self.next_offset))
        taken = ahead.take(ahead.start + count, max_bytes)
        self.next_offset = self._read_up_to if ahead.start == ahead.end else ahead.start
        return taken

    def _read_ahead(self, batches: list[Batch]) -> None:
        if not batches:
            return
        self._read_up_to = batches[-1].next_offset
        if self.filter is not None:
            batches = self.filter.pick(batches)
        for batch in batches:
            if batch is batches[0]:
                self._ahead.restart(batch.first_offset)
            self._ahead.add(batch)

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
