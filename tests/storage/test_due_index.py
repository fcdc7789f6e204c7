from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from leveret.storage.due_index import DueIndex
from leveret.storage.due_run import BLOCK_ENTRIES, DueEntry

pytestmark = pytest.mark.usefixtures("no_descriptor_left")

FOREVER = 2**64 - 2
RUN = 3 * BLOCK_ENTRIES


class Times:
    """The due times that a log would know; `read_ranges` says what it was asked for."""

    def __init__(self, due_ms: list[int]) -> None:
        self.due_ms = due_ms
        self.read_ranges: list[tuple[int, int]] = []

    def read(self, start: int, stop: int) -> Iterator[tuple[int, list[int]]]:
        self.read_ranges.append((start, stop))
        middle = (start + stop) // 2
        yield start, self.due_ms[start:middle]
        yield middle, self.due_ms[middle:stop]

    def entries(self) -> list[DueEntry]:
        return sorted((due_ms, offset) for offset, due_ms in enumerate(self.due_ms))


def scattered(count: int) -> Times:
    """Times of which many are equal, in no order."""
    return Times([offset * 7919 % 1009 for offset in range(count)])


def fill(directory: Path, times: Times, step: int = 100) -> DueIndex:
    index = DueIndex(directory, RUN)
    for start in range(0, len(times.due_ms), step):
        index.add(start, times.due_ms[start : start + step])
    return index


def reopen(
    directory: Path, times: Times, ready: list[tuple[int, int]]
) -> tuple[DueIndex, list[str]]:
    index, report = DueIndex(directory, RUN), list[str]()
    index.restore(ready, len(times.due_ms), times.read, report)
    return index, report


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.due*"))


@pytest.mark.parametrize("limit", [1, 7, 1000, 10**6])
def test_runs_and_tail_are_merged(tmp_path: Path, limit: int) -> None:
    times = scattered(1500)
    index = fill(tmp_path, times)
    assert [path.name for path in files(tmp_path)] == [f"{n:020}.due" for n in (0, 400, 800)]
    assert (len(index), index.tail_length) == (1500, 300)
    taken: list[DueEntry] = []
    while len(index):
        assert index.next_due_ms == times.entries()[len(taken)][0]
        taken += index.take(FOREVER, limit)
    assert taken == times.entries()
    assert index.next_due_ms is None
    assert files(tmp_path) == []


def test_nothing_is_taken_before_its_time(tmp_path: Path) -> None:
    times = scattered(1000)
    index = fill(tmp_path, times)
    assert index.take(400, 10**6) == [entry for entry in times.entries() if entry[0] <= 400]
    assert index.take(399, 10**6) == []
    assert index.next_due_ms == 401


def test_what_comes_late_and_is_due_early_goes_first(tmp_path: Path) -> None:
    index = DueIndex(tmp_path, RUN)
    index.add(0, [1000] * RUN)
    assert index.take(1000, 5) == [(1000, offset) for offset in range(5)]
    index.add(RUN, [0, 1000, 900])
    assert index.take(1000, 4) == [(0, RUN), (900, RUN + 2), (1000, 5), (1000, 6)]


def test_the_largest_due_time_is_kept(tmp_path: Path) -> None:
    index = DueIndex(tmp_path, 2)
    index.add(0, [2**64 - 1, 0])
    assert index.take(FOREVER, 9) == [(0, 1)]
    assert index.next_due_ms == 2**64 - 1


def test_an_index_without_messages_writes_nothing(tmp_path: Path) -> None:
    index, report = reopen(tmp_path / "missing", Times([]), [])
    index.seal()
    assert (len(index), index.next_due_ms, report) == (0, None, [])
    assert not (tmp_path / "missing").exists()


def test_a_restart_reads_from_the_log_what_no_run_knows(tmp_path: Path) -> None:
    times = scattered(1500)
    fill(tmp_path, times)
    files(tmp_path)[1].unlink()
    (tmp_path / "00000000000000001200.due.tmp").write_bytes(b"torn")
    index, report = reopen(tmp_path, times, [(0, 450), (500, 1300), (1350, 1500)])
    assert report == []
    assert times.read_ranges == [(400, 450), (500, 800), (1200, 1300), (1350, 1500)]
    gone = {*range(450, 500), *range(1300, 1350)}
    expected = [entry for entry in times.entries() if entry[1] not in gone]
    assert len(index) == len(expected)
    assert list(index.entries((0, 0))) == expected
    for offset in (449, 500, 1299, 1350):
        assert index.discard((times.due_ms[offset], offset))
        expected.remove((times.due_ms[offset], offset))
    assert index.take(FOREVER, 10**6) == expected


def test_what_was_taken_and_not_settled_comes_again(tmp_path: Path) -> None:
    times = scattered(1500)
    index = DueIndex(tmp_path, RUN)
    index.add(0, times.due_ms[:300])
    first = index.take(FOREVER, 200)
    index.settle([offset for _, offset in first[50:]])
    index.add(300, times.due_ms[300:])  # sealed with what is out
    index.seal()
    assert len(list(index.entries((0, 0)))) == len(index) == 1300
    settled = sorted(offset for _, offset in first[50:])
    bounds = [-1, *settled, 1500]
    ready = [(a + 1, b) for a, b in pairwise(bounds) if a + 1 < b]
    again, _ = reopen(tmp_path, times, ready)
    assert times.read_ranges == []
    assert again.take(FOREVER, 10**6) == [e for e in times.entries() if e[1] not in set(settled)]


def test_a_run_of_which_the_front_was_settled_goes_on_behind_it(tmp_path: Path) -> None:
    times = Times(list(range(1000)))
    fill(tmp_path, times)
    index, _ = reopen(tmp_path, times, [(150, 151), (300, 1000)])
    assert index.take(FOREVER, 2) == [(150, 150), (300, 300)]
    assert len(index) == 699


def test_a_file_is_removed_once_nothing_of_it_is_pending(tmp_path: Path) -> None:
    times = scattered(1500)
    fill(tmp_path, times)
    assert len(files(tmp_path)) == 3
    reopen(tmp_path, times, [(800, 1500)])
    assert [path.name for path in files(tmp_path)] == [f"{800:020}.due"]


@pytest.mark.parametrize("position", [0, 5, 8, 15, 16, 19, 20, 27, 28, 35, 36, 5000, -1])
def test_a_damaged_run_is_read_from_the_log_again(tmp_path: Path, position: int) -> None:
    times = scattered(1000)
    fill(tmp_path, times)
    path = files(tmp_path)[1]
    data = bytearray(path.read_bytes())
    data[position] ^= 4
    path.write_bytes(data)
    index, report = reopen(tmp_path, times, [(0, 1000)])
    assert len(report) == 1
    assert report[0].endswith("read the due times from the log")
    assert times.read_ranges == [(400, 1000)]
    assert index.take(FOREVER, 10**6) == times.entries()


@pytest.mark.parametrize("size", [0, 7, 8, 20, 36, 5000])
def test_a_torn_run_is_read_from_the_log_again(tmp_path: Path, size: int) -> None:
    times = scattered(1000)
    fill(tmp_path, times)
    files(tmp_path)[0].write_bytes(files(tmp_path)[0].read_bytes()[:size])
    index, report = reopen(tmp_path, times, [(0, 1000)])
    assert len(report) == 1
    assert index.take(FOREVER, 10**6) == times.entries()
    assert reopen(tmp_path, times, [(999, 1000)])[1] == []


def test_a_run_that_is_ahead_of_the_log_is_thrown_away(tmp_path: Path) -> None:
    fill(tmp_path, Times([5] * 800))
    others = Times([5] * 700 + [9] * 200)
    index, report = reopen(tmp_path, Times(others.due_ms[:700]), [(0, 700)])
    assert len(report) == 1
    assert "expected no offset from 700 on" in report[0]
    index.add(700, others.due_ms[700:])
    assert index.take(FOREVER, 10**6) == others.entries()


def test_of_two_runs_that_overlap_one_is_thrown_away(tmp_path: Path) -> None:
    times = scattered(1200)
    index = fill(tmp_path, times)
    stale = files(tmp_path)[1].read_bytes()
    files(tmp_path)[1].unlink()
    files(tmp_path)[0].unlink()
    del index
    reopen(tmp_path, times, [(100, 1200)])
    (tmp_path / f"{400:020}.due").write_bytes(stale)
    index, report = reopen(tmp_path, times, [(100, 1200)])
    assert len(report) == 1
    assert index.take(FOREVER, 10**6) == [e for e in times.entries() if e[1] >= 100]


def test_a_run_that_misses_a_pending_message_is_damaged(tmp_path: Path) -> None:
    times = Times([*range(450), *range(450)])
    index = DueIndex(tmp_path, RUN)
    index.add(0, times.due_ms[:100])
    index.settle([offset for _, offset in index.take(50, 100)])
    index.add(100, times.due_ms[100:])
    index, report = reopen(tmp_path, times, [(10, 900)])
    assert len(report) == 1
    assert "expected an entry for each pending message" in report[0]
    assert index.take(FOREVER, 10**6) == [e for e in times.entries() if e[1] >= 10]


def test_a_discarded_entry_never_comes(tmp_path: Path) -> None:
    times = scattered(1500)
    index = fill(tmp_path, times)
    taken = index.take(100, 10**6)
    places = [len(taken), len(taken) + 1, len(taken) + 40, 700, 1200, 1499]
    victims = [times.entries()[place] for place in places]
    victims += [next(entry for entry in times.entries() if entry[1] == 1499)]
    for victim in victims:
        assert index.discard(victim)
        assert not index.discard(victim)
    assert not index.discard(taken[-1])
    assert not index.discard((victims[0][0] + 1, victims[0][1]))
    assert not index.discard((5000, 0))
    assert not index.discard((5000, 10**9))
    left = [entry for entry in times.entries()[len(taken) :] if entry not in victims]
    assert len(index) == len(left)
    assert list(index.entries((0, 0))) == left
    assert list(index.entries(left[500])) == left[500:]
    assert index.take(FOREVER, 10**6) == left


def test_a_run_is_discarded_to_its_end(tmp_path: Path) -> None:
    index = DueIndex(tmp_path, 3)
    index.add(0, [7, 8, 9])
    assert len(files(tmp_path)) == 1
    assert all(index.discard(entry) for entry in [(8, 1), (7, 0), (9, 2)])
    assert (len(index), index.next_due_ms, files(tmp_path)) == (0, None, [])


def test_what_is_due_soon_can_be_seen_before(tmp_path: Path) -> None:
    times = scattered(1500)
    index = fill(tmp_path, times)
    soon = [entry for entry in times.entries() if entry[0] <= 50 and entry[1] < 1200]
    assert index.peek(50, 100) == soon
    assert index.peek(50, 5) == soon[:5]
    assert len(index) == 1500
