"""MessageStore: where a queue keeps its messages, by offset; in memory or in a segment log.

Messages come and go in batches. A message that is read for delivery leaves the store's cache; the
queue then says what becomes of it: `hold` (it will be settled later), or `settle` at once.
"""

from collections import deque
from collections.abc import Callable
from itertools import repeat
from typing import Protocol

from leveret.amqp.errors import InternalError
from leveret.amqp.message import TRANSIENT
from leveret.queues.ready import ReadyRange, ranges_of
from leveret.storage.batch import Batch
from leveret.storage.log import SegmentLog
from leveret.storage.state_log import State

BATCH_LIMIT = 4096
"""Messages in one batch at most, so that a slice of it stays cheap."""
READ_BYTES = 256 * 1024
"""One read of a backlog from the disk."""
MESSAGE_OVERHEAD = 56
"""Bytes that an object of this many bytes costs beside its content: header and a list's slot."""


class CacheBudget:
    """Bytes of message content that all durable queues together may keep in memory."""

    __slots__ = ("limit", "per_queue", "used")

    def __init__(self, limit: int, per_queue: int) -> None:
        self.limit = limit
        self.per_queue = per_queue
        self.used = 0


class MessageStore(Protocol):
    """What a queue needs of its storage."""

    next_offset: int

    def append(
        self, payloads: list[bytes], attributes: int, payload_length: int, now_ms: int
    ) -> None:
        """Give the next offsets to *payloads*; the list itself is not kept."""

    def read(self, wanted: ReadyRange, max_bytes: int) -> list[Batch]:
        """The messages of *wanted*, from its start, about *max_bytes* of them but at least one."""

    def hold(self, batch: Batch) -> None:
        """These messages, just read, were delivered and wait to be settled."""

    def discard(self, batch: Batch) -> None:
        """These messages, just read, need no acknowledgement."""

    def settle(self, offsets: list[int]) -> None:
        """These messages are done with."""

    def settle_ranges(self, ranges: list[tuple[int, int]]) -> None:
        """Every message in *ranges* is done with and was not read."""

    def flush(self) -> SegmentLog | None:
        """What was appended may be read from now on; answers the log that must be synced for it.

        Raises the errors of the log.
        """

    def flush_state(self) -> SegmentLog | None:
        """Write down what was delivered and settled; answers the log whose states wait for a sync.

        Raises the errors of the log.
        """

    def close(self) -> None:
        """Let go of files."""

    def fail(self, error: Exception) -> None:
        """Let go of files as they are, and write nothing more to them."""

    def delete(self) -> None:
        """Let go of everything, on disk too."""


class _Cache:
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

    def add(self, batch: Batch) -> None:
        self._batches.append(batch)
        self.end = batch.next_offset
        self.size += _batch_size(batch)

    def restart(self, offset: int) -> None:
        """Forget all; the next batch will begin at *offset*."""
        self._batches.clear()
        self._taken = 0
        self.end = offset
        self.size = 0

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
            size = _batch_size(piece)
            self.size -= size
            max_bytes -= size
            if self._taken == len(batch.payloads):
                batches.popleft()
                self._taken = 0
            taken.append(piece)
        return taken


class MemoryStore:
    """Messages of a transient queue: they live as long as this process."""

    __slots__ = ("_cache", "_held", "_tail", "next_offset")

    def __init__(self) -> None:
        self.next_offset = 0
        self._cache = _Cache(0)
        self._tail: Batch | None = None
        self._held: dict[int, tuple[int, int, bytes]] = {}

    def append(
        self, payloads: list[bytes], attributes: int, payload_length: int, now_ms: int
    ) -> None:
        first = self.next_offset
        self.next_offset = first + len(payloads)
        if self._tail is not None and _merged(
            self._tail, payloads, attributes, payload_length, now_ms
        ):
            self._cache.end = self.next_offset
            self._cache.size += _payloads_size(payloads, payload_length)
            return
        self._tail = Batch(first, now_ms, attributes, payloads.copy(), payload_length)
        self._cache.add(self._tail)

    def read(self, wanted: ReadyRange, max_bytes: int) -> list[Batch]:
        self._tail = None
        if wanted.start >= self._cache.start:
            return self._cache.take(wanted.stop, max_bytes)
        batches = []
        for offset in range(wanted.start, wanted.stop):
            attributes, now_ms, payload = self._held.pop(offset)
            batches.append(Batch(offset, now_ms, attributes, [payload], len(payload)))
            max_bytes -= len(payload)
            if max_bytes <= 0:
                break
        return batches

    def hold(self, batch: Batch) -> None:
        facts = repeat(batch.attributes), repeat(batch.timestamp_ms)
        offsets = range(batch.first_offset, batch.next_offset)
        self._held.update(zip(offsets, zip(*facts, batch.payloads), strict=True))  # noqa: B905

    def discard(self, batch: Batch) -> None:
        """Nothing to do: reading has removed them."""

    def settle(self, offsets: list[int]) -> None:
        forget = self._held.pop
        for offset in offsets:
            forget(offset, None)

    def settle_ranges(self, ranges: list[tuple[int, int]]) -> None:
        for start, stop in ranges:
            if start >= self._cache.start:
                self._tail = None
                self._cache.restart(stop)
            else:
                self.settle(list(range(start, stop)))

    def flush(self) -> None:
        """Nothing to do: memory is where they stay, and nothing is to be synced."""

    def flush_state(self) -> None:
        """Nothing to do: nobody will ask after a restart."""

    def close(self) -> None:
        self.delete()

    def fail(self, error: Exception) -> None:
        self.delete()

    def delete(self) -> None:
        self._tail = None
        self._cache.restart(self.next_offset)
        self._held.clear()


class DurableStore:
    """Messages of a durable queue: in its segment log, the most recent also in memory.

    The cache holds one run of offsets. While it reaches to the end of the log and has room, new
    messages join it; otherwise they are only written, and reading comes back to them on disk.
    """

    __slots__ = ("_budget", "_cache", "_delivered", "_log", "_new", "_settled", "next_offset")

    def __init__(self, log: SegmentLog, budget: CacheBudget, cursor: int) -> None:
        self._log = log
        self._budget = budget
        self.next_offset = log.next_offset
        self._cache = _Cache(cursor)
        self._new: list[Batch] = []
        self._settled: list[int] = []
        self._delivered: list[tuple[int, int]] = []

    def append(
        self, payloads: list[bytes], attributes: int, payload_length: int, now_ms: int
    ) -> None:
        first = self.next_offset
        self.next_offset = first + len(payloads)
        if self._new and _merged(self._new[-1], payloads, attributes, payload_length, now_ms):
            return
        self._new.append(Batch(first, now_ms, attributes, payloads.copy(), payload_length))

    def flush(self) -> SegmentLog | None:
        if not self._new:
            return None
        batches, self._new = self._new, []
        log = self._log
        for batch in batches:
            log.append(batch)
        log.flush()
        volatile = [
            (batch.first_offset, batch.next_offset)
            for batch in batches
            if batch.attributes & TRANSIENT
        ]
        if volatile:
            log.mark(State.VOLATILE, volatile)
        cache = self._cache
        budget = self._budget
        for batch in batches:
            if cache.end != batch.first_offset:
                break
            if cache.size > budget.per_queue or budget.used > budget.limit:
                break
            before = cache.size
            cache.add(batch)
            budget.used += cache.size - before
        return log

    def read(self, wanted: ReadyRange, max_bytes: int) -> list[Batch]:
        cache = self._cache
        before = cache.size
        if wanted.start < cache.start:
            return self._read_returned(wanted, max_bytes)
        if wanted.start != cache.start or cache.start == cache.end:
            cache.restart(wanted.start)
            for batch in self._log.read(wanted.start, READ_BYTES):
                cache.add(batch)
        batches = cache.take(wanted.stop, max_bytes)
        self._budget.used += cache.size - before
        return batches

    def _read_returned(self, wanted: ReadyRange, max_bytes: int) -> list[Batch]:
        """Messages that were delivered before: not in the cache any more."""
        around = _Cache(wanted.start)
        for batch in self._log.read(wanted.start, min(max_bytes, READ_BYTES)):
            around.add(batch)
        return around.take(wanted.stop, max_bytes)

    def hold(self, batch: Batch) -> None:
        self._delivered.append((batch.first_offset, batch.next_offset))

    def discard(self, batch: Batch) -> None:
        self._settled += range(batch.first_offset, batch.next_offset)

    def settle(self, offsets: list[int]) -> None:
        self._settled += offsets

    def settle_ranges(self, ranges: list[tuple[int, int]]) -> None:
        self._log.mark(State.ACKED, ranges)
        for start, stop in ranges:
            if start <= self._cache.start < stop:
                self._budget.used -= self._cache.size
                self._cache.restart(stop)

    def flush_state(self) -> SegmentLog | None:
        if self._delivered:
            delivered, self._delivered = self._delivered, []
            self._log.mark(State.DELIVERED, delivered)
        if self._settled:
            settled, self._settled = self._settled, []
            self._log.mark(State.ACKED, ranges_of(settled))
        return self._log if self._log.flush_state() else None

    def close(self) -> None:
        self._forget()
        self._log.close()

    def fail(self, error: Exception) -> None:
        self._forget()
        self._log.fail(error)
        self._log.close()

    def delete(self) -> None:
        self._forget()
        self._log.delete()

    def _forget(self) -> None:
        self._budget.used -= self._cache.size
        self._cache.restart(self.next_offset)


class StoppedStore:
    """In the place of a store that failed: it has nothing and takes nothing.

    *delete* removes what the failed one left on disk.
    """

    __slots__ = ("_delete", "_reason", "next_offset")

    def __init__(self, reason: str, next_offset: int, delete: Callable[[], None]) -> None:
        self.next_offset = next_offset
        self._reason = reason
        self._delete = delete

    def append(
        self, payloads: list[bytes], attributes: int, payload_length: int, now_ms: int
    ) -> None:
        raise InternalError(self._reason)

    def read(self, wanted: ReadyRange, max_bytes: int) -> list[Batch]:
        raise InternalError(self._reason)

    def hold(self, batch: Batch) -> None:
        """Nothing to do, here and below: there are no messages."""

    def discard(self, batch: Batch) -> None: ...

    def settle(self, offsets: list[int]) -> None: ...

    def settle_ranges(self, ranges: list[tuple[int, int]]) -> None: ...

    def flush(self) -> None: ...

    def flush_state(self) -> None: ...

    def close(self) -> None: ...

    def fail(self, error: Exception) -> None: ...

    def delete(self) -> None:
        self._delete()


def _merged(
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


def _batch_size(batch: Batch) -> int:
    return _payloads_size(batch.payloads, batch.payload_length)


def _payloads_size(payloads: list[bytes], payload_length: int) -> int:
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
