"""Log check: reads all files of one log, and finds what is wrong with them.

What recovery would do about it is asked of recovery itself. Harmless is what a crash leaves behind.
"""

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from struct import Struct
from zlib import crc32

from leveret.storage.due_run import DUE_MAGIC, DUE_SUFFIX, DueRun
from leveret.storage.errors import DamagedIndex, DamagedSnapshot, StorageError, UnsupportedFormat
from leveret.storage.files import HEADER_SIZE, check_header, is_unwritten
from leveret.storage.key_ring import KEYS_NAME
from leveret.storage.log import LogOptions
from leveret.storage.log_scan import LogScan, Progress, Stretch, is_misplaced, scan_log
from leveret.storage.offset_index import OFFSET_INDEX_MAGIC
from leveret.storage.offset_set import intersect
from leveret.storage.record import RECORD_HEADER_SIZE, record_size
from leveret.storage.recovery import Intervals, recover
from leveret.storage.repairs import Finding, Repairs
from leveret.storage.retention import Retention
from leveret.storage.segment import (
    HAS_GAPS,
    KEY_SHIFT,
    KNOWN_FLAGS,
    LOG_MAGIC,
    LOG_SUFFIX,
    SUFFIXES,
)
from leveret.storage.snapshot import (
    OLD_SNAPSHOT_NAME,
    SNAPSHOT_NAME,
    SegmentSnapshot,
    Snapshot,
    decode_snapshot,
)
from leveret.storage.spare import SPARE_NAME
from leveret.storage.state_log import ENTRY_SIZE, STATE_MAGIC
from leveret.storage.time_index import TIME_INDEX_MAGIC

INDEX_ENTRY = Struct(">II")
TIME_ENTRY = Struct(">QI")
SNAPSHOT_NAMES = (SNAPSHOT_NAME, OLD_SNAPSHOT_NAME)

_FILE_NAME = re.compile(r"(\d{20})(\.\w+)")
# What queues keep beside their logs; without it, or if it is damaged, it begins anew.
_OF_QUEUES = ("message-ids", "offsets")
_LEFTOVER = re.compile(r"\d{20}\.\w+\.tmp|snapshot\.tmp|spare")
_LAST_OFFSET = (1 << 63) - 1
_BODY_SIZE = ENTRY_SIZE - 4
_HOLE = 24
_MOST_READ = 1 << 20

Pairs = list[tuple[int, int]]


@dataclass(slots=True)
class SegmentCheck:
    """One segment: what is in its files. *limit* is the base of the next segment.

    *header* says what is wrong with that of the log, *flags* are those that it should have, which
    nobody knows if *is_key_lost*. One that *is_torn* was never confirmed, and recovery empties it.
    """

    path: Path
    base_offset: int
    limit: int | None
    scan: LogScan
    flags: int = 0
    header: str = ""
    is_header_missing: bool = False
    is_torn: bool = False
    is_key_lost: bool = False
    has_bad_index: bool = False
    has_bad_state: bool = False

    @property
    def end_offset(self) -> int:
        """The offset behind the last message that there was, as far as anybody knows."""
        last = self.scan.claims[-1:] if not self.scan.lies and not self.scan.has_gaps else []
        known = max([self.scan.next_offset, *(self.base_offset + entry[0] for entry in last)])
        return known if self.limit is None else min(known, self.limit)


@dataclass(slots=True)
class LogCheck:
    """What was found of the log in *directory*.

    *good* and *bad* count messages. *refusal* is why recovery would not open it, empty if it would.
    *removable* are files that nobody needs, of which some are no files of a log. *misplaced* are
    segments with records of other offsets.
    """

    directory: Path
    segments: list[SegmentCheck] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    good: int = 0
    bad: int = 0
    refusal: str = ""
    removable: list[Path] = field(default_factory=list)
    misplaced: list[Path] = field(default_factory=list)


def check_log(
    directory: Path,
    options: LogOptions,
    progress: Progress,
    keys: Collection[int] = frozenset(),
) -> LogCheck:
    """Read everything in *directory*; nothing is changed.

    *keys* are the numbers of the keys that there are for encrypted logs. Raises OSError if the
    directory itself cannot be read.
    """
    check = LogCheck(directory)
    names = sorted(path.name for path in directory.iterdir())
    plan = Repairs(dry=True)
    ready = _plan(check, options, plan)
    bases = _bases(check, names)
    snapshot = _check_snapshots(check, names)
    for base_offset, limit in zip_longest(bases, bases[1:]):
        path = directory / f"{base_offset:020}{LOG_SUFFIX}"
        try:
            segment = _check_segment(check, path, base_offset, limit, progress)
            _check_header(segment, keys, snapshot.segments.get(base_offset))
        except OSError as error:
            check.findings.append(unreadable(path, error))
            continue
        check.segments.append(segment)
        check.findings += _judge(segment, plan.findings, ready, check)
    _find_keys(check, keys)
    check.findings += _missing_segments(check, snapshot)
    _check_others(check, names)
    known = {finding.path for finding in check.findings}
    check.findings += [finding for finding in plan.findings if finding.path not in known]
    if check.refusal and all(finding.is_harmless for finding in check.findings):
        repair = "the queue is stopped"
        check.findings.append(Finding(directory, 0, check.refusal, repair))
    check.findings.sort(key=lambda finding: (finding.path.name, finding.position or 0))
    return check


def unreadable(path: Path, error: OSError) -> Finding:
    """What is found of a file that cannot be read."""
    return Finding(path, 0, f"cannot be read: {error.strerror or error}", "the queue is stopped")


def named(first: int, end: int) -> str:
    """The messages [first, end) in words."""
    if end == first:
        return f"bytes in front of message {first}"
    return f"message {first}" if end == first + 1 else f"messages {first} to {end - 1}"


def _is_log(name: str) -> bool:
    match = _FILE_NAME.fullmatch(name)
    return match is not None and match[2] == LOG_SUFFIX and int(match[1]) <= _LAST_OFFSET


def _bases(check: LogCheck, names: list[str]) -> list[int]:
    """The bases of the segments, without those that are misplaced."""
    bases = []
    paths = [check.directory / name for name in names if _is_log(name)]
    for path in paths:
        base_offset = int(path.stem)
        with suppress(OSError):  # which reading the records meets again
            if is_misplaced(path, base_offset):
                check.misplaced.append(path)
                # Perhaps it was to be used again, and the broker was killed just then.
                is_harmless = path == paths[-1] and not check.refusal
                wrong = "only records of other offsets"
                repair = "recovery empties it" if is_harmless else "the queue is stopped"
                check.findings.append(
                    Finding(path, base_offset, wrong, repair, is_harmless, HEADER_SIZE)
                )
                continue
        bases.append(base_offset)
    return bases


def _plan(check: LogCheck, options: LogOptions, plan: Repairs) -> Intervals:
    """Have recovery note what it would do; return what would be ready."""
    try:
        log, recovered = recover(
            check.directory, options, lambda: 0, retention=Retention(), repairs=plan
        )
    except (OSError, StorageError) as error:
        check.refusal = str(error)
        return [(0, _LAST_OFFSET)]
    log.close()
    return recovered.ready


# ---- segments


def _check_segment(
    check: LogCheck, path: Path, base_offset: int, limit: int | None, progress: Progress
) -> SegmentCheck:
    index, times = path.with_suffix(".index"), path.with_suffix(".timeindex")
    entries, wrong_index = _read_pairs(index, OFFSET_INDEX_MAGIC, INDEX_ENTRY, progress)
    stamps, wrong_times = _read_pairs(times, TIME_INDEX_MAGIC, TIME_ENTRY, progress)
    scan = scan_log(path, base_offset, entries, limit, progress)
    segment = SegmentCheck(path, base_offset, limit, scan)
    wrong_index = wrong_index or _wrong_entries(index, segment)
    wrong_times = wrong_times or _wrong_stamps(times, entries, stamps, segment)
    if limit is not None and not (wrong_index or wrong_times):
        wrong_times = _wrong_count(index, times, len(entries), len(stamps))
    for wrong in (wrong_index, wrong_times):
        if wrong is not None:
            segment.has_bad_index = True
            check.findings.append(wrong)
    check.findings += _check_state(segment, progress)
    check.good += scan.messages
    return segment


def _check_header(
    segment: SegmentCheck, keys: Collection[int], known: SegmentSnapshot | None
) -> None:
    path, has_gaps = segment.path, segment.scan.has_gaps
    with path.open("rb") as file:
        header = file.read(HEADER_SIZE)
    segment.flags = int.from_bytes(header[6:8], "big") & KNOWN_FLAGS
    number = segment.flags >> KEY_SHIFT
    if is_unwritten(header, LOG_MAGIC):
        segment.is_header_missing = True
    else:
        try:
            check_header(path, header, LOG_MAGIC, KNOWN_FLAGS)
        except UnsupportedFormat as error:
            segment.header = str(error).removeprefix(f"{path}: ")
        if has_gaps and not segment.flags & HAS_GAPS:
            segment.header = "a header that says nothing of the gaps behind it"
        elif number and number not in keys:
            segment.header = f"encrypted with key {number}, which {KEYS_NAME} does not know"
    if known is not None and number not in keys:
        segment.flags = known.flags
    segment.flags = segment.flags & ~HAS_GAPS | (HAS_GAPS if has_gaps else 0)


def _find_keys(check: LogCheck, keys: Collection[int]) -> None:
    """Find out which keys the segments have whose headers are lost."""
    numbers = {
        segment.flags >> KEY_SHIFT for segment in check.segments if not segment.is_header_missing
    }
    for segment in check.segments:
        if segment.is_header_missing and keys and segment.flags >> KEY_SHIFT not in keys:
            segment.is_key_lost = len(numbers) != 1
            segment.flags |= max(numbers, default=0) << KEY_SHIFT


def _judge(
    segment: SegmentCheck, plan: list[Finding], ready: Intervals, check: LogCheck
) -> Iterator[Finding]:
    """What is wrong with the log of *segment*, which recovery has a *plan* for."""
    scan, path = segment.scan, segment.path
    planned = [finding for finding in plan if finding.path == path]
    cut = next((finding for finding in planned if finding.position is None), None)
    if segment.header:
        yield Finding(path, segment.base_offset, segment.header, "the queue is stopped", position=0)
    elif segment.is_header_missing and scan.messages:
        wrong = f"no header in front of {_count(scan.messages)}"
        stretches = scan.stretches
        segment.is_torn = bool(stretches) and stretches[0].position == HEADER_SIZE
        yield Finding(path, segment.base_offset, wrong, "recovery drops them", segment.is_torn, 0)
        return
    bridged = {finding.position for finding in planned}
    for stretch in scan.stretches:
        finding = _judge_stretch(segment, stretch, cut, bridged, ready)
        if not finding.is_harmless:
            check.bad += stretch.end_offset - stretch.offset
        yield finding
    if scan.overlaps:
        wrong = f"goes on with message {scan.next_offset}, which the next segment begins with"
        yield Finding(path, scan.next_offset, wrong, "the queue is stopped", position=scan.position)
    else:
        yield from _judge_end(segment, cut, ready, check)


def _judge_end(
    segment: SegmentCheck, cut: Finding | None, ready: Intervals, check: LogCheck
) -> Iterator[Finding]:
    """What is wrong behind the last good record."""
    scan, path, first = segment.scan, segment.path, segment.scan.next_offset
    end = segment.end_offset
    if scan.rest and segment.limit is not None and cut is None:
        # Recovery takes a closed segment as its index says.
        end = end if end > first else segment.limit
        what = named(first, end) if end > first else f"{scan.rest} bytes at the end"
        repair = _stops(first, end, ready) if end > first else "not read"
        yield Finding(path, first, f"damaged: {what}", repair, position=scan.position)
    elif end > first:
        wrong = f"ends in front of {named(first, end)}, which the index knows"
        repair = f"recovery goes on without {'it' if end == first + 1 else 'them'}"
        yield Finding(path, first, wrong, repair, position=scan.position)
    elif cut is not None and cut.offset == first:
        is_torn = cut.is_harmless or _is_torn(scan)
        yield Finding(path, first, cut.wrong, cut.repair, is_torn, scan.position)
    check.bad += end - first


def _is_torn(scan: LogScan) -> bool:
    """Whether the last record is incomplete."""
    with scan.path.open("rb", buffering=0) as file:
        file.seek(scan.position)
        header = file.read(RECORD_HEADER_SIZE)
    if len(header) < RECORD_HEADER_SIZE or scan.position + record_size(header) > scan.size:
        return True
    return _is_hole(scan.path, scan.position, scan.size)


def _is_hole(path: Path, position: int, end_position: int) -> bool:
    """Whether bytes between are empty, as those that a power failure kept from the disk."""
    with path.open("rb", buffering=0) as file:
        file.seek(position)
        return bytes(_HOLE) in file.read(min(end_position - position, _MOST_READ))


def _judge_stretch(
    segment: SegmentCheck,
    stretch: Stretch,
    cut: Finding | None,
    bridged: Collection[int | None],
    ready: Intervals,
) -> Finding:
    path, first, end = segment.path, stretch.offset, stretch.end_offset
    position, end_position = stretch.position, stretch.end_position
    if position in bridged:
        repair = "recovery puts a gap there, and what follows stays"
    elif cut is not None and cut.offset <= first:
        behind = segment.scan.next_offset - end
        repair = f"recovery drops all from here on, {_count(behind)} behind it too"
    else:
        wrong = f"damaged: {named(first, end)}"
        return Finding(path, first, wrong, _stops(first, end, ready), position=position)
    is_hole = _is_hole(path, position, end_position)
    wrong = f"damaged: {named(first, end)}"
    if is_hole:
        wrong = f"a power failure kept {named(first, end)} from the disk"
    return Finding(path, first, wrong, repair, is_hole, position)


def _stops(first: int, end: int, ready: Intervals) -> str:
    needed = intersect([(first, max(end, first + 1))], ready)
    if not needed:
        return "nobody needs it: settled" if end - first <= 1 else "nobody needs them: settled"
    return f"the queue stops at message {needed[0][0]}"


def _count(messages: int) -> str:
    return "1 good message" if messages == 1 else f"{messages} good messages"


# ---- indexes


def _read_pairs(
    path: Path, magic: bytes, entry: Struct, progress: Progress
) -> tuple[Pairs, Finding | None]:
    """Return the pairs of an index up to the first that is not sorted, and what is wrong."""
    repair = "recovery makes the indexes again"
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], None
    except OSError as error:
        return [], unreadable(path, error)
    progress(len(data))
    if is_unwritten(data, magic):
        return [], None if not data else Finding(path, 0, "no header", repair, is_harmless=True)
    try:
        check_header(path, data, magic)
    except UnsupportedFormat as error:
        return [], Finding(path, 0, str(error).removeprefix(f"{path}: "), repair, position=0)
    whole = (len(data) - HEADER_SIZE) // entry.size * entry.size
    pairs: Pairs = [(key, value) for key, value in entry.iter_unpack(data[HEADER_SIZE:][:whole])]
    for at in range(1, len(pairs)):
        if pairs[at][0] < pairs[at - 1][0] or pairs[at][1] <= pairs[at - 1][1]:
            position = HEADER_SIZE + at * entry.size
            is_hole = not any(data[position : position + entry.size])
            wrong = f"entry {at} is not behind the one before"
            return pairs[:at], Finding(path, 0, wrong, repair, is_hole, position=position)
    return pairs, None


def _wrong_entries(path: Path, segment: SegmentCheck) -> Finding | None:
    scan = segment.scan
    if not scan.lies:
        return None
    relative, position = scan.lies[0]
    wrong = f"says that {named(segment.base_offset + relative, segment.base_offset + relative + 1)}"
    wrong += f" is at byte {position} of the log, which it is not"
    # A crash while a compaction takes effect leaves the index of the log before.
    if scan.has_gaps:
        return Finding(path, 0, wrong, "recovery makes the indexes again", is_harmless=True)
    return Finding(path, segment.base_offset + relative, wrong, "reading may stop the queue")


def _wrong_count(index: Path, times: Path, entries: int, stamps: int) -> Finding | None:
    """What is wrong with the numbers of entries that the indexes of a closed segment have."""
    if entries > stamps + 1:
        path = times
    elif not entries and (index.exists() or times.exists()):
        path = index
    else:
        return None
    repair = "recovery makes the indexes again"
    return Finding(path, 0, "lacks entries", repair, is_harmless=True)


def _wrong_stamps(
    path: Path, entries: Pairs, stamps: Pairs, segment: SegmentCheck
) -> Finding | None:
    right = dict(segment.scan.times)
    highest = 0
    for at, (timestamp_ms, relative) in enumerate(stamps):
        is_right = at >= len(entries) or entries[at][0] == relative
        if is_right and relative in right:
            is_right = timestamp_ms == max(highest, right[relative])
        if not is_right:
            wrong = f"entry {at} does not fit the log"
            position = HEADER_SIZE + at * TIME_ENTRY.size
            repair = "messages are not found by their times"
            is_harmless = segment.scan.has_gaps
            if is_harmless:
                repair = "recovery makes the indexes again"
            return Finding(path, 0, wrong, repair, is_harmless, position=position)
        highest = timestamp_ms
    return None


# ---- states


def bad_entries(data: bytes) -> list[int]:
    """The positions of whole entries of a state log whose checksum is wrong."""
    last = len(data) - ENTRY_SIZE
    return [
        at
        for at in range(HEADER_SIZE, last + 1, ENTRY_SIZE)
        if crc32(data[at : at + _BODY_SIZE]).to_bytes(4, "big")
        != data[at + _BODY_SIZE : at + ENTRY_SIZE]
    ]


def _check_state(segment: SegmentCheck, progress: Progress) -> Iterator[Finding]:
    path, base_offset = segment.path.with_suffix(".state"), segment.base_offset
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        yield unreadable(path, error)
        return
    progress(len(data))
    repair = "recovery takes the others; settled messages may come back"
    if not is_unwritten(data, STATE_MAGIC):
        try:
            check_header(path, data, STATE_MAGIC)
        except UnsupportedFormat as error:
            segment.has_bad_state = True
            wrong = str(error).removeprefix(f"{path}: ")
            yield Finding(path, base_offset, wrong, "the queue is stopped", position=0)
    bad = bad_entries(data)
    # Zeros, and whatever is at the end, are of a write that a crash cut short.
    holes = {at for at in bad if not any(data[at : at + 8]) or not data[at + ENTRY_SIZE - 1]}
    end = (len(data) - HEADER_SIZE) // ENTRY_SIZE * ENTRY_SIZE + HEADER_SIZE
    while end - ENTRY_SIZE in bad[-1:]:
        end -= ENTRY_SIZE
        del bad[-1]
    damaged = [at for at in bad if at not in holes]
    if damaged:
        segment.has_bad_state = True
        entries = "1 bad entry" if len(damaged) == 1 else f"{len(damaged)} bad entries"
        yield Finding(path, base_offset, entries, repair, position=damaged[0])


# ---- snapshots and other files


def _check_snapshots(check: LogCheck, names: list[str]) -> Snapshot:
    """Return the newest good one, an empty one if there is none."""
    newest: Snapshot | None = None
    for name in SNAPSHOT_NAMES:
        path = check.directory / name
        if name not in names:
            continue
        try:
            snapshot = decode_snapshot(path, path.read_bytes())
            newest = newest or snapshot
        except DamagedSnapshot as error:
            wrong = str(error).removeprefix(f"{path}: ")
            repair = "the one before or the state logs tell the same"
            check.findings.append(Finding(path, 0, wrong, repair))
            check.removable.append(path)
        except OSError as error:
            check.findings.append(unreadable(path, error))
    return newest or Snapshot({}, {})


def _missing_segments(check: LogCheck, snapshot: Snapshot) -> Iterator[Finding]:
    """Segments that were there when *snapshot* was taken, and nothing was written since."""
    present = {segment.base_offset: segment for segment in check.segments}
    for base_offset, segment in present.items():
        known = snapshot.segments.get(base_offset)
        state = segment.path.with_suffix(".state")
        state_size = state.stat().st_size if state.exists() else 0
        if known is None or (known.log_size, known.state_size) != (segment.scan.size, state_size):
            return
    for base_offset, known in snapshot.segments.items():
        count = known.next_offset - base_offset - known.outcomes.forgotten().count
        if base_offset not in present and count:
            path = check.directory / f"{base_offset:020}{LOG_SUFFIX}"
            wrong = f"missing: {named(base_offset, known.next_offset)}, {count} not settled"
            check.bad += count
            yield Finding(path, base_offset, wrong, "recovery goes on without")


def _check_others(check: LogCheck, names: list[str]) -> None:
    logs = {name[:20] for name in names if _is_log(name)}
    for name in names:
        path = check.directory / name
        match = _FILE_NAME.fullmatch(name)
        suffix = match[2] if match is not None and int(match[1]) <= _LAST_OFFSET else ""
        if match is not None and suffix in SUFFIXES:
            if match[1] not in logs:
                wrong = "no log beside it, as after a crash while a settled segment is removed"
                check.findings.append(
                    Finding(path, int(match[1]), wrong, "recovery removes it", is_harmless=True)
                )
        elif suffix == DUE_SUFFIX:
            _check_due(check, path)
        elif _LEFTOVER.fullmatch(name) or (suffix and name.endswith(".due.tmp")):
            what = "the file of a settled segment" if name == SPARE_NAME else "left by a crash"
            check.findings.append(Finding(path, 0, what, "recovery removes it", is_harmless=True))
            check.removable.append(path)
        elif name not in SNAPSHOT_NAMES and name not in _OF_QUEUES:
            wrong = "no file of leveret"
            check.findings.append(Finding(path, 0, wrong, "nobody looks at it", is_harmless=True))
            check.removable.append(path)


def _check_due(check: LogCheck, path: Path) -> None:
    try:
        DueRun.load(path)
    except (DamagedIndex, UnsupportedFormat) as error:
        data = path.read_bytes()
        wrong = str(error).removeprefix(f"{path}: ")
        is_torn = is_unwritten(data, DUE_MAGIC) or data.endswith(bytes(16)) or len(data) % 16 != 4
        repair = "due times are read from the log"
        check.findings.append(Finding(path, 0, wrong, repair, is_harmless=is_torn))
        check.removable.append(path)
    except OSError as error:
        check.findings.append(unreadable(path, error))
