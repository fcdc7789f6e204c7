"""PriorityQueue against a small model: order, levels, requeue, purge, and a restart."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from leveret.amqp.message import encode_message
from leveret.amqp.properties import NO_PROPERTIES
from leveret.queues.arguments import QueueArguments
from leveret.queues.batch_cache import CacheBudget
from leveret.queues.consumers import Consumer
from leveret.queues.declaration import QueueDeclaration
from leveret.queues.dedup import Deduplicator
from leveret.queues.priority import PriorityQueue
from leveret.queues.priority_ready import PriorityReady
from leveret.queues.scattered_store import ScatteredDurableStore, ScatteredMemoryStore
from leveret.storage.log import LogOptions, SegmentLog
from leveret.storage.recovery import recover
from tests.fakes import FakeOutlet

HIGHEST = 4
DECLARATION = QueueDeclaration("q", True, False, False, {})


def message(number: int, priority: int | None) -> tuple[int, bytes]:
    header = NO_PROPERTIES.with_changes(priority=priority)
    body = b"%06d" % number
    header = header[:4] + len(body).to_bytes(8, "big") + header[12:]
    return encode_message("", "q", header, body, 0)


class PriorityQueueModel(RuleBasedStateMachine):
    """Messages are known by their number; the model keeps (level, number) of what waits."""

    durable = False

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.queue = self.make()
        self.numbers: list[int] = []  # number of each offset
        self.levels: dict[int, int] = {}
        self.ready: set[int] = set()
        self.out: set[int] = set()
        self.delivered: set[int] = set()

    def make(self) -> PriorityQueue:
        store = ScatteredMemoryStore()
        return PriorityQueue(DECLARATION, store, PriorityReady(0, HIGHEST))

    def teardown(self) -> None:
        self.queue.close()
        self.directory.cleanup()

    @rule(priorities=st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=30))
    def publish(self, priorities: list[int | None]) -> None:
        payloads = []
        for priority in priorities:
            offset = len(self.numbers)
            attributes, payload = message(offset, priority)
            payloads.append(payload)
            self.numbers.append(offset)
            self.levels[offset] = min(priority or 0, HIGHEST)
            self.ready.add(offset)
        self.queue.publish(payloads, attributes, 0, 1)
        self.end_turn()

    def end_turn(self) -> None:
        self.queue.flush()
        self.queue.dispatch(1)
        self.queue.flush_state()

    def expected(self) -> list[int]:
        return sorted(self.ready, key=lambda offset: (-self.levels[offset], offset))

    @rule(prefetch=st.integers(1, 40), no_ack=st.booleans())
    def consume(self, prefetch: int, no_ack: bool) -> None:
        outlet = FakeOutlet()
        consumer = Consumer(outlet, "c", no_ack=no_ack, exclusive=False, prefetch=prefetch)
        self.queue.consumers.add(consumer)
        self.end_turn()
        self.queue.consumers.remove(consumer)
        wanted = self.expected()[: None if no_ack else prefetch]
        got = outlet.take()
        assert [offset for _, offset, _, _ in got] == wanted
        for _, offset, payload, redelivered in got:
            assert payload[-7:-1] == b"%06d" % offset
            assert redelivered == (offset in self.delivered)
        self.ready.difference_update(wanted)
        self.delivered.update(wanted)
        if not no_ack:
            self.out.update(wanted)

    @rule(no_ack=st.booleans())
    def get(self, no_ack: bool) -> None:
        taken = self.queue.get(no_ack=no_ack)
        wanted = self.expected()[:1]
        assert (taken is None) == (not wanted)
        if taken is not None:
            assert taken[0].first_offset == wanted[0]
            assert taken[1] == (wanted[0] in self.delivered)
            self.ready.remove(wanted[0])
            self.delivered.add(wanted[0])
            if not no_ack:
                self.out.add(wanted[0])
        self.end_turn()

    @precondition(lambda self: self.out)
    @rule(data=st.data(), acks=st.booleans())
    def settle(self, data: Any, acks: bool) -> None:
        some = data.draw(st.lists(st.sampled_from(sorted(self.out)), min_size=1, unique=True))
        if acks:
            self.queue.settle(some.copy())
        else:
            self.queue.requeue(some.copy(), failed=True, now_ms=0)
            self.ready.update(some)
        self.out.difference_update(some)
        self.end_turn()

    @rule()
    def purge(self) -> None:
        assert self.queue.purge() == len(self.ready)
        self.ready.clear()
        self.end_turn()

    @invariant()
    def counts_agree(self) -> None:
        assert self.queue.ready.count == len(self.ready)
        assert self.queue.unacked == len(self.out)


class DurablePriorityQueueModel(PriorityQueueModel):
    """The same on disk, with a cache that does not hold all, and restarts."""

    durable = True

    def make(self) -> PriorityQueue:
        self.budget = CacheBudget(1500, 1000)
        options = LogOptions(segment_bytes=4096, index_interval_bytes=512)
        log, found = recover(Path(self.directory.name) / "log", options, lambda: 1)
        assert isinstance(log, SegmentLog)
        store = ScatteredDurableStore(log, self.budget)
        ready = PriorityReady(log.next_offset, HIGHEST)
        queue = PriorityQueue(DECLARATION, store, ready)
        queue.restore(found.ready, found.delivered)
        return queue

    @rule()
    def restart(self) -> None:
        self.queue.close()
        assert self.budget.used == 0
        self.queue = self.make()
        self.ready |= self.out
        self.out.clear()


TestPriorityQueueModel = PriorityQueueModel.TestCase
TestDurablePriorityQueueModel = DurablePriorityQueueModel.TestCase
TestDurablePriorityQueueModel.settings = settings(max_examples=60)


class Keeper:
    """A keeper that counts the dead (`QueueKeeper`)."""

    def __init__(self) -> None:
        self.dead: list[tuple[str, int]] = []

    def bury(self, queue: Any, batch: Any, offsets: Any, reason: Any) -> bool:
        self.dead += [(str(reason), offset) for offset in offsets]
        return True

    def open_cache(self, queue: Any) -> Deduplicator:
        raise AssertionError

    def remembered(self) -> None:
        raise AssertionError

    def remove_unused(self, queue: Any) -> None:
        raise AssertionError


def test_each_level_expires_on_its_own() -> None:
    queue = PriorityQueue(DECLARATION, ScatteredMemoryStore(), PriorityReady(0, HIGHEST))
    keeper = Keeper()
    arguments = QueueArguments(max_priority=HIGHEST, message_ttl_ms=10, dead_letter_exchange="d")
    queue.configure(arguments, keeper, 0)
    for number, (priority, now_ms) in enumerate([(0, 0), (4, 5), (0, 6), (4, 1)]):
        attributes, payload = message(number, priority)
        queue.publish([payload], attributes, 0, now_ms)
    queue.flush()
    assert queue.dispatch(9) == 10
    assert queue.dispatch(10) == 15, "the head of level 4 is due at 15, and hides one due at 11"
    assert keeper.dead == [("expired", 0)]
    assert queue.dispatch(15) == 16
    assert sorted(keeper.dead[1:]) == [("expired", 1), ("expired", 3)]


def test_what_is_too_much_goes_from_the_highest_level_first() -> None:
    queue = PriorityQueue(DECLARATION, ScatteredMemoryStore(), PriorityReady(0, HIGHEST))
    keeper = Keeper()
    queue.configure(QueueArguments(max_length=2, dead_letter_exchange="d"), keeper, 0)
    for number, priority in enumerate([0, 3, 0, 3]):
        attributes, payload = message(number, priority)
        queue.publish([payload], attributes, 0, 0)
    queue.flush()
    queue.dispatch(0)
    assert keeper.dead == [("maxlen", 1), ("maxlen", 3)]
