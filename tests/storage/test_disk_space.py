import os
from pathlib import Path

import pytest

from leveret.storage.disk_space import STEP_BYTES, DiskSpace, Work, give_back, remove_directory
from leveret.storage.log import SegmentLog
from leveret.storage.spare import SPARE_NAME
from leveret.storage.state_log import State
from tests.storage.log_files import append, crash, mark, names, new_log, read_all, reopen, sync

pytestmark = pytest.mark.usefixtures("no_descriptor_left")

IN_A_SEGMENT = 40
"""Records of 100 bytes that fill a segment."""


def log_with_spare(directory: Path, space: DiskSpace) -> SegmentLog:
    """A log of which the first segment is spent and set aside."""
    log = new_log(directory, space=space)
    append(log, IN_A_SEGMENT + 1)
    assert names(directory) == [0, IN_A_SEGMENT]
    mark(log, State.ACKED, (0, IN_A_SEGMENT))
    return log


def test_the_file_of_a_spent_segment_becomes_the_next_segment(tmp_path: Path) -> None:
    directory = tmp_path / "q"
    log = log_with_spare(directory, DiskSpace(spares=1))
    assert names(directory) == [IN_A_SEGMENT]
    spare = (directory / SPARE_NAME).stat().st_ino
    append(log, IN_A_SEGMENT)
    assert not (directory / SPARE_NAME).exists()
    newest = directory / f"{names(directory)[-1]:020}.log"
    assert newest.stat().st_ino == spare
    assert len(read_all(log, [(IN_A_SEGMENT, log.next_offset)])) == IN_A_SEGMENT + 1
    log.close()
    # What is left of the old messages goes with the end of the file's use.
    assert newest.stat().st_size == 8 + 100 * (log.next_offset - names(directory)[-1])


def test_old_bytes_in_a_file_used_again_are_not_messages(tmp_path: Path) -> None:
    directory = tmp_path / "q"
    log = log_with_spare(directory, DiskSpace(spares=1))
    append(log, IN_A_SEGMENT, 3)
    copy = crash(directory, tmp_path / "copy")
    first, end = IN_A_SEGMENT, log.next_offset
    log.close()
    log, recovered = reopen(copy)
    assert recovered.next_offset == end
    assert recovered.ready == [(first, end)]
    assert "behind the last good record" in recovered.report[0]
    read = read_all(log, recovered.ready)
    assert [int(payload.partition(b":")[0]) for payload in read] == list(range(first, end))
    append(log, 5)
    assert len(read_all(log, [(end, end + 5)])) == 5
    log.close()


def test_a_spare_is_not_used_before_its_removal_is_durable(tmp_path: Path) -> None:
    waiting: list[Work] = []
    directory = tmp_path / "q"
    log = log_with_spare(directory, DiskSpace(waiting.append, spares=1))
    append(log, IN_A_SEGMENT)
    assert (directory / SPARE_NAME).exists()
    for work in waiting:
        list(work)
    append(log, IN_A_SEGMENT)
    assert not (directory / SPARE_NAME).exists()
    log.close()


def test_a_spare_that_nobody_uses_is_given_back(tmp_path: Path) -> None:
    space = DiskSpace(spares=1, keep_ms=10)
    directory = tmp_path / "q"
    log = log_with_spare(directory, space)
    space.expire(10)
    assert (directory / SPARE_NAME).exists()
    space.expire(11)
    assert not (directory / SPARE_NAME).exists()
    append(log, IN_A_SEGMENT)
    log.close()


def test_only_so_many_logs_hold_a_spare(tmp_path: Path) -> None:
    space = DiskSpace(spares=1)
    logs = [log_with_spare(tmp_path / name, space) for name in ("a", "b")]
    assert [(log.directory / SPARE_NAME).exists() for log in logs] == [True, False]
    logs[0].delete()
    mark(logs[1], State.ACKED, (IN_A_SEGMENT, IN_A_SEGMENT + 1))
    append(logs[1], IN_A_SEGMENT)
    mark(logs[1], State.ACKED, (IN_A_SEGMENT + 1, 2 * IN_A_SEGMENT))
    assert (logs[1].directory / SPARE_NAME).exists()
    logs[1].close()
    assert not (logs[1].directory / SPARE_NAME).exists()


def test_recovery_removes_a_spare_that_a_kill_left(tmp_path: Path) -> None:
    log = log_with_spare(tmp_path / "q", DiskSpace(spares=1))
    sync(log)
    copy = crash(tmp_path / "q", tmp_path / "copy")
    log.close()
    log, recovered = reopen(copy)
    assert not (copy / SPARE_NAME).exists()
    assert recovered.ready == [(IN_A_SEGMENT, IN_A_SEGMENT + 1)]
    log.close()


def test_a_large_file_is_given_back_in_steps(tmp_path: Path) -> None:
    path = tmp_path / "large"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(descriptor, 2 * STEP_BYTES + 1)
    sizes = [path.stat().st_size for _ in give_back(descriptor)]
    assert sizes == [2 * STEP_BYTES + 1 - STEP_BYTES, 1, 0]


def test_a_directory_goes_with_its_files(tmp_path: Path) -> None:
    directory = tmp_path / "q"
    directory.mkdir()
    for name in ("a", "b"):
        (directory / name).write_bytes(b"x")
    for _ in remove_directory(directory):
        pass
    assert not directory.exists()


class FaultyLog:
    """One that cannot be looked after, by a fault of ours."""

    def look_after(self, now_ms: int) -> int | None:
        raise ValueError("a fault of ours")

    def take_written(self) -> int:
        return 0

    def take_sync(self, include_state: bool) -> None:
        return None

    def fail(self, error: Exception) -> None:
        return None


def test_a_fault_in_one_log_is_no_harm_to_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    space = DiskSpace()
    space.watch(FaultyLog(), 0)
    log = new_log(tmp_path / "q", space=space)
    append(log, 1)
    assert log in space.look_after(10**9)
    assert "a fault of ours" in caplog.text
    assert space.look_after(2 * 10**9) == [log]
    log.close()
