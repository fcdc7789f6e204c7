"""Segment log: the messages of one queue in the order they came, and what became of them.

Appends and marks are collected and written once per turn by `flush` and `flush_state`. All of it
runs in the loop's thread but `SyncWork.run`.
"""

import logging
import os
import sys
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from leveret.storage.batch import Batch
from leveret.storage.compaction import Compaction
from leveret.storage.disk_space import (
    LOOK_MS,
    DiskSpace,
    Sweep,
    give_back,
    remove_directory,
    sweep_now,
)
from leveret.storage.errors import (
    DiskFull,
    LogFailed,
    MissingKey,
    NotAuthentic,
    OffsetOutOfRange,
    StorageError,
)
from leveret.storage.files import (
    HEADER_SIZE,
    needing_space,
    parents_of_missing,
    sync_directory,
    sync_file,
)
from leveret.storage.key_ring import OVERHEAD, KeyRing
from leveret.storage.offset_set import clip_intervals, merge_intervals
from leveret.storage.record import ENCRYPTED, Picked, encode_batch, records_within, split_batch
from leveret.storage.retention import Retention
from leveret.storage.segment import KEY_SHIFT, Segment
from leveret.storage.snapshot import Snapshot, write_snapshot
from leveret.storage.spare import Spare
from leveret.storage.state_log import State
from leveret.storage.sync_work import SyncWork

if TYPE_CHECKING:
    from leveret.storage.cipher import Cipher

logger = logging.getLogger(__name__)

LAST_SNAPSHOT_BYTES = 64 * 1024
"""What recovery may have to read after a log was closed."""

KIB = 1024
MIB = 1024 * KIB
MIN_SEGMENT_BYTES = 4 * KIB
MAX_SEGMENT_BYTES = 1024 * MIB
_INDEX_ENTRY_BYTES = 20
_SOON_MS = 1000
_IDLE_MS = 60_000
_IDLE_BYTES = 16 * KIB
_IDLE_BYTES_AT_END = MIB
"""A clean stop does not wait for the disk for less."""
_RETAINED_PARTS = 4
_MIN_RETAINED_PART = 64 * KIB

_BASE_OFFSET = attrgetter("base_offset")


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How a log is cut into segments. `segment_age_ms` of 0 means at any age.

    `open_segments` is how many sealed segments stay open after they were read from, with their
    indexes in memory: more than one for a log that is read here and there. `compact_bytes` is how
    much of a segment must be settled for a compaction, or half a segment if that is less; 0 means
    never. `snapshot_bytes` is what a recovery may have to read until a snapshot saves it from that;
    0 for a log that is never recovered. What is written is encrypted if there are `keys`.
    """

    segment_bytes: int = 64 * MIB
    segment_age_ms: int = 0
    index_interval_bytes: int = 16 * KIB
    open_segments: int = 1
    compact_bytes: int = 4 * MIB
    snapshot_bytes: int = MIB
    keys: KeyRing | None = None

    def __post_init__(self) -> None:
        if not MIN_SEGMENT_BYTES <= self.segment_bytes <= MAX_SEGMENT_BYTES:
            raise ValueError(
                f"segment_bytes is {self.segment_bytes}, "
                f"not in {MIN_SEGMENT_BYTES}..{MAX_SEGMENT_BYTES}"
            )


@dataclass(frozen=True, slots=True)
class _SyncPoint:
    """Bytes of the active segment that are durable once the work is done."""

    work: SyncWork
    segment: Segment
    size: int


class SegmentLog:
    """An append-only log in *directory*, which `flush` creates when there is something to write.

    *clock_ms* returns the time in milliseconds that record timestamps are taken from.
    *segments* are the ones that recovery found; the last is the active one. *space* is
    where the files of deleted segments go.
    """

    def __init__(
        self,
        directory: Path,
        options: LogOptions,
        clock_ms: Callable[[], int],
        segments: Iterable[Segment] = (),
        *,
        space: DiskSpace | None = None,
    ) -> None:
        self.directory = directory
        self._options = options
        self._clock_ms = clock_ms
        self._key_number = 0 if options.keys is None else options.keys.current
        self._space = space or DiskSpace()
        self._retention: Retention | None = None
        self._segment_bytes = options.segment_bytes
        self._spare = Spare(directory, self._space)
        self._segments = list(segments) or [Segment(directory, 0, options.index_interval_bytes)]
        self._active = self._segments[-1]
        self._next_offset = self._active.next_offset
        self._batches: list[Batch] = []
        self._marks: dict[State, list[tuple[int, int]]] = {}
        # Segments whose states changed since the last flush_state.
        self._touched: dict[Segment, None] = {}
        self._readers: dict[Segment, None] = {}
        self._bytes_on_disk = sum(segment.bytes_on_disk for segment in self._segments)
        # Segments with bytes that no sync has been asked for, oldest first.
        self._unsynced = {segment: None for segment in self._segments if segment.log.dirty}
        self._unsynced_states: dict[Segment, None] = {}
        self._changed_directories: dict[Path, None] = {}
        if self._unsynced:
            self._changed_directories[directory] = None
        self._has_deleted = False
        # Sealed segments whose indexes are written once their logs are durable.
        self._unindexed: dict[Segment, SyncWork | None] = {
            segment: None for segment in self._segments if not segment.index.is_written
        }
        self._unindexed.pop(self._active, None)
        self._written_bytes = 0
        self._sync_point: _SyncPoint | None = None
        self._failure = ""
        self._counters: Counter[int] = Counter()
        # What a recovery would have to read for lack of a snapshot, about.
        self._replay_bytes = 0
        self._has_dropped = False
        self._is_snapshotting = False
        # A spent segment that stays until the next one, which is empty, has its file.
        self._left: Segment | None = None
        self._founded: Segment | None = None
        self._compaction: Compaction | None = None
        # Segments whose compaction failed or did not pay when they had so many live messages.
        self._uncompacted: dict[Segment, int] = {}

    def watch(self) -> None:
        """Have the log looked after from now on, in the loop.

        For one that was recovered, perhaps by another thread, which may have been reading it. Any
        other is from its first message on.
        """
        if not self.is_bare:
            self._space.watch(self, self._clock_ms() + LOOK_MS)

    def restore(self, counters: Mapping[int, int], replay_bytes: int) -> None:
        """Go on from what recovery found: counters, and bytes that no snapshot covers."""
        self._counters.update(counters)
        self._replay_bytes = replay_bytes

    @property
    def counters(self) -> Counter[int]:
        """How many messages ever got each state; after a kill, about."""
        return self._counters

    @property
    def first_offset(self) -> int:
        """The oldest offset that is still present; `next_offset` in an empty log."""
        return self._segments[0].base_offset

    @property
    def next_offset(self) -> int:
        """The offset of the next message to be appended."""
        return self._next_offset

    @property
    def flushed_offset(self) -> int:
        """The offset behind the last message that `flush` wrote."""
        return self._active.next_offset

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of records and states in files."""
        return self._bytes_on_disk

    @property
    def disk_bytes(self) -> int:
        """Bytes of all files, about: the indexes as if every record were shorter than a step."""
        index_entries = self._bytes_on_disk // self._options.index_interval_bytes
        return self._bytes_on_disk + index_entries * _INDEX_ENTRY_BYTES

    @property
    def is_bare(self) -> bool:
        """Whether there is nothing in it that could be given back."""
        return len(self._segments) == 1 and self._active.is_empty

    @property
    def retention(self) -> Retention | None:
        """How long settled messages stay; without one they go as soon as their segment may.

        A new one takes effect with the next flush_state.
        """
        return self._retention

    @retention.setter
    def retention(self, retention: Retention | None) -> None:
        self._retention = retention
        self.cut_for(None if retention is None else retention.size)
        self._touched.update((segment, None) for segment in self._segments if segment.is_spent)

    def cut_for(self, size: int | None) -> None:
        """Cut segments so small that a few of them make up *size* bytes: they go as a whole."""
        self._segment_bytes = self._options.segment_bytes
        if size is not None:
            part = max(size // _RETAINED_PARTS, _MIN_RETAINED_PART)
            self._segment_bytes = min(self._segment_bytes, part)

    @property
    def sealed(self) -> Sequence[Segment]:
        """The segments that take no more messages, oldest first."""
        return self._segments[:-1]

    @property
    def retained_bytes(self) -> int:
        """Bytes of settled messages that are kept because of the retention, about."""
        if self._retention is None:
            return 0
        return sum(segment.dead_bytes for segment in self._segments)

    @property
    def dirty(self) -> bool:
        """Whether messages were flushed that no sync has been asked for."""
        return bool(self._unsynced)

    @property
    def state_dirty(self) -> bool:
        """Whether states were flushed or segments deleted that no sync has been asked for."""
        return bool(self._unsynced_states) or self._has_deleted

    def append(self, batch: Batch) -> None:
        """Take *batch* for the next flush; it must begin at `next_offset`."""
        assert batch.payloads
        assert batch.first_offset == self._next_offset
        if self._failure:
            raise LogFailed(self._failure)
        self._batches.append(batch)
        self._next_offset += len(batch.payloads)

    def flush(self) -> int:
        """Write the appended batches, one write per segment, and return the bytes written.

        Raises DiskFull if there is no room for all of them: the others stay for the next call, and
        what is behind `flushed_offset` cannot be read. Raises LogFailed, now and at every later
        call, if the files cannot be written. The log then ends with the last segment that was
        written.
        """
        if self._failure:
            raise LogFailed(self._failure)
        if not self._batches:
            return 0
        try:
            written = self._write_batches()
        except DiskFull:
            self._drop_written()
            raise
        except OSError as error:
            raise self.fail(error) from error
        self._batches.clear()
        return written

    def take_written(self) -> int:
        """Return the bytes of messages flushed since this was last asked."""
        written, self._written_bytes = self._written_bytes, 0
        return written

    def read(self, offset: int, max_bytes: int) -> list[Batch]:
        """Return flushed messages from *offset* on in about *max_bytes*, at least one.

        Returns nothing at the end of the log, and what is left of a segment at its end. Raises
        CorruptRecord, NotAuthentic, MissingKey, and OffsetOutOfRange for an offset whose segment
        was deleted.
        """
        if offset >= self._active.next_offset:
            return []
        segment = self._reader(offset)
        batches = segment.read(offset, max_bytes)
        if not batches:  # a gap up to its end
            return self.read(self.present(segment.next_offset), max_bytes)
        if segment.key_number or batches[0].attributes & ENCRYPTED:
            return self._decrypt(segment, batches)
        return batches

    def pick(self, offsets: Sequence[int]) -> Iterator[Picked]:
        """Yield the flushed messages at *offsets*, which are sorted, each by itself.

        Raises CorruptRecord, NotAuthentic, MissingKey, OffsetOutOfRange.
        """
        at = 0
        while at < len(offsets):
            segment = self._reader(offsets[at])
            stop = bisect_left(offsets, segment.next_offset, at)
            picked = segment.pick(offsets[at:stop])
            first = next(picked)
            if segment.key_number or first[2] & ENCRYPTED:
                decrypt, path = self._cipher(segment).decrypt_one, segment.log.path
                yield decrypt(first, path)
                yield from (decrypt(one, path) for one in picked)
            else:
                yield first
                yield from picked
            at = stop

    def find(self, timestamp_ms: int) -> int:
        """Return an offset before which every message is older than *timestamp_ms*.

        It is the nearest one in the time index: a few messages behind it may be older too.
        """
        for segment in reversed(self._segments):
            if segment.first_timestamp_ms < timestamp_ms and not segment.is_empty:
                self._open(segment)
                relative_offset = segment.times.lookup(timestamp_ms)
                if segment not in self._readers:
                    segment.release()
                return segment.base_offset + relative_offset
        return self.first_offset

    def present(self, offset: int) -> int:
        """Return the first offset at or behind *offset* whose segment was not deleted."""
        at = max(bisect_right(self._segments, offset, key=_BASE_OFFSET) - 1, 0)
        for segment in self._segments[at : at + 2]:
            if offset < segment.next_offset:
                return max(offset, segment.base_offset)
        return max(offset, self.next_offset)

    def is_settled(self, offset: int) -> bool:
        """Whether the message at *offset* is done with, as far as its state was flushed."""
        at = bisect_right(self._segments, offset, key=_BASE_OFFSET) - 1
        return at < 0 or offset in self._segments[at].acked

    def mark(self, state: State, ranges: Iterable[tuple[int, int]]) -> None:
        """Take the state of *ranges*, each [start, end), for the next flush_state.

        Within one turn the order of marks is kept only around REPLAYED, whose messages must have
        been flushed.
        """
        if state is State.REPLAYED:
            self._spread_marks()
            merged = merge_intervals(iter(sorted(ranges)))
            self._mark_segments(state, merged)
            self._counters[state] += sum([end - start for start, end in merged])
        else:
            self._marks.setdefault(state, []).extend(ranges)

    def history(self, offset: int) -> list[State]:
        """Return what became of the message at *offset*, first things first.

        Reads a state log. Raises OffsetOutOfRange.
        """
        self._spread_marks()
        return self._segment_of(offset).history(offset)

    def flush_state(self) -> bool:
        """Write the marks, one write per segment, and delete the segments that are spent.

        Returns whether states or deletions wait for a sync. The marked messages must have been
        flushed: an entry must not reach the disk before its record. Raises LogFailed, and DiskFull
        if there is no room for all of the marks: the others stay for the next call, and what is
        spent has been deleted.
        """
        if self._failure:
            raise LogFailed(self._failure)
        self._spread_marks()
        if self._touched:
            try:
                self._write_states()
            except OSError as error:
                raise self.fail(error) from error
            if 0 < self._options.snapshot_bytes < self._replay_bytes:
                self.take_snapshot()
        return bool(self._unsynced_states) or self._has_deleted

    def take_sync(self, include_state: bool) -> SyncWork | None:
        """Return the work that makes all that was flushed durable; None if there is none.

        Without *include_state* states and deletions wait for a later sync. Raises LogFailed if the
        log failed behind what was flushed: once a sync has failed, none later says anything of the
        bytes before it.
        """
        if self._failure:
            if self._unsynced:
                raise LogFailed(self._failure)
            return None
        handles = [segment.log.take_handle() for segment in self._unsynced]
        directories = self._changed_directories
        if include_state:
            handles += [segment.state.take_handle() for segment in self._unsynced_states]
            if self._has_deleted or self._unsynced_states:
                directories[self.directory] = None
        if not handles and not directories:
            return None
        work = SyncWork(handles, directories)
        for segment in self._unsynced:
            if segment in self._unindexed:
                self._unindexed[segment] = work
        if self._active in self._unsynced:
            self._sync_point = _SyncPoint(work, self._active, self._active.size)
        self._close_sealed(include_state)
        self._changed_directories = {}
        self._unsynced.clear()
        if include_state:
            self._unsynced_states.clear()
            self._has_deleted = False
        return work

    def fail(self, error: Exception) -> LogFailed:
        """Refuse all further writing because of *error*; return what later calls raise."""
        self._failure = self._failure or f"{self.directory}: {error}"
        self._batches.clear()
        self._next_offset = self._active.next_offset
        return LogFailed(self._failure)

    def close(self) -> None:
        """Write what was appended and marked, and close the files. Raises DiskFull, LogFailed."""
        self._cancel_compaction()
        try:
            if not self._failure:
                try:
                    self.flush()
                finally:
                    self._active.log.trim()
                    self.flush_state()
                    self._leave_at_end()
                    self._write_index(lot_only=False)
                    with suppress(DiskFull):  # they may be missing
                        self._complete_indexes(at_end=True)
                    if self._replay_bytes > LAST_SNAPSHOT_BYTES or self._has_dropped:
                        self.take_snapshot(sweep_now)
        finally:
            self._space.forget(self)
            self._spare.drop_spare()
            for segment in self._segments:
                segment.close()

    def delete(self) -> None:
        """Close the files and have the directory removed with all that is in it."""
        self._space.forget(self)
        self._cancel_compaction()
        self._spare.drop_spare()
        for segment in self._segments:
            segment.close()
        self._failure = f"{self.directory}: deleted"
        self._unsynced.clear()
        self._unsynced_states.clear()
        self._changed_directories.clear()
        self._has_deleted = False
        if self.directory.exists():
            self._space.sweep(remove_directory(self.directory))

    def _reader(self, offset: int) -> Segment:
        """The segment that has the message at *offset*, opened. Raises OffsetOutOfRange."""
        segment = self._segment_of(offset)
        readers = self._readers
        if segment not in readers:
            self._open(segment)
            readers[segment] = None
            if len(readers) > self._options.open_segments:
                longest = next(iter(readers))
                del readers[longest]
                longest.release()
        return segment

    def _open(self, segment: Segment) -> None:
        if segment.open():
            self._unindexed[segment] = None

    def _segment_of(self, offset: int) -> Segment:
        """The segment that has the message at *offset*. Raises OffsetOutOfRange."""
        at = bisect_right(self._segments, offset, key=_BASE_OFFSET) - 1
        segment = self._segments[at]
        if at < 0 or offset >= segment.next_offset:
            raise OffsetOutOfRange(f"{self.directory}: offset {offset} was deleted")
        return segment

    def _drop_written(self) -> None:
        """Keep of the appended batches what the active segment does not end with."""
        end = self._active.next_offset
        while self._batches[0].next_offset <= end:
            del self._batches[0]
        first = self._batches[0]
        if first.first_offset < end:
            self._batches[0] = split_batch(first, end - first.first_offset)[1]

    def _write_batches(self) -> int:
        with suppress(DiskFull):  # it may lag
            self._write_index(lot_only=True)
            if self._unindexed:
                self._complete_indexes()
        if self._active.key_number != self._key_number:
            self._take_key()
        elif self._is_active_old():
            self._roll()
        limit = self._segment_bytes
        size = self._active.size or HEADER_SIZE
        if len(self._batches) == 1:
            chunk = self._encode(self._batches[0])
            if size + len(chunk) <= limit:
                return self._append_active(self._batches, [chunk])
        written = 0
        batches: list[Batch] = []
        chunks: list[bytes | bytearray] = []
        growth = OVERHEAD if self._key_number else 0
        for batch in self._batches:
            chunk = self._encode(batch)
            while size + len(chunk) > limit:
                # A record larger than a segment has one of its own.
                fitting = records_within(batch, limit - size, growth) or int(size == HEADER_SIZE)
                head, batch = split_batch(batch, fitting)
                if head.payloads:
                    batches.append(head)
                    chunks.append(self._encode(head))
                written += self._append_active(batches, chunks)
                batches, chunks = [], []
                if not batch.payloads:
                    size = limit
                    break
                self._roll()
                size = HEADER_SIZE
                chunk = self._encode(batch)
            else:
                batches.append(batch)
                chunks.append(chunk)
                size += len(chunk)
        return written + self._append_active(batches, chunks)

    def _encode(self, batch: Batch) -> bytes | bytearray:
        """The records of *batch* as they go to the active segment, whose key they need."""
        if self._key_number:
            batch = self._cipher(self._active).encrypt(batch)
        return encode_batch(batch)

    def _cipher(self, segment: Segment) -> "Cipher":
        """What the records of *segment* are encrypted with. Raises MissingKey."""
        cipher = segment.cipher
        if cipher is None:
            path, number, keys = segment.log.path, segment.key_number, self._options.keys
            if not number:
                raise MissingKey(path, "a key that its header does not name")
            if keys is None:
                raise MissingKey(path, f"key {number}, and no key was given")
            segment.cipher = cipher = keys.cipher(number, path)
        return cipher

    def _decrypt(self, segment: Segment, batches: list[Batch]) -> list[Batch]:
        """What was appended as *batches*, up to a message that is not authentic.

        Raises NotAuthentic if that is the first one, MissingKey.
        """
        cipher, path = self._cipher(segment), segment.log.path
        decrypted: list[Batch] = []
        for batch in batches:
            try:
                decrypted.append(cipher.decrypt(batch, path))
            except NotAuthentic:
                if not decrypted:
                    raise
                break
            if decrypted[-1].next_offset < batch.next_offset:
                break
        return decrypted

    def _take_key(self) -> None:
        """Go on with the key that is current now; a segment has but one."""
        active = self._active
        if active.is_empty:
            # A header that is there is replaced by the write that brings the first records: with
            # the old one they could not be read.
            self._bytes_on_disk -= active.log.size
            active.log.size = 0
            active.log.flags = self._key_number << KEY_SHIFT
            active.cipher = None
        else:
            self._roll()

    def _append_active(self, batches: list[Batch], chunks: list[bytes | bytearray]) -> int:
        if not batches:
            return 0
        active = self._active
        if active.is_empty:
            self._space.watch(self, self._clock_ms() + LOOK_MS)
        if active.size == 0:
            # Noted first, for a full disk may let only some of them be made.
            for directory in (*parents_of_missing(self.directory), self.directory):
                self._changed_directories[directory] = None
            with needing_space(self.directory):
                self.directory.mkdir(parents=True, exist_ok=True)
        written = active.append(batches, chunks)
        self._bytes_on_disk += written
        self._written_bytes += written
        self._unsynced[active] = None
        return written

    def _is_active_old(self) -> bool:
        age_ms = self._options.segment_age_ms
        if not age_ms or self._active.is_empty:
            return False
        return self._clock_ms() - self._active.first_timestamp_ms >= age_ms

    def _roll(self, following: Segment | None = None) -> None:
        """Seal the active segment and go on in *following*.

        Without it that is a new one, whose files come with its records.
        """
        sealed = self._active
        sealed.seal()
        self._replay_bytes += len(sealed.index) * _INDEX_ENTRY_BYTES
        self._unindexed[sealed] = None
        self._unsynced.setdefault(sealed)
        if sealed not in self._readers:
            sealed.release()
        self._touched[sealed] = None
        self._active = following or self._new_segment()
        self._segments.append(self._active)
        if following is None:
            self._spare.give_to(self._active.log)

    def _new_segment(self) -> Segment:
        base_offset = self._active.next_offset
        segment = Segment(self.directory, base_offset, self._options.index_interval_bytes)
        segment.log.flags = self._key_number << KEY_SHIFT
        return segment

    def _write_index(self, *, lot_only: bool) -> None:
        """Write the index entries of the active segment whose records are durable by now."""
        point = self._sync_point
        if point is None or point.segment is not self._active or not point.work.is_done:
            return
        if lot_only and not point.segment.has_unwritten_lot:
            return
        if not lot_only or point.segment.has_index_lot(point.size):
            point.segment.write_index(point.size)

    def _complete_indexes(self, *, at_end: bool = False) -> None:
        """Write the indexes of the sealed segments whose logs are durable by now.

        One that is complete says so to recovery: a power failure can leave holes in a log that was
        not synced. *at_end* all are written, for there is no later sync to wait for.
        """
        for segment, work in list(self._unindexed.items()):
            if at_end or (work is not None and work.is_done):
                segment.complete_index()
                del self._unindexed[segment]
                if segment not in self._readers:
                    segment.release()

    def _spread_marks(self) -> None:
        for state, ranges in sorted(self._marks.items()):
            if ranges:
                merged = ranges if len(ranges) == 1 else merge_intervals(iter(sorted(ranges)))
                self._mark_segments(state, merged)
                self._marks[state] = []
                self._counters[state] += sum([end - start for start, end in merged])

    def _mark_segments(self, state: State, ranges: list[tuple[int, int]]) -> None:
        first, end = ranges[0][0], ranges[-1][1]
        active = self._active
        assert end <= active.next_offset, "flush comes before flush_state"
        if first >= active.base_offset:
            active.mark(state, ranges)
            self._touched[active] = None
            return
        at = max(bisect_right(self._segments, first, key=_BASE_OFFSET) - 1, 0)
        for segment in islice(self._segments, at, None):
            if segment.base_offset >= end:
                break
            within = clip_intervals(ranges, segment.base_offset, segment.next_offset)
            if within:
                segment.mark(state, within)
                self._touched[segment] = None

    def _write_states(self) -> None:
        full: DiskFull | None = None
        has_spent = False
        for segment in list(self._touched):
            before = segment.bytes_on_disk
            try:
                is_spent = segment.is_spent
                has_spent |= is_spent
                if is_spent and self._retention is None and segment is not self._left:
                    self._delete_segment(segment)
                elif segment.write_state():
                    self._unsynced_states[segment] = None
                    self._replay_bytes += segment.bytes_on_disk - before
            except DiskFull as error:
                full = error  # the space may come from the segments behind it
                continue
            del self._touched[segment]
            self._bytes_on_disk += segment.bytes_on_disk - before
        if has_spent and self._retention is not None:
            self._drop_outdated(self._retention)
        if full is not None:
            raise full

    def _drop_outdated(self, retention: Retention) -> None:
        """Delete the spent segments that need not be retained any more."""
        sealed = [segment for segment in self._segments if segment.is_sealed]
        for segment in retention.outdated(sealed, self.retained_bytes, self._clock_ms()):
            if segment.is_spent and segment not in self._touched and segment is not self._left:
                self._bytes_on_disk -= segment.bytes_on_disk
                self._delete_segment(segment)

    def look_after(self, now_ms: int) -> int | None:
        """Give back what is not needed any more; return when to look again, None if never.

        States or deletions may wait for a sync then. Raises nothing: a log that cannot be written
        has failed, and says so to whoever uses it next.
        """
        if self._failure or self.is_bare:
            return None
        try:
            if self._unindexed:
                with suppress(DiskFull):
                    self._complete_indexes()
            if self._retention is not None:
                self._drop_outdated(self._retention)
            self._leave_idle(now_ms)
            self._compact(now_ms)
        except DiskFull:
            pass  # what there is to give back goes another time
        except StorageError as error:
            logger.warning("space not given back: %s", error)
        except OSError as error:
            self.fail(error)
            return None
        is_at_it = self._left is not None or self._compaction is not None
        return now_ms + (_SOON_MS if is_at_it else LOOK_MS)

    def _leave_idle(self, now_ms: int) -> None:
        """Close the active segment if nobody uses it and most of it is settled."""
        if self._left is not None:
            if self._founded is not None and self._founded.base_offset == self._left.next_offset:
                left, self._left = self._left, None
                self._touched[left] = None
                self._write_states()
            return
        active = self._active
        if active.is_empty or self._batches or active in self._touched:
            return
        if 0 <= now_ms - active.last_timestamp_ms < _IDLE_MS or self._retains(active, now_ms):
            return
        is_settled = not active.live_count
        if (is_settled and active.size > _IDLE_BYTES) or self._is_mostly_dead(active):
            self._leave(self._space.sweep)

    def _leave(self, sweep: Sweep) -> None:
        """Go on in a new segment, whose file is there, and durable, before the old one may go."""
        left = self._active
        following = self._new_segment()
        try:
            self._bytes_on_disk += following.log.append([])
            self._roll(following)
        except (OSError, DiskFull):
            following.log.delete()  # the old one goes on
            raise
        # Should a message be confirmed before the sweep is here.
        self._changed_directories[self.directory] = None
        self._left = left
        sweep(self._found(following))

    def _found(self, segment: Segment) -> Iterator[None]:
        # May run in another thread.
        sync_file(segment.log.path)
        sync_directory(self.directory)
        self._founded = segment
        yield

    def _leave_at_end(self) -> None:
        """Leave a large active segment if all of it is settled; a clean stop has no later time."""
        active = self._active
        if active.live_count or active.size <= _IDLE_BYTES_AT_END or active in self._touched:
            return
        now_ms = self._clock_ms()
        if not self._retains(active, now_ms):
            with suppress(DiskFull):
                if self._left is None:
                    self._leave(sweep_now)
                self._leave_idle(now_ms)

    def _retains(self, segment: Segment, now_ms: int) -> bool:
        """Whether the settled messages of *segment* must stay."""
        if self._retention is None:
            return False
        return not self._retention.outdated([segment], self.retained_bytes, now_ms)

    def _is_mostly_dead(self, segment: Segment) -> bool:
        options = self._options
        least = min(options.compact_bytes, options.segment_bytes // 2)
        dead_bytes = segment.dead_bytes
        return 0 < least <= dead_bytes and dead_bytes >= segment.size // 4 * 3

    def _compact(self, now_ms: int) -> None:
        """Take over a compaction that is done, and begin the next one."""
        compaction = self._compaction
        if compaction is not None:
            if not compaction.is_done:
                return
            self._compaction = None
            self._take_over(compaction, now_ms)
        for segment in self._segments:
            if (
                segment.is_sealed
                and segment.live_count
                and self._is_mostly_dead(segment)
                and segment not in self._touched
                and segment.live_count * 2 <= self._uncompacted.get(segment, sys.maxsize)
                and not self._retains(segment, now_ms)
            ):
                self._open(segment)
                self._compaction = Compaction(segment, self._options.index_interval_bytes)
                if segment not in self._readers:
                    segment.release()
                self._space.sweep(self._compaction.run())
                return

    def _take_over(self, compaction: Compaction, now_ms: int) -> None:
        segment = compaction.segment
        if compaction.revivals != segment.revivals or self._retains(segment, now_ms):
            compaction.cancel()  # it lacks messages that are ready again, or shall stay by now
            return
        if not compaction.size:
            if not compaction.may_retry:
                self._uncompacted[segment] = compaction.live_count
            return
        before = segment.bytes_on_disk
        try:
            descriptor = segment.replace_log(compaction.size, compaction.gone)
        except OSError as error:
            logger.warning("segment not compacted: %s", error)
            self._uncompacted[segment] = compaction.live_count
            compaction.cancel()
            return
        self._space.sweep(self._give_back_replaced(descriptor))
        segment.replace_indexes()
        self._unindexed.pop(segment, None)
        self._unsynced.pop(segment, None)
        self._changed_directories[self.directory] = None
        self._bytes_on_disk += segment.bytes_on_disk - before

    def _give_back_replaced(self, descriptor: int) -> Iterator[None]:
        # The old log must not get shorter while a power failure could still bring its name back.
        # May run in another thread.
        try:
            sync_directory(self.directory)
        except OSError:
            os.close(descriptor)
            raise
        yield from give_back(descriptor)

    def _cancel_compaction(self) -> None:
        if self._compaction is not None:
            self._compaction.cancel()
            self._compaction = None

    def _delete_segment(self, segment: Segment) -> None:
        self._has_dropped = True
        self._segments.remove(segment)
        if self._compaction is not None and self._compaction.segment is segment:
            self._cancel_compaction()
        self._uncompacted.pop(segment, None)
        self._unsynced.pop(segment, None)
        self._unindexed.pop(segment, None)
        self._unsynced_states.pop(segment, None)
        self._readers.pop(segment, None)
        is_large = segment.size >= self._options.segment_bytes // 2
        if not (is_large and self._spare.take(segment, self._clock_ms())):
            segment.delete(self._space.sweep)
        self._has_deleted = True

    def take_snapshot(self, sweep: Sweep | None = None) -> None:
        """Have a snapshot of what was flushed written by *sweep*, unless one is under way."""
        if self._is_snapshotting:
            return
        segments = {
            segment.base_offset: segment.facts(
                is_closed=segment.is_sealed and segment not in self._unindexed
            )
            for segment in self._segments
            if not segment.is_empty
        }
        self._is_snapshotting = True
        self._has_dropped = False
        self._replay_bytes = 0
        (sweep or self._space.sweep)(self._snapshotting(Snapshot(dict(self._counters), segments)))

    def _snapshotting(self, snapshot: Snapshot) -> Iterator[None]:
        """Perhaps in another thread."""
        try:
            yield from write_snapshot(self.directory, snapshot)
        finally:
            self._is_snapshotting = False

    def _close_sealed(self, include_state: bool) -> None:
        """A log with many closed segments must not hold descriptors for each."""
        for segment in self._unsynced:
            if segment.is_sealed and segment not in self._readers:
                segment.log.close()
        for segment in self._unsynced_states if include_state else ():
            if segment.is_sealed:
                segment.state.close()
