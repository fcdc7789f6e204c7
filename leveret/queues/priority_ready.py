"""PriorityReady: which offsets of a priority queue wait, by level; the highest level goes first.

A waiting message costs 8 bytes here. Within a level the oldest goes first; what came back goes to
its old place.
"""

import heapq
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

from leveret.queues.ready import ReadyRange, ranges_of

COMPACT_AT = 4096
"""Offsets taken from the front of a level before their room is given back."""


class LevelReady:
    """The ready offsets of one level, oldest first."""

    __slots__ = ("_head", "_is_sorted", "_offsets", "_returned", "append", "extend")

    def __init__(self) -> None:
        self._offsets = array("Q")
        # New messages, younger than all there are.
        self.append = self._offsets.append
        self.extend = self._offsets.extend
        self._head = 0
        self._returned: list[int] = []  # a heap
        self._is_sorted = True  # is all of it in order, as who looks at ranges wants it?

    def __len__(self) -> int:
        return len(self._offsets) - self._head + len(self._returned)

    def __iter__(self) -> Iterator[int]:
        yield from sorted(self._returned)
        yield from self._offsets[self._head :]

    @property
    def has_returned(self) -> bool:
        """Has the oldest been delivered before?"""
        return bool(self._returned)

    @property
    def first(self) -> int:
        """The oldest."""
        return self._returned[0] if self._returned else self._offsets[self._head]

    def put_back(self, offset: int) -> None:
        """A message that was taken before."""
        if self._is_sorted and self._returned and offset < self._returned[-1]:
            self._is_sorted = False
        heapq.heappush(self._returned, offset)

    def _sorted(self) -> list[int]:
        """What came back, oldest first: as good a heap."""
        if not self._is_sorted:
            self._returned.sort()
            self._is_sorted = True
        return self._returned

    def within(self, start: int, stop: int) -> list[tuple[int, bool]]:
        """Those in [start, stop), each with whether it was delivered before."""
        low = bisect_left(self._offsets, start, self._head)
        high = bisect_left(self._offsets, stop, low)
        found = [(offset, False) for offset in self._offsets[low:high]]
        returned = self._sorted()
        low = bisect_left(returned, start)
        found += [(offset, True) for offset in returned[low : bisect_left(returned, stop, low)]]
        return found

    def next_from(self, offset: int) -> int | None:
        """The first at or behind *offset*."""
        place = bisect_left(self._offsets, offset, self._head)
        behind = self._offsets[place : place + 1].tolist()
        returned = self._sorted()
        place = bisect_left(returned, offset)
        return min(behind + returned[place : place + 1], default=None)

    def withdraw(self, start: int, stop: int) -> list[int]:
        """Take those in [start, stop)."""
        taken = [offset for offset, _ in self.within(start, stop)]
        low = bisect_left(self._offsets, start, self._head)
        del self._offsets[low : bisect_left(self._offsets, stop, low)]
        returned = self._sorted()
        low = bisect_left(returned, start)
        del returned[low : bisect_left(returned, stop, low)]
        return taken

    def take(self, limit: int) -> list[int]:
        """Take the oldest that are alike: all delivered before, or none."""
        if self._returned:
            count = min(limit, len(self._returned))
            self._is_sorted = False
            return [heapq.heappop(self._returned) for _ in range(count)]
        taken = self._offsets[self._head : self._head + limit].tolist()
        self._head += len(taken)
        if self._head >= COMPACT_AT and 2 * self._head > len(self._offsets):
            del self._offsets[: self._head]
            self._head = 0
        return taken


class ReadyPick(NamedTuple):
    """The oldest messages of a level, at most `limit`, that are alike."""

    level: int
    limit: int
    redelivered: bool


class PriorityReady:
    """Ready offsets in levels 0 to *max_priority*; takes the place of a ReadyList."""

    __slots__ = ("_coming", "_filled", "_latest", "_levels", "_taken", "count", "end")

    def __init__(self, end: int, max_priority: int) -> None:
        self.end = end
        self.count = 0
        self._levels = [LevelReady() for _ in range(max_priority + 1)]
        self._filled = 0  # a bit for each level that may have messages
        self._coming: list[bytes] = []
        self._taken: dict[int, int] = {}  # level of what was taken and may come back
        # The latest of it, by level, is not yet there: without acks it is settled at once.
        self._latest: list[tuple[int, list[int]]] = []

    @property
    def max_priority(self) -> int:
        """The highest level."""
        return len(self._levels) - 1

    def expect(self, levels: bytes) -> None:
        """Messages of these levels were appended; `extend` makes them ready."""
        self._coming.append(levels)

    def extend(self, end: int) -> None:
        """The messages expected, up to offset *end* (exclusive), are ready."""
        offset = self.end
        coming, self._coming = self._coming, []
        for levels in coming:
            self._add(offset, levels)
            offset += len(levels)
        assert offset == end
        self.end = end

    def _add(self, first: int, levels: bytes) -> None:
        self.count += len(levels)
        offsets = range(first, first + len(levels))
        present = set(levels)
        for level in present:
            self._filled |= 1 << level
        if len(present) == 1:
            self._levels[levels[0]].extend(offsets)
            return
        appends = [level.append for level in self._levels]
        for level, offset in zip(levels, offsets, strict=True):
            appends[level](offset)

    def restore(self, offsets: Sequence[int], levels: bytes, *, redelivered: bool) -> None:
        """Messages found at the start; those not *redelivered* come in the order of offsets."""
        self.count += len(offsets)
        for offset, level in zip(offsets, levels, strict=True):
            self._filled |= 1 << level
            if redelivered:
                self._levels[level].put_back(offset)
            else:
                self._levels[level].extend((offset,))

    def peek(self, limit: int) -> ReadyPick | None:
        """What is next: of the highest level that has any."""
        while self._filled:
            level = self._filled.bit_length() - 1
            ready = self._levels[level]
            if len(ready):
                return ReadyPick(level, limit, ready.has_returned)
            self._filled &= ~(1 << level)
        return None

    def heads(self) -> list[tuple[ReadyPick, int]]:
        """The oldest message of each level, and its offset."""
        return [
            (ReadyPick(level, 1, ready.has_returned), ready.first)
            for level, ready in enumerate(self._levels)
            if len(ready)
        ]

    def take(self, pick: ReadyPick) -> list[int]:
        """The offsets of *pick*, which are not ready any more."""
        offsets = self._levels[pick.level].take(pick.limit)
        self._latest.append((pick.level, offsets))
        self.count -= len(offsets)
        return offsets

    def put_back(self, offsets: Iterable[int]) -> None:
        """Offsets taken before are ready again, at their old place."""
        self._note_taken()
        for offset in offsets:
            level = self._taken.pop(offset)
            self._filled |= 1 << level
            self._levels[level].put_back(offset)
            self.count += 1

    def know(self, offsets: Sequence[int], levels: bytes) -> None:
        """Settled messages of these levels are about to be put back."""
        self._note_taken()
        self._taken.update(zip(offsets, levels, strict=True))

    def within(self, start: int, stop: int) -> list[ReadyRange]:
        """What is ready in [start, stop), one by one, oldest first."""
        ready = [entry for level in self._levels for entry in level.within(start, stop)]
        return [ReadyRange(offset, offset + 1, is_old) for offset, is_old in sorted(ready)]

    def next_from(self, offset: int) -> int | None:
        """The first that is ready at or behind *offset*."""
        firsts = [level.next_from(offset) for level in self._levels]
        return min((first for first in firsts if first is not None), default=None)

    def withdraw(self, start: int, stop: int) -> None:
        """[start, stop), all of it ready, is so no more."""
        for number, level in enumerate(self._levels):
            taken = level.withdraw(start, stop)
            if taken:
                self._latest.append((number, taken))
                self.count -= len(taken)

    def forget(self, offsets: Iterable[int]) -> None:
        """Offsets taken before are settled."""
        if self._latest and self._latest[-1][1] is offsets:
            self._latest.pop()
            return
        self._note_taken()
        deque(map(self._taken.pop, offsets, repeat(None)), maxlen=0)

    def _note_taken(self) -> None:
        for level, offsets in self._latest:
            self._taken.update(dict.fromkeys(offsets, level))
        self._latest.clear()

    def ranges(self) -> list[tuple[int, int]]:
        """All that is ready, as ranges."""
        offsets = [offset for level in self._levels for offset in level]
        return ranges_of(offsets) if offsets else []

    def clear(self) -> list[tuple[int, int]]:
        """Take everything; answers the ranges that were ready."""
        ranges = self.ranges()
        self._levels = [LevelReady() for _ in self._levels]
        self._filled = 0
        self.count = 0
        return ranges
