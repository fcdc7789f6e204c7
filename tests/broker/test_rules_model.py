"""A queue with rules (ages, limits, tries, priorities, dead letters) against a model of them.

The model says what each turn does: who is sent which message, which messages die of what and where
their dead letters arrive, and what is left. Time is a number that the test moves.
"""

import shutil
import tempfile
from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, cast

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pamqp import commands
from pamqp.base import Frame as Method

from tests.broker.peer import Outgoing, Peer, Received
from tests.broker.world import World

WAIT_MS = 56
"""How long the queue "wait" keeps dead letters before it sends them back.

What happens in two queues in the same millisecond has no order that clients may rely on. So clients
act, and what is held back is ready, at multiples of 16; messages live one millisecond longer than
such a multiple, and come back from "wait" halfway between two.
"""
CHANNELS = (1, 2)
PUBLISHER = 3

FEATURES: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "age": st.fixed_dictionaries({"x-message-ttl": st.sampled_from([0, 17, 97])}),
    "length": st.fixed_dictionaries(
        {
            "x-max-length": st.integers(0, 4),
            "x-overflow": st.sampled_from(["drop-head", "reject-publish", "reject-publish-dlx"]),
        }
    ),
    "bytes": st.fixed_dictionaries(
        {
            "x-max-length-bytes": st.sampled_from([0, 20, 60]),
            "x-overflow": st.sampled_from(["drop-head", "reject-publish", "reject-publish-dlx"]),
        }
    ),
    "tries": st.fixed_dictionaries({"x-delivery-limit": st.integers(0, 2)}),
    "retry": st.fixed_dictionaries(
        {
            "x-delayed-retry-min": st.sampled_from([16, 48]),
            "x-delayed-retry-max": st.sampled_from([32, 1024]),
            "x-delayed-retry-type": st.sampled_from(["all", "failed", "returned"]),
        }
    ),
    "single": st.just({"x-single-active-consumer": True}),
    "levels": st.fixed_dictionaries({"x-max-priority": st.sampled_from([1, 3])}),
    "quorum": st.just({"x-queue-type": "quorum"}),
}

rarely = st.integers(0, 3).map(lambda number: number == 3)
arguments = st.lists(st.sampled_from(sorted(FEATURES)), max_size=4, unique=True).flatmap(
    lambda names: st.tuples(*map(FEATURES.__getitem__, names)).map(
        lambda parts: {name: value for part in parts for name, value in part.items()}
    )
)


class Death(NamedTuple):
    queue: str
    reason: str
    count: int


class Content(NamedTuple):
    """A message, wherever it is."""

    body: bytes
    persistent: bool
    priority: int
    expiration_ms: int | None = None
    deaths: tuple[Death, ...] = ()

    def dead(self, queue: str, reason: str) -> "Content":
        """Its dead letter."""
        before = [death for death in self.deaths if death[:2] == (queue, reason)]
        others = [death for death in self.deaths if death[:2] != (queue, reason)]
        count = before[0].count + 1 if before else 1
        deaths = (Death(queue, reason, count), *others)
        return self._replace(expiration_ms=None, deaths=deaths)

    def goes_round(self, queue: str) -> bool:
        """Has it been in *queue*, and nobody rejected it since?"""
        for death in self.deaths:
            if death.reason == "rejected":
                return False
            if death.queue == queue:
                return True
        return False


@dataclass(eq=False)
class Entry:
    """A message in a queue; places are numbers in the order of arrival."""

    place: int
    content: Content
    level: int
    due_ms: float
    is_new: bool = True
    is_seen: bool = False
    acquired: int = 0
    failed: int = 0


_ORDER = attrgetter("level", "place")
_PLACE = attrgetter("place")
_PRIORITY = attrgetter("priority")


@dataclass(eq=False)
class Consumer:
    tag: str
    no_ack: bool
    prefetch: int
    priority: int
    unacked: int = 0
    due: list[Entry] = field(default_factory=list)
    """What it must be sent in this turn."""

    @property
    def has_credit(self) -> bool:
        return not self.prefetch or self.no_ack or self.unacked < self.prefetch


@dataclass(eq=False)
class Queue:
    name: str
    arguments: dict[str, Any]
    is_durable: bool
    target: "Queue | None" = None
    arriving: list[Entry] = field(default_factory=list)
    ready: list[Entry] = field(default_factory=list)
    held: list[tuple[int, Entry]] = field(default_factory=list)
    unacked: int = 0
    arrived: int = 0
    settled: int = 0
    consumers: list[Consumer] = field(default_factory=list)
    """Whose turn is next comes first; those of a single active consumer as they came."""
    active: Consumer | None = None

    @property
    def is_quorum(self) -> bool:
        return self.arguments.get("x-queue-type") == "quorum"

    @property
    def counts_tries(self) -> bool:
        return (
            self.is_quorum
            or "x-delivery-limit" in self.arguments
            or "x-delayed-retry-min" in self.arguments
        )

    @property
    def drops(self) -> bool:
        return self.arguments.get("x-overflow", "drop-head") == "drop-head"

    def is_over(self, entries: list[Entry]) -> bool:
        """Are these more than it may hold?"""
        length = self.arguments.get("x-max-length", len(entries))
        size = sum(len(entry.content.body) for entry in entries)
        return len(entries) > length or size > self.arguments.get("x-max-length-bytes", size)

    def entry(self, content: Content, now_ms: int) -> Entry:
        lifetimes_ms = [content.expiration_ms, self.arguments.get("x-message-ttl")]
        lifetime_ms = min((ms for ms in lifetimes_ms if ms is not None), default=float("inf"))
        level = -min(content.priority, self.arguments.get("x-max-priority", 0))
        self.arrived += 1
        return Entry(self.arrived, content, level, now_ms + lifetime_ms)

    # ---- consumers

    def add(self, consumer: Consumer) -> None:
        self.consumers.append(consumer)
        if self.active is None:
            self.active = consumer

    def remove(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        if self.active is consumer:
            self.active = self.successor()

    def successor(self) -> Consumer | None:
        if self.is_quorum:
            return max(self.consumers, key=_PRIORITY, default=None)
        return self.consumers[0] if self.consumers else None

    def next_consumer(self) -> Consumer | None:
        """Who is sent the next message."""
        if "x-single-active-consumer" in self.arguments:
            return self.next_active()
        able = [consumer for consumer in self.consumers if consumer.has_credit]
        return max(able, key=_PRIORITY, default=None)

    def serve(self, consumer: Consumer) -> None:
        """*consumer* is sent a message."""
        if "x-single-active-consumer" not in self.arguments:
            behind = self.consumers.index(consumer) + 1
            self.consumers = self.consumers[behind:] + self.consumers[:behind]

    def next_active(self) -> Consumer | None:
        successor = self.successor()
        if self.active is None or successor is None:
            return None
        if self.is_quorum and successor.priority > self.active.priority:
            if self.active.unacked:
                return None
            self.active = successor
        return self.active if self.active.has_credit else None


class Delivery(NamedTuple):
    entry: Entry
    consumer: Consumer | None


@dataclass(eq=False)
class Channel:
    next_tag: int = 1
    unacked: dict[int, Delivery] = field(default_factory=dict)
    consumers: dict[str, Consumer] = field(default_factory=dict)


def deaths_of(received: Received) -> tuple[Death, ...]:
    """What the header x-death says."""
    entries = cast("list[dict[str, Any]]", (received.properties.headers or {}).get("x-death", []))
    return tuple(Death(entry["queue"], entry["reason"], entry["count"]) for entry in entries)


# What ends channels or queues waits until there is something to lose.
ending = precondition(lambda model: model.steps_since_end >= 6)
holding = precondition(lambda model: any(c.unacked for c in model.channels.values()))


class RulesModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.published = 0
        self.steps_since_end = 0

    @initialize(
        cache_bytes=st.sampled_from([0, 300, 1 << 20]),
        arguments=arguments,
        is_durable=st.booleans(),
        grave=st.sampled_from([None, "dead", "wait", "work"]),
    )
    def start(
        self, cache_bytes: int, arguments: dict[str, Any], is_durable: bool, grave: str | None
    ) -> None:
        directory = self.root / "data"
        directory.mkdir()
        self.world = World(directory, cache_bytes=cache_bytes)
        is_durable = is_durable or arguments.get("x-queue-type") == "quorum"
        self.work = Queue("work", arguments, is_durable)
        to_work = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"}
        self.wait_queue = Queue("wait", {"x-message-ttl": WAIT_MS, **to_work}, True, self.work)
        self.dead = Queue("dead", {}, True)
        self.queues = [self.work, self.wait_queue, self.dead]
        for queue in self.queues:
            if queue.name == grave:
                self.work.target = queue
                arguments["x-dead-letter-exchange"] = ""
                arguments["x-dead-letter-routing-key"] = queue.name
        self.connect()
        for queue in self.queues:
            self.declare(queue)
        self.watch_dead()

    # ---- connections and queues

    def connect(self) -> None:
        self.watcher = Peer(self.world)
        self.watcher.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
        self.watcher.call(PUBLISHER, commands.Channel.Open(), commands.Channel.OpenOk)
        self.watcher.call(PUBLISHER, commands.Confirm.Select(), commands.Confirm.SelectOk)
        self.confirms = 0
        self.connect_client()

    def connect_client(self) -> None:
        self.client = Peer(self.world)
        self.channels: dict[int, Channel] = {}
        for number in CHANNELS:
            self.open_channel(number)

    def open_channel(self, number: int) -> None:
        self.steps_since_end = 0
        self.client.call(number, commands.Channel.Open(), commands.Channel.OpenOk)
        self.channels[number] = Channel()

    def declare(self, queue: Queue) -> None:
        self.watcher.call(
            1,
            commands.Queue.Declare(
                queue=queue.name, durable=queue.is_durable, arguments=queue.arguments
            ),
            commands.Queue.DeclareOk,
        )

    def watch_dead(self) -> None:
        self.dead.consumers = [Consumer("dead", True, 0, 0)]
        self.turn()
        self.watcher.send(1, commands.Basic.Consume(queue="dead", consumer_tag="", no_ack=True))
        self.verify(commands.Basic.ConsumeOk)

    # ---- what a turn does

    @property
    def now_ms(self) -> int:
        return self.world.now_ms

    def arrive(self, queue: Queue, content: Content) -> bool:
        """A message, or a dead letter, comes to a queue; answers whether it is taken."""
        entry = queue.entry(content, self.now_ms)
        if not queue.drops and queue.is_over([*queue.ready, *queue.arriving, entry]):
            if queue.next_consumer() is not None:
                self.work_off(queue)
            if queue.is_over([*queue.ready, *queue.arriving, entry]):
                queue.settled += 1
                if queue.arguments["x-overflow"] == "reject-publish-dlx":
                    self.send_dead(queue, content, "maxlen")
                return False
        queue.arriving.append(entry)
        return True

    def bury(self, queue: Queue, entry: Entry, reason: str) -> None:
        queue.settled += 1
        self.send_dead(queue, entry.content, reason)

    def send_dead(self, queue: Queue, content: Content, reason: str) -> None:
        if queue.target is None:
            return
        letter = content.dead(queue.name, reason)
        if reason == "rejected" or not letter.goes_round(queue.target.name):
            self.arrive(queue.target, letter)

    def turn(self) -> None:
        """Work off all queues."""
        for queue in self.queues:
            self.work_off(queue)
        while arrived := [queue for queue in self.queues if queue.arriving]:
            for queue in arrived:
                self.work_off(queue)

    def work_off(self, queue: Queue) -> None:
        arriving, queue.arriving = queue.arriving, []
        for entry in arriving:
            insort(queue.ready, entry, key=_ORDER)
        for due_ms, entry in sorted(queue.held, key=lambda held: held[0]):
            if due_ms <= self.now_ms:
                queue.held.remove((due_ms, entry))
                insort(queue.ready, entry, key=_ORDER)
        while queue.ready and (consumer := queue.next_consumer()) is not None:
            taken = self.read(queue)
            if taken is not None:
                self.hand_out(queue, taken, consumer)
        while queue.drops and queue.is_over(queue.ready):
            self.bury(queue, queue.ready.pop(0), "maxlen")
        while dead := [entry for entry in self.heads(queue) if entry.due_ms <= self.now_ms]:
            for entry in dead:
                queue.ready.remove(entry)
                self.bury(queue, entry, "expired")
        for entry in queue.ready:
            entry.is_new = False

    def heads(self, queue: Queue) -> list[Entry]:
        """The oldest message of each level, the lowest level first."""
        levels = [list(entries) for _, entries in groupby(queue.ready, attrgetter("level"))]
        return [entries[0] for entries in reversed(levels)]

    def read(self, queue: Queue) -> Entry | None:
        """Take the first message that is alive; those before it are buried."""
        limit = queue.arguments.get("x-delivery-limit", float("inf"))
        while queue.ready:
            entry = queue.ready.pop(0)
            if not entry.is_new and entry.due_ms <= self.now_ms:
                self.bury(queue, entry, "expired")
            elif entry.failed > limit:
                self.bury(queue, entry, "delivery_limit")
            else:
                entry.is_new = False
                return entry
        return None

    def hand_out(self, queue: Queue, entry: Entry, consumer: Consumer) -> None:
        queue.serve(consumer)
        consumer.due.append(entry)
        if consumer.no_ack:
            queue.settled += 1
        else:
            queue.unacked += 1
            consumer.unacked += 1

    # ---- what comes back

    def verify(self, *answers: type[Method]) -> list[Received]:
        """Check the deliveries of this turn and that all else is *answers*, which are returned."""
        others = []
        for received in self.client.receive():
            if isinstance(received.method, commands.Basic.Deliver):
                channel = self.channels[received.channel]
                consumer = channel.consumers[received.method.consumer_tag]
                self.delivered(channel, consumer.due.pop(0), received, consumer)
            else:
                others.append(received)
        for channel in self.channels.values():
            assert not any(consumer.due for consumer in channel.consumers.values())
        (watcher,) = self.dead.consumers
        for received in self.watcher.receive():
            if isinstance(received.method, commands.Basic.Deliver):
                content = watcher.due.pop(0).content
                assert (received.body, deaths_of(received)) == (content.body, content.deaths)
                assert received.properties.expiration is None
            else:
                others.append(received)
        assert not watcher.due
        assert tuple(type(received.method) for received in others) == answers
        return others

    def delivered(
        self, channel: Channel, entry: Entry, received: Received, consumer: Consumer | None
    ) -> None:
        method, headers = received.method, received.properties.headers or {}
        assert isinstance(method, commands.Basic.Deliver | commands.Basic.GetOk)
        assert method.delivery_tag == channel.next_tag
        assert received.body == entry.content.body
        assert method.redelivered == entry.is_seen
        assert deaths_of(received) == entry.content.deaths
        tries = headers.get("x-acquired-count"), headers.get("x-delivery-count")
        is_counted = self.work.counts_tries and entry.is_seen
        assert tries == ((entry.acquired, entry.failed) if is_counted else (None, None))
        entry.is_seen = True
        if consumer is None or not consumer.no_ack:
            channel.unacked[channel.next_tag] = Delivery(entry, consumer)
        channel.next_tag += 1

    # ---- operations

    @rule(
        messages=st.lists(
            st.tuples(
                st.integers(0, 30),
                st.booleans(),
                st.sampled_from([None, None, 0, 17, 65]),
                st.integers(0, 4),
            ),
            min_size=1,
            max_size=6,
        )
    )
    def publish(self, messages: list[tuple[int, bool, int | None, int]]) -> None:
        contents = []
        for size, persistent, expiration_ms, priority in messages:
            body = b"%d." % self.published + b"x" * size
            contents.append(Content(body, persistent, priority, expiration_ms))
            self.published += 1
        taken = [self.arrive(self.work, content) for content in contents]
        self.turn()
        self.watcher.publish_each(
            PUBLISHER,
            *(
                Outgoing(
                    "work",
                    content.body,
                    persistent=content.persistent,
                    priority=content.priority,
                    expiration=_text(content.expiration_ms),
                )
                for content in contents
            ),
        )
        expected = []
        for is_taken, run in groupby(taken):
            count = len(list(run))
            self.confirms += count
            kind = commands.Basic.Ack if is_taken else commands.Basic.Nack
            expected.append((kind, self.confirms, count > 1))
        answers = self.verify(*(kind for kind, _, _ in expected))
        methods = [cast("commands.Basic.Ack", answer.method) for answer in answers]
        found = [(type(method), method.delivery_tag, method.multiple) for method in methods]
        assert found == expected

    @rule(milliseconds=st.sampled_from([16, 32, 96, 992]))
    def wait(self, milliseconds: int) -> None:
        end_ms = self.now_ms + milliseconds
        while self.now_ms < end_ms:
            due_ms = [entry.due_ms for queue in self.queues for entry in self.heads(queue)]
            due_ms += [held_until_ms for held_until_ms, _ in self.work.held]
            self.world.wait(int(min([end_ms, *due_ms])) - self.now_ms)
            self.turn()
            self.verify()

    @rule(
        number=st.sampled_from(CHANNELS),
        tag=st.sampled_from(["red", "blue"]),
        no_ack=rarely,
        prefetch=st.sampled_from([0, 1, 3]),
        priority=st.sampled_from([0, 0, 1]),
    )
    def consume(self, number: int, tag: str, no_ack: bool, prefetch: int, priority: int) -> None:
        """A consumer comes, or goes."""
        channel = self.channels[number]
        if tag in channel.consumers:
            self.work.remove(channel.consumers.pop(tag))
            self.client.send(number, commands.Basic.Cancel(tag))
            self.turn()
            self.verify(commands.Basic.CancelOk)
            return
        consumer = Consumer(tag, no_ack, prefetch, priority)
        channel.consumers[tag] = consumer
        self.work.add(consumer)
        self.turn()
        consume = commands.Basic.Consume(
            queue="work", consumer_tag=tag, no_ack=no_ack, arguments={"x-priority": priority}
        )
        self.client.send(number, commands.Basic.Qos(prefetch_count=prefetch), consume)
        self.verify(commands.Basic.QosOk, commands.Basic.ConsumeOk)

    @precondition(
        lambda self: not (self.work.is_quorum and "x-single-active-consumer" in self.work.arguments)
    )
    @rule(number=st.sampled_from(CHANNELS), no_ack=rarely)
    def get(self, number: int, no_ack: bool) -> None:
        work = self.work
        entry = self.read(work)
        left = len(work.ready)
        if entry is not None:
            work.settled += no_ack
            work.unacked += not no_ack
        self.turn()
        self.client.send(number, commands.Basic.Get(queue="work", no_ack=no_ack))
        if entry is None:
            self.verify(commands.Basic.GetEmpty)
            return
        (received,) = self.verify(commands.Basic.GetOk)
        channel = self.channels[number]
        consumer = Consumer("", True, 0, 0) if no_ack else None
        self.delivered(channel, entry, received, consumer)
        assert cast("commands.Basic.GetOk", received.method).message_count == left

    @holding
    @rule(data=st.data(), how=st.sampled_from(["ack", "discard", "drop"]), multiple=st.booleans())
    def finish(self, data: st.DataObject, how: str, multiple: bool) -> None:
        """Deliveries are acknowledged, or rejected for good."""
        number, tag, multiple = self.settle(data, how, multiple=multiple and how != "drop")
        self.client.send(
            number,
            {
                "ack": commands.Basic.Ack(tag, multiple),
                "discard": commands.Basic.Nack(tag, multiple, False),
                "drop": commands.Basic.Reject(tag, False),
            }[how],
        )
        self.verify()

    @holding
    @rule(data=st.data(), how=st.sampled_from(["nack", "reject"]), multiple=st.booleans())
    def give_back(self, data: st.DataObject, how: str, multiple: bool) -> None:
        """Deliveries come back; by basic.reject they have failed."""
        number, tag, multiple = self.settle(data, how, multiple=multiple and how != "reject")
        is_nack = how == "nack"
        nack, reject = commands.Basic.Nack(tag, multiple, True), commands.Basic.Reject(tag, True)
        self.client.send(number, nack if is_nack else reject)
        self.verify()

    @holding
    @rule(data=st.data())
    def recover(self, data: st.DataObject) -> None:
        number = self.draw_holder(data)
        self.end(self.channels[number], list(self.channels[number].unacked), "recover")
        self.turn()
        self.client.send(number, commands.Basic.Recover(requeue=True))
        self.verify(commands.Basic.RecoverOk)

    def draw_holder(self, data: st.DataObject) -> int:
        """The number of a channel that has something to settle."""
        return data.draw(st.sampled_from([n for n, c in self.channels.items() if c.unacked]))

    def settle(self, data: st.DataObject, how: str, *, multiple: bool) -> tuple[int, int, bool]:
        """End some deliveries; answers channel, tag and *multiple*."""
        number = self.draw_holder(data)
        channel = self.channels[number]
        tag = data.draw(st.sampled_from(list(channel.unacked)))
        covered = [t for t in channel.unacked if t == tag or (multiple and t < tag)]
        self.end(channel, covered, how)
        self.turn()
        return number, tag, multiple

    def end(self, channel: Channel, tags: Iterable[int], how: str) -> None:
        """Deliveries end: those to one consumer together."""
        deliveries = [channel.unacked.pop(tag) for tag in tags]
        for consumer, group in groupby(deliveries, attrgetter("consumer")):
            entries = sorted((entry for entry, _ in group), key=_PLACE)
            self.work.unacked -= len(entries)
            if consumer is not None:
                consumer.unacked -= len(entries)
            if how == "ack":
                self.work.settled += len(entries)
            elif how in ("discard", "drop"):
                for entry in entries:
                    self.bury(self.work, entry, "rejected")
            else:
                self.come_back(entries, is_failed=how in ("reject", "lost"))

    def come_back(self, entries: list[Entry], *, is_failed: bool) -> None:
        """Deliveries are ready again, or later, or have failed too often."""
        arguments = self.work.arguments
        limit = arguments.get("x-delivery-limit", float("inf"))
        delayed = arguments.get("x-delayed-retry-type", "")
        for entry in entries:
            entry.acquired += 1
            entry.failed += is_failed
            if entry.failed > limit:
                self.bury(self.work, entry, "delivery_limit")
            elif delayed in ("all", "failed" if is_failed else "returned"):
                tries = entry.failed if delayed == "failed" else entry.acquired
                delay_ms = min(
                    arguments["x-delayed-retry-min"] * tries, arguments["x-delayed-retry-max"]
                )
                self.work.held.append((self.now_ms + delay_ms, entry))
            else:
                insort(self.work.ready, entry, key=_ORDER)

    # ---- ends

    def forget(self, *channels: Channel) -> None:
        for channel in channels:
            for consumer in channel.consumers.values():
                self.work.remove(consumer)
            channel.consumers.clear()
            self.end(channel, list(channel.unacked), "lost")
        self.turn()

    @ending
    @rule(number=st.sampled_from(CHANNELS), is_lost=st.booleans())
    def end_channel(self, number: int, is_lost: bool) -> None:
        """The channel is closed, or the whole connection is lost."""
        if is_lost:
            self.forget(*self.channels.values())
            self.client.lose()
            self.connect_client()
            self.verify()
            return
        self.forget(self.channels[number])
        self.client.send(number, commands.Channel.Close(200, "", 0, 0))
        self.verify(commands.Channel.CloseOk)
        self.open_channel(number)

    @ending
    @rule(how=st.sampled_from(["purge", "orderly", "clean", "crash"]))
    def end_all(self, how: str) -> None:
        """Purge the queue, or restart the broker."""
        if how == "purge":
            self.purge()
        else:
            self.restart(how)

    def purge(self) -> None:
        count = len(self.work.ready)
        self.work.settled += count
        self.work.ready.clear()
        self.steps_since_end = 0
        self.watcher.send(1, commands.Queue.Purge(queue="work"))
        (purged,) = self.verify(commands.Queue.PurgeOk)
        assert cast("commands.Queue.PurgeOk", purged.method).message_count == count

    def restart(self, how: str) -> None:
        """What was handed out has failed; what was held back is ready."""
        work = self.work
        if how == "orderly":
            self.forget(*self.channels.values())
            self.client.lose()
            self.channels = {}
            self.verify()
        for channel in self.channels.values():
            for entry, _ in channel.unacked.values():
                entry.acquired += 1
                entry.failed += 1
                work.ready.append(entry)
        work.ready += [entry for _, entry in work.held]
        work.held, work.consumers, work.active, work.unacked = [], [], None, 0
        self.dead.consumers = []
        for queue in self.queues:
            count = len(queue.ready)
            queue.ready = [
                entry
                for entry in sorted(queue.ready, key=_ORDER)
                if entry.content.persistent and queue.is_durable
            ]
            queue.settled += count - len(queue.ready)
        if how == "crash":
            self.world.crash()
        else:
            self.world.restart()
        self.connect()
        if not work.is_durable:
            self.declare(work)
        self.turn()
        self.watch_dead()

    # ---- always

    @invariant()
    def counts_agree(self) -> None:
        self.steps_since_end += 1
        for queue in self.queues:
            assert queue.arrived == (
                len(queue.ready) + queue.unacked + len(queue.held) + queue.settled
            )
            found = self.watcher.call(
                1, commands.Queue.Declare(queue=queue.name, passive=True), commands.Queue.DeclareOk
            )
            assert found.message_count == len(queue.ready)
            assert found.consumer_count == len(queue.consumers)
            assert self.world.vhost.queues[queue.name].unacked == queue.unacked

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.close()
            assert self.world.budget.used == 0
        shutil.rmtree(self.root)


def _text(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else str(milliseconds)


TestRulesModel = RulesModel.TestCase
TestRulesModel.settings = settings(
    max_examples=settings().max_examples // 2, suppress_health_check=list(HealthCheck)
)
