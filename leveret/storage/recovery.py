"""Recovery: opens the directory of a log after a stop of any kind.

The log is the truth. The last segment may end in a torn record and is cut there; a closed one only
if its index is not complete: that comes once its log is durable, which a power failure around a
roll can prevent. Anywhere else a bad record stays, and reading it raises CorruptRecord. Indexes are
completed from the log, and states of records that are gone are dropped before anything new can
take their offsets.
"""

import re
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from pathlib import Path

from leveret.storage.disk_space import DiskSpace
from leveret.storage.errors import CorruptRecord, DamagedIndex
from leveret.storage.files import (
    HEADER_SIZE,
    check_header,
    file_header,
    is_unwritten,
    replace_file,
)
from leveret.storage.log import SPARE_NAME, LogOptions, SegmentLog
from leveret.storage.offset_set import OffsetSet, merge_intervals
from leveret.storage.record import RECORD_HEADER_SIZE, record_timestamp_ms
from leveret.storage.retention import Retention
from leveret.storage.segment import LOG_MAGIC, LOG_SUFFIX, SUFFIXES, Segment
from leveret.storage.state_log import (
    ENTRY_SIZE,
    SETTLED,
    STATE_MAGIC,
    Entry,
    State,
    decode_entries,
    encode_entries,
)

_FILE_NAME = re.compile(r"\d{20}(\.\w+)(\.tmp)?")

Intervals = list[tuple[int, int]]


@dataclass(slots=True)
class Recovered:
    """What recovery found.

    `ready` are the messages [start, end) that are neither acked nor volatile, `delivered` those of
    them that were handed to a consumer before, `replayed` those that had been settled and were made
    ready again. `report` has a line for each repair. `tries` tells
    of each delivered one how often it was handed out and how many of these were FAILED.
    """

    next_offset: int = 0
    ready: Intervals = field(default_factory=list)
    delivered: Intervals = field(default_factory=list)
    replayed: Intervals = field(default_factory=list)
    tries: dict[int, tuple[int, int]] = field(default_factory=dict)
    report: list[str] = field(default_factory=list)


def recover(
    directory: Path,
    options: LogOptions,
    clock_ms: Callable[[], int],
    *,
    space: DiskSpace | None = None,
    counts_tries: bool = False,
    retention: Retention | None = None,
) -> tuple[SegmentLog, Recovered]:
    """Open the log in *directory*, which need not exist.

    Spent segments stay if there is a *retention*. With *counts_tries* fills in `tries`, at the
    cost of an entry for each delivered message.
    Blocks; reads what the indexes do not cover. Raises UnsupportedFormat, and CorruptRecord if two
    segments have the same offsets.
    """
    recovered = Recovered()
    bases = _list_bases(directory)
    segments: list[Segment] = []
    with ExitStack() as on_error:
        for base_offset, following in zip_longest(bases, bases[1:]):
            segment = Segment(directory, base_offset, options.index_interval_bytes)
            on_error.callback(segment.close)
            _recover_records(segment, following, recovered.report)
            _recover_states(segment, recovered, counts_tries=counts_tries)
            if segment.is_spent and retention is None:
                segment.delete()
            else:
                segments.append(segment)
        on_error.pop_all()
    recovered.ready = merge_intervals(iter(recovered.ready))
    log = SegmentLog(directory, options, clock_ms, segments, space=space)
    log.retention = retention
    recovered.next_offset = log.next_offset
    return log, recovered


def _list_bases(directory: Path) -> list[int]:
    """Return the base offsets of the segments; remove files that a crash left without a log."""
    if not directory.exists():
        return []
    (directory / SPARE_NAME).unlink(missing_ok=True)
    names = {path.name for path in directory.iterdir()}
    for name in sorted(names):
        match = _FILE_NAME.fullmatch(name)
        if match is None or match[1] not in SUFFIXES:
            continue
        if match[2] or name[:20] + LOG_SUFFIX not in names:
            (directory / name).unlink()
    return sorted(int(name[:20]) for name in names if re.fullmatch(r"\d{20}\.log", name))


def _recover_records(segment: Segment, following: int | None, report: list[str]) -> None:
    """Find the end of *segment*. *following* is the base of the next one, None for the last."""
    path = segment.log.path
    size = path.stat().st_size
    if is_unwritten(segment.log.read(0, HEADER_SIZE), LOG_MAGIC):
        # The crash came while the file was made.
        if size > HEADER_SIZE:
            report.append(f"{path}: cut {size} bytes, which have no header")
        segment.log.truncate(0)
        segment.index.clear()
        segment.times.clear()
        segment.is_sealed = following is not None
        return
    segment.log.size = size
    check_header(path, segment.log.read(0, HEADER_SIZE), LOG_MAGIC)
    if size >= HEADER_SIZE + RECORD_HEADER_SIZE:
        header = segment.log.read(HEADER_SIZE, RECORD_HEADER_SIZE)
        segment.first_timestamp_ms = record_timestamp_ms(header)
    _load_indexes(segment, following is not None, report)
    if following is None or not segment.adopt_end():
        _scan_tail(segment, report)
        if following is not None:
            segment.seal()
    if following is not None:
        if segment.next_offset > following:
            expected = f"no record at or behind offset {following}"
            raise CorruptRecord(path, segment.size, segment.next_offset, expected)
        segment.release()


def _load_indexes(segment: Segment, is_closed: bool, report: list[str]) -> None:
    """Load what the index files hold, nothing if they are not usable."""
    try:
        segment.index.load()
        segment.times.load()
        if is_closed and len(segment.index) > len(segment.times) + 1:
            raise DamagedIndex(f"{segment.times.path}: expected as many entries as in the index")
    except DamagedIndex as error:
        # Index files come late, those of the active segment last.
        if is_closed and segment.index.path.exists():
            report.append(f"{error}; rebuilt the indexes")
        segment.index.clear()
        segment.times.clear()


def _scan_tail(segment: Segment, report: list[str]) -> None:
    """Read the records behind the last index entry and cut the segment at the first bad one."""
    size = segment.size
    start, position = segment.resume()
    if position == start and start > HEADER_SIZE:
        report.append(f"{segment.index.path}: no record at its last entry; rebuilt the indexes")
        segment.index.clear()
        segment.times.clear()
        start, position = segment.resume()
    if position < size:
        path, offset = segment.log.path, segment.next_offset
        report.append(
            f"{path}: cut {size - position} bytes behind the last good record, at offset {offset}"
        )
        segment.log.truncate(position)
    # What was read may not have been synced yet.
    segment.log.dirty |= position > start


def _recover_states(segment: Segment, recovered: Recovered, *, counts_tries: bool) -> None:
    """Apply the state log of *segment*, and rewrite it if it says more than it may.

    An entry behind the end of the log would hide a message that has yet to come, so the state log
    is durable without it before this returns.
    """
    entries = _read_states(segment, recovered.report)
    replayed = _settle(segment, entries)
    delivered = sorted(_interval(segment, e) for e in entries if e[2] == State.DELIVERED)
    ready = segment.acked.gaps(segment.base_offset, segment.next_offset)
    recovered.ready += ready
    redelivered = _intersect(merge_intervals(iter(delivered)), ready)
    recovered.delivered += redelivered
    recovered.replayed += _intersect(replayed.intervals(), ready)
    if counts_tries:
        recovered.tries.update(_count_tries(segment, entries, redelivered))


def _settle(segment: Segment, entries: list[Entry]) -> OffsetSet:
    """Have *segment* know what is settled; return what was replayed, settled again or not."""
    replayed = OffsetSet()
    changes = (entry for entry in entries if entry[2] in SETTLED or entry[2] == State.REPLAYED)
    for is_replay, run in groupby(changes, key=lambda entry: entry[2] == State.REPLAYED):
        intervals = merge_intervals(iter(sorted(_interval(segment, entry) for entry in run)))
        if is_replay:
            replayed.add_each(intervals)
            for start, end in intervals:
                segment.acked.discard(start, end)
        else:
            segment.acked.add_each(intervals)
    volatile = sorted(_interval(segment, e) for e in entries if e[2] == State.VOLATILE)
    segment.acked.add_each(merge_intervals(iter(volatile)))
    return replayed


def _count_tries(
    segment: Segment, entries: list[Entry], redelivered: Intervals
) -> dict[int, tuple[int, int]]:
    """Count the hand-outs and failures of the messages *redelivered*.

    A hand-out that neither came back nor was settled went down with the broker, this time or at an
    earlier one: it failed. What was replayed is tried anew.
    """
    wanted = {offset for start, end in redelivered for offset in range(start, end)}
    counts = {state: Counter[int]() for state in (State.DELIVERED, State.RETURNED, State.FAILED)}
    for entry in entries:
        if entry[2] == State.REPLAYED:
            for offset in wanted.intersection(range(*_interval(segment, entry))):
                for counter in counts.values():
                    del counter[offset]
        elif entry[2] in counts:
            counter = counts[State(entry[2])]
            counter.update(wanted.intersection(range(*_interval(segment, entry))))
    tries = {}
    for offset, acquired in counts[State.DELIVERED].items():
        # What happens several times in one turn is noted once.
        failed = max(counts[State.FAILED][offset], acquired - counts[State.RETURNED][offset])
        tries[offset] = acquired, failed
    return tries


def _read_states(segment: Segment, report: list[str]) -> list[Entry]:
    file = segment.state
    try:
        data = file.path.read_bytes()
    except FileNotFoundError:
        return []
    if len(data) < HEADER_SIZE:
        file.delete()
        return []
    # Each entry has a checksum of its own, so they count even if the header was lost.
    has_header = not is_unwritten(data, STATE_MAGIC)
    if has_header:
        check_header(file.path, data[:HEADER_SIZE], STATE_MAGIC)
    found = decode_entries(data[HEADER_SIZE:])
    end = segment.next_offset - segment.base_offset
    entries = [(first, min(count, end - first), state) for first, count, state in found]
    entries = [entry for entry in entries if entry[1] > 0]
    file.size = len(data)
    torn = len(data) - HEADER_SIZE - len(found) * ENTRY_SIZE
    if torn or entries != found or not has_header:
        report.append(
            f"{file.path}: dropped {torn} torn bytes and what it said of offsets from "
            f"{segment.next_offset} on"
        )
        rewritten = file_header(STATE_MAGIC) + encode_entries(entries)
        replace_file(file.path, rewritten)
        file.size = len(rewritten)
    return entries


def _interval(segment: Segment, entry: Entry) -> tuple[int, int]:
    start = segment.base_offset + entry[0]
    return start, start + entry[1]


def _intersect(left: Intervals, right: Intervals) -> Intervals:
    """Return what both sorted lists of disjoint intervals cover."""
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
