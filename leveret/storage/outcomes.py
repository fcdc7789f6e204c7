"""Outcomes: what the state log of one segment says, merged."""

from collections.abc import Iterable, Iterator
from itertools import chain

from leveret.storage.offset_set import OffsetSet, intersect, merge_intervals
from leveret.storage.state_log import SETTLED, Entry, State

Intervals = list[tuple[int, int]]
Try = tuple[int, int, int]
"""Hand-outs behind the first one, how many came back, how many failed."""

_COUNTED = (State.DELIVERED, State.RETURNED, State.FAILED)


class Outcomes:
    """What became of the records of one segment.

    `settled` and `volatile` are done with, `delivered` were handed out since they were last
    replayed, `replayed` were made ready again at some time. `tries` has those not settled of which
    there is more to say than that they were delivered.
    """

    __slots__ = ("delivered", "replayed", "settled", "tries", "volatile")

    def __init__(self) -> None:
        self.settled = OffsetSet()
        self.volatile = OffsetSet()
        self.delivered = OffsetSet()
        self.replayed = OffsetSet()
        self.tries: dict[int, Try] = {}

    def apply(self, base_offset: int, entries: list[Entry]) -> None:
        """Go on with *entries*, in their order."""
        start = 0
        if any(entry[2] == State.REPLAYED for entry in entries):
            for at, entry in enumerate(entries):
                if entry[2] == State.REPLAYED:
                    self._apply_run(base_offset, entries[start:at])
                    self._replay(base_offset + entry[0], base_offset + entry[0] + entry[1])
                    start = at + 1
        self._apply_run(base_offset, entries[start:] if start else entries)

    def _apply_run(self, base_offset: int, entries: list[Entry]) -> None:
        by_state: dict[int, Intervals] = {}
        for first, count, state in entries:
            interval = base_offset + first, base_offset + first + count
            if state in by_state:
                by_state[state].append(interval)
            else:
                by_state[state] = [interval]
        for intervals in by_state.values():
            intervals.sort()
        if State.DELIVERED in by_state:
            self._deliver(by_state[State.DELIVERED])
        for offset in _each(by_state.get(State.RETURNED, [])):
            again, returned, failed = self.tries.get(offset, (0, 0, 0))
            self.tries[offset] = again, returned + 1, failed
        for offset in _each(by_state.get(State.FAILED, [])):
            again, returned, failed = self.tries.get(offset, (0, 0, 0))
            self.tries[offset] = again, returned, failed + 1
        if State.VOLATILE in by_state:
            self.volatile.add_each(merge_intervals(iter(by_state[State.VOLATILE])))
        settled = [by_state[state] for state in SETTLED if state in by_state]
        if settled:
            joined = settled[0] if len(settled) == 1 else sorted(chain.from_iterable(settled))
            self.settled.add_each(merge_intervals(iter(joined)))
        for offset in [offset for offset in self.tries if offset in self.settled]:
            del self.tries[offset]

    def _deliver(self, intervals: Intervals) -> None:
        merged = merge_intervals(iter(intervals))
        repeated: list[Intervals] = []
        if self.delivered.count:
            repeated.append(intersect(merged, self.delivered.intervals()))
        end = 0
        for start, stop in intervals:
            if start < end:
                repeated.append([(start, min(stop, end))])
            end = max(end, stop)
        for offset in _each(chain.from_iterable(repeated)):
            again, returned, failed = self.tries.get(offset, (0, 0, 0))
            self.tries[offset] = again + 1, returned, failed
        self.delivered.add_each(merged)

    def _replay(self, start: int, end: int) -> None:
        self.settled.discard(start, end)
        self.delivered.discard(start, end)
        self.replayed.add(start, end)
        for offset in [offset for offset in self.tries if start <= offset < end]:
            del self.tries[offset]

    def clip(self, end: int) -> None:
        """Forget what is said of offsets from *end* on."""
        for offsets in self.sets:
            bounds = offsets.bounds()
            if bounds is not None:
                offsets.discard(end, bounds[1])
        for offset in [offset for offset in self.tries if offset >= end]:
            del self.tries[offset]

    @property
    def sets(self) -> tuple[OffsetSet, OffsetSet, OffsetSet, OffsetSet]:
        """Its sets, in the order of the snapshot."""
        return self.settled, self.volatile, self.delivered, self.replayed

    def entries(self, base_offset: int) -> list[Entry]:
        """Return entries from which `apply` makes the same."""
        found = [
            *_entries(base_offset, self.replayed.intervals(), State.REPLAYED),
            *_entries(base_offset, self.delivered.intervals(), State.DELIVERED),
        ]
        for offset, counts in sorted(self.tries.items()):
            for count, state in zip(counts, _COUNTED, strict=True):
                found += [(offset - base_offset, 1, state)] * count
        found += _entries(base_offset, self.settled.intervals(), State.ACKED)
        found += _entries(base_offset, self.volatile.intervals(), State.VOLATILE)
        return found

    def forgotten(self) -> OffsetSet:
        """Return what nobody gets any more after a start: the settled and the volatile."""
        if self.volatile.count:
            both = OffsetSet()
            both.add_each(self.settled.intervals())
            both.add_each(self.volatile.intervals())
            return both
        return self.settled

    def count_tries(self, delivered: Intervals) -> Iterator[tuple[int, tuple[int, int]]]:
        """Yield the hand-outs and failures of the messages *delivered*.

        A hand-out that neither came back nor was settled went down with the broker, this time or
        at an earlier one: it failed.
        """
        for offset in _each(delivered):
            again, returned, failed = self.tries.get(offset, (0, 0, 0))
            # What happens several times in one turn is noted once.
            yield offset, (1 + again, max(failed, 1 + again - returned))


def clip_entries(entries: list[Entry], end: int) -> list[Entry]:
    """Return what *entries* say of the first *end* records."""
    clipped = [(first, min(count, end - first), state) for first, count, state in entries]
    return [entry for entry in clipped if entry[1] > 0]


def _each(intervals: Iterable[tuple[int, int]]) -> Iterator[int]:
    for start, end in intervals:
        yield from range(start, end)


def _entries(base_offset: int, intervals: Intervals, state: State) -> list[Entry]:
    return [(start - base_offset, end - start, state) for start, end in intervals]
