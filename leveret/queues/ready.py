"""ReadyList: which offsets of a queue wait for a consumer, oldest first.

A backlog costs nothing here: everything from `cursor` to `end` is ready. What was handed out and
came back lies below the cursor, as ranges in a heap, and goes out before it: requeued messages
take their original place (AMQP 0-9-1 §1.8.3.13, rule 03 "requeue").
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class ReadyRange(NamedTuple):
    """Offsets `start` to `stop` (exclusive) that are ready and alike."""

    start: int
    stop: int
    redelivered: bool


class ReadyList:
    """Ready offsets: a cursor into the log plus the ranges returned below it."""

    __slots__ = ("_is_sorted", "_returned", "count", "cursor", "end")

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        self.end = cursor
        self.count = 0
        self._returned: list[ReadyRange] = []  # a heap
        self._is_sorted = True  # is all of it in order, as who looks at ranges wants it?

    def extend(self, end: int) -> None:
        """New messages up to offset *end* (exclusive) are ready."""
        self.count += end - self.end
        self.end = end

    def restore(
        self, ranges: Iterable[tuple[int, int]], delivered: Iterable[tuple[int, int]]
    ) -> None:
        """Start from the ready *ranges* of a recovered log; *delivered* ones are redelivered."""
        delivered_ranges = sorted(delivered)
        ends = [high for _, high in delivered_ranges]
        for start, stop in ranges:
            first = bisect_right(ends, start)
            until = bisect_left(delivered_ranges, (stop,))
            for piece in _cut(start, stop, delivered_ranges[first:until]):
                self._return(piece)
        if self._returned:
            last = max(self._returned)
            if last.stop == self.cursor and not last.redelivered:
                self._returned.remove(last)
                heapq.heapify(self._returned)
                self.cursor = last.start

    def peek(self, limit: int) -> ReadyRange | None:
        """The oldest ready range, at most *limit* offsets of it."""
        if self._returned:
            start, stop, redelivered = self._returned[0]
            return ReadyRange(start, min(stop, start + limit), redelivered)
        if self.cursor < self.end:
            return ReadyRange(self.cursor, min(self.end, self.cursor + limit), False)
        return None

    def take(self, stop: int) -> None:
        """The range that `peek` answered has been handed out up to *stop* (exclusive)."""
        if self._returned:
            start, end, redelivered = self._returned[0]
            if stop == end:
                heapq.heappop(self._returned)
                self._is_sorted = False
            else:
                heapq.heapreplace(self._returned, ReadyRange(stop, end, redelivered))
            self.count -= stop - start
        else:
            self.count -= stop - self.cursor
            self.cursor = stop

    def put_back(self, offsets: list[int]) -> None:
        """Offsets handed out before are ready again, at their old place."""
        for start, stop in ranges_of(offsets):
            self._return(ReadyRange(start, stop, True))

    def within(self, start: int, stop: int) -> list[ReadyRange]:
        """What is ready in [start, stop), oldest first."""
        first, last = self._places(start, stop)
        pieces = [*self._returned[first:last], ReadyRange(self.cursor, self.end, False)]
        return [
            ReadyRange(max(piece.start, start), min(piece.stop, stop), piece.redelivered)
            for piece in pieces
            if max(piece.start, start) < min(piece.stop, stop)
        ]

    def next_from(self, offset: int) -> int | None:
        """The first that is ready at or behind *offset*."""
        first, _ = self._places(offset, offset)
        if first < len(self._returned):
            return max(self._returned[first].start, offset)
        return max(self.cursor, offset) if max(self.cursor, offset) < self.end else None

    def withdraw(self, start: int, stop: int) -> None:
        """[start, stop), all of it ready, is so no more."""
        self.count -= stop - start
        if start >= self.cursor:
            if start > self.cursor:
                heapq.heappush(self._returned, ReadyRange(self.cursor, start, False))
            self.cursor = stop
            return
        pieces: list[ReadyRange] = []
        first, last = self._places(start, stop)
        for piece in self._returned[first:last]:
            if piece.start < start:
                pieces.append(piece._replace(stop=start))
            if stop < piece.stop:
                pieces.append(piece._replace(start=stop))
        self._returned[first:last] = pieces
        self.cursor = max(self.cursor, stop)

    def _places(self, start: int, stop: int) -> tuple[int, int]:
        """Where in what came back those that share something with [start, stop) begin and end."""
        returned = self._returned
        if not self._is_sorted:
            returned.sort()  # as good a heap
            self._is_sorted = True
        first = bisect_left(returned, (start,))
        if first and returned[first - 1].stop > start:
            first -= 1
        return first, bisect_left(returned, (stop,), first)

    def ranges(self) -> list[tuple[int, int]]:
        """All that is ready, oldest first."""
        ranges = [(start, stop) for start, stop, _ in sorted(self._returned)]
        if self.cursor < self.end:
            ranges.append((self.cursor, self.end))
        return ranges

    def clear(self) -> list[tuple[int, int]]:
        """Take everything; answers the ranges that were ready."""
        ranges = self.ranges()
        self._returned.clear()
        self.cursor = self.end
        self.count = 0
        return ranges

    def _return(self, piece: ReadyRange) -> None:
        if self._is_sorted and self._returned and piece < self._returned[-1]:
            self._is_sorted = False
        heapq.heappush(self._returned, piece)
        self.count += piece.stop - piece.start


def ranges_of(offsets: list[int]) -> list[tuple[int, int]]:
    """Distinct offsets as ranges (start, stop), sorted; sorts *offsets* in place."""
    if len(offsets) == 1:
        return [(offsets[0], offsets[0] + 1)]
    offsets.sort()
    first, last = offsets[0], offsets[-1]
    if last - first + 1 == len(offsets):
        return [(first, last + 1)]
    ranges = []
    start = previous = first
    for offset in offsets[1:]:
        if offset != previous + 1:
            ranges.append((start, previous + 1))
            start = offset
        previous = offset
    ranges.append((start, previous + 1))
    return ranges


def within(offsets: Iterable[int], ranges: Sequence[tuple[int, int]]) -> list[int]:
    """Those of *offsets* that lie in *ranges*, which are sorted and apart."""
    stops = [stop for _, stop in ranges]
    found = []
    for offset in offsets:
        place = bisect_right(stops, offset)
        if place < len(ranges) and ranges[place][0] <= offset:
            found.append(offset)
    return found


def _cut(start: int, stop: int, delivered: Iterable[tuple[int, int]]) -> Iterable[ReadyRange]:
    """[start, stop) in pieces that are wholly inside or outside of the *delivered* ranges.

    Those are sorted, apart from each other, and share something with it.
    """
    for low, high in delivered:
        if start < low:
            yield ReadyRange(start, low, False)
            start = low
        yield ReadyRange(start, min(high, stop), True)
        start = min(high, stop)
    if start < stop:
        yield ReadyRange(start, stop, False)
