"""Log repair: mends what recovery would not, and then has recovery do the rest.

Bad records are replaced by gap records, so that offsets stay. What can be made again from the log
is removed, for recovery to make it.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from leveret.storage.errors import DamagedSnapshot, UnsupportedFormat
from leveret.storage.files import HEADER_SIZE, file_header
from leveret.storage.log import LogOptions
from leveret.storage.log_check import SNAPSHOT_NAMES, LogCheck, SegmentCheck, bad_entries
from leveret.storage.log_scan import Stretch
from leveret.storage.record import encode_gap
from leveret.storage.recovery import recover
from leveret.storage.repairs import Repairs
from leveret.storage.retention import Retention
from leveret.storage.segment import HAS_GAPS, LOG_MAGIC, SUFFIXES, temporary
from leveret.storage.snapshot import decode_snapshot, encode_snapshot
from leveret.storage.state_log import ENTRY_SIZE, STATE_MAGIC

_COPY_BYTES = 1 << 20


def repair_log(check: LogCheck, options: LogOptions, repairs: Repairs) -> None:
    """Mend what *check* found, and recover the log. Raises OSError, StorageError."""
    for path in check.removable:
        if path.is_file():
            repairs.remove(path)
    for path in check.misplaced:
        _remove(path, SUFFIXES, repairs)
    mended = set()
    for segment in check.segments:
        if _mend(segment, repairs):
            mended.add(segment.base_offset)
    if mended:
        _outdate_snapshots(check.directory, mended, repairs)
    log, _ = recover(check.directory, options, lambda: 0, retention=Retention(), repairs=repairs)
    log.close()


def _mend(segment: SegmentCheck, repairs: Repairs) -> bool:
    """Mend the files of *segment*; return whether its log and indexes are others now."""
    scan, path = segment.scan, segment.path
    state = path.with_suffix(".state")
    if segment.has_bad_state:
        repairs.replace(state, _good_states(state.read_bytes()))
    is_cut = segment.limit is not None or bool(scan.claims)
    is_bad = segment.header or (segment.is_header_missing and scan.messages)
    if segment.is_torn:
        return True
    if is_bad and segment.is_key_lost:
        raise UnsupportedFormat(path, "a header that says which key it has", b"")
    if is_bad or scan.stretches or (scan.rest and is_cut):
        _rewrite(segment, repairs)
    elif not segment.has_bad_index:
        return False
    _remove(path, (".index", ".timeindex"), repairs)
    return True


def _good_states(data: bytes) -> bytes:
    bad = set(bad_entries(data))
    positions = range(HEADER_SIZE, len(data) - ENTRY_SIZE + 1, ENTRY_SIZE)
    good = [data[at : at + ENTRY_SIZE] for at in positions if at not in bad]
    return file_header(STATE_MAGIC) + b"".join(good)


def _remove(log: Path, suffixes: Iterable[str], repairs: Repairs) -> None:
    for path in map(log.with_suffix, suffixes):
        if path.exists():
            repairs.remove(path)


def _rewrite(segment: SegmentCheck, repairs: Repairs) -> None:
    """Write the log anew, with gap records in the place of what is damaged."""
    path, scan = segment.path, segment.scan
    gaps = list(scan.stretches)
    end_offset = segment.end_offset
    if scan.rest and segment.limit is not None and end_offset == scan.next_offset:
        end_offset = segment.limit
    if end_offset > scan.next_offset:
        gaps.append(Stretch(scan.position, scan.position, scan.next_offset, end_offset))
    has_gaps = any(gap.offset < gap.end_offset for gap in gaps)
    flags = segment.flags | (HAS_GAPS if has_gaps else 0)
    new = temporary(path)
    with path.open("rb") as old, new.open("wb") as file:
        file.write(file_header(LOG_MAGIC, flags))
        position = HEADER_SIZE
        for gap in gaps:
            _copy(old, file, position, gap.position)
            count = gap.end_offset - gap.offset
            if count:
                file.write(encode_gap(gap.offset, count, scan.timestamp_ms))
            position = gap.end_position
        _copy(old, file, position, scan.position)
        file.flush()
        os.fsync(file.fileno())
    repairs.exchange(path, new)


def _copy(source: BinaryIO, target: BinaryIO, start: int, end: int) -> None:
    source.seek(start)
    while start < end:
        piece = source.read(min(_COPY_BYTES, end - start))
        target.write(piece)
        start += len(piece)


def _outdate_snapshots(directory: Path, bases: set[int], repairs: Repairs) -> None:
    """Have recovery look into the segments that were mended, whatever snapshots know of them."""
    for path in (directory / name for name in SNAPSHOT_NAMES):
        try:
            snapshot = decode_snapshot(path, path.read_bytes())
        except (FileNotFoundError, DamagedSnapshot):
            continue
        for base_offset in bases & snapshot.segments.keys():
            snapshot.segments[base_offset].is_closed = False
        repairs.replace(path, encode_snapshot(snapshot))
