"""Stores whose messages are read in any order, as a priority queue does.

What a DurableStore keeps in its cache of the most recent messages is kept by offset here; what
does not fit is read back from the log, several messages in one go where they lie close.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import Protocol, cast

from leveret.queues.batch_cache import MESSAGE_OVERHEAD, CacheBudget, batch_size
from leveret.queues.durable_store import READ_BYTES, DurableStore
from leveret.queues.memory_store import MemoryStore
from leveret.queues.store import MessageStore
from leveret.storage.batch import Batch
from leveret.storage.log import SegmentLog
from leveret.storage.state_log import State

SPARSE = 16
"""Messages in a run for each that is wanted, from which on these are read one by one."""

Stored = tuple[int, int, bytes]
"""Attributes, timestamp in milliseconds, message."""
Picked = tuple[Batch, Sequence[int]]
"""Messages that share attributes and time, and their offsets."""


class ScatteredStore(MessageStore, Protocol):
    """A store that also reads by single offsets."""

    def pick(self, offsets: list[int], *, by_time: bool) -> list[Picked]:
        """The messages at *offsets*, in that order.

        Neighbours of equal attributes come as one batch; without *by_time* its timestamp is that
        of its first message only.
        """

    def look_at(self, offset: int) -> Batch:
        """The message at *offset*, which stays where it is."""

    def forget(self, offsets: Sequence[int]) -> None:
        """The messages at *offsets* will not be picked any more."""


class ScatteredMemoryStore(MemoryStore):
    """Messages of a transient priority queue: held from the beginning, or in a run."""

    __slots__ = ()

    def append(
        self, payloads: list[bytes], attributes: int, payload_length: int, now_ms: int
    ) -> None:
        first = self.next_offset
        self.next_offset = first + len(payloads)
        run = self._run_at(first)
        if run is None:
            batch = Batch(first, now_ms, attributes, payloads, payload_length)
            super().hold(batch, range(first, self.next_offset))
        else:
            run.append(payloads, attributes, payload_length, now_ms)
        self._cache.end = self.next_offset

    def pick(self, offsets: list[int], *, by_time: bool) -> list[Picked]:
        """See ScatteredStore."""
        held = self._held
        if not self._runs:
            return gather(offsets, list(map(held.__getitem__, offsets)), by_time=by_time)
        missing = sorted(offset for offset in offsets if offset not in held)
        read = dict(self._pick_spilled(missing))
        found = [held.get(offset) or read[offset] for offset in offsets]
        return gather(offsets, found, by_time=by_time)

    def _pick_spilled(self, offsets: list[int]) -> Iterator[tuple[int, Stored]]:
        """Read *offsets*, which are sorted, from the runs."""
        for run in self._runs:
            own = offsets[bisect_left(offsets, run.start) : bisect_left(offsets, run.stop)]
            if own and own[-1] - own[0] < len(own) * SPARSE:
                yield from _read_each(run.read, own)
                continue
            for offset, timestamp_ms, attributes, payload in run.pick(own):
                yield offset, (attributes, timestamp_ms, payload)

    def look_at(self, offset: int) -> Batch:
        """See ScatteredStore."""
        return self._look_back(offset)

    def forget(self, offsets: Sequence[int]) -> None:
        """Nothing to do: they are held until they are settled."""

    def hold(self, batch: Batch, offsets: Sequence[int]) -> None:
        """Nothing to do: they are held until they are settled."""

    def discard(self, offsets: Sequence[int], state: State = State.ACKED) -> None:
        self.settle(list(offsets))

    def settle_ranges(self, ranges: list[tuple[int, int]]) -> None:
        for start, stop in ranges:
            self._forget_held(range(start, stop))
        if self._runs:
            self._settle_spilled(ranges)


class ScatteredDurableStore(DurableStore):
    """Messages of a durable priority queue; the log is that of any durable queue."""

    __slots__ = ("_recent", "_recent_size")

    def __init__(self, log: SegmentLog, budget: CacheBudget) -> None:
        super().__init__(log, budget, log.next_offset)
        self._recent: dict[int, Stored] = {}
        self._recent_size = 0

    def _remember(self, batches: list[Batch]) -> None:
        budget = self._budget
        for batch in batches:
            size = batch_size(batch)
            if self._recent_size + size > budget.per_queue or budget.used + size > budget.limit:
                break
            offsets = range(batch.first_offset, batch.next_offset)
            facts = repeat(batch.attributes), repeat(batch.timestamp_ms)
            self._recent.update(zip(offsets, zip(*facts, batch.payloads), strict=True))  # noqa: B905
            self._recent_size += size
            budget.used += size

    def pick(self, offsets: list[int], *, by_time: bool) -> list[Picked]:
        """See ScatteredStore."""
        recent = self._recent
        found = [recent.pop(offset, None) for offset in offsets]
        released = sum(len(stored[2]) + MESSAGE_OVERHEAD for stored in found if stored is not None)
        self._recent_size -= released
        self._budget.used -= released
        if None in found:
            missing = sorted(
                at for at, stored in zip(offsets, found, strict=True) if stored is None
            )
            read = dict(_read_each(self._log.read, missing))
            found = [
                read[at] if stored is None else stored
                for at, stored in zip(offsets, found, strict=True)
            ]
        return gather(offsets, cast("list[Stored]", found), by_time=by_time)

    def look_at(self, offset: int) -> Batch:
        """See ScatteredStore."""
        stored = self._recent.get(offset)
        if stored is None:
            return self._read_log(offset, offset + 1, 1)[0]
        attributes, timestamp_ms, payload = stored
        return Batch(offset, timestamp_ms, attributes, [payload], len(payload))

    def forget(self, offsets: Sequence[int]) -> None:
        """See ScatteredStore."""
        for offset in offsets:
            stored = self._recent.pop(offset, None)
            if stored is not None:
                released = len(stored[2]) + MESSAGE_OVERHEAD
                self._recent_size -= released
                self._budget.used -= released

    def settle_ranges(self, ranges: list[tuple[int, int]]) -> None:
        self._log.mark(State.PURGED, ranges)
        self._forget()

    def _forget(self) -> None:
        super()._forget()
        self._budget.used -= self._recent_size
        self._recent_size = 0
        self._recent.clear()


def _read_each(
    read: Callable[[int, int], list[Batch]], offsets: list[int]
) -> Iterator[tuple[int, Stored]]:
    """Read *offsets*, which are sorted, from a log; neighbours in one go."""
    place = 0
    while place < len(offsets):
        for batch in read(offsets[place], READ_BYTES):
            while place < len(offsets) and offsets[place] < batch.next_offset:
                offset = offsets[place]
                payload = batch.payloads[offset - batch.first_offset]
                yield offset, (batch.attributes, batch.timestamp_ms, payload)
                place += 1


def gather(offsets: list[int], found: list[Stored], *, by_time: bool) -> list[Picked]:
    """Messages as batches of neighbours that are alike."""
    attributes, times_ms, payloads = zip(*found, strict=True)
    count = len(offsets)
    if attributes.count(attributes[0]) == count and (
        not by_time or times_ms.count(times_ms[0]) == count
    ):
        return [_picked(offsets, attributes[0], times_ms[0], list(payloads))]
    picked: list[Picked] = []
    place = 0
    for _, group in groupby(found, _ALIKE if by_time else _ATTRIBUTES):
        alike = list(map(_PAYLOAD, group))
        own = offsets[place : place + len(alike)]
        picked.append(_picked(own, attributes[place], times_ms[place], alike))
        place += len(alike)
    return picked


def _picked(
    offsets: list[int], attributes: int, timestamp_ms: int, payloads: list[bytes]
) -> Picked:
    lengths = set(map(len, payloads))
    length = lengths.pop() if len(lengths) == 1 else 0
    return Batch(offsets[0], timestamp_ms, attributes, payloads, length), offsets


_ATTRIBUTES = itemgetter(0)
_ALIKE = itemgetter(0, 1)
_PAYLOAD = itemgetter(2)
