"""Turn: the order in which an iteration of the loop is worked off, and one failing queue."""

import pytest

from leveret.amqp.errors import InternalError
from leveret.broker.confirms import ConfirmTracker
from leveret.broker.turn import Turn, TurnQueue
from leveret.storage.committer import Committer, SyncPolicy
from leveret.storage.errors import DiskFull
from tests.fakes import FakeLoop
from tests.storage.test_committer import Job, Log, Sink


class World:
    """A turn, and what happened in which order."""

    def __init__(self, policy: SyncPolicy = SyncPolicy.ALWAYS) -> None:
        self.events: list[str] = []
        self.loop = FakeLoop()
        self.failures: list[tuple[TurnQueue, Exception]] = []
        self.wakes = 0
        self.now_ms = 0
        self.committer = Committer(policy, Sink())
        self.turn = Turn(
            self.committer,
            schedule=self.loop.call_soon,
            wake_committer=self._wake,
            on_failure=lambda queue, error: self.failures.append((queue, error)),
            on_full=lambda is_full: self.events.append(f"full {is_full}"),
            clock_ms=lambda: self.now_ms,
            call_later=self.loop.call_later,
        )

    def _wake(self) -> None:
        self.wakes += 1

    def commit(self) -> None:
        batch = self.committer.take()
        batch.run()
        batch.close()
        batch.settle()

    def tracker(self, name: str) -> ConfirmTracker:
        def failed(error: Exception) -> None:
            self.events.append(f"{name} failed: {error}")

        return ConfirmTracker(1, send=lambda _: self.events.append(f"{name} ack"), fail=failed)


class Queue:
    """A queue that notes what is asked of it (`TurnQueue`)."""

    def __init__(self, world: World, name: str, log: Log | None = None) -> None:
        self._world = world
        self._name = name
        self.log = log
        self.flush_error: Exception | None = None
        self.dispatch_error: Exception | None = None

    def _note(self, event: str) -> None:
        self._world.events.append(f"{self._name} {event}")

    def flush(self) -> Log | None:
        self._note("flush")
        if self.flush_error is not None:
            raise self.flush_error
        return self.log

    def dispatch(self, now_ms: int) -> int | None:
        self._note("dispatch")
        if self.dispatch_error is not None:
            raise self.dispatch_error
        return None

    def flush_state(self) -> Log | None:
        self._note("state")
        return None


class Output:
    """A connection (`TurnOutput`)."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name

    def flush(self) -> None:
        self._world.events.append(f"{self._name} output")


@pytest.fixture
def world() -> World:
    return World()


def test_a_turn_is_worked_off_once_and_in_order(world: World) -> None:
    turn = world.turn
    tracker = world.tracker("confirms")
    for _ in range(3):
        turn.output(Output(world, "connection"))
    turn.afterwards(lambda: world.events.append("afterwards"))
    turn.touch(queue := Queue(world, "a"))
    turn.touch(queue)
    turn.touch(Queue(world, "b"))
    tracker.publish(1, durable=False)
    turn.confirm(tracker)
    assert world.events == []
    assert len(world.loop.callbacks) == 1
    world.loop.run()
    assert world.events == [
        *("a flush", "b flush"),
        *("a dispatch", "b dispatch", "a state", "b state"),
        "confirms ack",
        *["connection output"] * 3,
        "afterwards",
    ]
    world.turn.run()
    assert len(world.events) == 11


def test_a_confirm_waits_for_the_sync_of_what_was_flushed(world: World) -> None:
    job = Job()
    tracker = world.tracker("confirms")
    world.turn.touch(Queue(world, "a", Log(job)))
    tracker.publish(1, durable=True)
    world.turn.confirm(tracker)
    world.loop.run()
    assert world.wakes == 1
    assert "confirms ack" not in world.events
    world.commit()
    assert job.has_run
    assert world.events[-1] == "confirms ack"


def test_what_a_method_flushes_is_synced_too(world: World) -> None:
    job = Job()
    queue = Queue(world, "a", Log(job))
    world.turn.work_off(queue)
    queue.log = None
    world.turn.touch(queue)
    world.loop.run()
    world.commit()
    assert job.has_run


def test_a_failing_queue_does_not_stop_the_others(world: World) -> None:
    first, second, third = (Queue(world, name) for name in "abc")
    first.flush_error = OSError("full")
    second.dispatch_error = OSError("unreadable")
    for queue in (first, second, third):
        world.turn.touch(queue)
    world.turn.output(Output(world, "connection"))
    world.loop.run()
    assert world.failures == [(first, first.flush_error), (second, second.dispatch_error)]
    assert world.events == [
        *("a flush", "b flush", "c flush"),
        *("b dispatch", "c dispatch", "c state"),
        "connection output",
    ]
    world.turn.touch(third)
    world.loop.run()
    assert world.events[-1] == "c state"


@pytest.mark.parametrize("policy", list(SyncPolicy))
def test_what_a_queue_could_not_write_is_not_confirmed(policy: SyncPolicy) -> None:
    world = World(policy)
    queue = Queue(world, "a")
    queue.flush_error = OSError("full")
    tracker, other = world.tracker("durable"), world.tracker("transient")
    tracker.publish(1, durable=True)
    other.publish(1, durable=False)
    told: list[Exception | None] = []
    world.turn.touch(queue)
    world.turn.confirm(tracker)
    world.turn.confirm(other)
    world.turn.wait_for_logs(told.append)
    world.loop.run()
    world.commit()
    assert [event for event in world.events if "a " not in event] == [
        "durable failed: full",
        "transient ack",
    ]
    assert told == [queue.flush_error]
    world.turn.wait_for_logs(told.append)
    world.loop.run()
    world.commit()
    assert told == [queue.flush_error, None]


def test_on_a_full_disk_confirms_wait_until_there_is_room(world: World) -> None:
    queue, other = Queue(world, "a"), Queue(world, "b")
    queue.flush_error = DiskFull("no room")
    tracker = world.tracker("confirms")
    tracker.publish(1, durable=True)
    told: list[Exception | None] = []
    world.turn.touch(queue)
    world.turn.touch(other)
    world.turn.confirm(tracker)
    world.turn.wait_for_logs(told.append)
    world.turn.output(Output(world, "connection"))
    world.loop.run()
    world.commit()
    assert world.failures == []
    assert told == []
    assert world.events == [
        *("a flush", "b flush", "a dispatch", "b dispatch", "a state", "b state"),
        *("full True", "connection output"),
    ]
    world.now_ms += 1000
    world.loop.expire()
    world.loop.run()
    assert world.events[8:] == ["a flush", "a dispatch", "a state"], "there is no room yet"
    queue.flush_error = None
    world.now_ms += 1000
    world.loop.expire()
    world.loop.run()
    assert "confirms ack" not in world.events
    world.commit()
    assert world.events[11:] == ["a flush", "a dispatch", "a state", "full False", "confirms ack"]
    assert told == [None]


def test_on_a_full_disk_no_queue_gives_up_what_another_has_not_got(world: World) -> None:
    full, source, other = (Queue(world, name) for name in ("full", "source", "other"))
    full.flush_error = DiskFull("no space")
    for queue in (full, source, other):
        world.turn.touch(queue)
    world.turn.write_behind(source)
    world.loop.run()
    assert "other state" in world.events
    assert "source state" not in world.events
    full.flush_error = None
    world.now_ms += 1000
    world.loop.expire()
    world.loop.run()
    assert world.events.index("source state") > world.events.index("full state")


def test_a_method_on_a_queue_that_cannot_be_written_fails(world: World) -> None:
    queue = Queue(world, "a")
    queue.flush_error = OSError("full")
    with pytest.raises(InternalError):
        world.turn.work_off(queue)
    assert world.failures == [(queue, queue.flush_error)]
    tracker = world.tracker("confirms")
    tracker.publish(1, durable=True)
    world.turn.confirm(tracker)
    world.loop.run()
    assert world.events[-1] == "confirms failed: full"


def test_what_is_touched_on_the_way_belongs_to_the_turn(world: World) -> None:
    second = Queue(world, "b")

    class First(Queue):
        def dispatch(self, now_ms: int) -> int | None:
            world.turn.touch(second)
            return super().dispatch(now_ms)

    world.turn.touch(First(world, "a"))
    world.turn.output(Output(world, "connection"))
    world.loop.run()
    assert world.events == [
        *("a flush", "a dispatch", "b flush", "b dispatch"),
        *("a state", "b state", "connection output"),
    ]


class LoopingQueue(Queue):
    """A queue that is worked off because of what it does itself."""

    def dispatch(self, now_ms: int) -> int | None:
        super().dispatch(now_ms)
        if self._world.events.count(f"{self._name} dispatch") < 2:
            self._world.turn.work_off(self)
            self._note("dispatched")
        return None


def test_a_queue_is_not_dispatched_while_it_is(world: World) -> None:
    world.turn.touch(LoopingQueue(world, "a"))
    world.loop.run()
    assert world.events == [
        *("a flush", "a dispatch", "a flush", "a dispatched"),
        *("a flush", "a dispatch", "a state"),
    ]


def test_a_queue_that_is_gone_is_left_alone(world: World) -> None:
    queue = Queue(world, "a")
    world.turn.touch(queue)
    world.turn.forget(queue)
    world.loop.run()
    assert world.events == []


def test_a_queue_is_looked_at_again_when_it_says(world: World) -> None:
    class Waiting(Queue):
        def dispatch(self, now_ms: int) -> int | None:
            super().dispatch(now_ms)
            return 1000 if now_ms < 1000 else None

    world.turn.touch(Waiting(world, "a"))
    world.loop.run()
    world.now_ms = 999
    world.loop.expire()
    world.loop.run()
    assert world.events == ["a flush", "a dispatch", "a state"]
    world.now_ms = 1000
    world.loop.expire()
    world.loop.run()
    assert world.events == ["a flush", "a dispatch", "a state"] * 2
    assert world.loop.timers == []
