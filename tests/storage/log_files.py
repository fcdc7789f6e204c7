"""What the tests of the log share: payloads that tell their offset, and a crash."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from leveret.storage.batch import Batch
from leveret.storage.disk_space import DiskSpace
from leveret.storage.log import LogOptions, SegmentLog
from leveret.storage.recovery import Recovered, recover
from leveret.storage.state_log import State

SMALL = LogOptions(segment_bytes=4096, index_interval_bytes=200)


def new_log(
    directory: Path,
    options: LogOptions = SMALL,
    now_ms: int = 0,
    space: DiskSpace | None = None,
) -> SegmentLog:
    return SegmentLog(directory, options, lambda: now_ms, space=space)


def reopen(directory: Path, space: DiskSpace | None = None) -> tuple[SegmentLog, Recovered]:
    return recover(directory, SMALL, lambda: 0, space=space)


def crash(directory: Path, copy: Path) -> Path:
    """The files as a killed process leaves them, where the old process cannot touch them."""
    shutil.copytree(directory, copy)
    return copy


def payload_at(offset: int, size: int = 76) -> bytes:
    return b"%d:" % offset + b"x" * (size - len(b"%d:" % offset))


def batch_at(offset: int, count: int, size: int = 76, timestamp_ms: int = 1) -> Batch:
    payloads = [payload_at(offset + i, size) for i in range(count)]
    return Batch(offset, timestamp_ms, 5, payloads, size)


def append(log: SegmentLog, *counts: int, size: int = 76) -> None:
    """Append one batch for each count, in one flush."""
    for count in counts:
        log.append(batch_at(log.next_offset, count, size))
    log.flush()


def mark(log: SegmentLog, state: State, *ranges: tuple[int, int]) -> None:
    log.mark(state, ranges)
    log.flush_state()


def sync(log: SegmentLog) -> None:
    work = log.take_sync(include_state=True)
    if work is not None:
        work.run()
        work.close()


def read_all(
    log: SegmentLog, ranges: Iterable[tuple[int, int]], max_bytes: int = 500
) -> list[bytes]:
    found = []
    for start, end in ranges:
        while start < end:
            batches = log.read(start, max_bytes)
            assert batches[0].first_offset == start
            payloads = [payload for batch in batches for payload in batch.payloads]
            found += payloads[: end - start]
            start = batches[-1].next_offset
    return found


def names(directory: Path, suffix: str = ".log") -> list[int]:
    return sorted(int(path.stem) for path in directory.glob(f"*{suffix}"))
