"""StreamCursor: where one consumer of a stream is."""

from collections.abc import Callable

from leveret.queues.batch_cache import BatchCache
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
