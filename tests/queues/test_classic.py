"""ClassicQueue: one message each in turn, from whichever store."""

import itertools
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leveret.amqp.errors import InternalError
from leveret.queues.batch_cache import CacheBudget
from leveret.queues.classic import TURN_MESSAGES, ClassicQueue
from leveret.queues.consumers import Consumer
from leveret.queues.declaration import QueueDeclaration
from leveret.queues.durable_store import DurableStore
from leveret.queues.memory_store import MemoryStore
from leveret.queues.ready import ReadyList
from leveret.queues.store import MessageStore
from leveret.storage.log import LogOptions, SegmentLog
from tests.fakes import FakeOutlet

DECLARATION = QueueDeclaration("queue", False, False, False, {})


def queue_of(store: MessageStore | None = None) -> ClassicQueue:
    return ClassicQueue(DECLARATION, store or MemoryStore(), ReadyList(0))


def publish(queue: ClassicQueue, count: int, first: int = 0) -> None:
    queue.publish([b"%06d" % offset for offset in range(first, first + count)], 1, 6, 1)
    queue.flush()


def consume(
    queue: ClassicQueue, tag: str, *, prefetch: int = 0, no_ack: bool = False
) -> FakeOutlet:
    outlet = FakeOutlet()
    queue.consumers.add(Consumer(outlet, tag, no_ack=no_ack, exclusive=False, prefetch=prefetch))
    return outlet


def offsets(outlet: FakeOutlet) -> list[int]:
    return [offset for _, offset, _, _ in outlet.take()]


def test_a_burst_is_dealt_out_one_by_one() -> None:
    queue = queue_of()
    first, second, third = (consume(queue, tag) for tag in "abc")
    publish(queue, 10_000)
    queue.dispatch(0)
    assert offsets(first) == list(range(0, 10_000, 3))
    assert offsets(second) == list(range(1, 10_000, 3))
    assert offsets(third) == list(range(2, 10_000, 3))


def test_the_turn_goes_on_with_the_next_message() -> None:
    queue = queue_of()
    outlets = [consume(queue, tag) for tag in "abc"]
    for number in range(7):
        publish(queue, 1, number)
        queue.dispatch(0)
    assert [offsets(outlet) for outlet in outlets] == [[0, 3, 6], [1, 4], [2, 5]]


def test_a_full_consumer_is_passed_over() -> None:
    queue = queue_of()
    slow, fast = consume(queue, "slow", prefetch=2), consume(queue, "fast")
    publish(queue, 8)
    queue.dispatch(0)
    assert offsets(slow) == [0, 2]
    assert offsets(fast) == [1, 3, 4, 5, 6, 7]


def test_a_shared_limit_is_kept_by_all_consumers_of_the_channel() -> None:
    queue = queue_of()
    channel = consume(queue, "one")
    channel.shared_prefetch = 3
    queue.consumers.add(Consumer(channel, "two", no_ack=False, exclusive=False, prefetch=0))
    publish(queue, 8)
    queue.dispatch(0)
    assert [(c.tag, offset) for c, offset, _, _ in channel.take()] == [
        ("one", 0),
        ("two", 1),
        ("one", 2),
    ]


def test_one_consumer_takes_more_than_a_turn_holds() -> None:
    queue = queue_of()
    outlet = consume(queue, "a")
    publish(queue, 3 * TURN_MESSAGES)
    queue.dispatch(0)
    assert offsets(outlet) == list(range(3 * TURN_MESSAGES))


def test_requeued_messages_take_their_old_place() -> None:
    queue = queue_of()
    outlet = consume(queue, "a", prefetch=4)
    publish(queue, 6)
    queue.dispatch(0)
    (consumer,) = queue.consumers
    queue.requeue([2, 0], failed=False, now_ms=0)
    consumer.unacked -= 2
    queue.dispatch(0)
    delivered = [(offset, redelivered) for _, offset, _, redelivered in outlet.take()]
    assert delivered[4:] == [(0, True), (2, True)]


def test_a_message_can_be_fetched() -> None:
    queue = queue_of()
    publish(queue, 2)
    taken = queue.get(no_ack=False)
    assert taken is not None
    assert (taken[0].payloads, taken[1]) == ([b"000000"], False)
    queue.requeue([0], failed=False, now_ms=0)
    taken = queue.get(no_ack=True)
    assert taken is not None
    assert (taken[0].payloads, taken[1]) == ([b"000000"], True)
    assert (queue.ready.count, queue.unacked) == (1, 0)


def test_a_purge_leaves_what_was_delivered() -> None:
    queue = queue_of()
    consume(queue, "a", prefetch=2)
    publish(queue, 5)
    queue.dispatch(0)
    assert queue.purge() == 3
    assert (queue.ready.count, queue.unacked) == (0, 2)


def test_a_stopped_queue_is_empty_and_refuses() -> None:
    queue = queue_of()
    publish(queue, 5)
    queue.publish([b"000005"], 1, 6, 1)
    queue.stop("it has stopped", OSError("disk"))
    queue.flush()
    assert queue.ready.count == 0
    with pytest.raises(InternalError, match="it has stopped"):
        queue.publish([b"000006"], 1, 6, 1)
    queue.delete()


def test_what_comes_to_a_deleted_queue_goes_nowhere(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path / "log", LogOptions(), lambda: 0)
    queue = queue_of(DurableStore(log, CacheBudget(1 << 20, 1 << 20), 0))
    publish(queue, 5)
    queue.delete()
    publish(queue, 2, 5)
    queue.dispatch(0)
    queue.flush_state()
    assert not (tmp_path / "log").exists()


class ClassicQueueModel(RuleBasedStateMachine):
    """The model deals the ready offsets out one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = self.make_queue()
        self.channels = [FakeOutlet() for _ in range(3)]
        self.order: list[Consumer] = []
        self.ready: list[int] = []
        self.out: dict[int, tuple[FakeOutlet, Consumer | None]] = {}
        self.seen: set[int] = set()
        self.appended = 0
        self.acked = 0
        self.tags = itertools.count()

    def make_queue(self) -> ClassicQueue:
        return queue_of()

    @rule(count=st.integers(1, 30))
    def publish(self, count: int) -> None:
        publish(self.queue, count, self.appended)
        self.ready += range(self.appended, self.appended + count)
        self.appended += count

    @rule(channel=st.integers(0, 2), prefetch=st.integers(0, 5), no_ack=st.booleans())
    def consume(self, channel: int, prefetch: int, no_ack: bool) -> None:
        consumer = Consumer(
            self.channels[channel],
            str(next(self.tags)),
            no_ack=no_ack,
            exclusive=False,
            prefetch=prefetch,
        )
        self.queue.consumers.add(consumer)
        self.order.append(consumer)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.order:
            consumer = data.draw(st.sampled_from(self.order))
            self.order.remove(consumer)
            self.queue.consumers.remove(consumer)

    @rule(channel=st.integers(0, 2), limit=st.integers(0, 4))
    def limit_channel(self, channel: int, limit: int) -> None:
        self.channels[channel].shared_prefetch = limit

    @rule(channel=st.integers(0, 2), blocked=st.booleans())
    def block(self, channel: int, blocked: bool) -> None:
        self.channels[channel].is_blocked = blocked

    @rule()
    def dispatch(self) -> None:
        expected = self.deal()
        self.queue.dispatch(0)
        found = {
            offset: (consumer, redelivered, int(payload))
            for channel in self.channels
            for consumer, offset, payload, redelivered in channel.take()
        }
        assert found == {
            offset: (consumer, offset in self.seen, offset) for offset, consumer in expected
        }
        self.seen.update(found)

    def deal(self) -> list[tuple[int, Consumer]]:
        """Who gets which offset. `order` begins with the consumer whose turn it is."""
        dealt: list[tuple[int, Consumer]] = []
        unacked = {consumer: consumer.unacked for consumer in self.order}
        held = {id(channel): channel.unacked for channel in self.channels}
        while self.ready:
            for consumer in self.order:
                channel = consumer.outlet
                assert isinstance(channel, FakeOutlet)
                limit = channel.shared_prefetch
                if channel.is_blocked or (limit and held[id(channel)] >= limit):
                    continue
                if consumer.no_ack or not consumer.prefetch:
                    break
                if unacked[consumer] < consumer.prefetch:
                    break
            else:
                break
            at = self.order.index(consumer)
            self.order = self.order[at + 1 :] + self.order[: at + 1]
            offset = self.ready.pop(0)
            dealt.append((offset, consumer))
            if consumer.no_ack:
                self.acked += 1
            else:
                unacked[consumer] += 1
                held[id(channel)] += 1
                self.out[offset] = channel, consumer
        return dealt

    @rule(no_ack=st.booleans())
    def get(self, no_ack: bool) -> None:
        taken = self.queue.get(no_ack=no_ack)
        if not self.ready:
            assert taken is None
            return
        assert taken is not None
        batch, redelivered = taken
        offset = self.ready.pop(0)
        assert (batch.first_offset, redelivered) == (offset, offset in self.seen)
        assert list(map(int, batch.payloads)) == [offset]
        self.seen.add(offset)
        if no_ack:
            self.acked += 1
        else:
            self.out[offset] = FakeOutlet(unacked=1), None

    def some_of_out(self, data: st.DataObject) -> list[int]:
        if not self.out:
            return []
        some = data.draw(st.lists(st.sampled_from(sorted(self.out)), min_size=1, unique=True))
        for offset in some:
            channel, consumer = self.out.pop(offset)
            channel.unacked -= 1
            if consumer is not None:
                consumer.unacked -= 1
        return some

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        if some := self.some_of_out(data):
            self.queue.settle(some)
            self.acked += len(some)

    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        if some := self.some_of_out(data):
            self.ready = sorted(self.ready + some)
            self.queue.requeue(some, failed=False, now_ms=0)

    @rule()
    def purge(self) -> None:
        assert self.queue.purge() == len(self.ready)
        self.acked += len(self.ready)
        self.ready = []

    @rule()
    def flush_state(self) -> None:
        self.queue.flush_state()

    @invariant()
    def every_message_is_in_one_state(self) -> None:
        assert self.queue.ready.count == len(self.ready)
        assert self.queue.unacked == len(self.out)
        assert self.queue.ready.count + self.queue.unacked + self.acked == self.appended

    def teardown(self) -> None:
        self.queue.delete()


class DurableQueueModel(ClassicQueueModel):
    @initialize(limit=st.sampled_from([0, 500, 1 << 20]))
    def set_budget(self, limit: int) -> None:
        self.budget.limit = self.budget.per_queue = limit

    def make_queue(self) -> ClassicQueue:
        self.directory = Path(tempfile.mkdtemp())
        self.budget = CacheBudget(0, 0)
        log = SegmentLog(self.directory, LogOptions(segment_bytes=4096), lambda: 0)
        return queue_of(DurableStore(log, self.budget, 0))

    def teardown(self) -> None:
        super().teardown()
        assert self.budget.used == 0
        shutil.rmtree(self.directory, ignore_errors=True)


TestClassicQueueModel = ClassicQueueModel.TestCase
TestClassicQueueModel.settings = settings(max_examples=80, stateful_step_count=50)
TestDurableQueueModel = DurableQueueModel.TestCase
TestDurableQueueModel.settings = settings(max_examples=60, stateful_step_count=50)
