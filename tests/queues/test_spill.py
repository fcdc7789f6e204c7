"""Transient queues that keep little in memory: the same models, and what they leave on disk."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant

from leveret.amqp.errors import InternalError
from leveret.queues.batch_cache import CacheBudget
from leveret.queues.classic import ClassicQueue
from leveret.queues.memory_store import MemoryStore
from leveret.queues.priority import PriorityQueue
from leveret.queues.priority_ready import PriorityReady
from leveret.queues.ready import ReadyRange
from leveret.queues.scattered_store import ScatteredMemoryStore
from leveret.queues.spill import READ_BYTES, SpillArea
from leveret.storage.disk_space import sweep_now
from leveret.storage.errors import LogFailed
from leveret.storage.log import LogOptions
from tests.queues.test_classic import ClassicQueueModel, queue_of
from tests.queues.test_priority import DECLARATION, HIGHEST, PriorityQueueModel
from tests.queues.test_store import StoreModel

OPTIONS = LogOptions(segment_bytes=4096, index_interval_bytes=256)
LARGEST_BATCH = 80 * 400


def area_in(directory: Path, per_queue: int, limit: int = 1 << 20) -> SpillArea:
    return SpillArea(directory, CacheBudget(limit, per_queue), OPTIONS, lambda: 0, sweep_now)


def runs_in(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.exists() else []


class SpilledStoreModel(StoreModel):
    store: MemoryStore

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())

    @initialize(
        per_queue=st.sampled_from([0, 500, 3000, 20_000]), limit=st.sampled_from([0, 2000, 1 << 20])
    )
    def open(self, per_queue: int, limit: int) -> None:
        self.area = area_in(self.directory, per_queue, limit)
        self.store = MemoryStore(self.area)

    @invariant()
    def keeps_to_its_budget(self) -> None:
        if hasattr(self, "area"):
            budget = self.area.budget
            assert budget.used == self.store.memory_bytes >= 0
            assert budget.used <= min(budget.per_queue, budget.limit) + LARGEST_BATCH + READ_BYTES

    @invariant()
    def a_run_is_gone_when_its_messages_are(self) -> None:
        if hasattr(self, "area") and not self.messages:
            assert self.store.disk_bytes == 0
            assert self.area.budget.used == 0
            assert runs_in(self.directory) == []

    def teardown(self) -> None:
        if hasattr(self, "area"):
            self.store.delete()
            assert self.area.budget.used == 0
            assert runs_in(self.directory) == []
        shutil.rmtree(self.directory)


class SpilledQueueModel(ClassicQueueModel):
    @initialize(per_queue=st.sampled_from([0, 100, 500]))
    def set_budget(self, per_queue: int) -> None:
        self.area.budget.per_queue = per_queue

    def make_queue(self) -> ClassicQueue:
        self.directory = Path(tempfile.mkdtemp())
        self.area = area_in(self.directory, 0)
        return queue_of(MemoryStore(self.area))

    def teardown(self) -> None:
        super().teardown()
        assert self.area.budget.used == 0
        assert runs_in(self.directory) == []
        shutil.rmtree(self.directory)


class SpilledPriorityQueueModel(PriorityQueueModel):
    @initialize(per_queue=st.sampled_from([0, 1000, 3000]))
    def set_budget(self, per_queue: int) -> None:
        self.area.budget.per_queue = per_queue

    def make(self) -> PriorityQueue:
        self.area = area_in(Path(self.directory.name), 0)
        store = ScatteredMemoryStore(self.area)
        return PriorityQueue(DECLARATION, store, PriorityReady(0, HIGHEST))

    @invariant()
    def a_run_is_gone_when_its_messages_are(self) -> None:
        if not self.ready and not self.out:
            assert self.area.budget.used == 0
            assert runs_in(Path(self.directory.name)) == []


TestSpilledStoreModel = SpilledStoreModel.TestCase
TestSpilledStoreModel.settings = settings(max_examples=100, stateful_step_count=60)
TestSpilledQueueModel = SpilledQueueModel.TestCase
TestSpilledQueueModel.settings = settings(max_examples=50, stateful_step_count=50)
TestSpilledPriorityQueueModel = SpilledPriorityQueueModel.TestCase
TestSpilledPriorityQueueModel.settings = settings(max_examples=50)


def append(store: MemoryStore, count: int, length: int = 100) -> None:
    store.append([bytes(length)] * count, 7, length, 1)
    store.flush()


def take(store: MemoryStore, start: int, stop: int) -> None:
    """Read and settle."""
    while start < stop:
        batches = store.read(ReadyRange(start, stop, False), 1 << 20)
        store.discard(range(start, batches[-1].next_offset))
        start = batches[-1].next_offset
    store.flush_state()


def test_a_queue_far_below_its_bound_writes_nothing(tmp_path: Path) -> None:
    store = MemoryStore(area_in(tmp_path / "t", 1 << 20))
    append(store, 1000)
    assert store.memory_bytes > 100_000
    assert store.disk_bytes == 0
    assert runs_in(tmp_path / "t") == []


def test_a_queue_is_in_memory_again_when_its_run_is_used_up(tmp_path: Path) -> None:
    store = MemoryStore(area_in(tmp_path / "t", 1000))
    for _ in range(50):
        append(store, 10)
    assert store.disk_bytes > 40_000
    take(store, 0, 500)
    assert runs_in(tmp_path / "t") == []
    append(store, 5)
    assert (store.memory_bytes > 0, store.disk_bytes) == (True, 0)


def test_a_run_gives_its_segments_back_as_it_is_read(tmp_path: Path) -> None:
    store = MemoryStore(area_in(tmp_path / "t", 1000))
    for _ in range(50):
        append(store, 10)
    before = store.disk_bytes
    take(store, 0, 300)
    assert store.disk_bytes < before * 2 // 3


def test_what_waits_to_be_settled_counts(tmp_path: Path) -> None:
    store = MemoryStore(area_in(tmp_path / "t", 1000))
    append(store, 20)
    for batch in store.read(ReadyRange(0, 20, False), 1 << 20):
        store.hold(batch, range(batch.first_offset, batch.next_offset))
    append(store, 20)
    assert store.disk_bytes > 2000


def test_a_full_queue_leaves_room_for_others(tmp_path: Path) -> None:
    area = area_in(tmp_path / "t", 1 << 20, limit=100_000)
    large, small = MemoryStore(area), MemoryStore(area)
    for _ in range(200):
        append(large, 10)
    append(small, 10)
    assert large.disk_bytes > 0
    append(small, 10)
    assert small.disk_bytes == 0


def test_a_start_removes_what_is_left_and_takes_other_names(tmp_path: Path) -> None:
    for _ in range(2):
        area = area_in(tmp_path / "t", 0)
        area.clear()
        assert runs_in(tmp_path / "t") == []
        store = MemoryStore(area)
        append(store, 10)
        append(store, 10)
        store.fail(OSError("as if killed"))
        assert len(runs_in(tmp_path / "t")) == 1


def test_a_queue_whose_run_cannot_be_written_stops_and_can_be_deleted(tmp_path: Path) -> None:
    area = area_in(tmp_path / "t", 0)
    queue = queue_of(MemoryStore(area))
    queue.publish([b"1"], 1, 1, 0)
    queue.flush()
    (tmp_path / "t").write_text("in the way")
    queue.publish([b"2"], 1, 1, 0)
    with pytest.raises(LogFailed) as failure:
        queue.flush()
    queue.stop("stopped", failure.value)
    assert area.budget.used == 0
    with pytest.raises(InternalError):
        queue.publish([b"3"], 1, 1, 0)
    queue.delete()
