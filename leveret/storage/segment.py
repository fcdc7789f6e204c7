"""Segment: a run of records in one file, with two indexes and a state log beside it.

Files, named by the offset of the first record in 20 digits:
    .log        8 bytes header, then records (see record.py)
    .index      relative offset to position, .timeindex  timestamp to relative offset
    .state      what became of the records (see state_log.py)
"""

import logging
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from leveret.storage.batch import Batch
from leveret.storage.disk_space import Sweep, give_back, sweep_now
from leveret.storage.errors import CorruptRecord, DamagedIndex, OffsetOutOfRange, UnsupportedFormat
from leveret.storage.files import HEADER_SIZE, LogFile
from leveret.storage.offset_index import OffsetIndex
from leveret.storage.offset_set import OffsetSet
from leveret.storage.record import (
    GAP_RECORD_SIZE,
    RECORD_HEADER_SIZE,
    Picked,
    count_records,
    gap_count,
    is_control,
    read_batches,
    read_record,
    record_length,
    record_size,
    record_timestamp_ms,
    skip_records,
)
from leveret.storage.snapshot import SegmentSnapshot
from leveret.storage.state_log import (
    SETTLED,
    STATE_MAGIC,
    STATES,
    Entry,
    State,
    decode_entries,
    encode_entries,
)
from leveret.storage.time_index import TimeIndex

if TYPE_CHECKING:
    from leveret.storage.cipher import Cipher

logger = logging.getLogger(__name__)

LOG_MAGIC = b"LVLG"
LOG_SUFFIX = ".log"
HAS_GAPS = 1 << 2
"""The flag of a `.log` in whose records there are gaps."""
KEY_SHIFT = 8
"""The upper byte of the flags of a `.log` is the number of its key, 0 if it is not encrypted."""
KNOWN_FLAGS = HAS_GAPS | 0xFF << KEY_SHIFT
"""All flags that a `.log` may have."""
SUFFIXES = (LOG_SUFFIX, ".index", ".timeindex", ".state")

# The index of the active segment is written in lots of this many entries.
_INDEX_LOT = 64
_SKIP_BYTES = 16384


class Segment:
    """The records from `base_offset` up to, not including, `next_offset`.

    `acked` holds the offsets that are settled. A sealed segment takes no more records. One that
    `has_gaps` lacks some of the settled ones. `revivals` counts how often settled messages became
    ready again.
    """

    __slots__ = (
        "_cursor",
        "_entries",
        "_gaps",
        "_index_interval_bytes",
        "_indexed_position",
        "_last_timestamp_ms",
        "acked",
        "base_offset",
        "cipher",
        "first_attributes",
        "first_timestamp_ms",
        "index",
        "is_sealed",
        "log",
        "next_offset",
        "revivals",
        "state",
        "times",
    )

    def __init__(self, directory: Path, base_offset: int, index_interval_bytes: int) -> None:
        log, index, times, state = (directory / f"{base_offset:020}{end}" for end in SUFFIXES)
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.first_timestamp_ms = 0
        self.first_attributes: int | None = None  # if recovery has read them
        self._last_timestamp_ms = 0
        self.is_sealed = False
        self.revivals = 0
        self.cipher: Cipher | None = None
        self._gaps: OffsetSet | None = None
        self.acked = OffsetSet()
        self.log = LogFile(log, LOG_MAGIC)
        self.index = OffsetIndex(index)
        self.times = TimeIndex(times)
        self.state = LogFile(state, STATE_MAGIC)
        self._index_interval_bytes = index_interval_bytes
        # The first record is always indexed.
        self._indexed_position = -index_interval_bytes
        self._entries: list[Entry] = []
        # Where the last read ended: a queue reads on from there.
        self._cursor = (base_offset, HEADER_SIZE)

    @property
    def size(self) -> int:
        """Bytes in the log."""
        return self.log.size

    @property
    def is_empty(self) -> bool:
        """Whether no record was ever written to it."""
        return self.next_offset == self.base_offset

    @property
    def has_gaps(self) -> bool:
        """Whether records are missing between others."""
        return bool(self.log.flags & HAS_GAPS)

    @property
    def key_number(self) -> int:
        """The number of the key that the records are encrypted with, 0 if they are not."""
        return self.log.flags >> KEY_SHIFT

    @property
    def is_spent(self) -> bool:
        """Whether the segment is closed and nobody needs its records any more."""
        return self.is_sealed and self.acked.count == self.next_offset - self.base_offset

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of records and states."""
        return self.log.size + self.state.size

    @property
    def dead_bytes(self) -> int:
        """Bytes of settled messages in the log, about: as if all messages were equally large."""
        gone = 0 if self._gaps is None else self._gaps.count
        count = self.next_offset - self.base_offset - gone
        return self.log.size * (self.acked.count - gone) // count if count else 0

    @property
    def live_count(self) -> int:
        """How many messages are not settled."""
        return self.next_offset - self.base_offset - self.acked.count

    @property
    def last_timestamp_ms(self) -> int:
        """The timestamp of the last record that is there, 0 in an empty segment. Raises OSError."""
        if not self._last_timestamp_ms and not self.is_empty:
            self._last_timestamp_ms = self.first_timestamp_ms
            was_open = self.log.is_open
            self.open()
            position = self.index.lookup(self.next_offset - 1 - self.base_offset)[1]
            while position < self.size:
                header = self.log.read(position, RECORD_HEADER_SIZE)
                if len(header) < RECORD_HEADER_SIZE:
                    break
                position += record_size(header)
                self._last_timestamp_ms = record_timestamp_ms(header)
            if not was_open:
                self.release()
        return self._last_timestamp_ms

    def append(self, batches: Sequence[Batch], chunks: Sequence[bytes | bytearray]) -> int:
        """Write *batches*, encoded as *chunks*, and return the bytes written.

        Raises DiskFull, OSError; the segment is then what it was before.
        """
        position = self.log.size or HEADER_SIZE
        if self.is_empty:
            self.first_timestamp_ms = batches[0].timestamp_ms
        written = self.log.append(chunks)
        for batch, chunk in zip(batches, chunks, strict=True):
            self._add_to_index(batch.first_offset, batch.timestamp_ms, position)
            position += len(chunk)
        self.next_offset = batches[-1].next_offset
        self._last_timestamp_ms = batches[-1].timestamp_ms
        return written

    def read(self, offset: int, max_bytes: int) -> list[Batch]:
        """Return the records from *offset* on in about *max_bytes*, at least one.

        A gap is stepped over; returns nothing if it reaches to the end. Raises CorruptRecord if
        the first record is bad.
        """
        try:
            return self._read(offset, max_bytes)
        except CorruptRecord:
            if not self._drop_wrong_entries():
                raise
        return self._read(offset, max_bytes)

    def _read(self, offset: int, max_bytes: int) -> list[Batch]:
        if self._cursor[0] == offset:
            position = self._cursor[1]
        elif self.has_gaps:
            offset, position = self._seek(offset)
        else:
            position = self._locate(offset)
        batches: list[Batch] = []
        while not batches and position < self.size:  # more than once for a gap
            batches, consumed, offset = self._decode(offset, position, max_bytes)
            position += consumed
        if not batches and offset != self.next_offset:
            raise CorruptRecord(self.log.path, position, offset, "a record, not the end")
        self._cursor = (offset, position)
        return batches

    def _drop_wrong_entries(self) -> bool:
        """Forget the entries of the index that lead to no record; answers whether there are any.

        They have no checksum, for the records tell.
        """

        def is_right(relative_offset: int, position: int) -> bool:
            offset = self.base_offset + relative_offset
            if (offset, position) == (self.next_offset, self.size):
                return True
            try:
                return position < self.size and bool(self._decode(offset, position, 1)[1])
            except CorruptRecord:
                return False

        self._cursor = (self.base_offset, HEADER_SIZE)
        return self.is_sealed and self.index.is_written and self.index.keep(is_right)

    def pick(self, offsets: Sequence[int]) -> Iterator[Picked]:
        """Yield the records at *offsets*, which are sorted.

        Flat, because what is read here and there is read one by one. Raises CorruptRecord, and
        OffsetOutOfRange for one that is gone.
        """
        if self.has_gaps:
            yield from self._pick_across_gaps(offsets)
            return
        base_offset, lookup, read = self.base_offset, self.index.lookup, self.log.read
        window = b""
        # The record at `place` in the window, which begins at `position`, has the offset `at`.
        at = position = place = -1
        for offset in offsets:
            indexed, start = lookup(offset - base_offset)
            if base_offset + indexed > at:
                at, position, place = base_offset + indexed, start, 0
                window = read(position, self._index_interval_bytes)
            while True:
                while at < offset and place + RECORD_HEADER_SIZE <= len(window):
                    place += RECORD_HEADER_SIZE + record_length(window, place)[0]
                    at += 1
                if place + RECORD_HEADER_SIZE <= len(window):
                    break
                position, place = position + place, 0
                window = read(position, self._index_interval_bytes)
                if len(window) < RECORD_HEADER_SIZE:
                    raise CorruptRecord(self.log.path, position, at, "a record, not the end")
            size = record_size(window, place)
            if place + size > len(window):
                position, place = position + place, 0
                window = read(position, min(size, self.size - position))
            yield read_record(window, place, offset, path=self.log.path, position=position)

    def mark(self, state: State, ranges: list[tuple[int, int]]) -> None:
        """Note the state of the offsets in sorted *ranges*; `write_state` brings it to the file."""
        base_offset = self.base_offset
        assert base_offset <= ranges[0][0]
        assert ranges[-1][1] <= self.next_offset
        self._entries += [(start - base_offset, end - start, state) for start, end in ranges]
        if state in SETTLED:
            self.acked.add_each(ranges)
        elif state is State.REPLAYED:
            self.revivals += 1
            for start, end in ranges:
                self.acked.discard(start, end)

    def history(self, offset: int) -> list[State]:
        """Return what became of the record at *offset*, first things first. Reads the state log."""
        data = self.state.read(HEADER_SIZE, self.state.size) if self.state.size else b""
        relative = offset - self.base_offset
        return [
            State(state)
            for first, count, state in chain(decode_entries(data), self._entries)
            if first <= relative < first + count and state in STATES
        ]

    def write_state(self) -> bool:
        """Append the noted states to the state log in one write; return whether there were any.

        Raises DiskFull, which leaves them for the next call, and OSError.
        """
        if not self._entries:
            return False
        self.state.append([encode_entries(self._entries)])
        self._entries.clear()
        return True

    def write_index(self, durable_size: int) -> None:
        """Write the index entries of the first *durable_size* bytes of the log.

        Raises DiskFull, which leaves them for the next call, and OSError.
        """
        count = self.index.count_below(durable_size)
        self.index.write(count)
        self.times.write(count)

    @property
    def has_unwritten_lot(self) -> bool:
        """Whether enough index entries wait to be written, durable or not."""
        return self.index.unwritten(len(self.index)) >= _INDEX_LOT

    def has_index_lot(self, durable_size: int) -> bool:
        """Whether enough index entries wait to be written."""
        return self.index.unwritten(self.index.count_below(durable_size)) >= _INDEX_LOT

    def seal(self) -> None:
        """Close the segment for writing. Its indexes are complete, but not yet in their files.

        Raises OSError, after which it may be called again.
        """
        self.log.trim()
        end = self.next_offset - self.base_offset, self.size
        if self.index.last() != end:
            self.index.append(*end)
        self.is_sealed = True

    def complete_index(self) -> None:
        """Write the indexes of a sealed segment, whose log is durable: they are the proof of that.

        Raises DiskFull, after which it may be called again, and OSError.
        """
        self.trim_indexes()
        self.times.write(len(self.times))
        self.index.write(len(self.index))

    def adopt(self, known: SegmentSnapshot) -> None:
        """Take over the facts of a closed segment, whose files are not looked at."""
        self.log.size = known.log_size
        self.next_offset = known.next_offset
        self.first_timestamp_ms = known.first_timestamp_ms
        self._last_timestamp_ms = known.last_timestamp_ms
        self.log.flags = known.flags
        self.is_sealed = True
        self.index.unload()
        self.times.unload()

    def facts(self, *, is_closed: bool) -> SegmentSnapshot:
        """Return what a snapshot says of the segment, without its states."""
        return SegmentSnapshot(
            self.base_offset,
            self.next_offset,
            self.log.size,
            self.first_timestamp_ms,
            self._last_timestamp_ms,
            self.state.size,
            is_closed,
            self.log.flags,
        )

    def load_indexes(self, *, is_closed: bool = True) -> None:
        """Read the index files. Raises DamagedIndex, UnsupportedFormat."""
        self.index.load()
        if len(self.index) <= 1 and not self.times.path.exists():
            self.times.clear()  # without a record there is nothing but the entry of the end
        else:
            self.times.load()
        if is_closed and len(self.index) > len(self.times) + 1:
            raise DamagedIndex(f"{self.times.path}: expected as many entries as in the index")

    def forget_indexes(self) -> None:
        """Drop the entries of both indexes; `trim_indexes` is for the files."""
        self.index.clear()
        self.times.clear()

    def trim_indexes(self) -> None:
        """Cut the index files behind the entries that they shall have. Raises OSError."""
        self.index.trim()
        self.times.trim()

    def open(self) -> bool:
        """Have the indexes in memory; return whether they were made again from the log.

        They are if their files are not right, and then wait to be written. Raises OSError.
        """
        if self.index.is_loaded and self.times.is_loaded:
            return False
        try:
            self.load_indexes()
            if self.index.last() == (self.next_offset - self.base_offset, self.size):
                return False
            wrong = "not complete"
        except (DamagedIndex, UnsupportedFormat) as error:
            wrong = str(error)
        logger.warning("rebuilt the indexes: %s: %s", self.index.path, wrong)
        end = self.next_offset
        self.forget_indexes()
        self.resume()
        self.next_offset = end
        self.index.append(end - self.base_offset, self.size)
        return True

    def adopt_end(self) -> bool:
        """Seal the segment if its index has the entry of its end; return whether it does."""
        last = self.index.last()
        if last is None or last[1] != self.size or not self._leads_to(last[0]):
            return False
        self.next_offset = self.base_offset + last[0]
        self.is_sealed = True
        return True

    def _leads_to(self, end: int) -> bool:
        """Whether the records in front of the end are as many as the index says.

        A bad one says nothing of the index.
        """
        relative_offset, position = self.index.find(end - 1) or (0, HEADER_SIZE)
        offset = self.base_offset + relative_offset
        try:
            while position < self.size:
                _, consumed, offset = self._decode(offset, position, self._index_interval_bytes)
                position += consumed
        except CorruptRecord:
            return True
        return offset == self.base_offset + end

    def resume(self) -> tuple[int, int]:
        """Check and index the records behind the last index entry that lies within the log.

        Sets `next_offset`. Returns the positions of that entry and behind the last good record.
        """
        count = min(self.index.count_below(self.size), len(self.times))
        self.index.cut(count)
        self.times.cut(count)
        last = self.index.last()
        relative_offset, start = last or (0, HEADER_SIZE)
        self._indexed_position = start if last else -self._index_interval_bytes
        if last is None and self.has_gaps:
            self._gaps = OffsetSet()
        position = start
        offset = self.base_offset + relative_offset
        while position < self.size:
            if self._gaps is None:
                data = self.log.read(
                    position, min(self._index_interval_bytes, self.size - position)
                )
                count, consumed = count_records(data, offset)
                if count:
                    self._add_to_index(offset, record_timestamp_ms(data), position)
                    offset += count
                    position += consumed
                    continue
            try:
                batches, consumed, following = self._decode(
                    offset, position, self._index_interval_bytes
                )
            except CorruptRecord:
                break
            if batches:
                self._add_to_index(offset, batches[0].timestamp_ms, position)
            if self._gaps is not None:
                self._gaps.add(offset, following)
                for batch in batches:
                    self._gaps.discard(batch.first_offset, batch.next_offset)
            offset = following
            position += consumed
        self.next_offset = offset
        return start, position

    def step_over(self, position: int, offset: int) -> None:
        """Have `resume` go on at *position* with *offset*; the messages before it are gone.

        There is a gap in their place, or will be.
        """
        if self._gaps is None:
            self._gaps = OffsetSet()
        self._gaps.add(self.next_offset, offset)
        self.log.flags |= HAS_GAPS
        self._indexed_position = -self._index_interval_bytes
        timestamp_ms = record_timestamp_ms(self.log.read(position, RECORD_HEADER_SIZE))
        self._add_to_index(offset, timestamp_ms, position)

    def reader(self) -> "Segment":
        """Return this segment as it is, with descriptors of its own, for another thread."""
        was_open = self.log.is_open
        copy = Segment(self.log.path.parent, self.base_offset, self._index_interval_bytes)
        copy.next_offset = self.next_offset
        copy.first_timestamp_ms = self.first_timestamp_ms
        copy.log = self.log.share()
        self.index.share(copy.index)
        if not was_open:
            self.release()
        return copy

    def replace_log(self, size: int, gone: OffsetSet) -> int:
        """Put the compacted log, of *size* bytes, in the place of this one.

        `replace_indexes` comes next. Returns the last descriptor of the old log. Raises OSError,
        and nothing has changed.
        """
        descriptor = self.log.replace(temporary(self.log.path), size)
        self.log.flags |= HAS_GAPS
        self._gaps = gone
        self._cursor = (self.base_offset, HEADER_SIZE)
        return descriptor

    def replace_indexes(self) -> None:
        """Take those of the compacted log. Raises OSError."""
        self.index.replace(temporary(self.index.path))
        self.times.replace(temporary(self.times.path))

    def release(self) -> None:
        """Give back the memory and descriptors that only a reader needs."""
        if self.is_sealed:
            self.cipher = None
            if self.index.is_written:
                self.index.unload()
                self.times.unload()
            if not self.log.dirty:
                self.log.close()

    def close(self) -> None:
        """Close the files."""
        self.log.close()
        self.state.close()

    def delete(self, sweep: Sweep = sweep_now) -> None:
        """Remove the files; *sweep* gives their space back.

        The log goes first: recovery removes what is left of the others, whereas a log without
        its states would come back as ready.
        """
        self._remove(self.log, sweep)
        self._remove_rest(sweep)

    def set_aside(self, path: Path, sweep: Sweep) -> LogFile:
        """Remove the files but the log's, which is moved to *path*. Raises OSError."""
        spare = self.log.set_aside(path)
        self._remove_rest(sweep)
        return spare

    def _remove_rest(self, sweep: Sweep) -> None:
        self._remove(self.state, sweep)
        self.index.delete()
        self.times.delete()

    @staticmethod
    def _remove(file: LogFile, sweep: Sweep) -> None:
        descriptor = file.remove()
        if descriptor is not None:
            sweep(give_back(descriptor))

    def _add_to_index(self, offset: int, timestamp_ms: int, position: int) -> None:
        if position - self._indexed_position >= self._index_interval_bytes:
            relative_offset = offset - self.base_offset
            self.index.append(relative_offset, position)
            self.times.append(timestamp_ms, relative_offset)
            self._indexed_position = position

    def _locate(self, offset: int) -> int:
        relative_offset, position = self.index.lookup(offset - self.base_offset)
        at = self.base_offset + relative_offset
        while at < offset:
            window = self.log.read(position, _SKIP_BYTES)
            skipped, passed = skip_records(window, offset - at)
            if not skipped:
                raise CorruptRecord(self.log.path, position, at, "a record, not the end of file")
            at += skipped
            position += passed
        return position

    def _seek(self, offset: int) -> tuple[int, int]:
        """Return the first offset from *offset* on that is in no gap, and where it lies."""
        indexed, start = self.index.lookup(offset - self.base_offset)
        for at, gone, position in self._walk(self.base_offset + indexed, start):
            if at >= offset and not gone:
                return at, position
        return self.next_offset, self.size

    def _walk(self, at: int, position: int) -> Iterator[tuple[int, int, int]]:
        """Yield the records from *at* on: offset, how many messages it is a gap of, position."""
        window = b""
        place = 0
        while position < self.size:
            if place + GAP_RECORD_SIZE > len(window):
                window, place = self.log.read(position, _SKIP_BYTES), 0
                if len(window) < RECORD_HEADER_SIZE:
                    raise CorruptRecord(self.log.path, position, at, "a record, not the end")
            if is_control(window, place) and place + GAP_RECORD_SIZE > len(window):
                raise CorruptRecord(self.log.path, position, at, "a gap, not the end")
            gone = gap_count(window, place)
            yield at, gone, position
            size = record_size(window, place)
            at += gone or 1
            position += size
            place += size

    def _pick_across_gaps(self, offsets: Sequence[int]) -> Iterator[Picked]:
        path = self.log.path
        for offset in offsets:
            at, position = self._seek(offset)
            if at != offset:
                raise OffsetOutOfRange(f"{path}: offset {offset} was deleted")
            size = record_size(self.log.read(position, RECORD_HEADER_SIZE))
            data = self.log.read(position, min(size, self.size - position))
            yield read_record(data, 0, offset, path=path, position=position)

    @property
    def gaps(self) -> OffsetSet:
        """The offsets of messages that are gone. Reads the log when first asked. Raises OSError."""
        if self._gaps is None:
            self._gaps = OffsetSet()
            if self.has_gaps:
                for at, gone, _ in self._walk(self.base_offset, HEADER_SIZE):
                    self._gaps.add(at, at + gone)
        return self._gaps

    def _decode(self, offset: int, position: int, max_bytes: int) -> tuple[list[Batch], int, int]:
        path = self.log.path
        data = self.log.read(
            position, min(max(max_bytes, RECORD_HEADER_SIZE), self.size - position)
        )
        batches, consumed, following = read_batches(data, offset, path=path, position=position)
        if not consumed and len(data) >= RECORD_HEADER_SIZE:
            # One record that is larger than was asked for.
            data = self.log.read(position, min(record_size(data), self.size - position))
            batches, consumed, following = read_batches(data, offset, path=path, position=position)
        if not consumed:
            raise CorruptRecord(path, position, offset, f"a whole record, not {len(data)} bytes")
        return batches, consumed, following


def temporary(path: Path) -> Path:
    """Where a file is made that will replace *path*."""
    return path.with_name(path.name + ".tmp")
