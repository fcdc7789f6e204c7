"""Offset set: which offsets of a segment are settled.

Offsets come as intervals [start, end). The set is a bitmap in chunks, one integer per 512 offsets:
adding costs the same in any order and repeating an offset is harmless. A million offsets take
130 KB if they are dense, 330 KB at worst.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import itemgetter
from typing import Self

_CHUNK_BITS = 9
_CHUNK = 1 << _CHUNK_BITS
CHUNK_BYTES = _CHUNK // 8
_FULL = (1 << _CHUNK) - 1
_BITS = tuple(1 << bit for bit in range(_CHUNK))
_ONES = re.compile("1+")


class OffsetSet:
    """A set of offsets that is filled by intervals. `count` is the number of its members."""

    __slots__ = ("_chunks", "count")

    def __init__(self) -> None:
        self.count = 0
        self._chunks: dict[int, int] = {}

    def __contains__(self, offset: int) -> bool:
        return bool(self._chunks.get(offset >> _CHUNK_BITS, 0) >> (offset & (_CHUNK - 1)) & 1)

    def add(self, start: int, end: int) -> None:
        """Add the offsets from *start* up to, not including, *end*."""
        while start < end:
            chunk = start >> _CHUNK_BITS
            stop = min(end, (chunk + 1) << _CHUNK_BITS)
            old = self._chunks.get(chunk, 0)
            new = old | ((1 << stop - start) - 1) << (start & (_CHUNK - 1))
            # One object for all full chunks.
            self._chunks[chunk] = _FULL if new == _FULL else new
            self.count += new.bit_count() - old.bit_count()
            start = stop

    def discard(self, start: int, end: int) -> None:
        """Remove the offsets from *start* up to, not including, *end*, members or not."""
        while start < end:
            chunk = start >> _CHUNK_BITS
            stop = min(end, (chunk + 1) << _CHUNK_BITS)
            old = self._chunks.get(chunk, 0)
            new = old & ~(((1 << stop - start) - 1) << (start & (_CHUNK - 1)))
            if new:
                self._chunks[chunk] = new
            elif old:
                del self._chunks[chunk]
            self.count -= old.bit_count() - new.bit_count()
            start = stop

    def add_each(self, intervals: list[tuple[int, int]]) -> None:
        """Add sorted *intervals*; many in one chunk cost little more than one."""
        chunk, bits, limit = -1, 0, -1
        for start, end in intervals:
            if end > limit:
                if bits:
                    self._add_bits(chunk, bits)
                chunk, bits = start >> _CHUNK_BITS, 0
                limit = (chunk + 1) << _CHUNK_BITS
                if end > limit:
                    self.add(start, end)
                    limit = -1
                    continue
            if end - start == 1:
                bits |= _BITS[start & (_CHUNK - 1)]
            else:
                bits |= ((1 << end - start) - 1) << (start & (_CHUNK - 1))
        if bits:
            self._add_bits(chunk, bits)

    def _add_bits(self, chunk: int, bits: int) -> None:
        old = self._chunks.get(chunk, 0)
        new = old | bits
        self._chunks[chunk] = _FULL if new == _FULL else new
        self.count += new.bit_count() - old.bit_count()

    def intervals(self) -> list[tuple[int, int]]:
        """Return the members as sorted intervals that neither overlap nor touch."""
        return merge_intervals(self._runs())

    def gaps(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return the sorted intervals of [first, end) that are not members."""
        gaps = []
        for start, stop in self.intervals():
            if first < min(start, end):
                gaps.append((first, min(start, end)))
            first = max(first, stop)
        if first < end:
            gaps.append((first, end))
        return gaps

    def bounds(self) -> tuple[int, int] | None:
        """Return the first member and the offset behind the last; None of an empty set."""
        if not self._chunks:
            return None
        first, last = min(self._chunks), max(self._chunks)
        lowest = self._chunks[first]
        start = (first << _CHUNK_BITS) + (lowest & -lowest).bit_length() - 1
        return start, (last << _CHUNK_BITS) + self._chunks[last].bit_length()

    def to_bitmap(self) -> tuple[int, bytes]:
        """Return the chunk that the bitmap begins with, and the bitmap: bits rise with offsets."""
        if not self._chunks:
            return 0, b""
        first, last = min(self._chunks), max(self._chunks)
        chunks = (self._chunks.get(chunk, 0) for chunk in range(first, last + 1))
        return first, b"".join(bits.to_bytes(CHUNK_BYTES, "little") for bits in chunks)

    @classmethod
    def from_bitmap(cls, first: int, bitmap: bytes) -> Self:
        """Return the set of which `to_bitmap` said *first* and *bitmap*."""
        offsets = cls()
        for at in range(0, len(bitmap), CHUNK_BYTES):
            bits = int.from_bytes(bitmap[at : at + CHUNK_BYTES], "little")
            if bits:
                chunk = first + at // CHUNK_BYTES
                offsets._chunks[chunk] = _FULL if bits == _FULL else bits
                offsets.count += bits.bit_count()
        return offsets

    def _runs(self) -> Iterator[tuple[int, int]]:
        for chunk, bits in sorted(self._chunks.items()):
            base = chunk << _CHUNK_BITS
            if bits == _FULL:
                yield base, base + _CHUNK
                continue
            for run in _ONES.finditer(f"{bits:b}"[::-1]):
                yield base + run.start(), base + run.end()


def merge_intervals(intervals: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join intervals, sorted by their start, that overlap or touch."""
    merged: list[tuple[int, int]] = []
    first = last = -1
    for start, end in intervals:
        if start > last:
            if first < last:
                merged.append((first, last))
            first, last = start, end
        elif end > last:
            last = end
    if first < last:
        merged.append((first, last))
    return merged


def clip_intervals(intervals: list[tuple[int, int]], first: int, end: int) -> list[tuple[int, int]]:
    """Return what sorted, disjoint *intervals* cover of [first, end)."""
    if not intervals or first >= end:
        return []
    if first <= intervals[0][0] and intervals[-1][1] <= end:
        return intervals
    low = bisect_right(intervals, first, key=itemgetter(1))
    high = bisect_left(intervals, end, key=itemgetter(0))
    return [(max(start, first), min(stop, end)) for start, stop in intervals[low:high]]


def intersect(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return what both lists of sorted, disjoint intervals cover."""
    common = []
    i = j = 0
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            common.append((start, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return common
