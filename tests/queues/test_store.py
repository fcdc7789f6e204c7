"""MemoryStore and DurableStore against a dict of messages, with a reopening as an operation."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leveret.amqp.message import TRANSIENT
from leveret.queues.batch_cache import CacheBudget
from leveret.queues.durable_store import DurableStore
from leveret.queues.memory_store import MemoryStore
from leveret.queues.ready import ReadyList, ReadyRange
from leveret.queues.stopped_store import StoppedStore
from leveret.queues.store import MessageStore
from leveret.storage.batch import Batch
from leveret.storage.log import LogOptions, SegmentLog
from leveret.storage.recovery import recover

OPTIONS = LogOptions(segment_bytes=4096, index_interval_bytes=256)

Message = tuple[int, int, bytes]
"""Attributes, timestamp, payload."""


class StoreModel(RuleBasedStateMachine):
    """The ready list says what may be read, as in a queue; the model what must be found there."""

    store: MessageStore

    def __init__(self) -> None:
        super().__init__()
        self.messages: dict[int, Message] = {}
        self.appended = 0
        self.ready = ReadyList(0)
        self.out: list[int] = []
        self.delivered: set[int] = set()
        self.now_ms = 1

    @rule(
        lengths=st.one_of(
            st.tuples(st.sampled_from([1, 60, 300]), st.integers(1, 80)).map(
                lambda pair: [pair[0]] * pair[1]
            ),
            st.lists(st.integers(1, 400), min_size=1, max_size=20),
            st.just([5000]),
        ),
        attributes=st.sampled_from([7, 9, 7 | TRANSIENT]),
        later=st.booleans(),
    )
    def append(self, lengths: list[int], attributes: int, later: bool) -> None:
        self.now_ms += later
        first = self.appended
        payloads = [
            (b"%d." % offset * length)[:length] for offset, length in enumerate(lengths, first)
        ]
        common = lengths[0] if len(set(lengths)) == 1 else 0
        self.store.append(payloads, attributes, common, self.now_ms)
        for payload in payloads:
            self.messages[self.appended] = attributes, self.now_ms, payload
            self.appended += 1
        payloads.clear()  # the store must not keep the caller's list

    @rule()
    def flush(self) -> None:
        self.store.flush()
        assert self.store.next_offset == self.appended
        self.ready.extend(self.store.next_offset)

    def take(self, limit: int, max_bytes: int) -> tuple[ReadyRange, list[Batch]] | None:
        wanted = self.ready.peek(limit)
        if wanted is None:
            return None
        batches = self.store.read(wanted, max_bytes)
        offset = wanted.start
        size = 0
        for batch in batches:
            assert batch.first_offset == offset
            assert size < max_bytes or size == 0
            for payload in batch.payloads:
                assert (batch.attributes, batch.timestamp_ms, payload) == self.messages[offset]
                assert batch.payload_length in (0, len(payload))
                offset += 1
                size += len(payload)
        assert wanted.start < offset <= wanted.stop
        self.ready.take(offset)
        assert wanted.redelivered == (wanted.start in self.delivered)
        return wanted, batches

    @rule(limit=st.integers(1, 100), max_bytes=st.sampled_from([1, 500, 1 << 20]))
    def deliver(self, limit: int, max_bytes: int) -> None:
        if (taken := self.take(limit, max_bytes)) is not None:
            for batch in taken[1]:
                self.store.hold(batch, range(batch.first_offset, batch.next_offset))
                self.out += range(batch.first_offset, batch.next_offset)
                self.delivered.update(range(batch.first_offset, batch.next_offset))

    @rule(limit=st.integers(1, 100), max_bytes=st.sampled_from([1, 500, 1 << 20]))
    def deliver_without_ack(self, limit: int, max_bytes: int) -> None:
        if (taken := self.take(limit, max_bytes)) is not None:
            for batch in taken[1]:
                self.store.discard(range(batch.first_offset, batch.next_offset))
                for offset in range(batch.first_offset, batch.next_offset):
                    del self.messages[offset]

    def some_of_out(self, data: st.DataObject) -> list[int]:
        if not self.out:
            return []
        some = data.draw(st.lists(st.sampled_from(self.out), min_size=1, unique=True))
        self.out = [offset for offset in self.out if offset not in some]
        return some

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        if some := self.some_of_out(data):
            for offset in some:
                del self.messages[offset]
            self.store.settle(some)

    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        if some := self.some_of_out(data):
            self.ready.put_back(some)

    @rule()
    def requeue_all(self) -> None:
        if self.out:
            out, self.out = self.out, []
            self.ready.put_back(out)

    @rule()
    def purge(self) -> None:
        self.flush()
        ranges = self.ready.clear()
        self.store.settle_ranges(ranges)
        for start, stop in ranges:
            for offset in range(start, stop):
                del self.messages[offset]

    @rule()
    def end_turn(self) -> None:
        self.flush()
        self.store.flush_state()


class MemoryStoreModel(StoreModel):
    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()


class DurableStoreModel(StoreModel):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())

    @initialize(limit=st.sampled_from([0, 2000, 1 << 20]), per_queue=st.sampled_from([0, 1000]))
    def open(self, limit: int, per_queue: int) -> None:
        self.budget = CacheBudget(limit, per_queue)
        self.store = DurableStore(SegmentLog(self.directory, OPTIONS, lambda: 0), self.budget, 0)

    @rule()
    def reopen(self) -> None:
        self.end_turn()
        self.store.close()
        assert self.budget.used == 0
        log, found = recover(self.directory, OPTIONS, lambda: 0)
        self.messages = {
            offset: message
            for offset, message in self.messages.items()
            if not message[0] & TRANSIENT
        }
        assert {o for start, stop in found.ready for o in range(start, stop)} == set(self.messages)
        self.ready = ReadyList(log.next_offset)
        self.ready.restore(found.ready, found.delivered)
        assert self.ready.count == len(self.messages)
        self.store = DurableStore(log, self.budget, self.ready.cursor)
        self.appended = log.next_offset
        self.out = []

    @invariant()
    def keeps_to_its_budget(self) -> None:
        if hasattr(self, "budget"):
            assert self.budget.used >= 0

    def teardown(self) -> None:
        if hasattr(self, "budget"):
            self.store.delete()
            assert self.budget.used == 0
            assert not self.directory.exists() or not any(self.directory.iterdir())
        shutil.rmtree(self.directory, ignore_errors=True)


TestMemoryStoreModel = MemoryStoreModel.TestCase
TestMemoryStoreModel.settings = settings(max_examples=60, stateful_step_count=60)
TestDurableStoreModel = DurableStoreModel.TestCase
TestDurableStoreModel.settings = settings(max_examples=60, stateful_step_count=60)


def test_a_failed_store_writes_no_more_and_keeps_its_files(tmp_path: Path) -> None:
    budget = CacheBudget(1000, 1000)
    store = DurableStore(SegmentLog(tmp_path / "log", OPTIONS, lambda: 0), budget, 0)
    store.append([b"one"], 3, 3, 1)
    store.flush()
    store.append([b"two"], 3, 3, 1)
    store.fail(OSError("disk"))
    assert budget.used == 0
    _, found = recover(tmp_path / "log", OPTIONS, lambda: 0)
    assert found.ready == [(0, 1)]


def test_a_stopped_store_is_deleted_like_the_failed_one(tmp_path: Path) -> None:
    store = DurableStore(
        SegmentLog(tmp_path / "log", OPTIONS, lambda: 0), CacheBudget(1000, 1000), 0
    )
    store.append([b"one"], 3, 3, 1)
    store.flush()
    store.fail(OSError("disk"))
    StoppedStore("stopped", 1, store.delete).delete()
    assert not (tmp_path / "log").exists()


def test_nothing_is_synced_for_transient_messages_alone(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path / "log", OPTIONS, lambda: 0)
    store = DurableStore(log, CacheBudget(1000, 1000), 0)
    store.append([b"one"] * 100, 3 | TRANSIENT, 3, 1)
    assert store.flush() is None
    store.settle([0])
    assert store.flush_state() is None
    store.append([b"two"], 3, 3, 1)
    assert store.flush() is log
    store.append([b"three"], 3 | TRANSIENT, 5, 1)
    assert store.flush() is None
    assert store.flush_state() is log
    store.close()
    _, found = recover(tmp_path / "log", OPTIONS, lambda: 0)
    assert found.ready == [(100, 101)]
