"""Settled messages that stay on disk for a time, or up to a size."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.storage.disk_space import DiskSpace
from leveret.storage.log import SegmentLog
from leveret.storage.recovery import Recovered, recover
from leveret.storage.retention import Retention
from leveret.storage.state_log import State
from tests.storage.log_files import SMALL, batch_at, crash, mark, names, payload_at, read_all, sync

pytestmark = pytest.mark.usefixtures("no_descriptor_left")

FOREVER = Retention()
# 40 records of 100 bytes and the header fill a segment of 4096 bytes.


class Clock:
    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


def open_log(
    directory: Path, clock: Clock, retention: Retention | None, space: DiskSpace | None = None
) -> tuple[SegmentLog, Recovered]:
    return recover(directory, SMALL, clock, space=space, retention=retention)


def fill(log: SegmentLog, clock: Clock, count: int) -> None:
    log.append(batch_at(log.next_offset, count, timestamp_ms=clock.now_ms))
    log.flush()


def test_settled_messages_are_read_again(tmp_path: Path, clock: Clock) -> None:
    log, _ = open_log(tmp_path / "q", clock, FOREVER)
    fill(log, clock, 100)
    mark(log, State.ACKED, (0, 100))
    assert (log.first_offset, names(log.directory)) == (0, [0, 40, 80])
    assert read_all(log, [(0, 100)]) == [payload_at(i) for i in range(100)]
    assert [picked[0] for picked in log.pick([3, 41, 99])] == [3, 41, 99]
    assert log.retained_bytes == sum(path.stat().st_size for path in log.directory.glob("*.log"))
    log.close()


def test_they_survive_restarts_and_are_still_settled(tmp_path: Path, clock: Clock) -> None:
    log, _ = open_log(tmp_path / "q", clock, FOREVER)
    fill(log, clock, 100)
    mark(log, State.ACKED, (0, 90))
    copy = crash(log.directory, tmp_path / "killed")
    log.close()
    for directory in (log.directory, copy):
        log, found = open_log(directory, clock, FOREVER)
        assert found.ready == [(90, 100)]
        assert read_all(log, [(0, 100)]) == [payload_at(i) for i in range(100)]
        log.close()
        log, found = open_log(directory, clock, None)
        assert (log.first_offset, found.ready) == (80, [(90, 100)])
        log.close()


def test_the_oldest_go_when_there_is_too_much(tmp_path: Path, clock: Clock) -> None:
    log, _ = open_log(tmp_path / "q", clock, Retention(size=12_000))
    for last in range(20, 400, 20):
        fill(log, clock, 20)
        mark(log, State.ACKED, (last - 20, last))
        assert log.retained_bytes <= 12_000 + 4096
    assert log.retained_bytes >= 12_000 - 4096
    assert names(log.directory) == [280, 320, 360]
    log.close()


def test_what_is_too_old_goes_when_it_is_looked_at(tmp_path: Path, clock: Clock) -> None:
    space = DiskSpace()
    log, _ = open_log(tmp_path / "q", clock, Retention(age_ms=600_000), space)
    fill(log, clock, 40)
    clock.now_ms += 300_000
    fill(log, clock, 45)
    mark(log, State.ACKED, (0, 85))
    sync(log)
    for minutes, first in ((5, 0), (1, 40), (3, 40), (2, 80)):
        clock.now_ms += minutes * 60_000
        assert space.look_after(clock.now_ms) == [log]
        assert log.first_offset == first
        assert log.state_dirty == (first > 0)
    log.close()
    assert space.look_after(clock.now_ms + 600_000) == []


def test_the_age_is_known_after_a_restart(tmp_path: Path, clock: Clock) -> None:
    log, _ = open_log(tmp_path / "q", clock, FOREVER)
    for _ in range(41):
        clock.now_ms += 60_000
        fill(log, clock, 1)
    mark(log, State.ACKED, (0, 41))
    log.close()
    space = DiskSpace()
    log, _ = open_log(log.directory, clock, Retention(age_ms=70_000), space)
    log.flush_state()
    assert log.first_offset == 0
    clock.now_ms += 20_000
    log.retention = Retention(age_ms=70_000)
    log.flush_state()
    assert log.first_offset == 40
    log.close()


def test_the_age_is_known_without_an_index(tmp_path: Path, clock: Clock) -> None:
    log, _ = open_log(tmp_path / "q", clock, FOREVER)
    fill(log, clock, 90)
    mark(log, State.ACKED, (0, 50))
    sync(log)
    log.close()
    log, _ = open_log(log.directory, clock, Retention(age_ms=70_000))
    for path in log.directory.glob("*.index"):
        path.unlink()
    clock.now_ms += 80_000
    mark(log, State.ACKED, (50, 60))
    assert log.first_offset == 40
    log.close()


def test_a_log_that_was_truncated_under_us_goes_too(tmp_path: Path, clock: Clock) -> None:
    log, _ = open_log(tmp_path / "q", clock, FOREVER)
    fill(log, clock, 90)
    mark(log, State.ACKED, (0, 50))
    sync(log)
    log.close()
    space = DiskSpace()
    log, _ = open_log(log.directory, clock, Retention(age_ms=70_000), space)
    log.watch()
    log.flush_state()
    for path in log.directory.glob("*.log"):
        os.truncate(path, 8)
    clock.now_ms += 10**6
    assert space.look_after(clock.now_ms) == [log]
    assert log.first_offset == 40
    log.close()


def test_less_retention_takes_effect_with_the_next_states(tmp_path: Path, clock: Clock) -> None:
    log, _ = open_log(tmp_path / "q", clock, FOREVER)
    fill(log, clock, 150)
    mark(log, State.ACKED, (0, 100), (110, 130))
    log.retention = Retention(size=11_000)
    log.flush_state()
    assert names(log.directory) == [40, 80, 120]
    log.retention = None
    log.flush_state()
    assert names(log.directory) == [80, 120]
    assert log.retained_bytes == 0
    log.close()


def test_a_large_segment_is_cut_for_a_small_retention(tmp_path: Path, clock: Clock) -> None:
    log, _ = recover(tmp_path / "q", type(SMALL)(), clock)
    log.retention = Retention(size=1024 * 1024)
    for _ in range(30):
        fill(log, clock, 1000)
        mark(log, State.ACKED, (log.next_offset - 1000, log.next_offset))
    assert 750_000 <= log.retained_bytes <= 1024 * 1024
    log.close()


class Piece:
    def __init__(self, dead_bytes: int, last_timestamp_ms: int) -> None:
        self.dead_bytes = dead_bytes
        self.last_timestamp_ms = last_timestamp_ms


@given(
    st.lists(st.builds(Piece, st.integers(0, 9), st.integers(0, 9))),
    st.none() | st.integers(0, 50),
    st.none() | st.integers(0, 9),
)
def test_what_stays_is_within_the_bounds(
    pieces: list[Piece], size: int | None, age_ms: int | None
) -> None:
    held = sum(piece.dead_bytes for piece in pieces)
    gone = Retention(age_ms, size).outdated(pieces, held, 10)
    kept = [piece for piece in pieces if piece not in gone]
    assert size is None or sum(piece.dead_bytes for piece in kept) <= size
    assert age_ms is None or all(10 - piece.last_timestamp_ms <= age_ms for piece in kept)
    if age_ms is None:
        assert gone == pieces[: len(gone)]
        assert not gone or sum(piece.dead_bytes for piece in pieces[len(gone) - 1 :]) > (size or 0)
