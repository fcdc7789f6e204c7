"""Log scan: reads every record of one segment, over bad bytes to the next good record."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from leveret.storage.batch import Batch
from leveret.storage.errors import CorruptRecord
from leveret.storage.files import HEADER_SIZE
from leveret.storage.record import (
    GAP_RECORD_SIZE,
    RECORD_HEADER_SIZE,
    gap_count,
    read_batches,
    record_size,
    skip_records,
)
from leveret.storage.resync import Bounds, find_record, offset_at

Progress = Callable[[int], None]
"""Is told of so many more bytes that were checked."""

_CHUNK = 1 << 20
_FAR = 1 << 31
"""Offsets lie nearer to each other than that; those of an earlier use of the file do not."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes [position, end_position) that are no records; they held [offset, end_offset)."""

    position: int
    end_position: int
    offset: int
    end_offset: int


@dataclass(slots=True)
class LogScan:
    """What is in a log: good records up to *position*, but for *stretches*.

    *next_offset* is behind the last good record, *messages* counts those that are good. *lies* are
    the entries of the offset index that do not lead to their records, *claims* those that lead
    behind the last good one. *times* are the timestamps of the records that have an entry, by their
    relative offsets. It *overlaps* if it goes on with offsets of the next segment, which are left
    out. *timestamp_ms* is that of the last good record.
    """

    path: Path
    base_offset: int
    size: int
    position: int
    next_offset: int
    messages: int = 0
    has_gaps: bool = False
    overlaps: bool = False
    timestamp_ms: int = 0
    stretches: list[Stretch] = field(default_factory=list)
    lies: list[tuple[int, int]] = field(default_factory=list)
    claims: list[tuple[int, int]] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)

    @property
    def rest(self) -> int:
        """Bytes behind the last good record."""
        return max(0, self.size - self.position)


def scan_log(
    path: Path,
    base_offset: int,
    entries: Sequence[tuple[int, int]],
    limit: int | None,
    progress: Progress,
) -> LogScan:
    """Read the log at *path*, in bounded memory.

    *entries* are those of its offset index, sorted, as it claims them. *limit* is the base of the
    next segment, None for the last one. Raises OSError.
    """
    with path.open("rb", buffering=0) as file:
        scan = _Scan(file.fileno(), path, base_offset, entries, limit)
        return scan.run(progress)


def is_misplaced(path: Path, base_offset: int) -> bool:
    """Whether the log at *path* begins with records of other offsets. Raises OSError."""
    with path.open("rb", buffering=0) as file:
        descriptor = file.fileno()
        size = os.fstat(descriptor).st_size

        def read(position: int, length: int) -> bytes:
            return os.pread(descriptor, length, position)

        first = offset_at(read, HEADER_SIZE, size, base_offset)
        second = first and offset_at(read, first[1], size, first[0])
    if first is None or second is None or first[0] == base_offset:
        return False
    return second[0] == first[0] + 1


class _Scan:
    def __init__(
        self,
        descriptor: int,
        path: Path,
        base_offset: int,
        entries: Sequence[tuple[int, int]],
        limit: int | None,
    ) -> None:
        self._descriptor = descriptor
        self._entries = entries
        self._at = 0
        self._limit = limit
        size = os.fstat(descriptor).st_size
        self._found = LogScan(path, base_offset, size, HEADER_SIZE, base_offset)

    def run(self, progress: Progress) -> LogScan:
        found = self._found
        progress(min(found.size, HEADER_SIZE))
        while found.position < found.size and not found.overlaps:
            before = found.position
            if not (self._read_chunk() or found.overlaps or self._read_large() or self._resume()):
                break
            progress(found.position - before)
        progress(found.rest)
        self._pass_entries()
        found.claims += self._entries[self._at :]
        return found

    def _read(self, position: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, position)

    def _read_chunk(self) -> bool:
        """Read the good records of some bytes; return whether there were any."""
        found = self._found
        begin = found.position
        data = self._read(begin, _CHUNK)
        while True:
            done = found.position - begin
            if self._decode(data[done : self._next_place() - begin]):
                continue
            if len(data) - done < RECORD_HEADER_SIZE:
                return done > 0
            # Perhaps one that reaches over the place of an entry, which then is wrong.
            if not self._decode(data[done : done + record_size(data, done)]):
                return done > 0

    def _next_place(self) -> int:
        """Where the next entry leads; it is checked there."""
        self._pass_entries()
        if self._at < len(self._entries):
            return self._entries[self._at][1]
        return self._found.size

    def _pass_entries(self) -> None:
        """Check the entries up to where the good records end."""
        found, entries = self._found, self._entries
        while self._at < len(entries) and entries[self._at][1] <= found.position:
            relative, position = entries[self._at]
            is_right = relative == found.next_offset - found.base_offset
            if position < found.position or not is_right:
                found.lies.append(entries[self._at])
            self._at += 1

    def _decode(self, data: bytes) -> bool:
        """Take the good records at the front of *data*; return whether there are any."""
        found = self._found
        try:
            batches, consumed, following = read_batches(
                data, found.next_offset, path=found.path, position=found.position
            )
        except CorruptRecord as error:
            # A control record that says nothing known can come behind good ones.
            good = error.position - found.position
            return good > 0 and self._decode(data[:good])
        if self._limit is not None and following > self._limit:
            found.overlaps = True
            own = skip_records(data, self._limit - found.next_offset)[1]
            return 0 < own < len(data) and self._decode(data[:own])
        self._note_time(batches)
        if batches:
            found.timestamp_ms = batches[-1].timestamp_ms
        count = sum([len(batch.payloads) for batch in batches])
        found.messages += count
        found.has_gaps |= following - found.next_offset > count
        found.position += consumed
        found.next_offset = following
        return consumed > 0

    def _note_time(self, batches: list[Batch]) -> None:
        """Note the timestamp of a record that an entry leads to."""
        found = self._found
        if not batches or not self._at or batches[0].first_offset != found.next_offset:
            return
        if self._entries[self._at - 1][1] == found.position:
            relative = found.next_offset - found.base_offset
            found.times.append((relative, batches[0].timestamp_ms))

    def _read_large(self) -> bool:
        """Read one record that is larger than what is read at once."""
        found = self._found
        record = offset_at(self._read, found.position, found.size, found.next_offset)
        if record is None or record[0] != found.next_offset:
            return False
        if record[1] - found.position <= _CHUNK:  # a bad one
            return False
        header = self._read(found.position, GAP_RECORD_SIZE)
        gone = gap_count(header, 0)
        found.messages += not gone
        found.has_gaps |= gone > 0
        found.position = record[1]
        found.next_offset += gone or 1
        return True

    def _resume(self) -> bool:
        """Go on behind bad bytes; return whether good ones follow."""
        found = self._found
        bounds = self._bounds()
        record = find_record(self._read, bounds)
        if record is None:
            if bounds.end == found.size:
                return False
            record = bounds.end, bounds.limit
        position, offset = record
        found.stretches.append(Stretch(found.position, position, found.next_offset, offset))
        found.position, found.next_offset = position, offset
        while self._at < len(self._entries) and self._entries[self._at][1] < position:
            self._at += 1
        return True

    def _bounds(self) -> Bounds:
        """Where the next good record can be: before the next entry that leads to one."""
        found = self._found
        start, first = found.position, found.next_offset
        for relative, position in self._entries[self._at :]:
            offset = found.base_offset + relative
            if position <= start or offset <= first or position > found.size:
                continue
            if position == found.size:
                return Bounds(start, position, first, offset, is_closed=True)
            record = offset_at(self._read, position, found.size, offset)
            if record is not None and record[0] == offset:
                return Bounds(start, position, first, offset, is_closed=True)
        limit = first + _FAR if self._limit is None else self._limit
        return Bounds(start, found.size, first, limit)
