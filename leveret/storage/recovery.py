"""Recovery: opens the directory of a log after a stop of any kind.

The log is the truth. The last segment may end in a torn record and is cut there; a closed one only
if its index is not complete: that comes once its log is durable, which a power failure around a
roll can prevent. If good records follow the bad bytes, these are no torn end: a gap takes their
place. Anywhere else a bad record stays, and reading it raises CorruptRecord. Indexes are
completed from the log, and states of records that are gone are dropped before anything new can
take their offsets.

A snapshot saves most of the reading. Closed segments that it knows are not opened at all, and of
the state logs only what came behind it is read. The newest good one counts, else the one before,
else the logs alone tell everything. If it says more than the log has, it goes.
"""

import os
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from pathlib import Path

from leveret.storage.disk_space import DiskSpace
from leveret.storage.errors import CorruptRecord, DamagedIndex, DamagedSnapshot, UnsupportedFormat
from leveret.storage.files import HEADER_SIZE, check_header, file_header, is_unwritten
from leveret.storage.log import LogOptions, SegmentLog
from leveret.storage.offset_set import OffsetSet, intersect, merge_intervals
from leveret.storage.outcomes import Outcomes, clip_entries
from leveret.storage.record import (
    GAP_RECORD_SIZE,
    RECORD_HEADER_SIZE,
    encode_gap,
    record_attributes,
    record_timestamp_ms,
)
from leveret.storage.repairs import Finding, Repairs
from leveret.storage.resync import Bounds, follow_lengths
from leveret.storage.retention import Retention
from leveret.storage.segment import KNOWN_FLAGS, LOG_MAGIC, LOG_SUFFIX, SUFFIXES, Segment
from leveret.storage.snapshot import (
    OLD_SNAPSHOT_NAME,
    SNAPSHOT_NAME,
    SegmentSnapshot,
    Snapshot,
    decode_snapshot,
)
from leveret.storage.spare import SPARE_NAME
from leveret.storage.state_log import (
    ENTRY_SIZE,
    STATE_MAGIC,
    STATE_SUFFIX,
    decode_entries,
    encode_entries,
)

_FILE_NAME = re.compile(r"(\d{20})(\.\w+)(\.tmp)?")
_INDEX_SUFFIXES = (".index", ".timeindex")
_SNAPSHOT_NAMES = (SNAPSHOT_NAME, OLD_SNAPSHOT_NAME)

Intervals = list[tuple[int, int]]


@dataclass(slots=True)
class Recovered:
    """What recovery found.

    `ready` are the messages [start, end) that are neither settled nor volatile, `delivered` those
    of them that were handed to a consumer before, `replayed` those that had been settled and were
    made ready again, which counts as delivered. `report` has a line for each repair. `tries` tells
    of each one that was handed out since then how often it was, and how many of these failed.
    `first` are offset and attributes of the first message on disk, if they are known.
    """

    next_offset: int = 0
    ready: Intervals = field(default_factory=list)
    delivered: Intervals = field(default_factory=list)
    replayed: Intervals = field(default_factory=list)
    tries: dict[int, tuple[int, int]] = field(default_factory=dict)
    report: list[str] = field(default_factory=list)
    first: tuple[int, int] | None = field(default=None, compare=False)


def recover(
    directory: Path,
    options: LogOptions,
    clock_ms: Callable[[], int],
    *,
    space: DiskSpace | None = None,
    counts_tries: bool = False,
    retention: Retention | None = None,
    repairs: Repairs | None = None,
) -> tuple[SegmentLog, Recovered]:
    """Open the log in *directory*, which need not exist.

    Spent segments stay if there is a *retention*. With *counts_tries* fills in `tries`, at the
    cost of an entry for each delivered message. What *repairs* does not do is only noted; the log
    can then be read, but not written.
    Blocks; reads what neither the indexes nor a snapshot cover. Raises UnsupportedFormat,
    CorruptRecord if two segments have the same offsets, and MissingKey if there are keys, but not
    that of messages which are not settled.
    """
    repairs = repairs or Repairs()
    recovered = Recovered()
    names = _list_names(directory)
    bases = _list_bases(directory, names, repairs)
    snapshot, snapshots = _load_snapshot(directory, names, repairs)
    segments: list[Segment] = []
    unsaved = dict(snapshot.counters)
    replay_bytes = 0
    end = 0
    is_outdated = False
    # What may be known from the snapshot alone: a power failure can damage a state log in front of
    # what it was asked for.
    merged: list[tuple[Segment, Outcomes]] = []
    with ExitStack() as on_error:
        for base_offset, following in zip_longest(bases, bases[1:]):
            segment = Segment(directory, base_offset, options.index_interval_bytes)
            on_error.callback(segment.close)
            known = snapshot.segments.get(base_offset)
            files = {suffix for suffix in SUFFIXES if f"{base_offset:020}{suffix}" in names}
            is_adopted = _recover_records(segment, files, following, known, repairs)
            end = segment.next_offset
            outcomes, read_bytes, is_rewritten = _recover_states(
                segment, files, known, unsaved, repairs
            )
            replay_bytes += read_bytes
            is_outdated |= is_rewritten
            if known is not None and not is_adopted and known.log_size == segment.size:
                is_outdated |= known.flags != segment.log.flags  # it does not know of the gaps
            if known is not None and not is_rewritten:
                merged.append((segment, outcomes))
            if segment.has_gaps and not is_adopted:  # whatever became of the states
                outcomes.settled.add_each(segment.gaps.intervals())
            segment.acked = outcomes.forgotten()
            _tell(segment, outcomes, recovered, counts_tries=counts_tries)
            if segment.is_spent and retention is None:
                if not repairs.is_dry:
                    segment.delete()
            else:
                segments.append(segment)
            if options.keys is not None and segment.live_count:
                options.keys.require(segment.key_number, segment.log.path)
        if is_outdated or snapshot.next_offset > end:
            for segment, outcomes in merged:
                if segment in segments:
                    _write_states(segment, outcomes, repairs)
            _drop_snapshots(snapshots, end, repairs)
            replay_bytes = sum(segment.state.size for segment in segments)
        on_error.pop_all()
    recovered.ready = merge_intervals(iter(recovered.ready))
    recovered.report = list(map(str, repairs.findings))
    log = SegmentLog(directory, options, clock_ms, segments, space=space)
    if segments and segments[0].first_attributes is not None:
        recovered.first = segments[0].base_offset, segments[0].first_attributes
    log.retention = retention
    log.restore(unsaved, replay_bytes)
    recovered.next_offset = log.next_offset
    if repairs.is_dry:
        log.fail(OSError("opened to look at"))
    return log, recovered


def _list_names(directory: Path) -> set[str]:
    try:
        return set(os.listdir(directory))
    except FileNotFoundError:
        return set()


def _list_bases(directory: Path, names: set[str], repairs: Repairs) -> list[int]:
    """Return the base offsets of the segments; remove files that a crash left without a log."""
    bases = []
    orphans = [name for name in (SPARE_NAME, SNAPSHOT_NAME + ".tmp") if name in names]
    for name in names:
        match = _FILE_NAME.fullmatch(name)
        if match is None or match[2] not in SUFFIXES:
            continue
        if match[3] or match[1] + LOG_SUFFIX not in names:
            orphans.append(name)
        elif match[2] == LOG_SUFFIX:
            bases.append(int(match[1]))
    for name in sorted(orphans):
        repairs.remove(directory / name)
    return sorted(bases)


def _load_snapshot(
    directory: Path, names: set[str], repairs: Repairs
) -> tuple[Snapshot, list[Path]]:
    """Return the newest good snapshot, an empty one if there is none; remove what is damaged.

    Returns also the files that are left.
    """
    paths = [directory / name for name in _SNAPSHOT_NAMES if name in names]
    for at, path in enumerate(paths):
        try:
            return decode_snapshot(path, path.read_bytes()), paths[at:]
        except DamagedSnapshot as error:
            wrong = str(error).removeprefix(f"{path}: ")
            repair = "removed; the one before or the state logs tell the same"
            repairs.remove(path, Finding(path, 0, wrong, repair))
    return Snapshot({}, {}), []


def _drop_snapshots(paths: list[Path], end: int, repairs: Repairs) -> None:
    """Remove the snapshots, durably, that do not fit the files any more.

    They would hide messages that have yet to come, or states that have yet to be written.
    """
    for path in paths:
        wrong = "says more than the files have"
        repairs.remove(path, Finding(path, end, wrong, "removed", is_harmless=True))
    if paths:
        repairs.sync(paths[0].parent)


def _recover_records(
    segment: Segment,
    files: set[str],
    following: int | None,
    known: SegmentSnapshot | None,
    repairs: Repairs,
) -> bool:
    """Find the end of *segment*; return whether what is *known* of it tells all.

    *following* is the base of the next one, None for the last.
    """
    path = segment.log.path
    size = path.stat().st_size
    is_adopted = (
        known is not None and following is not None and known.is_closed and known.log_size == size
    )
    if known is not None and is_adopted:
        segment.adopt(known)
    else:
        _examine(segment, files, size, following, repairs)
    if following is not None and segment.next_offset > following:
        expected = f"no record at or behind offset {following}"
        raise CorruptRecord(path, segment.size, segment.next_offset, expected)
    return is_adopted


def _examine(
    segment: Segment, files: set[str], size: int, following: int | None, repairs: Repairs
) -> None:
    path = segment.log.path
    has_indexes = not files.isdisjoint(_INDEX_SUFFIXES)
    header = segment.log.read(0, HEADER_SIZE + RECORD_HEADER_SIZE)
    if is_unwritten(header[:HEADER_SIZE], LOG_MAGIC):
        # The crash came while the file was made.
        finding = Finding(
            path, segment.base_offset, "no header", f"cut {size} bytes", is_harmless=True
        )
        repairs.cut(segment.log, 0, finding if size > HEADER_SIZE else None)
        segment.forget_indexes()
        if has_indexes:
            repairs.derive(segment.trim_indexes)
        segment.is_sealed = following is not None
        return
    segment.log.size = size
    segment.log.flags = check_header(path, header, LOG_MAGIC, KNOWN_FLAGS)
    if size >= HEADER_SIZE + RECORD_HEADER_SIZE:
        segment.first_timestamp_ms = record_timestamp_ms(header[HEADER_SIZE:])
        segment.first_attributes = record_attributes(header[HEADER_SIZE:])
    if has_indexes:
        _load_indexes(segment, following is not None, repairs)
    if following is None or not segment.adopt_end():
        _scan_tail(segment, following, repairs)
        if has_indexes:
            repairs.derive(segment.trim_indexes)
        if following is not None:
            segment.seal()
    if following is not None:
        segment.release()
    else:
        segment.log.close()


def _load_indexes(segment: Segment, is_closed: bool, repairs: Repairs) -> None:
    """Load what the index files hold, nothing if they are not usable."""
    if segment.has_gaps:  # perhaps they are of the log before its compaction
        segment.forget_indexes()
        return
    try:
        segment.load_indexes(is_closed=is_closed)
    except (DamagedIndex, UnsupportedFormat) as error:
        # Index files come late, those of the active segment last.
        if is_closed and segment.index.path.exists():
            repairs.note(_index_finding(segment, str(error)))
        segment.forget_indexes()


def _index_finding(segment: Segment, wrong: str) -> Finding:
    path = segment.index.path
    return Finding(path, segment.base_offset, wrong, "rebuilt the indexes", is_harmless=True)


def _scan_tail(segment: Segment, following: int | None, repairs: Repairs) -> None:
    """Read the records behind the last index entry; cut what is no record at the end."""
    size = segment.size
    start, position = segment.resume()
    if position == start and segment.index.last() is not None:
        repairs.note(_index_finding(segment, "no record at its last entry"))
        segment.forget_indexes()
        start, position = segment.resume()
    while position < size and _bridge(segment, position, following, repairs):
        position = segment.resume()[1]
    if position < size:
        offset = segment.next_offset
        finding = Finding(
            segment.log.path,
            offset,
            "no good record at the end",
            f"cut {size - position} bytes behind the last good record, at offset {offset}",
            is_harmless=following is None,
        )
        repairs.cut(segment.log, position, finding)
    # What was read may not have been synced yet.
    segment.log.dirty |= position > start


def _bridge(segment: Segment, position: int, following: int | None, repairs: Repairs) -> bool:
    """Put gaps over the bad records at *position* if good ones follow; return whether they do.

    The flag that there are gaps is durable before the first one. Each is as long as the record that
    it replaces, so that one which is torn is but another bad record.
    """
    file, first = segment.log, segment.next_offset
    limit = sys.maxsize if following is None else following
    places = follow_lengths(file.read, Bounds(position, segment.size, first, limit))
    sizes = [end - start for start, end in pairwise(places)]
    if not sizes or min(sizes) < GAP_RECORD_SIZE:  # of an empty message, which no broker writes
        return False
    offset = first + len(sizes)
    timestamp_ms = segment.first_timestamp_ms
    gaps = [encode_gap(first + at, 1, timestamp_ms, size) for at, size in enumerate(sizes)]
    what = f"message {first}" if len(gaps) == 1 else f"messages {first} to {offset - 1}"
    repair = f"a gap takes the place of {sum(sizes)} bytes; what follows stays"
    finding = Finding(file.path, first, f"damaged: {what}", repair, position=position)
    segment.step_over(places[-1], offset)
    pieces = [(0, file_header(LOG_MAGIC, file.flags)), (position, b"".join(gaps))]
    repairs.overwrite(file, pieces, finding)
    return True


def _recover_states(
    segment: Segment,
    files: set[str],
    known: SegmentSnapshot | None,
    counters: dict[int, int],
    repairs: Repairs,
) -> tuple[Outcomes, int, bool]:
    """Return what became of the records of *segment*, the bytes read, and if all were rewritten.

    Goes on from what is *known* of it, adds to *counters* what is new, and rewrites the state log
    if it says more than it may, or less than is known. An entry behind the end of the log would
    hide a message that has yet to come, so the state log is durable without it before this returns.
    """
    file = segment.state
    base_offset, end = segment.base_offset, segment.next_offset
    outcomes = known.outcomes if known is not None else Outcomes()
    merged_size = known.state_size if known is not None else 0
    size = file.path.stat().st_size if STATE_SUFFIX in files else 0
    wrong = ""
    start = max(merged_size, HEADER_SIZE)
    if known is not None and known.next_offset > end:
        outcomes.clip(end)
        wrong = f"a snapshot of it knows of offsets from {end} on"
    if size < merged_size:
        wrong = f"{size} bytes, a snapshot knows of {merged_size}"
    data = b""
    if size and (size > start or not merged_size):
        with file.path.open("rb") as source:
            header = source.read(HEADER_SIZE)
            source.seek(start)
            data = source.read()
        # Each entry has a checksum of its own, so they count even if the header was lost.
        if is_unwritten(header, STATE_MAGIC):
            wrong = "no header"
        else:
            check_header(file.path, header, STATE_MAGIC)
    found = decode_entries(data)
    entries = clip_entries(found, end - base_offset)
    lost = len(data) - len(found) * ENTRY_SIZE
    if lost or entries != found:
        wrong = f"{lost} torn bytes, or offsets from {end} on"
    outcomes.apply(base_offset, entries)
    for _, count, state in entries:
        counters[state] = counters.get(state, 0) + count
    file.size = size
    if wrong:
        _rewrite_states(segment, outcomes, wrong, repairs)
    return outcomes, len(data), bool(wrong)


def _rewrite_states(segment: Segment, outcomes: Outcomes, wrong: str, repairs: Repairs) -> None:
    end = segment.next_offset
    repair = f"rewritten without that and without offsets from {end} on"
    finding = Finding(segment.state.path, end, wrong, repair, is_harmless=True)
    _write_states(segment, outcomes, repairs, finding)


def _write_states(
    segment: Segment, outcomes: Outcomes, repairs: Repairs, finding: Finding | None = None
) -> None:
    entries = outcomes.entries(segment.base_offset)
    data = file_header(STATE_MAGIC) + encode_entries(entries)
    repairs.replace(segment.state.path, data, finding)
    segment.state.size = len(data)


def _tell(
    segment: Segment, outcomes: Outcomes, recovered: Recovered, *, counts_tries: bool
) -> None:
    """Add to *recovered* what is ready in *segment*."""
    ready = segment.acked.gaps(segment.base_offset, segment.next_offset)
    if not ready:
        return
    recovered.ready += ready
    delivered = outcomes.delivered.intervals()
    if outcomes.replayed.count:
        replayed = outcomes.replayed.intervals()
        recovered.replayed += intersect(replayed, ready)
        both = OffsetSet()
        both.add_each(delivered)
        both.add_each(replayed)
        recovered.delivered += intersect(both.intervals(), ready)
    else:
        recovered.delivered += intersect(delivered, ready)
    if counts_tries:
        recovered.tries.update(outcomes.count_tries(intersect(delivered, ready)))
