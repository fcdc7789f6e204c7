"""StreamTail: the newest messages of a stream in memory, for those who have read all the others."""

from bisect import bisect_right
from operator import attrgetter

from leveret.queues.batch_cache import CacheBudget, batch_size
from leveret.storage.batch import Batch

TAIL_BYTES = 1024 * 1024

_FIRST_OFFSET = attrgetter("first_offset")


class StreamTail:
    """Batches of consecutive offsets up to the end of the stream.

    Together they have about *TAIL_BYTES*, or less if *budget* is used up.
    """

    __slots__ = ("_batches", "_budget", "_size")

    def __init__(self, budget: CacheBudget) -> None:
        self._budget = budget
        self._batches: list[Batch] = []
        self._size = 0

    def add(self, batches: list[Batch]) -> None:
        """Take what was appended, and drop the oldest for it."""
        self._batches += batches
        self._grow(sum(map(batch_size, batches)))
        room = min(TAIL_BYTES, max(self._budget.limit - self._budget.used + self._size, 0))
        excess = 0
        while excess < len(self._batches) and self._size > room:
            self._grow(-batch_size(self._batches[excess]))
            excess += 1
        del self._batches[:excess]

    def clear(self) -> None:
        """Forget all."""
        self._batches.clear()
        self._grow(-self._size)

    def read(self, offset: int, max_bytes: int) -> list[Batch]:
        """The messages from *offset* on in about *max_bytes*; none if they are not all here."""
        at = bisect_right(self._batches, offset, key=_FIRST_OFFSET) - 1
        if at < 0 or offset >= self._batches[-1].next_offset:
            return []
        found: list[Batch] = []
        for batch in self._batches[at:]:
            if max_bytes <= 0:
                break
            found.append(batch if batch.first_offset >= offset else _from(batch, offset))
            max_bytes -= batch_size(batch)
        return found

    def _grow(self, size: int) -> None:
        self._size += size
        self._budget.used += size


def _from(batch: Batch, offset: int) -> Batch:
    payloads = batch.payloads[offset - batch.first_offset :]
    return Batch(offset, batch.timestamp_ms, batch.attributes, payloads, batch.payload_length)
