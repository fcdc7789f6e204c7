"""MemoryStore: the messages of a transient queue."""

from collections import deque
from collections.abc import Sequence
from itertools import repeat

from leveret.queues.batch_cache import BatchCache, extend_batch, payloads_size
from leveret.queues.ready import ReadyRange
from leveret.storage.batch import Batch
from leveret.storage.state_log import State


class MemoryStore:
    """Messages of a transient queue: they live as long as this process."""

    __slots__ = ("_cache", "_held", "_tail", "next_offset")

    def __init__(self) -> None:
        self.next_offset = 0
        self._cache = BatchCache(0)
        self._tail: Batch | None = None
        self._held: dict[int, tuple[int, int, bytes]] = {}

    def append(
        self, payloads: list[bytes], attributes: int, payload_length: int, now_ms: int
    ) -> None:
        first = self.next_offset
        self.next_offset = first + len(payloads)
        if self._tail is not None and extend_batch(
            self._tail, payloads, attributes, payload_length, now_ms
        ):
            self._cache.end = self.next_offset
            self._cache.size += payloads_size(payloads, payload_length)
            return
        self._tail = Batch(first, now_ms, attributes, payloads.copy(), payload_length)
        self._cache.add(self._tail)

    def read(self, wanted: ReadyRange, max_bytes: int) -> list[Batch]:
        self._tail = None
        if wanted.start >= self._cache.start:
            return self._cache.take(wanted.stop, max_bytes)
        batches = []
        for offset in range(wanted.start, wanted.stop):
            batch = self._held_one(offset)
            del self._held[offset]
            batches.append(batch)
            max_bytes -= batch.payload_length
            if max_bytes <= 0:
                break
        return batches

    def peek(self, wanted: ReadyRange) -> Batch:
        if wanted.start >= self._cache.start:
            return self._cache.first
        return self._held_one(wanted.start)

    def fetch(self, start: int, stop: int) -> list[Batch]:
        cached = self._cache.start
        held = [self._held_one(offset) for offset in range(start, min(stop, cached))]
        return held + self._cache.view(max(start, cached), stop)

    def _held_one(self, offset: int) -> Batch:
        attributes, now_ms, payload = self._held[offset]
        return Batch(offset, now_ms, attributes, [payload], len(payload))

    def hold(self, batch: Batch, offsets: Sequence[int]) -> None:
        facts = repeat(batch.attributes), repeat(batch.timestamp_ms)
        self._held.update(zip(offsets, zip(*facts, batch.payloads), strict=True))  # noqa: B905

    def discard(self, offsets: Sequence[int], state: State = State.ACKED) -> None:
        """Nothing to do: reading has removed them."""

    def note(self, state: State, offsets: list[int]) -> None:
        """Nothing to do: nobody will ask after a restart."""

    def settle(self, offsets: list[int], state: State = State.ACKED) -> None:
        deque(map(self._held.pop, offsets, repeat(None)), maxlen=0)

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
