import random
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.storage.batch import Batch
from leveret.storage.errors import CorruptRecord, DamagedSnapshot
from leveret.storage.log import SegmentLog
from leveret.storage.outcomes import Outcomes
from leveret.storage.recovery import Recovered, recover
from leveret.storage.repairs import Repairs
from leveret.storage.snapshot import SegmentSnapshot, Snapshot, decode_snapshot, encode_snapshot
from leveret.storage.state_log import State
from tests.storage.log_files import (
    SMALL,
    append,
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

HERE = Path("snapshot")
LENGTH = 3000
ENTRY = st.tuples(st.integers(0, LENGTH - 1), st.integers(1, 700), st.sampled_from(State)).map(
    lambda entry: (entry[0], min(entry[1], LENGTH - entry[0]), int(entry[2]))
)
ENTRIES = st.lists(ENTRY, max_size=30)


def seen(outcomes: Outcomes) -> tuple[object, ...]:
    return [offsets.intervals() for offsets in outcomes.sets], outcomes.tries


def told(outcomes: Outcomes) -> tuple[object, ...]:
    return outcomes.forgotten().intervals(), seen(outcomes)


def snapshot_of(base: int, outcomes: Outcomes, end: int = LENGTH) -> Snapshot:
    known = SegmentSnapshot(base, base + end, 5000, 1, 2, 88, True, False, outcomes)
    return Snapshot({State.ACKED: 7}, {base: known})


@given(ENTRIES, st.integers(0, 1 << 40))
def test_it_comes_back_as_it_was(entries: list[tuple[int, int, int]], base: int) -> None:
    outcomes = Outcomes()
    outcomes.apply(base, entries)
    written = snapshot_of(base, outcomes)
    read = decode_snapshot(HERE, encode_snapshot(written))
    assert seen(read.segments[base].outcomes) == seen(outcomes)
    assert (read.counters, read.next_offset) == (written.counters, base + LENGTH)
    assert encode_snapshot(read) == encode_snapshot(written)


@given(ENTRIES, ENTRIES, st.integers(0, LENGTH))
def test_outcomes_may_be_told_in_other_entries(
    before: list[tuple[int, int, int]], after: list[tuple[int, int, int]], end: int
) -> None:
    at_once, in_turn = Outcomes(), Outcomes()
    at_once.apply(9, before)
    in_turn.apply(9, at_once.entries(9))
    assert seen(in_turn) == seen(at_once)
    at_once.apply(9, after)
    for entry in after:
        in_turn.apply(9, [entry])
    assert [offsets.intervals() for offsets in in_turn.sets] == [
        offsets.intervals() for offsets in at_once.sets
    ]
    at_once.clip(9 + end)
    for offsets in at_once.sets:
        assert (offsets.bounds() or (0, 0))[1] <= 9 + end
    assert all(offset < 9 + end for offset in at_once.tries)


def example() -> bytes:
    outcomes = Outcomes()
    outcomes.apply(1000, [(0, 3, State.ACKED), (4, 1, State.FAILED), (1, 1, State.REPLAYED)])
    outcomes.apply(1000, [(at, 1, State.DELIVERED) for at in range(4, 1000, 2)])
    return encode_snapshot(snapshot_of(1000, outcomes))


def test_every_flipped_byte_is_noticed() -> None:
    data = example()
    for at in range(len(data)):
        for bit in (1, 128):
            damaged = bytearray(data)
            damaged[at] ^= bit
            with pytest.raises(DamagedSnapshot, match=r"^snapshot: "):
                decode_snapshot(HERE, bytes(damaged))


def test_every_missing_end_is_noticed() -> None:
    data = example()
    for size in range(len(data)):
        with pytest.raises(DamagedSnapshot):
            decode_snapshot(HERE, data[:size])


@given(st.binary(max_size=300))
def test_what_is_no_snapshot_is_refused_whatever_its_checksum(body: bytes) -> None:
    data = example()[:8] + crc32(body).to_bytes(4, "big") + body
    try:
        decode_snapshot(HERE, data)
    except DamagedSnapshot:
        pass
    else:
        assert body[:4] != b""


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_a_wrong_number_with_a_right_checksum_does_no_more_harm(at: int, value: int) -> None:
    body = bytearray(example()[12:])
    body[at % len(body)] = value
    data = example()[:8] + crc32(body).to_bytes(4, "big") + body
    try:
        found = decode_snapshot(HERE, data)
    except DamagedSnapshot:
        return
    for known in found.segments.values():
        for offsets in known.outcomes.sets:
            bounds = offsets.bounds() or (known.base_offset,) * 2
            assert known.base_offset <= bounds[0] <= bounds[1] <= known.next_offset


# The log with snapshots.


def found(recovered: Recovered) -> tuple[object, ...]:
    return (
        recovered.next_offset,
        recovered.ready,
        recovered.delivered,
        recovered.replayed,
        recovered.tries,
    )


def open_counting(directory: Path) -> tuple[SegmentLog, Recovered]:
    return recover(directory, SMALL, lambda: 0, counts_tries=True)


def of_log_alone(directory: Path, copy: Path) -> tuple[object, ...]:
    crash(directory, copy)
    for name in ("snapshot", "snapshot.old"):
        (copy / name).unlink(missing_ok=True)
    log, recovered = open_counting(copy)
    log.close()
    return found(recovered)


def filled(directory: Path) -> SegmentLog:
    """130 messages in 4 segments; two snapshots, and marks before, between and behind them."""
    log = new_log(directory)
    append(log, *[10] * 13)
    sync(log)
    log.append(Batch(130, 1, 5, [b"y" * 76], 76))
    log.flush()
    mark(log, State.ACKED, *((at, at + 1) for at in range(0, 60, 3)))
    mark(log, State.DELIVERED, (50, 90), (100, 120))
    log.take_snapshot()
    mark(log, State.EXPIRED, (4, 5), (100, 104))
    mark(log, State.REPLAYED, (3, 4), (102, 103))
    mark(log, State.DELIVERED, (50, 60))
    mark(log, State.FAILED, (50, 52))
    log.take_snapshot()
    mark(log, State.ACKED, (7, 8), (80, 90))
    mark(log, State.RETURNED, (53, 54))
    return log


def test_recovery_with_a_snapshot_is_that_from_the_log(tmp_path: Path) -> None:
    log = filled(tmp_path / "a")
    copy = crash(log.directory, tmp_path / "b")
    expected = of_log_alone(copy, tmp_path / "c")
    again, recovered = open_counting(copy)
    assert found(recovered) == expected
    assert recovered.report == []
    assert again.counters == log.counters
    assert read_all(again, [(0, 130)]) == [payload_at(i) for i in range(130)]
    again.close()
    log.close()


def test_closed_segments_that_it_knows_are_not_opened(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, *[10] * 13)
    sync(log)
    log.close()
    log, _ = reopen(tmp_path)
    log.take_snapshot()
    log.close()
    for base in (0, 40, 80):
        (tmp_path / f"{base:020}.index").write_bytes(b"not looked at")
        path = tmp_path / f"{base:020}.log"
        path.write_bytes(bytes(path.stat().st_size))
    log, recovered = reopen(tmp_path)
    assert (recovered.ready, recovered.report) == ([(0, 130)], [])
    with pytest.raises(CorruptRecord):
        log.read(0, 100)
    log.close()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("content", [None, b"", b"garbage", b"LVIX\0\2\0\0" + b"\xff" * 24])
def test_an_index_that_is_wrong_is_rebuilt_when_needed(
    tmp_path: Path, suffix: str, content: bytes | None
) -> None:
    log = new_log(tmp_path)
    append(log, *[2] * 65)
    sync(log)
    log.close()
    log, _ = reopen(tmp_path)
    log.take_snapshot()
    log.close()
    path = tmp_path / f"{40:020}{suffix}"
    good = path.read_bytes()
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    log, recovered = reopen(tmp_path)
    assert recovered.report == []
    assert read_all(log, [(41, 80)]) == [payload_at(i) for i in range(41, 80)]
    log.close()
    assert path.read_bytes() == good


@pytest.mark.parametrize("names", [["snapshot"], ["snapshot", "snapshot.old"], ["snapshot.old"]])
@pytest.mark.parametrize("data", [b"", b"LVSN", b"LVSN\0\2\0\0" + b"\0" * 90, b"LVSN\0\3\0\0"])
def test_a_damaged_one_falls_back(tmp_path: Path, names: list[str], data: bytes) -> None:
    log = filled(tmp_path / "a")
    copy = crash(log.directory, tmp_path / "b")
    log.close()
    expected = of_log_alone(copy, tmp_path / "c")
    for name in names:
        (copy / name).write_bytes(data)
    log, recovered = open_counting(copy)
    assert found(recovered) == expected
    assert len(recovered.report) == len(names) * ("snapshot" in names)
    log.close()
    log, recovered = open_counting(copy)
    assert found(recovered) == expected
    assert recovered.report == []
    log.close()


def test_the_old_one_is_used_when_a_crash_came_between_the_renames(tmp_path: Path) -> None:
    log = filled(tmp_path / "a")
    copy = crash(log.directory, tmp_path / "b")
    expected = of_log_alone(copy, tmp_path / "c")
    (copy / "snapshot").rename(copy / "snapshot.tmp")
    again, recovered = open_counting(copy)
    assert found(recovered) == expected
    assert recovered.report == []
    assert not (copy / "snapshot.tmp").exists()
    again.take_snapshot()
    assert (copy / "snapshot").exists()
    again.close()
    log.close()


def test_one_that_says_more_than_the_log_never_hides_a_new_message(tmp_path: Path) -> None:
    log = new_log(tmp_path / "a")
    append(log, 30)
    mark(log, State.ACKED, (0, 5), (20, 30))
    log.take_snapshot()
    log.close()
    path = tmp_path / "a" / f"{0:020}.log"
    path.write_bytes(path.read_bytes()[: 8 + 25 * 100])
    log, recovered = reopen(tmp_path / "a")
    assert (recovered.ready, recovered.next_offset) == ([(5, 20)], 25)
    append(log, 5)
    copy = crash(tmp_path / "a", tmp_path / "b")
    log.close()
    log, recovered = reopen(copy)
    assert recovered.ready == [(5, 20), (25, 30)]
    log.close()


def test_one_of_a_segment_that_is_gone_never_hides_a_new_message(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, 40, 10)
    mark(log, State.ACKED, (40, 50))
    log.take_snapshot()
    log.close()
    for path in tmp_path.glob(f"{40:020}.*"):
        path.unlink()
    log, recovered = reopen(tmp_path)
    assert (recovered.ready, recovered.next_offset) == ([(0, 40)], 40)
    assert not list(tmp_path.glob("snapshot*"))
    append(log, 10)
    log.close()
    log, recovered = reopen(tmp_path)
    assert recovered.ready == [(0, 50)]
    log.close()


@pytest.mark.parametrize("size", [0, 5, 8, 24, 30, 60])
def test_a_state_log_shorter_than_it_says_is_rewritten(tmp_path: Path, size: int) -> None:
    log = filled(tmp_path / "a")
    copy = crash(log.directory, tmp_path / "b")
    log.close()
    expected = of_log_alone(copy, tmp_path / "c")
    path = copy / f"{0:020}.state"
    path.write_bytes(path.read_bytes()[:size])
    log, recovered = open_counting(copy)
    assert found(recovered) != expected  # 7 was settled behind the snapshot
    assert "a snapshot knows of" in recovered.report[0]
    mark(log, State.ACKED, (7, 8))
    copy = crash(copy, tmp_path / "d")
    log.close()
    for directory in (copy, of_log_alone_directory(copy, tmp_path / "e")):
        log, recovered = open_counting(directory)
        assert found(recovered) == expected
        log.close()


def of_log_alone_directory(directory: Path, copy: Path) -> Path:
    crash(directory, copy)
    for name in ("snapshot", "snapshot.old"):
        (copy / name).unlink(missing_ok=True)
    return copy


def test_the_counters_outlive_the_segments(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, 130)
    mark(log, State.ACKED, (0, 40))
    mark(log, State.EXPIRED, (40, 45))
    assert names(tmp_path) == [40, 80, 120]
    log.close()
    log, _ = reopen(tmp_path)
    assert (log.counters[State.ACKED], log.counters[State.EXPIRED]) == (40, 5)
    mark(log, State.ACKED, (45, 130))
    log.close()
    log, _ = reopen(tmp_path)
    assert (log.counters[State.ACKED], log.counters[State.EXPIRED]) == (125, 5)
    log.close()


def test_it_is_written_when_there_is_much_to_read(tmp_path: Path) -> None:
    log = new_log(tmp_path, replace(SMALL, snapshot_bytes=1000))
    append(log, 130)
    path = tmp_path / "snapshot"
    while not path.exists():
        mark(log, State.DELIVERED, (0, 1))
    size = (tmp_path / f"{0:020}.state").stat().st_size
    mark(log, State.DELIVERED, (0, 1))
    known = decode_snapshot(path, path.read_bytes()).segments[0]
    assert known.state_size == size
    assert known.outcomes.tries == {0: ((size - 8) // 16 - 1, 0, 0)}
    log.close()


def tree(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def damaged(directory: Path) -> Path:
    """A log with something wrong in each kind of file."""
    log = filled(directory)
    log.close()
    (directory / "snapshot").write_bytes(b"damaged")
    (directory / f"{40:020}.index").write_bytes(b"damaged")
    (directory / f"{120:020}.state").write_bytes(b"LVST\0\2\0\0" + b"damaged" * 3)
    (directory / f"{7:020}.state").write_bytes(b"left over")
    with (directory / f"{120:020}.log").open("ab") as file:
        file.write(b"torn")
    return directory


def test_a_dry_recovery_changes_nothing_and_tells_what_a_real_one_does(tmp_path: Path) -> None:
    directory = damaged(tmp_path / "a")
    before = tree(directory)
    repairs = Repairs(dry=True)
    log, looked_at = recover(directory, SMALL, lambda: 0, repairs=repairs)
    assert read_all(log, [(40, 80)]) == [payload_at(i) for i in range(40, 80)]
    log.close()
    assert tree(directory) == before
    log, recovered = reopen(directory)
    log.close()
    assert looked_at == recovered
    assert {finding.path.suffix for finding in repairs.findings} == {"", ".old", ".state", ".log"}
    assert [finding.path.name for finding in repairs.findings if not finding.is_harmless] == [
        "snapshot"
    ]


def test_a_dry_recovery_without_snapshots_and_indexes_changes_nothing(tmp_path: Path) -> None:
    directory = damaged(tmp_path / "a")
    for pattern in ("snapshot*", "*.index"):
        for path in directory.glob(pattern):
            path.unlink()
    with (directory / f"{80:020}.log").open("ab") as file:
        file.write(b"no record")
    before = tree(directory)
    repairs = Repairs(dry=True)
    log, looked_at = recover(directory, SMALL, lambda: 0, repairs=repairs)
    assert read_all(log, [(0, 131)])[:130] == [payload_at(i) for i in range(130)]
    log.close()
    assert tree(directory) == before
    assert [finding.offset for finding in repairs.findings if not finding.is_harmless] == [120]
    log, recovered = reopen(directory)
    log.close()
    assert looked_at == recovered


def test_what_a_repair_removes_is_kept(tmp_path: Path) -> None:
    directory = damaged(tmp_path / "data" / "queues" / "1")
    before = tree(directory)
    keep = tmp_path / "removed"
    repairs = Repairs(keep=keep, root=tmp_path / "data")
    log, _ = recover(directory, SMALL, lambda: 0, repairs=repairs)
    log.close()
    kept = keep / "queues" / "1"
    assert (kept / "snapshot").read_bytes() == b"damaged"
    for name in (f"{120:020}.state", f"{7:020}.state"):
        assert (kept / name).read_bytes() == before[directory / name]
    (tail,) = kept.glob("*.log.from-*")
    assert tail.read_bytes() == b"torn"


def test_random_marks_and_snapshots(tmp_path: Path) -> None:
    chance = random.Random(7)
    for turn in range(15):
        log = new_log(tmp_path / f"{turn}")
        for _ in range(30):
            append(log, chance.randrange(1, 12))
            start = chance.randrange(log.next_offset)
            state = chance.choice(sorted(State))
            mark(log, state, (start, chance.randrange(start, log.next_offset) + 1))
            if chance.random() < 0.2:
                log.take_snapshot()
            if chance.random() < 0.1:
                sync(log)
        copy = crash(log.directory, tmp_path / f"{turn} killed")
        log.close()
        expected = of_log_alone(copy, tmp_path / f"{turn} alone")
        log, recovered = open_counting(copy)
        assert found(recovered) == expected
        log.close()
