"""BatchCache: a run of messages in memory, and what all such caches together may hold."""

from collections import deque

from leveret.storage.batch import Batch

BATCH_LIMIT = 4096
"""Messages in one batch at most, so that a slice of it stays cheap."""
MESSAGE_OVERHEAD = 56
"""Bytes that a message costs beside its content: the object's header and a list's slot."""


class CacheBudget:
    """Bytes of message content that all durable queues together may keep in memory."""

    __slots__ = ("limit", "per_queue", "used")

    def __init__(self, limit: int, per_queue: int) -> None:
        self.limit = limit
        self.per_queue = per_queue
        self.used = 0


class BatchCache:
    """Batches of consecutive offsets, read from the front, appended at the back."""

    __slots__ = ("_batches", "_taken", "end", "size")

    def __init__(self, start: int) -> None:
        self._batches: deque[Batch] = deque()
        self._taken = 0
        self.end = start
        self.size = 0

    @property
    def start(self) -> int:
        """First offset in the cache; its end if it is empty."""
        return self._batches[0].first_offset + self._taken if self._batches else self.end

    @property
    def first(self) -> Batch:
        """The batch at the front, of which what lies before `start` has been taken."""
        return self._batches[0]

    def add(self, batch: Batch) -> None:
        """Append *batch*, which begins at `end`."""
        self._batches.append(batch)
        self.end = batch.next_offset
        self.size += batch_size(batch)

    def restart(self, offset: int) -> None:
        """Forget all; the next batch will begin at *offset*."""
        self._batches.clear()
        self._taken = 0
        self.end = offset
        self.size = 0

    def view(self, start: int, stop: int) -> list[Batch]:
        """What lies in [start, stop), without taking it; *start* is not before `start`."""
        found = []
        for batch in self._batches:
            low = max(start, batch.first_offset) - batch.first_offset
            high = min(stop, batch.next_offset) - batch.first_offset
            if low < high:
                payloads = batch.payloads[low:high]
                found.append(
                    Batch(
                        batch.first_offset + low,
                        batch.timestamp_ms,
                        batch.attributes,
                        payloads,
                        batch.payload_length,
                    )
                )
        return found

    def take(self, stop: int, max_bytes: int) -> list[Batch]:
        """Remove and answer what lies before offset *stop*, about *max_bytes* of it."""
        taken: list[Batch] = []
        batches = self._batches
        while batches and max_bytes > 0:
            batch = batches[0]
            first = batch.first_offset + self._taken
            count = min(batch.next_offset, stop) - first
            if count <= 0:
                break
            if batch.payload_length:
                count = min(count, max(1, max_bytes // batch.payload_length))
            elif count > 1:
                count = _count_within(batch.payloads, self._taken, count, max_bytes)
            if self._taken == 0 and count == len(batch.payloads):
                piece = batch
            else:
                payloads = batch.payloads[self._taken : self._taken + count]
                piece = Batch(
                    first, batch.timestamp_ms, batch.attributes, payloads, batch.payload_length
                )
            self._taken += count
            size = batch_size(piece)
            self.size -= size
            max_bytes -= size
            if self._taken == len(batch.payloads):
                batches.popleft()
                self._taken = 0
            taken.append(piece)
        return taken


def extend_batch(
    tail: Batch, payloads: list[bytes], attributes: int, payload_length: int, now_ms: int
) -> bool:
    """Extend *tail* by *payloads* if they are alike."""
    if (
        tail.attributes != attributes
        or tail.timestamp_ms != now_ms
        or len(tail.payloads) >= BATCH_LIMIT
    ):
        return False
    tail.payloads += payloads
    if tail.payload_length != payload_length:
        tail.payload_length = 0
    return True


def batch_size(batch: Batch) -> int:
    """Bytes of memory that *batch* holds."""
    return payloads_size(batch.payloads, batch.payload_length)


def payloads_size(payloads: list[bytes], payload_length: int) -> int:
    """Bytes of memory that *payloads* hold; *payload_length* as in a Batch."""
    if payload_length:
        return len(payloads) * (payload_length + MESSAGE_OVERHEAD)
    return sum(map(len, payloads)) + len(payloads) * MESSAGE_OVERHEAD


def _count_within(payloads: list[bytes], start: int, count: int, max_bytes: int) -> int:
    """How many payloads from *start* on fit into *max_bytes*: at least one, at most *count*."""
    for number in range(count):
        max_bytes -= len(payloads[start + number])
        if max_bytes <= 0:
            return number + 1
    return count
