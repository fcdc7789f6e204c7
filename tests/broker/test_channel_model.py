"""Channels of two connections against a model of queues, deliveries and transactions.

After each action the answers are exactly those that the model expects, what was delivered is what
was oldest, nobody who has credit waits, and all counts agree.
"""

import shutil
import tempfile
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pamqp import commands
from pamqp.base import Frame as Method

from tests.broker.peer import Outgoing, Peer, Received
from tests.broker.world import World

PLAIN, TX, CONFIRM = "plain", "tx", "confirm"
SELECTS: dict[str, type[Method]] = {TX: commands.Tx.Select, CONFIRM: commands.Confirm.Select}
ENDS: tuple[type[Method], ...] = commands.Tx.Commit, commands.Tx.Rollback
CHANNELS = {("one", 1): PLAIN, ("one", 2): TX, ("two", 1): CONFIRM}
"""Connection, number, and the mode that the channel is put into when it is opened."""

SHORT_LENGTH = 3
"""The queue "short" refuses more."""
DURABLE = {"durable": True, "transient": False, "short": True}
EXCHANGES = {"pair": ("durable", "transient"), "all": ("durable", "transient", "short")}
ROUTES = {
    ("", "durable"): ("durable",),
    ("", "transient"): ("transient",),
    ("", "short"): ("short",),
    ("", "nobody"): (),
    **{(exchange, ""): queues for exchange, queues in EXCHANGES.items()},
}

channels = st.sampled_from(sorted(CHANNELS))
queues = st.sampled_from(sorted(DURABLE))
tags = st.sampled_from(["red", "blue"])


@dataclass(eq=False)
class Entry:
    """A message in a queue; places are numbers in the order of publishing."""

    place: int
    message: Outgoing
    is_seen: bool = False


_PLACE = attrgetter("place")
_CONSUMERS = attrgetter("consumers")
_OPEN_TAGS = attrgetter("open_tags")
_TRANSACTION = attrgetter("has_transaction")


@dataclass(eq=False)
class Queue:
    name: str
    ready: list[Entry] = field(default_factory=list)
    length: int = 0
    consumers: list["Consumer"] = field(default_factory=list)
    """Whose turn is next comes first."""

    def add(self, message: Outgoing) -> Entry:
        entry = Entry(self.length, message)
        self.length += 1
        self.ready.append(entry)
        return entry

    def give_back(self, entry: Entry) -> None:
        insort(self.ready, entry, key=_PLACE)

    def serve(self, consumer: "Consumer") -> None:
        """*consumer* is sent a message."""
        behind = self.consumers.index(consumer) + 1
        self.consumers = self.consumers[behind:] + self.consumers[:behind]


@dataclass(eq=False)
class Consumer:
    channel: "Channel"
    queue: Queue
    no_ack: bool
    is_exclusive: bool
    prefetch: int
    priority: int

    @property
    def credit(self) -> int:
        """How many messages more it may be sent."""
        channel = self.channel
        if channel.is_stopped or channel.connection.is_clogged:
            return 0
        held = Counter(delivery.consumer for delivery in channel.unacked.values())
        credit = 1 << 30
        if self.prefetch and not self.no_ack:
            credit = self.prefetch - held[self]
        if channel.shared_prefetch:
            credit = min(credit, channel.shared_prefetch - (held.total() - held[None]))
        return credit


class Delivery(NamedTuple):
    queue: Queue
    entry: Entry
    consumer: Consumer | None


@dataclass(eq=False)
class Channel:
    """What the client of one channel knows."""

    connection: "Connection"
    number: int
    mode: str
    next_tag: int = 1
    unacked: dict[int, Delivery] = field(default_factory=dict)
    consumers: dict[str, Consumer] = field(default_factory=dict)
    prefetch: int = 0
    shared_prefetch: int = 0
    is_stopped: bool = False
    publishes: list[tuple[Outgoing, list[Queue]]] = field(default_factory=list)
    """What the transaction publishes."""
    settled: dict[int, bool] = field(default_factory=dict)
    """Tags that the transaction settles, and whether it requeues them."""
    confirms: int = 0

    @property
    def open_tags(self) -> list[int]:
        """The tags that may be settled."""
        return [tag for tag in self.unacked if tag not in self.settled]

    @property
    def has_transaction(self) -> bool:
        """Is there something to commit?"""
        return bool(self.publishes or self.settled)


@dataclass(eq=False)
class Connection:
    peer: Peer
    is_clogged: bool = False
    channels: dict[int, Channel] = field(default_factory=dict)


Answer = tuple[object, ...]
"""The name of a method and what matters of its arguments."""


def described(received: Received) -> Answer:
    method = received.method
    if isinstance(method, commands.Basic.Ack | commands.Basic.Nack):
        return type(method).__name__, method.delivery_tag, method.multiple
    if isinstance(method, commands.Basic.Return):
        return "Return", method.reply_code, method.exchange, method.routing_key, received.body
    if isinstance(method, commands.Channel.Close):
        return "Close", method.reply_code, method.reply_text
    if isinstance(method, commands.Basic.Cancel):
        return "Cancel", method.consumer_tag
    if isinstance(method, commands.Queue.PurgeOk | commands.Queue.DeleteOk):
        return type(method).__name__, method.message_count
    if isinstance(method, commands.Channel.FlowOk):
        return "FlowOk", method.active
    return (type(method).__name__,)


# What ends channels or queues waits until there is something to lose.
ending = precondition(lambda model: model.steps_since_end >= 6)


class ChannelModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.published = 0
        self.queues: dict[str, Queue] = {}
        self.steps_since_end = 0

    @initialize(
        cache_bytes=st.sampled_from([0, 300, 1 << 20]),
        backlog=st.lists(st.sampled_from(["durable", "transient"]), max_size=20),
    )
    def start(self, cache_bytes: int, backlog: list[str]) -> None:
        directory = self.root / "data"
        directory.mkdir()
        self.world = World(directory, cache_bytes=cache_bytes)
        self.watch()
        for exchange in EXCHANGES:
            self.watcher.call(
                1,
                commands.Exchange.Declare(exchange=exchange, exchange_type="fanout", durable=True),
                commands.Exchange.DeclareOk,
            )
        for name in DURABLE:
            self.declare(name)
        self.connections = {name: self.connect(name) for name in ("one", "two")}
        routes = [("", name) for name in backlog]
        self.publish(self.channel(("one", 1)), self.messages(routes, True, False, 30))

    # ---- connections, channels, queues

    def watch(self) -> None:
        """A connection that only looks on."""
        self.watcher = Peer(self.world)
        self.watcher.call(1, commands.Channel.Open(), commands.Channel.OpenOk)

    def connect(self, name: str) -> Connection:
        connection = Connection(Peer(self.world))
        for (owner, number), mode in CHANNELS.items():
            if owner == name:
                self.open_channel(connection, number, mode)
        return connection

    def open_channel(self, connection: Connection, number: int, mode: str) -> None:
        self.steps_since_end = 0
        peer = connection.peer
        peer.call(number, commands.Channel.Open(), commands.Channel.OpenOk)
        if mode in SELECTS:
            peer.send(number, SELECTS[mode]())
            assert [described(answer) for answer in peer.receive()] == [("SelectOk",)]
        connection.channels[number] = Channel(connection, number, mode)

    def declare(self, name: str) -> None:
        arguments = {"x-max-length": SHORT_LENGTH, "x-overflow": "reject-publish"}
        self.watcher.call(
            1,
            commands.Queue.Declare(
                queue=name, durable=DURABLE[name], arguments=arguments if name == "short" else None
            ),
            commands.Queue.DeclareOk,
        )
        for exchange, queues in EXCHANGES.items():
            if name in queues:
                self.watcher.call(
                    1, commands.Queue.Bind(queue=name, exchange=exchange), commands.Queue.BindOk
                )
        self.queues[name] = Queue(name)

    def channel(self, key: tuple[str, int]) -> Channel:
        name, number = key
        return self.connections[name].channels[number]

    def all_channels(self) -> list[Channel]:
        return [
            channel
            for connection in self.connections.values()
            for channel in connection.channels.values()
        ]

    def any_channel(self, is_fit: Callable[[Channel], object]) -> bool:
        return any(map(is_fit, self.all_channels()))

    def draw_channel(self, data: st.DataObject, is_fit: Callable[[Channel], object]) -> Channel:
        fit = [key for key in sorted(CHANNELS) if is_fit(self.channel(key))]
        return self.channel(data.draw(st.sampled_from(fit)))

    # ---- what comes back

    def expect(self, channel: Channel | None, *answers: Answer) -> None:
        """These answers, and nothing else, come on *channel* beside deliveries."""
        expected = [(channel, answer) for answer in answers]
        assert [(by, described(received)) for by, received in self.take()] == expected

    def take(self) -> list[tuple[Channel | None, Received]]:
        """Check and remove the deliveries; answers all else."""
        others: list[tuple[Channel | None, Received]] = []
        dealt: dict[Queue, list[tuple[Entry, Consumer]]] = {}
        others += [(None, received) for received in self.watcher.receive()]
        for connection in self.connections.values():
            for received in connection.peer.receive():
                channel, method = connection.channels[received.channel], received.method
                if not isinstance(method, commands.Basic.Deliver):
                    others.append((channel, received))
                    continue
                consumer = channel.consumers[method.consumer_tag]
                queue = consumer.queue
                assert consumer.credit > 0
                entry = self.delivered(channel, queue, method, received.body)
                dealt.setdefault(queue, []).append((entry, consumer))
                if not consumer.no_ack:
                    channel.unacked[channel.next_tag - 1] = Delivery(queue, entry, consumer)
        for queue, pairs in dealt.items():
            entries = sorted((entry for entry, _ in pairs), key=_PLACE)
            assert queue.ready[: len(pairs)] == entries, "the oldest are delivered first"
            del queue.ready[: len(pairs)]
            self.check_turns(queue, pairs)
        return others

    def delivered(
        self,
        channel: Channel,
        queue: Queue,
        method: commands.Basic.Deliver | commands.Basic.GetOk,
        body: bytes,
    ) -> Entry:
        """Check one delivery; answers what was delivered, which is still ready."""
        assert method.delivery_tag == channel.next_tag
        channel.next_tag += 1
        (entry,) = (entry for entry in queue.ready if entry.message.body == body)
        message = entry.message
        assert (method.exchange, method.routing_key) == (message.exchange, message.routing_key)
        assert method.redelivered == entry.is_seen
        entry.is_seen = True
        return entry

    def check_turns(self, queue: Queue, pairs: list[tuple[Entry, Consumer]]) -> None:
        """No consumer that has credit even now was passed over."""
        for _, consumer in sorted(pairs, key=lambda pair: pair[0].place):
            able = [c for c in queue.consumers if c.credit > 0]
            assert all(other.priority <= consumer.priority for other in able)
            equals = [other for other in able if other.priority == consumer.priority]
            assert consumer not in equals[1:]
            queue.serve(consumer)

    # ---- publishing

    def messages(
        self, routes: Iterable[tuple[str, str]], persistent: bool, mandatory: bool, size: int
    ) -> list[Outgoing]:
        messages = []
        for exchange, routing_key in routes:
            body = b"%d." % self.published + b"x" * size
            self.published += 1
            messages.append(Outgoing(routing_key, body, exchange, persistent, mandatory))
        return messages

    def publish(self, channel: Channel, messages: list[Outgoing]) -> None:
        """Publish in one chunk, and check the answers."""
        returns = [
            ("Return", 312, message.exchange, message.routing_key, message.body)
            for message in messages
            if message.mandatory and not ROUTES[message.exchange, message.routing_key]
        ]
        channel.connection.peer.publish_each(channel.number, *messages)
        if channel.mode == TX:
            for message in messages:
                names = ROUTES[message.exchange, message.routing_key]
                channel.publishes.append((message, [self.queues[name] for name in names]))
            # A message that goes nowhere is returned when the transaction is committed.
            self.expect(channel)
            return
        for message in messages:
            for name in ROUTES[message.exchange, message.routing_key]:
                self.queues[name].add(message)
        answers = [(by, described(received)) for by, received in self.take()]
        refused = self.refuse(messages)
        expected: list[Answer] = [*returns]
        if channel.mode == CONFIRM:
            for is_refused, run in groupby(message in refused for message in messages):
                count = len(list(run))
                channel.confirms += count
                expected.append(("Nack" if is_refused else "Ack", channel.confirms, count > 1))
        assert answers == [(channel, answer) for answer in expected]

    def refuse(self, messages: list[Outgoing]) -> list[Outgoing]:
        """Take back from the short queue those of *messages* that it has no room for."""
        short = self.queues["short"].ready
        new = [entry for entry in short if entry.message in messages]
        count = min(len(new), max(len(short) - SHORT_LENGTH, 0))
        refused = new[len(new) - count :]
        for entry in refused:
            short.remove(entry)
        return [entry.message for entry in refused]

    def publishable(self, channel: Channel) -> list[tuple[str, str]]:
        """A transaction that a queue refuses is not part of this model."""
        return [
            route
            for route, queues in sorted(ROUTES.items())
            if channel.mode != TX or "short" not in queues
        ]

    @rule(
        key=channels,
        data=st.data(),
        count=st.integers(1, 8),
        size=st.integers(0, 120),
        persistent=st.booleans(),
        mandatory=st.booleans(),
    )
    def publish_alike(
        self,
        key: tuple[str, int],
        data: st.DataObject,
        count: int,
        size: int,
        persistent: bool,
        mandatory: bool,
    ) -> None:
        channel = self.channel(key)
        route = data.draw(st.sampled_from(self.publishable(channel)))
        self.publish(channel, self.messages([route] * count, persistent, mandatory, size))

    @rule(key=channels, data=st.data())
    def publish_mixed(self, key: tuple[str, int], data: st.DataObject) -> None:
        channel = self.channel(key)
        routes = st.sampled_from(self.publishable(channel))
        runs = data.draw(
            st.lists(
                st.tuples(
                    st.lists(routes, min_size=1, max_size=3),
                    st.booleans(),
                    st.booleans(),
                    st.integers(0, 120),
                ),
                min_size=1,
                max_size=4,
            )
        )
        self.publish(channel, [message for run in runs for message in self.messages(*run)])

    # ---- consuming

    @rule(
        key=channels,
        queue=queues,
        tag=tags,
        no_ack=st.booleans(),
        is_exclusive=st.integers(0, 5).map(lambda number: number == 5),
        priority=st.sampled_from([0, 0, 0, 1]),
    )
    def consume(
        self,
        key: tuple[str, int],
        queue: str,
        tag: str,
        no_ack: bool,
        is_exclusive: bool,
        priority: int,
    ) -> None:
        channel, model = self.channel(key), self.queues[queue]
        if tag in channel.consumers:
            return
        others = model.consumers
        is_refused = (is_exclusive and bool(others)) or any(c.is_exclusive for c in others)
        if not is_refused:
            consumer = Consumer(channel, model, no_ack, is_exclusive, channel.prefetch, priority)
            channel.consumers[tag] = consumer
            model.consumers.append(consumer)
        consume = commands.Basic.Consume(
            queue=queue,
            consumer_tag=tag,
            no_ack=no_ack,
            exclusive=is_exclusive,
            arguments={"x-priority": priority} if priority else None,
        )
        if is_refused:
            text = f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use"
            self.fault(channel, 403, text, consume)
        else:
            channel.connection.peer.send(channel.number, consume)
            self.expect(channel, ("ConsumeOk",))

    @precondition(lambda self: self.any_channel(_CONSUMERS))
    @rule(data=st.data(), tag=tags)
    def cancel(self, data: st.DataObject, tag: str) -> None:
        """A consumer leaves, if it is there."""
        channel = self.draw_channel(data, _CONSUMERS)
        consumer = channel.consumers.pop(tag, None)
        if consumer is not None:
            consumer.queue.consumers.remove(consumer)
        channel.connection.peer.send(channel.number, commands.Basic.Cancel(tag))
        self.expect(channel, ("CancelOk",))

    @rule(
        key=channels,
        kind=st.sampled_from(["prefetch", "shared prefetch", "flow", "socket"]),
        count=st.integers(0, 4),
    )
    def limit(self, key: tuple[str, int], kind: str, count: int) -> None:
        """Limit deliveries to a channel, or to a whole connection, or let them go on."""
        channel = self.channel(key)
        peer, number = channel.connection.peer, channel.number
        if kind == "socket":
            self.clog(channel.connection)
        elif kind == "flow":
            channel.is_stopped = not channel.is_stopped
            is_active = not channel.is_stopped
            peer.send(number, commands.Channel.Flow(active=is_active))
            self.expect(channel, ("FlowOk", is_active))
        else:
            is_shared = kind == "shared prefetch"
            setattr(channel, "shared_prefetch" if is_shared else "prefetch", count)
            peer.send(number, commands.Basic.Qos(prefetch_count=count, global_=is_shared))
            self.expect(channel, ("QosOk",))

    def clog(self, connection: Connection) -> None:
        """The socket's buffer is full, or has room again."""
        connection.is_clogged = not connection.is_clogged
        session = connection.peer.session
        if connection.is_clogged:
            session.pause_output()
        else:
            session.resume_output()
        self.world.run()
        self.expect(None)

    @rule(key=channels, queue=queues, no_ack=st.booleans())
    def get(self, key: tuple[str, int], queue: str, no_ack: bool) -> None:
        channel, model = self.channel(key), self.queues[queue]
        channel.connection.peer.send(channel.number, commands.Basic.Get(queue=queue, no_ack=no_ack))
        ((by, received),) = self.take()
        assert by is channel
        if not model.ready:
            assert isinstance(received.method, commands.Basic.GetEmpty)
            return
        assert isinstance(received.method, commands.Basic.GetOk)
        entry = self.delivered(channel, model, received.method, received.body)
        assert model.ready.pop(0) is entry
        assert received.method.message_count == len(model.ready)
        if not no_ack:
            channel.unacked[channel.next_tag - 1] = Delivery(model, entry, None)

    # ---- settling

    def settle(self, channel: Channel, tags: Iterable[int], *, requeue: bool) -> None:
        """The end of deliveries, or of a transaction that ends them."""
        for tag in tags:
            delivery = channel.unacked.pop(tag)
            if requeue:
                delivery.queue.give_back(delivery.entry)

    def note(self, channel: Channel, tags: Iterable[int], *, requeue: bool) -> None:
        """The client settles deliveries."""
        if channel.mode == TX:
            channel.settled.update(dict.fromkeys(tags, requeue))
        else:
            self.settle(channel, tags, requeue=requeue)

    @precondition(lambda self: self.any_channel(_OPEN_TAGS))
    @rule(data=st.data(), how=st.sampled_from(["ack", "nack", "requeue", "recover"]))
    def settle_multiple(self, data: st.DataObject, how: str) -> None:
        """All up to a tag, or with 0 all there are, if any."""
        channel = self.draw_channel(data, _OPEN_TAGS)
        peer, number = channel.connection.peer, channel.number
        open_tags = channel.open_tags
        if how == "recover":
            self.settle(channel, open_tags, requeue=True)
            peer.send(number, commands.Basic.Recover(requeue=True))
            self.expect(channel, ("RecoverOk",))
            return
        tag = data.draw(st.sampled_from([0, *open_tags]))
        requeue = how == "requeue"
        self.note(channel, [t for t in open_tags if not tag or t <= tag], requeue=requeue)
        ack, nack = commands.Basic.Ack(tag, True), commands.Basic.Nack(tag, True, requeue)
        peer.send(number, ack if how == "ack" else nack)
        self.expect(channel)

    @precondition(lambda self: self.any_channel(_OPEN_TAGS))
    @rule(data=st.data(), hows=st.lists(st.integers(0, 4), min_size=1, max_size=8))
    def settle_some(self, data: st.DataObject, hows: list[int]) -> None:
        """Single deliveries in any order, in one chunk."""
        channel = self.draw_channel(data, _OPEN_TAGS)
        open_tags = channel.open_tags
        methods: list[Method] = []
        for tag, how in zip(data.draw(st.permutations(open_tags)), hows, strict=False):
            self.note(channel, [tag], requeue=how in (2, 4))
            methods.append(
                (
                    commands.Basic.Ack(tag),
                    commands.Basic.Nack(tag, False, False),
                    commands.Basic.Nack(tag, False, True),
                    commands.Basic.Reject(tag, False),
                    commands.Basic.Reject(tag, True),
                )[how]
            )
        channel.connection.peer.send(channel.number, *methods)
        self.expect(channel)

    @ending
    @rule(
        key=channels,
        data=st.data(),
        kind=st.sampled_from([commands.Basic.Ack, commands.Basic.Nack, commands.Basic.Reject]),
        multiple=st.booleans(),
    )
    def settle_unknown(
        self, key: tuple[str, int], data: st.DataObject, kind: type[Method], multiple: bool
    ) -> None:
        """A tag that is not outstanding closes the channel; what comes before it counts."""
        channel = self.channel(key)
        first = data.draw(st.lists(st.sampled_from(channel.open_tags or [0]), max_size=1))
        first = [tag for tag in first if tag]
        self.note(channel, first, requeue=False)
        never = channel.next_tag + data.draw(st.integers(0, 2))
        is_multiple = multiple and kind is not commands.Basic.Reject
        settled = [number for number in range(channel.next_tag) if number not in channel.open_tags]
        tag = data.draw(st.sampled_from([never] if is_multiple else [never, *settled]))
        unknown = kind(tag, is_multiple) if is_multiple else kind(tag)
        text = f"PRECONDITION_FAILED - unknown delivery tag {tag}"
        methods = [*map(commands.Basic.Ack, first), unknown, commands.Basic.Ack(0, True)]
        self.fault(channel, 406, text, *methods)

    def fault(self, channel: Channel, code: int, text: str, *methods: Method) -> None:
        """The last of *methods* that counts closes the channel, and what it holds goes back."""
        self.forget(channel)
        peer, number = channel.connection.peer, channel.number
        peer.send(number, *methods)
        self.expect(channel, ("Close", code, text))
        peer.send(number, commands.Channel.CloseOk())
        self.reopen(channel)

    # ---- transactions

    @ending
    @rule(key=channels, method=st.sampled_from([*SELECTS.values(), *ENDS]))
    def change_mode(self, key: tuple[str, int], method: type[Method]) -> None:
        """Enter a mode, or end a transaction where there is none."""
        channel = self.channel(key)
        if method in ENDS:
            if channel.mode != TX:
                text = "PRECONDITION_FAILED - channel is not transactional"
                self.fault(channel, 406, text, method())
            return
        (mode,) = (mode for mode, select in SELECTS.items() if select is method)
        if channel.mode in (PLAIN, mode):
            channel.mode = mode
            channel.connection.peer.send(channel.number, method())
            self.expect(channel, ("SelectOk",))
        else:
            text = f"PRECONDITION_FAILED - cannot switch from {channel.mode} to {mode} mode"
            self.fault(channel, 406, text, method())

    @precondition(lambda self: self.any_channel(_TRANSACTION))
    @rule(data=st.data(), is_commit=st.booleans())
    def end_transaction(self, data: st.DataObject, is_commit: bool) -> None:
        channel = self.draw_channel(data, _TRANSACTION)
        publishes, channel.publishes = channel.publishes, []
        settled, channel.settled = channel.settled, {}
        if not is_commit:
            channel.connection.peer.send(channel.number, commands.Tx.Rollback())
            self.expect(channel, ("RollbackOk",))
            return
        returns = []
        for message, queues in publishes:
            for queue in queues:
                queue.add(message)
            if message.mandatory and message.routing_key == "nobody":
                returns.append(("Return", 312, "", "nobody", message.body))
        for tag, requeue in settled.items():
            self.settle(channel, [tag], requeue=requeue)
        channel.connection.peer.send(channel.number, commands.Tx.Commit())
        self.expect(channel, *returns, ("CommitOk",))

    # ---- ends

    def forget(self, channel: Channel) -> None:
        for consumer in channel.consumers.values():
            consumer.queue.consumers.remove(consumer)
        channel.consumers.clear()
        self.settle(channel, list(channel.unacked), requeue=True)

    def reopen(self, channel: Channel) -> None:
        (name,) = (n for n, c in self.connections.items() if c is channel.connection)
        self.open_channel(channel.connection, channel.number, CHANNELS[name, channel.number])

    def hang_up(self, name: str) -> None:
        connection = self.connections.pop(name)
        for channel in connection.channels.values():
            self.forget(channel)
        connection.peer.lose()
        self.expect(None)

    @ending
    @rule(key=channels, kind=st.sampled_from(["channel", "connection"]))
    def end(self, key: tuple[str, int], kind: str) -> None:
        """A channel is closed, or the connection is lost."""
        if kind == "connection":
            name = key[0]
            self.hang_up(name)
            self.connections[name] = self.connect(name)
            return
        channel = self.channel(key)
        self.forget(channel)
        channel.connection.peer.send(channel.number, commands.Channel.Close(200, "", 0, 0))
        self.expect(channel, ("CloseOk",))
        self.reopen(channel)

    @ending
    @rule(queue=queues, is_purge=st.booleans())
    def empty(self, queue: str, is_purge: bool) -> None:
        """Purge a queue, or delete and declare it anew.

        What is unacked of a deleted queue may still be settled, to no effect.
        """
        self.steps_since_end = 0
        model = self.queues[queue]
        count = len(model.ready)
        model.ready.clear()
        if is_purge:
            self.watcher.send(1, commands.Queue.Purge(queue=queue))
            self.expect(None, ("PurgeOk", count))
            return
        expected: list[tuple[Channel | None, Answer]] = [(None, ("DeleteOk", count))]
        for channel in self.all_channels():
            for tag, consumer in list(channel.consumers.items()):
                if consumer.queue is model:
                    del channel.consumers[tag]
                    expected.append((channel, ("Cancel", tag)))
        self.watcher.send(1, commands.Queue.Delete(queue=queue))
        answers = [(channel, described(received)) for channel, received in self.take()]
        assert Counter(answers) == Counter(expected)
        self.declare(queue)

    @ending
    @rule(how=st.sampled_from(["orderly", "clean", "crash"]))
    def restart(self, how: str) -> None:
        """Durable queues are back with their persistent messages, and nothing else is."""
        if how == "orderly":
            self.hang_up("one")
            self.hang_up("two")
        for channel in self.all_channels() if self.connections else ():
            self.forget(channel)
        if how == "crash":
            self.world.crash()
        else:
            self.world.restart()
        self.watch()
        for name, queue in list(self.queues.items()):
            if DURABLE[name]:
                queue.ready = [entry for entry in queue.ready if entry.message.persistent]
            else:
                self.declare(name)
        self.connections = {name: self.connect(name) for name in ("one", "two")}

    # ---- always

    @invariant()
    def counts_agree(self) -> None:
        self.steps_since_end += 1
        for name, queue in self.queues.items():
            found = self.watcher.call(
                1, commands.Queue.Declare(queue=name, passive=True), commands.Queue.DeclareOk
            )
            assert found.message_count == len(queue.ready)
            assert found.consumer_count == len(queue.consumers)
            assert self.world.vhost.queues[name].unacked == sum(
                delivery.queue is queue
                for channel in self.all_channels()
                for delivery in channel.unacked.values()
            )
            if queue.ready:
                assert all(consumer.credit <= 0 for consumer in queue.consumers)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.close()
            assert self.world.budget.used == 0
        shutil.rmtree(self.root)


TestChannelModel = ChannelModel.TestCase
TestChannelModel.settings = settings(
    max_examples=settings().max_examples // 2, suppress_health_check=list(HealthCheck)
)
