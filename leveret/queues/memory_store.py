"""MemoryStore: the messages of a transient queue."""

from collections import deque
from collections.abc import Sequence
from itertools import repeat
from operator import itemgetter

from leveret.queues.batch_cache import (
    MESSAGE_OVERHEAD,
    BatchCache,
    CacheBudget,
    batch_size,
    extend_batch,
    payloads_size,
)
from leveret.queues.ready import ReadyRange, ranges_of
from leveret.queues.spill import READ_BYTES, SpillArea, SpilledRun
from leveret.storage.batch import Batch
from leveret.storage.offset_set import clip_intervals
from leveret.storage.state_log import State

UNLIMITED = 1 << 62
HELD_OVERHEAD = 208
"""Bytes that a message costs beside its content while it is held: in a dict, with its facts."""


class MemoryStore:
    """Messages of a transient queue: they live as long as this process.

    The oldest are in memory, up to the budget of *area*. What comes behind them is written to a
    run there, and read back once those in memory are used up; until then new messages follow it, to
    keep the order. What is delivered from a run and may come back stays in the run alone. Without
    *area* memory holds them all.
    """

    __slots__ = (
        "_area",
        "_budget",
        "_cache",
        "_held",
        "_held_length",
        "_held_size",
        "_run",
        "_runs",
        "_tail",
        "next_offset",
    )

    def __init__(self, area: SpillArea | None = None) -> None:
        self.next_offset = 0
        self._area = area
        self._budget = CacheBudget(UNLIMITED, UNLIMITED) if area is None else area.budget
        self._cache = BatchCache(0)
        self._tail: Batch | None = None
        self._held: dict[int, tuple[int, int, bytes]] = {}
        self._held_size = 0
        self._held_length = 0  # of every message that is held; 0 if they differ
        self._runs: list[SpilledRun] = []  # with messages that are not settled, oldest first
        self._run: SpilledRun | None = None  # the last of them, if new messages go there

    @property
    def log(self) -> None:
        """Nothing of it outlives the process."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory that the messages take."""
        return self._cache.size + self._held_size

    @property
    def disk_bytes(self) -> int:
        """Bytes of the files of its runs, about."""
        return sum(run.disk_bytes for run in self._runs)

    # ---- in

    def append(
        self, payloads: list[bytes], attributes: int, payload_length: int, now_ms: int
    ) -> None:
        first = self.next_offset
        self.next_offset = first + len(payloads)
        run = self._run_at(first)
        if run is not None:
            run.append(payloads, attributes, payload_length, now_ms)
            return
        cache = self._cache
        before = cache.size
        if self._tail is not None and extend_batch(
            self._tail, payloads, attributes, payload_length, now_ms
        ):
            cache.end = self.next_offset
            cache.size += payloads_size(payloads, payload_length)
        else:
            self._tail = Batch(first, now_ms, attributes, payloads.copy(), payload_length)
            cache.add(self._tail)
        self._budget.used += cache.size - before

    def _run_at(self, first: int) -> SpilledRun | None:
        """The run that takes the messages from offset *first* on; None if memory does."""
        used = self._cache.size + self._held_size
        budget = self._budget
        run = self._run
        if run is None:
            # Each queue leaves as much room as it takes: however many are full, some is left.
            has_room = used <= budget.per_queue and used <= budget.limit - budget.used
            if has_room or self._area is None:
                return None
            self._tail = None
            run = self._run = self._area.run_from(first)
            self._runs.append(run)
        elif (
            self._cache.end == first
            and 2 * used <= budget.per_queue
            and 2 * used <= budget.limit - budget.used
        ):
            run = self._run = None
        return run

    # ---- out

    def read(self, wanted: ReadyRange, max_bytes: int) -> list[Batch]:
        self._tail = None
        cache = self._cache
        if wanted.start < cache.start:
            return self._read_again(wanted, max_bytes)
        if wanted.start == cache.end:
            self._load()
        before = cache.size
        batches = cache.take(wanted.stop, max_bytes)
        self._budget.used += cache.size - before
        return batches

    def _load(self) -> None:
        """Read what is next into the cache, which is used up."""
        assert self._area is not None
        assert self._run is not None
        cache = self._cache
        for batch in self._run.read(cache.end, self._area.read_bytes):
            cache.add(batch)
        self._budget.used += cache.size

    def _read_again(self, wanted: ReadyRange, max_bytes: int) -> list[Batch]:
        """Messages that came back."""
        run = self._run_with(wanted.start)
        if run is not None:
            return run.read_range(wanted.start, wanted.stop, max_bytes)
        batches = []
        for offset in range(wanted.start, wanted.stop):
            if offset not in self._held:
                break  # in a run
            batch = self._held_one(offset)
            batches.append(batch)
            max_bytes -= batch.payload_length
            if max_bytes <= 0:
                break
        self._forget_held(range(wanted.start, batches[-1].next_offset))
        return batches

    def peek(self, wanted: ReadyRange) -> Batch:
        if wanted.start >= self._cache.start:
            if wanted.start == self._cache.end:
                self._load()
            return self._cache.first
        return self._look_back(wanted.start)

    def _look_back(self, offset: int) -> Batch:
        """The message at *offset*, which was delivered."""
        run = self._run_with(offset)
        return self._held_one(offset) if run is None else run.read_range(offset, offset + 1, 1)[0]

    def fetch(self, start: int, stop: int) -> list[Batch]:
        cache = self._cache
        found: list[Batch] = []
        while start < stop:
            if cache.start <= start < cache.end:
                found += cache.view(start, stop)
            elif (run := self._run_with(start)) is not None:
                found += run.read_range(start, stop, READ_BYTES)
            else:
                found.append(self._held_one(start))
            start = found[-1].next_offset
        return found

    def _run_with(self, offset: int) -> SpilledRun | None:
        """The run that has the message at *offset*, if any has."""
        for run in self._runs:
            if run.start <= offset < run.stop:
                return run
        return None

    def _held_one(self, offset: int) -> Batch:
        attributes, now_ms, payload = self._held[offset]
        return Batch(offset, now_ms, attributes, [payload], len(payload))

    # ---- after reading

    def hold(self, batch: Batch, offsets: Sequence[int]) -> None:
        if self._runs and self._run_with(offsets[0]) is not None:
            return  # it can be read again
        length = batch.payload_length
        self._held_length = length if not self._held or length == self._held_length else 0
        facts = repeat(batch.attributes), repeat(batch.timestamp_ms)
        self._held.update(zip(offsets, zip(*facts, batch.payloads), strict=True))  # noqa: B905
        size = batch_size(batch) + len(offsets) * (HELD_OVERHEAD - MESSAGE_OVERHEAD)
        self._held_size += size
        self._budget.used += size

    def _forget_held(self, offsets: Sequence[int]) -> None:
        """Forget those of *offsets* that are held."""
        before = len(self._held)
        found = map(self._held.pop, offsets, repeat(None))
        if self._held_length:
            deque(found, maxlen=0)
            count = before - len(self._held)
            size = count * (self._held_length + HELD_OVERHEAD)
        else:
            size = sum(map(len, map(_PAYLOAD, filter(None, found))))
            size += (before - len(self._held)) * HELD_OVERHEAD
        self._held_size -= size
        self._budget.used -= size

    def discard(self, offsets: Sequence[int], state: State = State.ACKED) -> None:
        """Reading has removed them from memory."""
        if self._runs:
            self._settle_spilled(ranges_of(list(offsets)))

    def note(self, state: State, offsets: list[int]) -> None:
        """Nothing to do: nobody will ask after a restart."""

    def settle(self, offsets: list[int], state: State = State.ACKED) -> None:
        self._forget_held(offsets)
        if self._runs:
            self._settle_spilled(ranges_of(offsets.copy()))

    def settle_ranges(self, ranges: list[tuple[int, int]]) -> None:
        for start, stop in ranges:
            if start >= self._cache.start:
                self._skip(stop)
            else:
                self._forget_held(range(start, stop))
        if self._runs:
            self._settle_spilled(ranges)

    def _skip(self, stop: int) -> None:
        """Go on reading at *stop*."""
        self._tail = None
        cache = self._cache
        before = cache.size
        if stop < cache.end:
            cache.take(stop, before)
        else:
            cache.restart(stop)
        self._budget.used += cache.size - before

    def _settle_spilled(self, ranges: list[tuple[int, int]]) -> None:
        """Settle what lies in runs of *ranges*, which are sorted; drop the runs that are done."""
        for run in self._runs.copy():
            run.settle(clip_intervals(ranges, run.start, run.stop))
            if not run.left:
                self._runs.remove(run)
                if run is self._run:
                    self._run = None
                run.delete()

    # ---- the turn and the end

    def flush(self) -> None:
        """Write what goes to a run; nothing is to be synced. Raises the errors of its log."""
        if self._run is not None:
            self._run.flush()

    def flush_state(self) -> None:
        """Give disk space back; nobody will ask after a restart. Raises the errors of a log."""
        for run in self._runs:
            run.flush_state()

    def close(self) -> None:
        self._forget()
        for run in self._runs:
            run.close()

    def fail(self, error: Exception) -> None:
        self._forget()
        for run in self._runs:
            run.fail(error)

    def delete(self) -> None:
        self._forget()
        runs, self._runs, self._run = self._runs, [], None
        for run in runs:
            run.delete()

    def _forget(self) -> None:
        self._budget.used -= self._cache.size + self._held_size
        self._tail = None
        self._cache.restart(self.next_offset)
        self._held.clear()
        self._held_size = 0


_PAYLOAD = itemgetter(2)
