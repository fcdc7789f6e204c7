"""A log on a disk that is full: nothing is lost, nothing is torn, and it goes on with the space."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.storage.disk_space import DiskSpace
from leveret.storage.errors import DiskFull, LogFailed
from leveret.storage.files import LogFile
from leveret.storage.log import SegmentLog
from leveret.storage.state_log import State
from tests.small_disk import SmallDisk, mounted
from tests.storage.log_files import (
    append,
    batch_at,
    crash,
    mark,
    names,
    new_log,
    payload_at,
    read_all,
    reopen,
    sync,
)

pytestmark = pytest.mark.usefixtures("no_descriptor_left")

PAGE = 4096
"""The unit in which the disk gives space out."""

# Records of 100 bytes: 40 of them and the header fill a segment of 4096 bytes.


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    with mounted(tmp_path_factory.mktemp("disk"), 256) as disk:
        yield disk


@pytest.fixture
def disk(small_disk: SmallDisk) -> Iterator[SmallDisk]:
    yield small_disk
    small_disk.clear()


@pytest.fixture
def space() -> DiskSpace:
    return DiskSpace(spares=1)


@pytest.fixture
def log(disk: SmallDisk, space: DiskSpace) -> Iterator[SegmentLog]:
    log = new_log(disk.path / "queue", space=space)
    yield log
    log.delete()


def payloads(stop: int) -> list[bytes]:
    return [payload_at(offset) for offset in range(stop)]


def refused(log: SegmentLog) -> None:
    """There is no room for what was appended."""
    with pytest.raises(DiskFull):
        log.flush()


def test_what_finds_no_room_is_written_later(disk: SmallDisk, log: SegmentLog) -> None:
    append(log, 30)
    disk.fill()
    log.append(batch_at(30, 5))
    log.append(batch_at(35, 50))
    refused(log)
    log.append(batch_at(85, 1))
    refused(log)
    assert log.next_offset == 86
    assert 30 <= log.flushed_offset <= 40
    assert read_all(log, [(0, log.flushed_offset)]) == payloads(log.flushed_offset)
    assert log.read(log.flushed_offset, 1000) == []
    disk.free()
    log.flush()
    assert log.flushed_offset == log.next_offset == 86
    assert read_all(log, [(0, 86)]) == payloads(86)
    assert log.take_written() == log.bytes_on_disk


def test_a_refused_write_leaves_no_trace(disk: SmallDisk, log: SegmentLog) -> None:
    """The file has a page that is almost empty, so a part of the write finds room."""
    append(log, 1)
    disk.fill()
    log.append(batch_at(1, 1, size=5000))
    file = log.directory / f"{0:020}.log"
    refused(log)
    assert file.stat().st_size == log.bytes_on_disk == 108
    assert log.flushed_offset == 1


@pytest.mark.parametrize("counts", [[300], [7] * 43, [1, 100, 1, 1, 200]])
def test_any_lack_of_space_is_got_over(
    disk: SmallDisk, log: SegmentLog, tmp_path: Path, counts: list[int]
) -> None:
    """Page by page: each step of appending and rolling is refused once, and survives a kill."""
    disk.fill()
    for count in counts:
        log.append(batch_at(log.next_offset, count))
    for attempt in itertools.count():
        try:
            log.flush()
        except DiskFull:
            sync(log)
            if log.directory.exists():
                again, recovered = reopen(crash(log.directory, tmp_path / str(attempt)))
                assert recovered.next_offset == log.flushed_offset
                assert read_all(again, recovered.ready) == payloads(log.flushed_offset)
                again.close()
            disk.free(PAGE)
        else:
            break
    total = sum(counts)
    assert attempt > 10
    assert read_all(log, [(0, total)]) == payloads(total)
    log.close()
    again, recovered = reopen(log.directory)
    assert (recovered.ready, recovered.report) == ([(0, total)], [])
    again.close()


def test_states_may_lag(disk: SmallDisk, log: SegmentLog, tmp_path: Path) -> None:
    append(log, 30)
    disk.fill()
    for _ in range(2):
        with pytest.raises(DiskFull):
            mark(log, State.ACKED, (0, 3))
    log.append(batch_at(30, 1))
    log.flush()
    killed, recovered = reopen(crash(log.directory, tmp_path / "killed"))
    assert recovered.ready == [(0, 31)]
    killed.close()
    disk.free()
    assert log.flush_state()
    log.close()
    again, recovered = reopen(log.directory)
    assert recovered.ready == [(3, 31)]
    again.close()


def test_what_is_acknowledged_makes_room(
    disk: SmallDisk, log: SegmentLog, space: DiskSpace
) -> None:
    append(log, 100)
    sync(log)
    disk.fill()
    log.append(batch_at(100, 30))
    refused(log)
    with pytest.raises(DiskFull):
        mark(log, State.ACKED, (0, 1), (41, 80))
    assert names(log.directory) == [0, 40, 80, 120]
    mark(log, State.ACKED, (1, 41))
    assert names(log.directory) == [80, 120]
    space.expire(10**9)
    log.flush()
    assert read_all(log, [(80, 130)]) == payloads(130)[80:]


def test_a_directory_that_finds_no_room_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = set()
    monkeypatch.setattr(os, "fsync", lambda fd: synced.add(os.fstat(fd).st_ino))
    with mounted(tmp_path, 64, files=3) as disk:
        others = [disk.path / "one", disk.path / "two"]
        for path in others:
            path.touch()
        log = new_log(disk.path / "vhost" / "queue")
        log.append(batch_at(0, 1))
        for path in others:
            refused(log)
            path.unlink()
        log.flush()
        sync(log)
        changed = {path.stat().st_ino for path in (disk.path, *log.directory.parents[:1])}
        assert changed <= synced
        log.delete()


def test_closing_on_a_full_disk_keeps_what_was_written(disk: SmallDisk, log: SegmentLog) -> None:
    append(log, 30)
    mark(log, State.ACKED, (0, 2))
    disk.fill()
    log.append(batch_at(30, 100))
    log.mark(State.ACKED, [(2, 5)])
    with pytest.raises(DiskFull):
        log.close()
    again, recovered = reopen(log.directory)
    assert recovered.ready == [(5, recovered.next_offset)]
    assert 30 <= recovered.next_offset <= 40
    again.close()


def test_a_write_that_cannot_be_undone_is_fatal(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.symlink_to("/dev/full")
    file = LogFile(path, b"TEST")
    with pytest.raises(OSError, match="No space left on device"):
        file.append([b"data"])
    file.close()
    log = new_log(tmp_path)
    (tmp_path / f"{0:020}.log").symlink_to("/dev/full")
    log.append(batch_at(0, 1))
    with pytest.raises(LogFailed):
        log.flush()
    log.close()
