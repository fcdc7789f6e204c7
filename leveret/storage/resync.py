"""Resynchronisation: finds the next good record of a log behind bytes that are none.

The checksum of a record is bound to its offset. So the bytes at any place say which offset they
would have as a record. They are one if that can still follow, and what lies around agrees: the
lengths of the records in between, or the offset of the next one.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from leveret.storage.errors import CorruptRecord
from leveret.storage.record import (
    GAP,
    RECORD_HEADER,
    RECORD_HEADER_SIZE,
    gap_count,
    read_batches,
    record_length,
)

Read = Callable[[int, int], bytes]
"""Reads from a position on so many bytes, fewer at the end of the file."""

_WINDOW = 1 << 20
_PIECE = 1 << 20
_OFFSETS = 1 << 32
_SIGNS = 4
"""How many records behind one may be asked whether it is good; they may be bad themselves."""
# What may be a header: a length of less than 1 GiB, a time before the year 10889.
_HEADER = re.compile(rb"(?=[\x00-\x3f].{7}\x00\x00)", re.DOTALL)
_NOT_ZERO = re.compile(rb"[^\x00]")
_MOST_CHECKSUMMED = 1 << 31
"""Payload bytes that one search looks at: data made to look like headers must not take hours."""
_MOST_BAD = 1000
"""Bad records to be followed: an earlier use of the file leaves any number."""
_CANDIDATE = 256
"""So many bytes more for each place."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a record can be: in the bytes [start, end), with an offset of [first, limit).

    *limit* is exact if `is_closed`: a record that ends at *end* is the one in front of *limit*.
    """

    start: int
    end: int
    first: int
    limit: int
    is_closed: bool = False


def offset_at(read: Read, position: int, end: int, first: int) -> tuple[int, int] | None:
    """Return the offset that the record at *position* has if it is one, and where it ends.

    The offset is the lowest from *first* on. None if it would reach beyond *end*.
    """
    header = read(position, RECORD_HEADER_SIZE)
    if len(header) < RECORD_HEADER_SIZE:
        return None
    length, checksum = RECORD_HEADER.unpack_from(header)[:2]
    start = position + RECORD_HEADER_SIZE
    stop = start + length
    if stop > end:
        return None
    actual = crc32(header[8:])
    while start < stop:
        piece = read(start, min(_PIECE, stop - start))
        if not piece:
            return None
        actual = crc32(piece, actual)
        start += len(piece)
    return first + ((actual ^ checksum) - first) % _OFFSETS, stop


def follow_lengths(read: Read, bounds: Bounds) -> list[int]:
    """Return the positions of bad records, and last the good one to which their lengths lead.

    For a start, which must not take what lies in the payload of a torn message for messages of our
    own: unlike `find_record` this looks nowhere else. One bit of the first length may be wrong, if
    it does not lead beyond the end: that is what a torn record does. Returns nothing if there is no
    good record. Raises OSError.
    """
    positions = [bounds.start]
    for offset in range(bounds.first + 1, min(bounds.limit, bounds.first + _MOST_BAD)):
        start = positions[-1]
        header = read(start, RECORD_HEADER_SIZE)
        length = record_length(header)[0] if len(header) == RECORD_HEADER_SIZE else 0
        following = start + RECORD_HEADER_SIZE + length
        if not length or following >= bounds.end:  # there are no empty ones: never written
            break
        places = [following]
        if start == bounds.start:
            places += [start + RECORD_HEADER_SIZE + (length ^ 1 << bit) for bit in range(30)]
        for place in places:
            found = offset_at(read, place, bounds.end, offset) if place < bounds.end else None
            if found is not None and found[0] == offset:
                return [*positions, place]
        positions.append(following)
    return []


def find_record(read: Read, bounds: Bounds) -> tuple[int, int] | None:
    """Return position and offset of the first good record within *bounds*.

    Raises OSError.
    """
    search = _Search(read, bounds)
    # Mostly the length of a bad record is right, and what is in its payload is not looked at.
    header = read(bounds.start, RECORD_HEADER_SIZE)
    if len(header) == RECORD_HEADER_SIZE:
        following = bounds.start + RECORD_HEADER_SIZE + record_length(header)[0]
        if following < bounds.end:
            offset = search.accepts(following)
            if offset is not None:
                return following, offset
    return search.run()


class _Search:
    def __init__(self, read: Read, bounds: Bounds) -> None:
        self._read = read
        self._bounds = bounds
        self._left = _MOST_CHECKSUMMED
        self._walked, self._walked_offset = bounds.start, bounds.first

    def run(self) -> tuple[int, int] | None:
        end = self._bounds.end
        position = self._bounds.start + 1
        while position + RECORD_HEADER_SIZE <= end:
            window = self._read(position, min(_WINDOW, end - position))
            last = len(window) - RECORD_HEADER_SIZE
            if last < 0:
                return None
            at = 0
            while self._left > 0 and (match := _HEADER.search(window, at, last + 10)) is not None:
                at = match.start()
                if not record_length(window, at)[0] and not any(window[at : at + 24]):
                    filled = _NOT_ZERO.search(window, at)
                    at = max(at + 1, (filled.start() if filled else len(window)) - 23)
                    continue
                place = position + at
                offset = self.accepts(place)
                if offset is not None:
                    return place, offset
                at += self._alien_bytes(window, at)
            if self._left <= 0:
                return None
            position += max(at, last + 1)
        return None

    def accepts(self, position: int) -> int | None:
        """The offset of the record at *position*, None if there is none that can be."""
        bounds = self._bounds
        found = self._look(position, bounds.first)
        if found is None:
            return None
        offset, stop = found
        if offset >= bounds.limit:
            return None
        # A flip in the checksum looks like another offset: there must be a second sign.
        if self._walk_to(position) == offset:
            return offset
        following = offset + self._count(position)
        for _ in range(_SIGNS):
            if stop == bounds.end:
                return offset if bounds.is_closed and following == bounds.limit else None
            second = self._look(stop, following)
            if second is None:
                return None
            if second[0] == following:
                return offset
            stop, following = second[1], following + 1
        return None

    def _walk_to(self, position: int) -> int | None:
        """The offset at *position* if only lengths are believed, None if they lead elsewhere."""
        while self._walked < position:
            header = self._read(self._walked, RECORD_HEADER_SIZE)
            if len(header) < RECORD_HEADER_SIZE:
                return None
            self._walked += RECORD_HEADER_SIZE + record_length(header)[0]
            self._walked_offset += 1
        return self._walked_offset if self._walked == position else None

    def _alien_bytes(self, window: bytes, at: int) -> int:
        """How far to go on: over records that an earlier use of the file left."""

        def read(start: int, size: int) -> bytes:
            return window[start : start + size]

        first = offset_at(read, at, len(window), 0)
        second = first and offset_at(read, first[1], len(window), first[0])
        if first is None or second is None or second[0] != first[0] + 1:
            return 1
        with suppress(CorruptRecord):  # as good as the end of the run
            return read_batches(window[at:], first[0], path=Path(), position=at)[1]
        return 1

    def _look(self, position: int, first: int) -> tuple[int, int] | None:
        self._left -= _CANDIDATE
        found = offset_at(self._read, position, self._bounds.end, first)
        if found is not None:
            self._left -= found[1] - position
        return found

    def _count(self, position: int) -> int:
        """How many offsets the record at *position* stands for."""
        data = self._read(position, RECORD_HEADER_SIZE + GAP.size)
        return (gap_count(data, 0) if len(data) == RECORD_HEADER_SIZE + GAP.size else 0) or 1
