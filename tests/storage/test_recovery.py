from collections.abc import Callable
from pathlib import Path

import pytest

from leveret.storage.batch import Batch
from leveret.storage.errors import CorruptRecord, UnsupportedFormat
from leveret.storage.log import LogOptions, SegmentLog
from leveret.storage.record import encode_batch
from leveret.storage.recovery import recover
from leveret.storage.repairs import Repairs
from leveret.storage.state_log import SETTLED, State, encode_entries
from tests.storage.log_files import (
    SMALL,
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

RECORD = 100


def write(directory: Path, count: int, *more: int) -> None:
    log = new_log(directory)
    append(log, count, *more)
    sync(log)
    log.close()


def file_of(directory: Path, base_offset: int, suffix: str = ".log") -> Path:
    return directory / f"{base_offset:020}{suffix}"


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def assert_goes_on(log: SegmentLog, first: int = 0) -> None:
    """What is there is whole, and the log takes more, also after another restart."""
    offset = log.next_offset
    append(log, 3, 50)
    expected = [payload_at(i) for i in range(first, offset + 53)]
    assert read_all(log, [(first, offset + 53)]) == expected
    log.close()
    again, recovered = reopen(log.directory)
    assert recovered.report == []
    assert (recovered.ready[-1][1], recovered.next_offset) == (offset + 53, offset + 53)
    assert read_all(again, [(first, offset + 53)]) == expected
    again.close()


def test_a_directory_that_is_not_there_is_an_empty_log(tmp_path: Path) -> None:
    log, recovered = reopen(tmp_path / "q")
    assert (recovered.next_offset, recovered.ready, recovered.report) == (0, [], [])
    assert_goes_on(log)


@pytest.mark.parametrize("sizes", [[76] * 3, [0, 130, 1], [300, 2, 2]])
def test_a_torn_tail_is_cut_at_every_byte(tmp_path: Path, sizes: list[int]) -> None:
    log = new_log(tmp_path / "q")
    append(log, 10)
    for size in sizes:
        log.append(Batch(log.next_offset, 1, 5, [b"y" * size], size))
    log.flush()
    log.close()
    ends = [8 + 10 * RECORD]
    for size in sizes:
        ends.append(ends[-1] + 24 + size)
    for size in range(ends[0], ends[-1]):
        copy = crash(tmp_path / "q", tmp_path / f"copy{size}")
        cut(file_of(copy, 0), size)
        again, recovered = reopen(copy)
        whole = sum(end <= size for end in ends[1:])
        assert recovered.ready == [(0, 10 + whole)]
        assert recovered.next_offset == again.next_offset == 10 + whole
        assert len(recovered.report) == (size not in ends)
        assert file_of(copy, 0).stat().st_size == ends[whole]
        append(again, 1)
        assert again.read(10 + whole, 1)[0].payloads == [payload_at(10 + whole)]
        again.close()


@pytest.mark.parametrize("size", range(9))
def test_a_crash_while_the_first_segment_was_made(tmp_path: Path, size: int) -> None:
    write(tmp_path, 3)
    cut(file_of(tmp_path, 0), size)
    log, recovered = reopen(tmp_path)
    assert (recovered.next_offset, recovered.ready) == (0, [])
    assert_goes_on(log)


@pytest.mark.parametrize("size", [0, 5, 8])
def test_a_crash_while_the_next_segment_was_made(tmp_path: Path, size: int) -> None:
    write(tmp_path, 50)
    cut(file_of(tmp_path, 40), size)
    for suffix in (".index", ".timeindex"):
        file_of(tmp_path, 40, suffix).unlink()
    log, recovered = reopen(tmp_path)
    assert (recovered.next_offset, recovered.ready, recovered.report) == (40, [(0, 40)], [])
    assert_goes_on(log)


@pytest.mark.parametrize("byte", [0, 5, 12, 20, 24, 70])
def test_a_bad_record_at_the_tail_is_cut(tmp_path: Path, byte: int) -> None:
    write(tmp_path, 10)
    data = bytearray(file_of(tmp_path, 0).read_bytes())
    data[8 + 9 * RECORD + byte] ^= 16
    file_of(tmp_path, 0).write_bytes(data)
    log, recovered = reopen(tmp_path)
    assert recovered.ready == [(0, 9)]
    assert "cut 100 bytes behind the last good record, at offset 9" in recovered.report[0]
    assert_goes_on(log)


def test_records_of_another_offset_are_not_taken_for_the_tail(tmp_path: Path) -> None:
    write(tmp_path, 10)
    path = file_of(tmp_path, 0)
    data = path.read_bytes()
    path.write_bytes(data + data[8 : 8 + RECORD])
    log, recovered = reopen(tmp_path)
    assert recovered.ready == [(0, 10)]
    assert_goes_on(log)


@pytest.mark.parametrize("base_offset", [0, 40, 80])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"garbage" * 20),
        lambda path: cut(path, path.stat().st_size - 5),
        lambda path: cut(path, 8 + 24),
        lambda path: path.write_bytes(path.read_bytes()[:8] + b"\xff" * 48),
        lambda path: path.write_bytes(path.read_bytes()[:8] + b"\0\0\0\3" * 24),
    ],
    ids=["missing", "empty", "garbage", "torn", "short", "high", "equal"],
)
def test_indexes_are_rebuilt(
    tmp_path: Path, damage: Callable[[Path], object], suffix: str, base_offset: int
) -> None:
    write(tmp_path, *[2] * 50)
    good = {s: file_of(tmp_path, base_offset, s).read_bytes() for s in (".index", ".timeindex")}
    damage(file_of(tmp_path, base_offset, suffix))
    log, recovered = reopen(tmp_path)
    assert recovered.ready == [(0, 100)]
    sync(log)
    log.close()
    for name, data in good.items():
        assert file_of(tmp_path, base_offset, name).read_bytes() == data
    log, _ = reopen(tmp_path)
    assert [log.read(i, 1)[0].payloads for i in range(100)] == [[payload_at(i)] for i in range(100)]
    assert_goes_on(log)


def test_an_index_ahead_of_the_log_is_cut(tmp_path: Path) -> None:
    write(tmp_path, *[2] * 10)
    cut(file_of(tmp_path, 0), 8 + 9 * RECORD)
    log, recovered = reopen(tmp_path)
    assert (recovered.ready, recovered.report) == ([(0, 9)], [])
    assert file_of(tmp_path, 0, ".index").stat().st_size <= 8 + 5 * 8
    assert_goes_on(log)


def test_a_last_index_entry_that_misses_a_record_is_not_believed(tmp_path: Path) -> None:
    write(tmp_path, *[2] * 10)
    path = file_of(tmp_path, 0, ".index")
    data = bytearray(path.read_bytes())
    data[-1] += 7
    path.write_bytes(data)
    log, recovered = reopen(tmp_path)
    assert recovered.ready == [(0, 20)]
    assert "no record at its last entry" in recovered.report[0]
    assert_goes_on(log)


def test_an_ack_ahead_of_the_log_never_hides_a_new_message(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, 20)
    mark(log, State.ACKED, (3, 5), (12, 18))
    mark(log, State.DELIVERED, (0, 2), (9, 12))
    log.close()
    cut(file_of(tmp_path, 0), 8 + 14 * RECORD)
    log, recovered = reopen(tmp_path)
    assert recovered.ready == [(0, 3), (5, 12)]
    assert recovered.delivered == [(0, 2), (9, 12)]
    assert recovered.next_offset == 14
    assert "offsets from 14 on" in recovered.report[0]
    append(log, 6)
    log.close()
    log, recovered = reopen(tmp_path)
    assert (recovered.ready, recovered.report) == ([(0, 3), (5, 12), (14, 20)], [])
    log.close()


def test_states_of_records_that_are_all_gone_are_dropped(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, 20)
    mark(log, State.ACKED, (0, 20))
    log.close()
    cut(file_of(tmp_path, 0), 8)
    log, recovered = reopen(tmp_path)
    assert (recovered.ready, recovered.next_offset) == ([], 0)
    append(log, 20)
    log.close()
    log, recovered = reopen(tmp_path)
    assert recovered.ready == [(0, 20)]
    log.close()


@pytest.mark.parametrize("size", range(57))
def test_a_torn_state_log_keeps_its_whole_entries(tmp_path: Path, size: int) -> None:
    log = new_log(tmp_path)
    append(log, 20)
    for start in (1, 5, 9):
        mark(log, State.ACKED, (start, start + 1))
    log.close()
    cut(file_of(tmp_path, 0, ".state"), size)
    acked = [1, 5, 9][: max(size - 8, 0) // 16]
    log, recovered = reopen(tmp_path)
    assert [start - 1 for start, _ in recovered.ready[1:]] == acked
    mark(log, State.ACKED, (15, 16))
    log.close()
    log, recovered = reopen(tmp_path)
    assert [start - 1 for start, _ in recovered.ready[1:]] == [*acked, 15]
    assert recovered.report == []
    log.close()


def test_volatile_messages_are_forgotten(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, 50)
    mark(log, State.VOLATILE, (0, 30), (45, 47))
    mark(log, State.ACKED, (5, 10), (30, 40))
    assert names(tmp_path) == [0, 40]
    log.close()
    log, recovered = reopen(tmp_path)
    assert recovered.ready == [(40, 45), (47, 50)]
    assert names(tmp_path) == [40]
    assert (log.first_offset, log.next_offset) == (40, 50)
    append(log, 31)
    mark(log, State.ACKED, (40, 45), (47, 80))
    assert names(tmp_path) == [80]
    log.close()


def test_overlapping_states_count_once(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, 20)
    mark(log, State.ACKED, (2, 8))
    mark(log, State.DELIVERED, (0, 12))
    log.close()
    with file_of(tmp_path, 0, ".state").open("ab") as file:
        file.write(encode_entries([(4, 6, State.ACKED), (2, 1, State.ACKED)]))
    log, recovered = reopen(tmp_path)
    assert recovered.ready == [(0, 2), (10, 20)]
    assert recovered.delivered == [(0, 2), (10, 12)]
    log.close()


def test_every_settled_state_settles(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, 50)
    for at, state in enumerate(sorted(SETTLED)):
        mark(log, state, (at * 2, at * 2 + 1))
    log.close()
    log, recovered = reopen(tmp_path)
    assert [start for start, _ in recovered.ready] == [1, 3, 5, 7, 9, 11]
    assert names(tmp_path) == [0, 40]
    mark(log, State.MOVED, (0, 40))
    assert names(tmp_path) == [40]
    log.close()


def test_states_apply_in_their_order(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, 50)
    mark(log, State.ACKED, (2, 8))
    mark(log, State.REPLAYED, (4, 7))
    mark(log, State.EXPIRED, (5, 6))
    log.mark(State.PURGED, [(8, 10)])
    log.mark(State.REPLAYED, [(9, 10)])
    log.mark(State.DELIVERED, [(9, 10)])
    assert log.history(5) == [State.ACKED, State.REPLAYED, State.EXPIRED]
    assert log.history(9) == [State.PURGED, State.REPLAYED, State.DELIVERED]
    log.flush_state()
    log.close()
    log, recovered = reopen(tmp_path)
    assert recovered.ready == [(0, 2), (4, 5), (6, 7), (9, 50)]
    assert recovered.replayed == [(4, 5), (6, 7), (9, 10)]
    assert recovered.delivered == recovered.replayed  # each of them was handed out before
    assert log.history(9) == [State.PURGED, State.REPLAYED, State.DELIVERED]
    assert log.history(0) == []
    log.close()


def test_a_transient_message_is_forgotten_though_it_was_replayed(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, 50)
    mark(log, State.VOLATILE, (0, 3))
    mark(log, State.ACKED, (1, 4))
    mark(log, State.REPLAYED, (1, 4))
    log.close()
    log, recovered = reopen(tmp_path)
    assert (recovered.ready, recovered.replayed) == ([(3, 50)], [(3, 4)])
    log.close()


def test_tries_count_from_the_last_replay_on(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, 5)
    for state in (State.DELIVERED, State.FAILED, State.DELIVERED, State.ACKED, State.REPLAYED):
        mark(log, state, (0, 2))
    mark(log, State.DELIVERED, (1, 2))
    log.close()
    log, recovered = recover(tmp_path, LogOptions(), lambda: 0, counts_tries=True)
    assert recovered.tries == {1: (1, 1)}
    assert recovered.replayed == [(0, 2)]
    log.close()


def test_gaps_of_deleted_segments_stay(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, 130)
    mark(log, State.ACKED, (40, 80), (85, 86))
    log.close()
    for damage in (False, True):
        if damage:
            file_of(tmp_path, 0, ".index").unlink()
        log, recovered = reopen(tmp_path)
        assert recovered.ready == [(0, 40), (80, 85), (86, 130)]
        assert names(tmp_path) == [0, 80, 120]
        assert len(read_all(log, recovered.ready)) == 89
        log.close()


def test_the_offsets_stay_when_all_was_acked(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, 90)
    mark(log, State.ACKED, (0, 90))
    log.close()
    log, recovered = reopen(tmp_path)
    assert (recovered.ready, recovered.next_offset) == ([], 90)
    assert_goes_on(log, first=90)


def test_orphans_of_a_deletion_are_removed(tmp_path: Path) -> None:
    write(tmp_path, 90)
    file_of(tmp_path, 0).unlink()
    file_of(tmp_path, 40, ".state.tmp").write_bytes(b"torn")
    log, recovered = reopen(tmp_path)
    assert (recovered.ready, log.first_offset) == ([(40, 90)], 40)
    assert not list(tmp_path.glob(f"{0:020}.*"))
    assert not list(tmp_path.glob("*.tmp"))
    log.close()


def test_a_closed_segment_that_lost_its_tail_to_a_power_failure_is_cut(tmp_path: Path) -> None:
    write(tmp_path, 90)
    cut(file_of(tmp_path, 40), 8 + 30 * RECORD + 50)
    log, recovered = reopen(tmp_path)
    assert recovered.ready == [(0, 70), (80, 90)]
    assert "cut 50 bytes behind the last good record, at offset 70" in recovered.report[0]
    assert len(read_all(log, recovered.ready)) == 80
    log.close()
    log, recovered = reopen(tmp_path)
    assert (recovered.ready, recovered.report) == ([(0, 70), (80, 90)], [])
    log.close()


@pytest.mark.parametrize("byte", [3, 5, 12, 16, 20, 24, 70])
@pytest.mark.parametrize("base_offset", [40, 80])
def test_a_bad_record_in_front_of_good_ones_becomes_a_gap(
    tmp_path: Path, base_offset: int, byte: int
) -> None:
    """Where there is no index, and so no way to tell it from a torn write."""
    write(tmp_path, 90)
    bad = base_offset + 5
    damage(tmp_path, base_offset, 8 + 5 * RECORD + byte)
    log, recovered = reopen(tmp_path)
    assert recovered.ready == [(0, bad), (bad + 1, 90)]
    (line,) = recovered.report
    assert f"damaged: message {bad}; a gap takes the place of 100 bytes" in line
    read = read_all(log, recovered.ready)
    assert read == [payload_at(i) for i in range(90) if i != bad]
    append(log, 40)
    mark(log, State.ACKED, (0, 3))
    log.close()
    log, again = reopen(tmp_path)
    assert (again.ready, again.report) == ([(3, bad), (bad + 1, 130)], [])
    assert read_all(log, again.ready) == [payload_at(i) for i in range(3, 130) if i != bad]
    log.close()


def damage(directory: Path, base_offset: int, *places: int) -> None:
    """Change bytes of a log that nothing says the end of."""
    for suffix in (".index", ".timeindex"):
        file_of(directory, base_offset, suffix).unlink()
    path = file_of(directory, base_offset)
    data = bytearray(path.read_bytes())
    for place in places:
        data[place] ^= 1
    path.write_bytes(data)


def test_bad_records_here_and_there_and_a_torn_one(tmp_path: Path) -> None:
    write(tmp_path, 30)
    places = (50, 5 * RECORD + 3, 10 * RECORD + 5, 11 * RECORD + 50, 29 * RECORD + 50)
    damage(tmp_path, 0, *(8 + place for place in places))
    dry = Repairs(dry=True)
    log, planned = recover(tmp_path, SMALL, lambda: 0, repairs=dry)
    log.close()
    log, recovered = reopen(tmp_path)
    assert recovered.ready == planned.ready == [(1, 5), (6, 10), (12, 29)]
    assert recovered.report == planned.report
    assert [finding.is_harmless for finding in dry.findings] == [False, False, False, True]
    assert_goes_on(log, 12)


def test_a_gap_outlives_a_snapshot_that_does_not_know_of_it(tmp_path: Path) -> None:
    """It knows the segment as closed, and as long: but the one behind it was lost."""
    log = new_log(tmp_path, SMALL)
    append(log, 41)
    sync(log)
    mark(log, State.ACKED, (2, 4))
    append(log, 1)
    log.take_snapshot()
    log.close()
    for suffix in (".log", ".index", ".timeindex"):
        file_of(tmp_path, 40, suffix).unlink()
    damage(tmp_path, 0, 8 + 20 * RECORD + 50)
    log, recovered = reopen(tmp_path)
    expected = [(0, 2), (4, 20), (21, 40)]
    assert recovered.ready == expected
    append(log, 1)
    log.close()
    log, recovered = reopen(tmp_path)
    assert recovered.ready == [*expected[:-1], (21, 41)]
    assert [*map(len, (picked[3] for picked in log.pick([19, 21, 39])))] == [76, 76, 76]
    log.close()


def test_old_bytes_of_a_file_used_again_make_no_gap(tmp_path: Path) -> None:
    write(tmp_path, 30)
    path = file_of(tmp_path, 0)
    for suffix in (".index", ".timeindex"):
        file_of(tmp_path, 0, suffix).unlink()
    data = path.read_bytes()
    renamed = b"".join(bytes(encode_batch(batch_at(1000 + i, 1))) for i in range(10))
    path.unlink()
    file_of(tmp_path, 1000).write_bytes(data[:8] + renamed + data[8 + 10 * RECORD :])
    log, recovered = reopen(tmp_path)
    assert recovered.ready == [(1000, 1010)]
    assert "cut 2000 bytes" in recovered.report[0]
    assert_goes_on(log, 1000)


def test_a_torn_message_like_a_log_is_no_log(tmp_path: Path) -> None:
    """What lies in the payload of a message that was written in part was never a message."""
    write(tmp_path, 10)
    for suffix in (".index", ".timeindex"):
        file_of(tmp_path, 0, suffix).unlink()
    inner = b"head".ljust(30) + bytes(encode_batch(batch_at(11, 20)))
    record = encode_batch(Batch(10, 1, 5, [inner], len(inner)))
    with file_of(tmp_path, 0).open("ab") as file:
        file.write(record[:-150])
    log, recovered = reopen(tmp_path)
    assert recovered.ready == [(0, 10)]
    log.close()


def test_a_segment_that_runs_into_the_next_one_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 90)
    for suffix in (".log", ".index", ".timeindex"):
        file_of(tmp_path, 80, suffix).rename(file_of(tmp_path, 79, suffix))
    with pytest.raises(CorruptRecord, match="no record at or behind offset 79"):
        reopen(tmp_path)


@pytest.mark.parametrize("suffix", [".log", ".state"])
@pytest.mark.parametrize(
    "header",
    [b"LVLG\0\3\0\0", b"LVST\0\3\0\0", b"LVLG\0\2\0\2", b"LVST\0\2\x80\0"],
)
def test_a_foreign_or_newer_file_is_refused(tmp_path: Path, suffix: str, header: bytes) -> None:
    log = new_log(tmp_path)
    append(log, 3)
    mark(log, State.ACKED, (0, 1))
    log.close()
    path = file_of(tmp_path, 0, suffix)
    path.write_bytes(header + path.read_bytes()[8:])
    message = f"{suffix}: expected LV.. of format version up to 2"
    with pytest.raises(UnsupportedFormat, match=message):
        reopen(tmp_path)


def test_only_what_no_index_covers_is_read(tmp_path: Path) -> None:
    """Bad bytes before the last entry of the active segment show that nobody looked there."""
    write(tmp_path, *[2] * 10)
    data = bytearray(file_of(tmp_path, 0).read_bytes())
    data[8 + 30] ^= 1
    file_of(tmp_path, 0).write_bytes(data)
    log, recovered = reopen(tmp_path)
    assert (recovered.ready, recovered.report) == ([(0, 20)], [])
    with pytest.raises(CorruptRecord):
        log.read(0, 100)
    log.close()


def test_a_large_log_without_an_index_of_its_active_segment(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogOptions())
    for first in range(0, 100_000, 1000):
        log.append(Batch(first, first, 0, [b"%08d" % (first + i) for i in range(1000)], 8))
    log.flush()
    log.close()
    log, recovered = recover(tmp_path, LogOptions(), lambda: 0)
    assert recovered.ready == [(0, 100_000)]
    assert log.read(54_321, 1)[0].payloads == [b"00054321"]
    log.close()
