"""DurableStore: the messages of a durable queue."""

from collections.abc import Sequence

from leveret.amqp.message import TRANSIENT
from leveret.queues.batch_cache import BatchCache, CacheBudget, extend_batch
from leveret.queues.ready import ReadyRange, ranges_of
from leveret.storage.batch import Batch
from leveret.storage.log import SegmentLog
from leveret.storage.state_log import State

READ_BYTES = 256 * 1024
"""One read of a backlog from the disk."""
READ_BYTES_EACH = 4096
"""The same for each message, where only a few are wanted."""


class DurableStore:
    """Messages of a durable queue: in its segment log, the most recent also in memory.

    The cache holds one run of offsets. While it reaches to the end of the log and has room, new
    messages join it; otherwise they are only written, and reading comes back to them on disk.
    """

    __slots__ = (
        "_budget",
        "_cache",
        "_delivered",
        "_ended",
        "_is_lasting",
        "_log",
        "_new",
        "_settled",
        "_unwritten",
        "next_offset",
    )

    def __init__(self, log: SegmentLog, budget: CacheBudget, cursor: int) -> None:
        self._log = log
        self._budget = budget
        self._is_lasting = log.next_offset > 0  # is there perhaps a persistent message?
        self.next_offset = log.next_offset
        self._cache = BatchCache(cursor)
        self._new: list[Batch] = []
        self._unwritten: list[Batch] = []  # with the log, which found the disk full
        self._settled: list[int] = []
        self._ended: dict[State, list[int]] = {}  # settled otherwise than by an acknowledgement
        self._delivered: list[tuple[int, int]] = []

    @property
    def log(self) -> SegmentLog:
        return self._log

    @property
    def disk_bytes(self) -> int:
        return self._log.disk_bytes

    def append(
        self, payloads: list[bytes], attributes: int, payload_length: int, now_ms: int
    ) -> None:
        first = self.next_offset
        self.next_offset = first + len(payloads)
        if self._new and extend_batch(self._new[-1], payloads, attributes, payload_length, now_ms):
            return
        self._new.append(Batch(first, now_ms, attributes, payloads.copy(), payload_length))

    def flush(self) -> SegmentLog | None:
        if not self._new and not self._unwritten:
            return None
        batches = self._write()
        volatile = [
            (batch.first_offset, batch.next_offset)
            for batch in batches
            if batch.attributes & TRANSIENT
        ]
        if volatile:
            self._log.mark(State.VOLATILE, volatile)
        self._remember(batches)
        if len(volatile) == len(batches):
            return None  # a start forgets them
        self._is_lasting = True
        return self._log

    def _write(self) -> list[Batch]:
        """Write what was appended, and what found the disk full before; answers all of it."""
        for batch in self._new:
            self._log.append(batch)
        self._unwritten += self._new
        self._new = []
        self._log.flush()
        batches, self._unwritten = self._unwritten, []
        return batches

    def _remember(self, batches: list[Batch]) -> None:
        """Keep what has just been written, as far as there is room."""
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

    def read(self, wanted: ReadyRange, max_bytes: int) -> list[Batch]:
        cache = self._cache
        start = cache.start
        if wanted.start < start:
            return self._read_log(wanted.start, wanted.stop, max_bytes)
        if wanted.start != start or start == cache.end:
            self._load(wanted.start)
        before = cache.size
        batches = cache.take(wanted.stop, max_bytes)
        self._budget.used += cache.size - before
        return batches

    def peek(self, wanted: ReadyRange) -> Batch:
        # A look is not worth memory: of many queues it may be all that anybody wants.
        if wanted.start == self._cache.start != self._cache.end:
            return self._cache.first
        return self._read_log(wanted.start, wanted.start + 1, 1)[0]

    def fetch(self, start: int, stop: int) -> list[Batch]:
        batches: list[Batch] = []
        while start < stop:
            batches += self._read_log(start, stop, READ_BYTES)
            start = batches[-1].next_offset
        return batches

    def _load(self, start: int) -> None:
        """Have the cache begin at *start*, which is not before its own start."""
        cache = self._cache
        if start == cache.start != cache.end:
            return
        before = cache.size
        cache.restart(start)
        for batch in self._log.read(start, READ_BYTES):
            cache.add(batch)
        self._budget.used += cache.size - before

    def _read_log(self, start: int, stop: int, max_bytes: int) -> list[Batch]:
        """Messages that were delivered before: not in the cache any more."""
        around = BatchCache(start)
        room = min(max_bytes, READ_BYTES, (stop - start) * READ_BYTES_EACH)
        for batch in self._log.read(start, room):
            around.add(batch)
        return around.take(stop, max_bytes)

    def hold(self, batch: Batch, offsets: Sequence[int]) -> None:
        if isinstance(offsets, range) and offsets.step == 1:
            self._delivered.append((offsets.start, offsets.stop))
        else:
            self._delivered += ranges_of(list(offsets))

    def discard(self, offsets: Sequence[int], state: State = State.ACKED) -> None:
        if state is State.ACKED:
            self._settled += offsets
        else:
            self._ended.setdefault(state, []).extend(offsets)

    def note(self, state: State, offsets: list[int]) -> None:
        self._log.mark(state, ranges_of(offsets))

    def settle(self, offsets: list[int], state: State = State.ACKED) -> None:
        self.discard(offsets, state)

    def settle_ranges(self, ranges: list[tuple[int, int]]) -> None:
        self._log.mark(State.PURGED, ranges)
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
        if self._ended:
            for state, offsets in self._ended.items():
                self._log.mark(state, ranges_of(offsets))
            self._ended = {}
        is_written = self._log.flush_state()
        return self._log if is_written and self._is_lasting else None

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
