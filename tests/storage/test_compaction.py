"""Segments that are mostly settled are written again without what is settled."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leveret.storage.batch import Batch
from leveret.storage.disk_space import DiskSpace, Work
from leveret.storage.errors import OffsetOutOfRange
from leveret.storage.log import LogOptions, SegmentLog
from leveret.storage.recovery import Recovered, recover
from leveret.storage.retention import Retention
from leveret.storage.state_log import State
from tests.small_disk import mounted
from tests.storage.log_files import append, crash, mark, names, payload_at, read_all, sync

pytestmark = pytest.mark.usefixtures("no_descriptor_left")

OPTIONS = LogOptions(segment_bytes=4096, index_interval_bytes=200)
# 40 records of 100 bytes and the header fill a segment of 4096 bytes.


class Clock:
    """Goes on by a minute with each look; the messages come at 1."""

    now_ms = 1

    def __call__(self) -> int:
        return self.now_ms


class Sweeper:
    """Does a step when it is told to."""

    def __init__(self) -> None:
        self.work: list[Iterator[None]] = []

    def sweep(self, work: Work) -> None:
        self.work.append(iter(work))

    def step(self) -> bool:
        """Do one step; answers whether there is more to do."""
        while self.work:
            for _ in self.work[0]:
                return True
            del self.work[0]
        return False


class Home:
    """A log that is looked after."""

    def __init__(self, directory: Path, options: LogOptions = OPTIONS) -> None:
        self.directory = directory
        self.options = options
        self.clock = Clock()
        self.sweeper = Sweeper()
        self.log, self.found = self.open()

    def open(self, retention: Retention | None = None) -> tuple[SegmentLog, Recovered]:
        self.space = DiskSpace(self.sweeper.sweep)
        self.log, self.found = recover(
            self.directory, self.options, self.clock, space=self.space, retention=retention
        )
        self.log.watch()
        return self.log, self.found

    def look(self) -> None:
        self.clock.now_ms += 60_000
        self.space.look_after(self.clock.now_ms)

    def work(self) -> None:
        while self.sweeper.step():
            pass

    def settle_down(self) -> None:
        """Look and work until nothing changes any more."""
        before = -1
        while before != self.size or self.sweeper.work:
            before = self.size
            for _ in range(4):
                self.look()
                self.work()

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self.directory.iterdir())

    def close(self) -> None:
        self.log.close()
        self.work()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "q")
    yield home
    home.close()


def fill(home: Home, count: int) -> None:
    append(home.log, *[10] * (count // 10))
    sync(home.log)


def payloads(log: SegmentLog, live: list[int]) -> list[bytes]:
    """What the log has at the offsets *live*, read in all ways."""
    picked = [picked[3] for picked in log.pick(live)]
    assert read_all(log, [(offset, offset + 1) for offset in live]) == picked
    return picked


def scan(log: SegmentLog) -> dict[int, bytes]:
    """All messages of a log, from front to back."""
    found: dict[int, bytes] = {}
    offset = log.first_offset
    while batches := log.read(offset, 300):
        for batch in batches:
            found.update(enumerate(batch.payloads, batch.first_offset))
        offset = log.present(batches[-1].next_offset)
    return found


def test_one_old_message_in_each_of_many_segments_holds_nearly_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path / "q", LogOptions(segment_bytes=256 * 1024))
    payload = bytes(1000)
    for _ in range(20):
        first = home.log.next_offset
        home.log.append(Batch(first, home.clock.now_ms, 0, [payload] * 300, 1000))
        home.log.flush()
    old = names(home.directory)
    assert len(old) >= 20
    sync(home.log)
    mark(home.log, State.ACKED, *((start + 1, end) for start, end in pairwise([*old, 6000])))
    before = home.size
    home.settle_down()
    assert home.size < before // 40
    assert abs(home.log.bytes_on_disk - home.size) < 20 * 100
    assert sorted(scan(home.log)) == old
    assert home.log.next_offset == 6000
    for restart in range(2):
        if restart:
            home.close()
            home.open()
            assert home.found.ready == [(offset, offset + 1) for offset in old]
            assert home.found.report == []
        assert payloads(home.log, old) == [payload] * len(old)
    mark(home.log, State.ACKED, *((offset, offset + 1) for offset in old))
    home.work()
    assert home.size < 2000
    home.close()


@given(
    live=st.lists(st.tuples(st.integers(0, 170), st.integers(1, 12)), max_size=6),
    later=st.lists(st.tuples(st.integers(0, 170), st.integers(1, 30)), max_size=4),
    sizes=st.lists(st.sampled_from([0, 9, 76, 76, 700]), min_size=16, max_size=16),
    data=st.data(),
)
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_compacted_log_is_the_log_without_what_is_settled(
    tmp_path_factory: pytest.TempPathFactory,
    live: list[tuple[int, int]],
    later: list[tuple[int, int]],
    sizes: list[int],
    data: st.DataObject,
) -> None:
    with closing(Home(tmp_path_factory.mktemp("log") / "q")) as home:
        expected: dict[int, bytes] = {}
        for size in sizes:
            first = home.log.next_offset
            expected.update((at, payload_at(at, size or 4)) for at in range(first, first + 10))
            append(home.log, 10, size=size or 4)
        append(home.log, *[40] * 2)
        expected.update((at, payload_at(at)) for at in range(160, 240))
        sync(home.log)

        def settle(keep: set[int]) -> None:
            gone = [(at, at + 1) for at in range(240) if at not in keep]
            mark(home.log, State.ACKED, *gone)

        keep = {at for start, count in live for at in range(start, min(start + count, 240))}
        settle(keep)
        home.settle_down()
        dropped = {at for start, count in later for at in range(start, start + count)}
        keep -= dropped
        settle(keep)
        home.settle_down()
        for _ in range(2):
            assert payloads(home.log, sorted(keep)) == [expected[at] for at in sorted(keep)]
            found = scan(home.log)
            assert keep <= found.keys()
            assert found.items() <= expected.items()
            for offset in data.draw(st.lists(st.integers(0, 240), max_size=5)):
                if offset == home.log.present(offset):
                    read = [b.first_offset for b in home.log.read(offset, 1)]
                    assert read[:1] == [at for at in sorted(found) if at >= offset][:1] or not read
            ready = {at for start, end in home.found.ready for at in range(start, end)}
            if home.found.next_offset:
                assert (ready, home.found.report) == (keep, [])
            home.close()
            for path in home.directory.glob("*.*index"):
                if data.draw(st.booleans()):
                    path.unlink()
            home.open()
            home.found.report.clear()
            assert home.log.next_offset == 240


def mostly_settled(home: Home) -> list[int]:
    """Three segments, two of them mostly settled; what is not."""
    fill(home, 120)
    live = [3, 4, 39, 40, 77, *range(80, 120)]
    mark(home.log, State.ACKED, (0, 3), (5, 39), (41, 77), (78, 80))
    return live


def test_deliveries_and_acks_go_on_meanwhile_and_after(home: Home) -> None:
    live = mostly_settled(home)
    home.look()
    assert payloads(home.log, live) == [payload_at(at) for at in live]
    mark(home.log, State.DELIVERED, (3, 5), (40, 41))
    mark(home.log, State.ACKED, (4, 5))
    home.work()
    assert home.log.read(3, 1)[0].payloads == [payload_at(3)]
    home.look()
    assert home.log.read(4, 1)[0].first_offset == 4  # the cursor of the last read is that of a file
    live.remove(4)
    assert payloads(home.log, live) == [payload_at(at) for at in live]
    home.close()
    home.open()
    assert home.found.ready == [(3, 4), (39, 41), (77, 78), (80, 120)]
    assert home.found.delivered == [(3, 4), (40, 41)]
    assert payloads(home.log, live) == [payload_at(at) for at in live]
    with pytest.raises(OffsetOutOfRange):
        list(home.log.pick([20]))


def test_a_crash_at_any_step_leaves_the_old_or_the_new_log(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = mostly_settled(home)
    stages: list[Path] = []

    def keep_stage() -> None:
        stages.append(crash(home.directory, tmp_path / f"stage{len(stages)}"))

    def staged(change: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
        def replace(self: Path, target: Path) -> Path:
            keep_stage()
            return change(self, target)

        return replace

    monkeypatch.setattr(Path, "replace", staged(Path.replace))
    for _ in range(4):
        home.look()
        while home.sweeper.step():
            keep_stage()
    monkeypatch.undo()
    keep_stage()
    home.close()
    assert len(stages) > 8
    assert len({sum(p.stat().st_size for p in stage.glob("*.log")) for stage in stages}) == 3
    for number, stage in enumerate(stages):
        for lost in (None, "*.index", "*.timeindex", "*.tmp"):
            copy = crash(stage, tmp_path / f"copy{number}{lost and lost[2:]}")
            for path in copy.glob(lost) if lost else ():
                path.unlink()
            log, found = recover(copy, OPTIONS, home.clock)
            assert found.ready == [(3, 5), (39, 41), (77, 78), (80, 120)]
            assert payloads(log, live) == [payload_at(at) for at in live]
            assert log.next_offset == 120
            log.close()
            assert not list(copy.glob("*.tmp"))
            shutil.rmtree(copy)


def test_gaps_are_settled_even_if_the_states_are_lost(home: Home) -> None:
    mostly_settled(home)
    home.settle_down()
    home.close()
    for path in home.directory.glob("*.state"):
        path.unlink()
    home.open()
    assert home.found.ready == [(3, 5), (39, 41), (77, 78), (80, 120)]


def test_a_log_that_is_closed_or_deleted_meanwhile(home: Home) -> None:
    live = mostly_settled(home)
    home.look()
    home.sweeper.step()
    assert list(home.directory.glob("*.tmp"))
    home.close()
    assert not list(home.directory.glob("*.tmp"))
    home.open()
    home.look()
    home.work()
    home.close()
    assert not list(home.directory.glob("*.tmp"))
    home.open()
    assert payloads(home.log, live) == [payload_at(at) for at in live]
    home.look()
    home.sweeper.step()
    home.log.delete()
    home.work()
    assert not home.directory.exists()


def test_a_segment_that_is_spent_meanwhile(home: Home) -> None:
    mostly_settled(home)
    for when in range(2):
        home.look()
        if when:
            home.work()
        mark(home.log, State.ACKED, (40 * when, 40 * when + 40))
        home.work()
        home.look()
        assert names(home.directory) == [0, 40, 80][when + 1 :]
        assert not list(home.directory.glob("*.tmp"))


def test_what_is_ready_again_meanwhile_stays(home: Home) -> None:
    live = mostly_settled(home)
    home.look()
    home.work()
    mark(home.log, State.REPLAYED, (10, 12))
    home.look()
    assert payloads(home.log, [*live[:2], 10, 11]) == [payload_at(at) for at in (3, 4, 10, 11)]
    home.settle_down()
    assert payloads(home.log, [*live[:2], 10, 11]) == [payload_at(at) for at in (3, 4, 10, 11)]
    assert home.log.bytes_on_disk < 4096 + 2000


def test_what_is_retained_is_not_compacted(home: Home) -> None:
    home.log.retention = Retention(age_ms=300_000)
    mostly_settled(home)
    for _ in range(3):
        home.look()
        home.work()
    assert read_all(home.log, [(0, 120)]) == [payload_at(at) for at in range(120)]
    home.clock.now_ms += 300_000
    home.settle_down()
    assert len(scan(home.log)) == 45


def test_what_is_to_be_retained_by_now_stays(home: Home) -> None:
    fill(home, 50)
    mark(home.log, State.ACKED, (0, 39))
    home.look()
    home.work()
    home.log.retention = Retention()
    home.look()
    assert len(scan(home.log)) == 50


def test_an_unsynced_segment_holds_no_descriptor_once_it_is_compacted(home: Home) -> None:
    append(home.log, *[10] * 5)
    mark(home.log, State.ACKED, (0, 39))
    home.look()
    home.work()
    home.look()
    home.work()
    (log,) = (path for path in home.directory.glob("*.log") if int(path.stem) == 0)
    assert log.stat().st_size < 2000
    assert payloads(home.log, [39, 45])
    assert log.resolve() not in {path.resolve() for path in Path("/proc/self/fd").iterdir()}


def test_a_full_disk_is_no_harm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "disk").mkdir()
    with mounted(tmp_path / "disk", 256) as disk:
        home = Home(disk.path / "q", LogOptions(segment_bytes=64 * 1024))
        append(home.log, *[50] * 20)
        sync(home.log)
        live = [*range(100), *range(700, 1000)]
        mark(home.log, State.ACKED, (100, 640), (640, 700))
        disk.fill()
        before = home.size
        for _ in range(3):
            home.look()
            home.work()
        assert "not compacted" in caplog.text
        assert home.size == before
        assert payloads(home.log, live) == [payload_at(at) for at in live]
        disk.free()
        home.settle_down()
        assert home.size < before - 50_000
        assert payloads(home.log, live) == [payload_at(at) for at in live]
        home.close()
