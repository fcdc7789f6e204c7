import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leveret.storage.batch import Batch
from leveret.storage.errors import CorruptRecord, LogFailed, OffsetOutOfRange
from leveret.storage.log import LogOptions, SegmentLog
from leveret.storage.state_log import State
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

# Records of 100 bytes: 40 of them and the header fill a segment of 4096 bytes.


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SegmentLog]:
    log = new_log(tmp_path / "vhost" / "queue")
    yield log
    log.delete()


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Writing past *size* bytes fails with EFBIG after a short write, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_nothing_is_on_disk_before_the_first_flush(tmp_path: Path) -> None:
    log = new_log(tmp_path / "q")
    log.append(batch_at(0, 3))
    assert (log.first_offset, log.flushed_offset, log.next_offset) == (0, 0, 3)
    assert log.read(0, 1000) == []
    assert not (tmp_path / "q").exists()
    assert not log.dirty
    log.flush()
    assert log.read(0, 1000) == [batch_at(0, 3)]
    log.close()


def test_batches_of_one_flush_are_read_back(log: SegmentLog) -> None:
    log.append(Batch(0, 1, 2, [b"a"], 1))
    log.append(Batch(1, 1, 2, [b"", b"bc"], 0))
    log.append(Batch(3, 9, 2, [b"d"], 1))
    assert log.flush() == log.bytes_on_disk == 8 + 4 * 24 + 4
    assert log.read(0, 1000) == [Batch(0, 1, 2, [b"a", b"", b"bc"], 0), Batch(3, 9, 2, [b"d"], 1)]
    assert log.read(2, 1000) == [Batch(2, 1, 2, [b"bc"], 2), Batch(3, 9, 2, [b"d"], 1)]
    assert log.read(4, 1000) == []


def test_more_chunks_than_one_system_call_takes(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogOptions())
    append(log, *[1] * 3000)
    assert read_all(log, [(0, 3000)], 100_000) == [payload_at(i) for i in range(3000)]
    log.close()


def test_every_offset_is_found(log: SegmentLog) -> None:
    append(log, 7, 50, 1, 1, 30, 120)
    for offset in range(209):
        (batch,) = log.read(offset, 1)
        assert batch == batch_at(offset, 1)


def test_a_record_larger_than_asked_for_is_read_whole(log: SegmentLog) -> None:
    append(log, 2, size=3000)
    assert log.read(1, 10) == [batch_at(1, 1, 3000)]


def test_segments_roll_and_split_a_batch(log: SegmentLog) -> None:
    append(log, 100)
    assert names(log.directory) == [0, 40, 80]
    append(log, 1, 25)
    assert names(log.directory) == [0, 40, 80, 120]
    assert read_all(log, [(0, 126)]) == [payload_at(i) for i in range(126)]


def test_mixed_lengths_split_at_the_right_record(log: SegmentLog) -> None:
    payloads = [payload_at(i, 20 + 7 * (i % 90)) for i in range(200)]
    log.append(Batch(0, 1, 5, payloads, 0))
    log.flush()
    assert all(path.stat().st_size <= 4096 for path in log.directory.glob("*.log"))
    assert read_all(log, [(0, 200)]) == payloads


def test_a_record_larger_than_a_segment_has_its_own(log: SegmentLog) -> None:
    append(log, 1)
    append(log, 2, size=9000)
    append(log, 1)
    assert names(log.directory) == [0, 1, 2, 3]
    assert read_all(log, [(0, 4)]) == [
        *(payload_at(0), payload_at(1, 9000), payload_at(2, 9000), payload_at(3))
    ]


def test_an_old_segment_rolls(tmp_path: Path) -> None:
    now_ms = 1000
    log = SegmentLog(tmp_path, LogOptions(segment_age_ms=100), lambda: now_ms)
    log.append(batch_at(0, 1, timestamp_ms=1000))
    log.flush()
    now_ms = 1099
    log.append(batch_at(1, 1, timestamp_ms=1099))
    log.flush()
    now_ms = 1100
    log.append(batch_at(2, 1, timestamp_ms=1100))
    log.flush()
    assert names(tmp_path) == [0, 2]
    log.close()


def test_a_time_is_found(log: SegmentLog) -> None:
    for offset in range(200):
        log.append(batch_at(offset, 1, timestamp_ms=1000 + offset))
    log.flush()
    for timestamp_ms in range(990, 1210):
        found = log.find(timestamp_ms)
        first = max(timestamp_ms - 1000, 0)
        assert found <= first
        assert first - found <= 4 or timestamp_ms >= 1200


@pytest.mark.parametrize("size", [4095, 1024**3 + 1])
def test_segment_size_has_bounds(size: int) -> None:
    with pytest.raises(ValueError, match=f"segment_bytes is {size}, not in 4096..1073741824"):
        LogOptions(segment_bytes=size)


def test_a_spent_segment_is_deleted(log: SegmentLog) -> None:
    append(log, 130)
    mark(log, State.ACKED, (40, 79), (0, 20))
    assert names(log.directory) == [0, 40, 80, 120]
    mark(log, State.ACKED, (79, 80))
    assert names(log.directory) == [0, 80, 120]
    with pytest.raises(OffsetOutOfRange, match="offset 79 was deleted"):
        log.read(79, 100)
    mark(log, State.ACKED, (0, 130))
    assert names(log.directory) == [120]
    assert sorted(path.suffix for path in log.directory.iterdir()) == [".log", ".state"]
    assert (log.first_offset, log.next_offset) == (120, 130)
    assert log.bytes_on_disk == sum(path.stat().st_size for path in log.directory.iterdir())
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 100)


def test_a_segment_that_was_spent_before_it_was_closed_is_deleted(log: SegmentLog) -> None:
    append(log, 40)
    mark(log, State.ACKED, (0, 40))
    assert names(log.directory) == [0]
    append(log, 1)
    log.flush_state()
    assert names(log.directory) == [40]


def test_states_need_their_records_first(log: SegmentLog) -> None:
    append(log, 3)
    log.append(batch_at(3, 1))
    log.mark(State.ACKED, [(2, 4)])
    with pytest.raises(AssertionError, match="flush comes before flush_state"):
        log.flush_state()


def test_acks_of_one_flush_are_one_entry_if_they_touch(log: SegmentLog) -> None:
    append(log, 30)
    mark(log, State.ACKED, *[(offset, offset + 1) for offset in reversed(range(20))])
    assert (log.directory / f"{0:020}.state").stat().st_size == 8 + 16


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    log = new_log(tmp_path / "q")
    append(log, 10)
    size = 8 + 10 * 100
    log.append(batch_at(10, 10))
    with file_size_limit(size + 450), pytest.raises(LogFailed) as caught:
        log.flush()
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.EFBIG
    assert (tmp_path / "q" / f"{0:020}.log").stat().st_size == size
    assert (log.flushed_offset, log.next_offset, log.bytes_on_disk) == (10, 10, size)
    assert read_all(log, [(0, 10)]) == [payload_at(i) for i in range(10)]
    for refused in (
        lambda: log.append(batch_at(10, 1)),
        log.flush,
        log.flush_state,
    ):
        with pytest.raises(LogFailed):
            refused()
    log.close()
    again, recovered = reopen(tmp_path / "q")
    assert (recovered.ready, recovered.report) == ([(0, 10)], [])
    again.close()


def test_a_failed_write_of_states_fails_the_log(tmp_path: Path) -> None:
    log = new_log(tmp_path / "q")
    append(log, 30)
    mark(log, State.ACKED, (0, 1))
    with file_size_limit(8 + 16 + 20), pytest.raises(LogFailed):
        mark(log, State.ACKED, *[(offset, offset + 1) for offset in range(2, 30, 2)])
    assert (tmp_path / "q" / f"{0:020}.state").stat().st_size == 8 + 16
    log.close()
    again, recovered = reopen(tmp_path / "q")
    assert recovered.ready == [(1, 30)]
    again.close()


def test_a_flipped_bit_in_a_closed_segment_stops_the_reader_there(tmp_path: Path) -> None:
    log = new_log(tmp_path / "q")
    append(log, 100)
    log.close()
    path = tmp_path / "q" / f"{40:020}.log"
    data = bytearray(path.read_bytes())
    data[8 + 17 * 100 + 50] ^= 4
    path.write_bytes(data)
    again, recovered = reopen(tmp_path / "q")
    assert (recovered.ready, recovered.report) == ([(0, 100)], [])
    assert len(read_all(again, [(0, 57)])) == 57
    with pytest.raises(CorruptRecord) as caught:
        again.read(57, 4096)
    assert (caught.value.position, caught.value.offset) == (8 + 1700, 57)
    assert read_all(again, [(58, 100)]) == [payload_at(i) for i in range(58, 100)]
    again.close()


def test_a_file_that_was_cut_under_the_log_is_corrupt(log: SegmentLog) -> None:
    append(log, 30)
    os.truncate(log.directory / f"{0:020}.log", 8 + 9 * 100 + 50)
    assert len(read_all(log, [(0, 9)])) == 9
    with pytest.raises(
        CorruptRecord, match="record 9 at byte 908: expected a whole record, not 50"
    ):
        log.read(9, 1000)
    for offset in (10, 29):
        with pytest.raises(CorruptRecord):
            log.read(offset, 1000)


def test_a_sync_covers_what_was_flushed(log: SegmentLog) -> None:
    assert log.take_sync(include_state=True) is None
    append(log, 100)
    assert (log.dirty, log.state_dirty) == (True, False)
    work = log.take_sync(include_state=False)
    assert work is not None
    assert not log.dirty
    work.run()
    work.close()
    assert work.is_done
    assert log.take_sync(include_state=True) is None
    mark(log, State.ACKED, (0, 3))
    assert (log.dirty, log.state_dirty) == (False, True)
    assert log.take_sync(include_state=False) is None
    assert log.state_dirty
    sync(log)
    assert not log.state_dirty


def test_a_sync_survives_that_its_files_go(tmp_path: Path) -> None:
    log = new_log(tmp_path / "q")
    append(log, 100)
    mark(log, State.DELIVERED, (0, 100))
    work = log.take_sync(include_state=True)
    assert work is not None
    mark(log, State.ACKED, (0, 80))
    log.close()
    log.delete()
    work.run()
    work.close()
    assert work.is_done


def test_a_failed_sync_is_not_done(tmp_path: Path) -> None:
    log = new_log(tmp_path / "q")
    append(log, 1)
    work = log.take_sync(include_state=False)
    assert work is not None
    reader, writer = os.pipe()
    os.dup2(writer, work._handles[0])
    with pytest.raises(OSError, match="Invalid argument"):
        work.run()
    work.close()
    assert not work.is_done
    os.close(reader)
    os.close(writer)
    log.close()


def test_the_index_of_the_active_segment_holds_only_what_is_durable(tmp_path: Path) -> None:
    log = new_log(tmp_path / "q")
    append(log, *[2] * 10)
    log.close()
    index = tmp_path / "q" / f"{0:020}.index"
    assert not index.exists()
    log, _ = reopen(tmp_path / "q")
    work = log.take_sync(include_state=False)
    assert work is not None
    append(log, *[2] * 5)
    work.run()
    work.close()
    log.close()
    assert index.stat().st_size == 8 + 8 * 10
    log, recovered = reopen(tmp_path / "q")
    assert recovered.ready == [(0, 30)]
    assert read_all(log, [(0, 30)]) == [payload_at(i) for i in range(30)]
    log.close()


def test_closed_segments_hold_no_descriptors(tmp_path: Path) -> None:
    log = new_log(tmp_path / "q")
    before = len(os.listdir("/proc/self/fd"))
    append(log, 2000)
    mark(log, State.ACKED, *[(offset, offset + 1) for offset in range(0, 2000, 3)])
    sync(log)
    read_all(log, [(0, 2000)])
    assert len(names(log.directory)) == 50
    assert len(os.listdir("/proc/self/fd")) - before <= 3
    log.close()


def test_closing_writes_what_is_pending(tmp_path: Path) -> None:
    log = new_log(tmp_path / "q")
    log.append(batch_at(0, 3))
    log.mark(State.ACKED, [(1, 2)])
    log.close()
    log, recovered = reopen(crash(tmp_path / "q", tmp_path / "copy"))
    assert recovered.ready == [(0, 1), (2, 3)]
    log.close()


def test_a_deleted_log_leaves_nothing(tmp_path: Path) -> None:
    log = new_log(tmp_path / "q")
    append(log, 100)
    (tmp_path / "q" / "snapshot").write_bytes(b"")
    log.delete()
    assert not (tmp_path / "q").exists()
    assert log.take_sync(include_state=True) is None
    with pytest.raises(LogFailed, match="deleted"):
        log.flush()
