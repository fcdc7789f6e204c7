"""A log that nobody uses keeps no segment that nobody needs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.storage.disk_space import DiskSpace
from leveret.storage.log import LogOptions, SegmentLog
from leveret.storage.recovery import Recovered, recover
from leveret.storage.retention import Retention
from leveret.storage.state_log import State
from tests.storage.log_files import append, batch_at, crash, mark, names, payload_at, read_all, sync

pytestmark = pytest.mark.usefixtures("no_descriptor_left")


class Idle:
    """A log, and the time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now_ms = 1
        self.work: list[Iterator[None]] = []
        self.space = DiskSpace(lambda work: self.work.append(iter(work)))
        self.log, _ = self.open()

    def open(self, directory: Path | None = None) -> tuple[SegmentLog, Recovered]:
        log, found = recover(
            directory or self.directory, LogOptions(), lambda: self.now_ms, space=self.space
        )
        log.watch()
        return log, found

    def look(self, after_s: int) -> None:
        self.now_ms += after_s * 1000
        self.space.look_after(self.now_ms)

    def sweep(self) -> None:
        while self.work:
            for _ in self.work.pop(0):
                pass

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self.directory.iterdir())


@pytest.fixture
def idle(tmp_path: Path) -> Iterator[Idle]:
    idle = Idle(tmp_path / "q")
    append(idle.log, 300)
    sync(idle.log)
    yield idle
    idle.log.close()
    idle.sweep()


def test_a_segment_that_is_settled_goes_and_the_offsets_go_on(idle: Idle, tmp_path: Path) -> None:
    mark(idle.log, State.ACKED, (0, 300))
    idle.look(59)
    assert names(idle.directory) == [0]
    idle.look(60)
    assert names(idle.directory) == [0, 300]
    idle.look(60)
    assert names(idle.directory) == [0, 300]  # the new one is not durable yet
    idle.sweep()
    idle.look(1)
    assert names(idle.directory) == [300]
    idle.sweep()
    assert idle.size == idle.log.bytes_on_disk == 8
    assert idle.log.first_offset == idle.log.next_offset == 300
    log, found = idle.open(crash(idle.directory, tmp_path / "killed"))
    assert (log.next_offset, found.ready, found.report) == (300, [], [])
    log.close()
    append(idle.log, 5)
    assert read_all(idle.log, [(300, 305)]) == [payload_at(at) for at in range(300, 305)]
    idle.log.close()
    idle.log, found = idle.open()
    assert (idle.log.next_offset, found.ready) == (305, [(300, 305)])


def test_what_comes_while_it_is_left_is_safe(idle: Idle, tmp_path: Path) -> None:
    mark(idle.log, State.ACKED, (0, 300))
    idle.look(120)
    append(idle.log, 5)
    work = idle.log.take_sync(include_state=False)
    assert work is not None
    work.run()
    work.close()
    log, found = idle.open(crash(idle.directory, tmp_path / "killed"))
    assert (log.next_offset, found.ready) == (305, [(300, 305)])
    log.close()
    idle.sweep()
    idle.look(1)
    assert names(idle.directory) == [300]
    assert read_all(idle.log, [(300, 305)]) == [payload_at(at) for at in range(300, 305)]


def test_what_is_unsettled_written_to_small_or_retained_stays(idle: Idle) -> None:
    mark(idle.log, State.ACKED, (0, 299))
    idle.look(600)
    assert names(idle.directory) == [0]
    mark(idle.log, State.ACKED, (299, 300))
    idle.log.append(batch_at(300, 1, timestamp_ms=idle.now_ms))
    idle.log.flush()
    mark(idle.log, State.ACKED, (300, 301))
    idle.look(30)
    idle.look(29)
    assert names(idle.directory) == [0]
    idle.log.retention = Retention(age_ms=3600_000)
    idle.look(120)
    assert names(idle.directory) == [0]
    idle.look(3600)
    idle.sweep()
    idle.look(60)
    assert names(idle.directory) == [301]
    append(idle.log, 2)
    mark(idle.log, State.ACKED, (301, 303))
    idle.look(7200)
    assert names(idle.directory) == [301]


def test_one_message_does_not_hold_a_large_segment_that_is_active(tmp_path: Path) -> None:
    idle = Idle(tmp_path / "q")
    append(idle.log, *[100] * 100, size=1000)
    sync(idle.log)
    mark(idle.log, State.ACKED, (0, 77), (78, 10_000))
    for _ in range(6):
        idle.look(60)
        idle.sweep()
    assert idle.size < 2000
    assert read_all(idle.log, [(77, 78)]) == [payload_at(77, 1000)]
    idle.log.close()
    idle.log, found = idle.open()
    assert (idle.log.next_offset, found.ready) == (10_000, [(77, 78)])
    idle.log.close()


def test_a_clean_stop_leaves_a_large_segment(tmp_path: Path) -> None:
    idle = Idle(tmp_path / "q")
    append(idle.log, *[100] * 15, size=1000)
    sync(idle.log)
    mark(idle.log, State.ACKED, (0, 1500))
    idle.log.close()
    idle.sweep()
    assert names(idle.directory) == [1500]
    idle.log, found = idle.open()
    assert (idle.log.next_offset, found.ready) == (1500, [])
    idle.log.close()


def test_a_recovered_log_is_left_alone_until_it_is_in_use(idle: Idle, tmp_path: Path) -> None:
    """Another thread may be reading it, however long that takes."""
    copy = crash(idle.directory, tmp_path / "copy")
    log, _ = recover(copy, LogOptions(), lambda: idle.now_ms, space=idle.space)
    idle.now_ms += 10**9
    assert idle.space.look_after(idle.now_ms) == [idle.log]
    log.watch()
    idle.now_ms += 10**9
    assert idle.space.look_after(idle.now_ms) == [idle.log, log]
    log.close()
