"""Snapshot: the merged state logs of all segments of a log, so that a start need not read them.

Files: `snapshot`, and `snapshot.old`, the one before. Format, big endian:
    8 bytes header, magic LVSN
    u32 crc32 of all that follows
    u32 number of counters, then for each: u32 state, u64 messages that ever got it
    u32 number of segments, then for each, by rising base:
        u64 base offset, u64 next offset, u64 bytes of the log
        u64 first timestamp in ms, u64 last timestamp in ms, 0 if not known
        u64 bytes of the state log that are merged here
        u16 1 if the segment is closed and its indexes are complete, u16 flags of its log
        4 sets of offsets: settled, volatile, delivered, replayed
        u32 number of runs of messages with the same tries, then for each:
            u32 first relative offset, u32 count,
            u32 hand-outs behind the first, u32 came back, u32 failed
    a set: u32 form, u32 number n, and
        form 0: n intervals: u32 first relative offset, u32 count
        form 1: n chunks of 64 bytes, a bit for each offset from the multiple of 512 at or before
            the segment's base on, the lowest bit of a byte first
A snapshot may say more than the log has after a power failure, and is then clipped. It never says
less than the state log up to the bytes it names.
"""

import logging
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

from leveret.storage.errors import DamagedSnapshot, UnsupportedFormat
from leveret.storage.files import HEADER_SIZE, check_header, file_header, sync_directory
from leveret.storage.offset_set import CHUNK_BYTES, OffsetSet
from leveret.storage.outcomes import Outcomes, clip_entries
from leveret.storage.state_log import STATE_SUFFIX, decode_entries

logger = logging.getLogger(__name__)

SNAPSHOT_MAGIC = b"LVSN"
SNAPSHOT_NAME = "snapshot"
OLD_SNAPSHOT_NAME = "snapshot.old"

_U32 = struct.Struct(">I")
_PAIR = struct.Struct(">II")
_COUNTER = struct.Struct(">IQ")
_SEGMENT = struct.Struct(">QQQQQQHH")
_TRIES = struct.Struct(">IIIII")
_CHUNK = CHUNK_BYTES * 8
_INTERVALS, _BITMAP = 0, 1
_MOST = 1 << 32


@dataclass(slots=True)
class SegmentSnapshot:
    """One segment: facts of its files, and what became of its records."""

    base_offset: int
    next_offset: int
    log_size: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    state_size: int
    is_closed: bool
    flags: int
    outcomes: Outcomes = field(default_factory=Outcomes)


@dataclass(slots=True)
class Snapshot:
    """The segments by base offset, and how many messages ever got each state."""

    counters: Mapping[int, int]
    segments: dict[int, SegmentSnapshot]

    @property
    def next_offset(self) -> int:
        """The offset behind the last message."""
        return max((known.next_offset for known in self.segments.values()), default=0)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return the bytes of the file."""
    parts = [_U32.pack(len(snapshot.counters))]
    parts += [_COUNTER.pack(*counter) for counter in sorted(snapshot.counters.items())]
    parts.append(_U32.pack(len(snapshot.segments)))
    for _, segment in sorted(snapshot.segments.items()):
        parts += _encode_segment(segment)
    body = b"".join(parts)
    return file_header(SNAPSHOT_MAGIC) + _U32.pack(crc32(body)) + body


def decode_snapshot(path: Path, data: bytes) -> Snapshot:
    """Return what `encode_snapshot` made *data* of.

    Raises DamagedSnapshot for anything else; *path* is for the message.
    """
    try:
        check_header(path, data, SNAPSHOT_MAGIC)
    except UnsupportedFormat as error:
        raise DamagedSnapshot(str(error)) from None
    body = data[HEADER_SIZE + _U32.size :]
    try:
        expected = _U32.unpack_from(data, HEADER_SIZE)[0]
        if crc32(body) != expected:
            raise ValueError(f"crc32 {expected:08x}, not {crc32(body):08x}")
        return _Reader(body).snapshot()
    except (struct.error, ValueError) as error:
        raise DamagedSnapshot(f"{path}: not a whole snapshot: {error}") from None


def write_snapshot(directory: Path, snapshot: Snapshot) -> Iterator[None]:
    """Complete *snapshot*, which knows only facts, from the files, and write it. In steps.

    Goes on from the snapshot before, so that it reads each byte of a state log once. Touches only
    files: another thread may do it, but no two at a time. A disk that does not let it is no harm.
    """
    try:
        before = _previous(directory)
        for known in snapshot.segments.values():
            _complete(directory, known, before.segments.get(known.base_offset))
            yield
        data = encode_snapshot(snapshot)
        path, old = directory / SNAPSHOT_NAME, directory / OLD_SNAPSHOT_NAME
        temporary = directory / (SNAPSHOT_NAME + ".tmp")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):  # the first one
            path.replace(old)
        temporary.replace(path)
        sync_directory(directory)
    except OSError as error:
        logger.warning("no snapshot: %s: %s", directory, error)


def _previous(directory: Path) -> Snapshot:
    path = directory / SNAPSHOT_NAME
    try:
        return decode_snapshot(path, path.read_bytes())
    except (FileNotFoundError, DamagedSnapshot):
        return Snapshot({}, {})


def _complete(directory: Path, known: SegmentSnapshot, before: SegmentSnapshot | None) -> None:
    """Have *known* say what became of its records, going on from *before*."""
    start = HEADER_SIZE
    if before is not None and before.state_size <= known.state_size:
        known.outcomes = before.outcomes
        start = max(start, before.state_size)
    if start < known.state_size:
        with suppress(FileNotFoundError):  # all of it was settled meanwhile
            with (directory / f"{known.base_offset:020}{STATE_SUFFIX}").open("rb") as file:
                file.seek(start)
                entries = decode_entries(file.read(known.state_size - start))
            end = known.next_offset - known.base_offset
            known.outcomes.apply(known.base_offset, clip_entries(entries, end))


def _encode_segment(known: SegmentSnapshot) -> Iterator[bytes]:
    base = known.base_offset
    yield _SEGMENT.pack(
        base,
        known.next_offset,
        known.log_size,
        known.first_timestamp_ms,
        known.last_timestamp_ms,
        known.state_size,
        known.is_closed,
        known.flags,
    )
    for offsets in known.outcomes.sets:
        yield from _encode_set(base, offsets)
    runs: list[list[int]] = []
    for offset, counts in sorted(known.outcomes.tries.items()):
        if runs and offset - base == runs[-1][0] + runs[-1][1] and runs[-1][2:] == [*counts]:
            runs[-1][1] += 1
        else:
            runs.append([offset - base, 1, *counts])
    yield _U32.pack(len(runs))
    for run in runs:
        yield _TRIES.pack(*run)


def _encode_set(base: int, offsets: OffsetSet) -> Iterator[bytes]:
    intervals = offsets.intervals()
    origin = base // _CHUNK
    chunks = intervals[-1][1] // _CHUNK - origin + 1 if intervals else 0
    if len(intervals) * _PAIR.size <= chunks * CHUNK_BYTES:
        yield _PAIR.pack(_INTERVALS, len(intervals))
        yield b"".join(_PAIR.pack(start - base, end - start) for start, end in intervals)
        return
    first, bitmap = offsets.to_bitmap()
    bitmap = bytes((first - origin) * CHUNK_BYTES) + bitmap
    yield _PAIR.pack(_BITMAP, len(bitmap) // CHUNK_BYTES)
    yield bitmap


class _Reader:
    """Reads a body from its beginning on. Raises ValueError and struct.error."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def snapshot(self) -> Snapshot:
        counters = {row[0]: row[1] for row in self._rows(_COUNTER)}
        segments: dict[int, SegmentSnapshot] = {}
        end = 0
        for _ in range(self._number()):
            known = self._segment()
            if known.base_offset < end:
                raise ValueError(f"offset {known.base_offset} comes twice")
            end = known.next_offset
            segments[known.base_offset] = known
        if self._at != len(self._body):
            raise ValueError(f"{len(self._body) - self._at} bytes too many")
        return Snapshot(counters, segments)

    def _segment(self) -> SegmentSnapshot:
        base, next_offset, log_size, first_ms, last_ms, state_size, is_closed, flags = (
            _SEGMENT.unpack(self._take(_SEGMENT.size))
        )
        if not 0 <= next_offset - base < _MOST or is_closed > 1:
            raise ValueError(f"no segment from {base} to {next_offset}")
        outcomes = Outcomes()
        outcomes.settled, outcomes.volatile, outcomes.delivered, outcomes.replayed = (
            self._set(base, next_offset) for _ in outcomes.sets
        )
        for first, count, again, returned, failed in self._rows(_TRIES):
            start = base + first
            if start + count > next_offset:
                raise ValueError(f"tries behind the end at {next_offset}")
            outcomes.tries |= dict.fromkeys(range(start, start + count), (again, returned, failed))
        return SegmentSnapshot(
            base,
            next_offset,
            log_size,
            first_ms,
            last_ms,
            state_size,
            bool(is_closed),
            flags,
            outcomes,
        )

    def _set(self, base: int, next_offset: int) -> OffsetSet:
        form, number = _PAIR.unpack(self._take(_PAIR.size))
        if form == _BITMAP:
            offsets = OffsetSet.from_bitmap(base // _CHUNK, self._take(number * CHUNK_BYTES))
            first, end = offsets.bounds() or (base, base)
            if first < base or end > next_offset:
                raise ValueError(f"a set from {first} to {end}")
            return offsets
        if form != _INTERVALS:
            raise ValueError(f"a set of form {form}")
        rows = _PAIR.iter_unpack(self._take(number * _PAIR.size))
        intervals = [(base + first, base + first + count) for first, count in rows]
        end = base
        for start, stop in intervals:
            if not end <= start < stop <= next_offset:
                raise ValueError(f"an interval from {start} to {stop}")
            end = stop
        offsets = OffsetSet()
        offsets.add_each(intervals)
        return offsets

    def _rows(self, row: struct.Struct) -> Iterator[tuple[int, ...]]:
        return row.iter_unpack(self._take(self._number() * row.size))

    def _number(self) -> int:
        return int(_U32.unpack(self._take(_U32.size))[0])

    def _take(self, size: int) -> bytes:
        taken = self._body[self._at : self._at + size]
        if len(taken) < size:
            raise ValueError(f"{size - len(taken)} bytes missing")
        self._at += size
        return taken
