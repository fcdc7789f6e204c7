"""Channels of one connection against a model of queues, deliveries and transactions."""

import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pamqp import commands

from tests.broker.peer import Peer, Received
from tests.broker.world import World

PLAIN, TX, CONFIRM = 1, 2, 3
CHANNELS = (PLAIN, TX, CONFIRM)
QUEUES = {"durable": True, "transient": False}

channels = st.sampled_from(CHANNELS)
queues = st.sampled_from(sorted(QUEUES))


@dataclass(eq=False)
class Queue:
    """Places are numbers in the order of publishing."""

    name: str
    ready: list[int] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    bodies: dict[int, bytes] = field(default_factory=dict)

    def add(self, body: bytes) -> None:
        place = len(self.bodies)
        self.bodies[place] = body
        self.ready.append(place)


@dataclass(eq=False)
class Consumer:
    queue: Queue
    no_ack: bool
    prefetch: int


@dataclass(eq=False)
class Delivery:
    queue: Queue
    place: int
    consumer: Consumer | None


@dataclass(eq=False)
class Channel:
    """What the client of one channel knows."""

    number: int
    next_tag: int = 1
    unacked: dict[int, Delivery] = field(default_factory=dict)
    consumers: dict[str, Consumer] = field(default_factory=dict)
    prefetch: int = 0
    shared_prefetch: int = 0
    published: list[tuple[str, bytes]] = field(default_factory=list)
    settled: dict[int, bool] = field(default_factory=dict)
    """Tags that the transaction settles, and whether it requeues them."""
    confirms: int = 0
    confirmed: int = 0

    def credit(self, consumer: Consumer) -> int:
        """How many messages more *consumer* may be sent."""
        held = Counter(delivery.consumer for delivery in self.unacked.values())
        credit = 1 << 30
        if consumer.prefetch and not consumer.no_ack:
            credit = consumer.prefetch - held[consumer]
        if self.shared_prefetch:
            credit = min(credit, self.shared_prefetch - (held.total() - held[None]))
        return credit


class ChannelModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.queues: dict[str, Queue] = {}
        self.numbers = 0

    @initialize(cache_bytes=st.sampled_from([0, 300, 1 << 20]))
    def open(self, cache_bytes: int) -> None:
        self.world = World(self.directory, cache_bytes=cache_bytes)
        self.connect()

    def connect(self) -> None:
        self.peer = Peer(self.world)
        self.channels = {number: Channel(number) for number in CHANNELS}
        for number in CHANNELS:
            self.open_channel(number)
        for name in QUEUES:
            if name not in self.queues:
                self.declare(name)

    def open_channel(self, number: int) -> None:
        self.peer.send(number, commands.Channel.Open())
        self.channels[number] = Channel(number)
        if number == TX:
            self.peer.send(number, commands.Tx.Select())
        if number == CONFIRM:
            self.peer.send(number, commands.Confirm.Select())
        self.expect(number, commands.Channel.OpenOk)

    def declare(self, name: str) -> None:
        self.peer.call(
            PLAIN,
            commands.Queue.Declare(queue=name, durable=QUEUES[name]),
            commands.Queue.DeclareOk,
        )
        self.queues[name] = Queue(name)

    # ---- what comes back

    def take(self) -> list[Received]:
        """Check and remove the deliveries and confirms; answer everything else."""
        others = []
        dealt: dict[Queue, list[int]] = {}
        for received in self.peer.receive():
            channel, method = self.channels[received.channel], received.method
            if isinstance(method, commands.Basic.Deliver):
                consumer = channel.consumers[method.consumer_tag]
                assert channel.credit(consumer) > 0
                place = self.delivered(channel, consumer.queue, method, received.body)
                dealt.setdefault(consumer.queue, []).append(place)
                if not consumer.no_ack:
                    channel.unacked[channel.next_tag - 1] = Delivery(
                        consumer.queue, place, consumer
                    )
            elif isinstance(method, commands.Basic.Ack):
                tag = method.delivery_tag or 0
                assert method.multiple == (tag - channel.confirmed > 1)
                channel.confirmed = tag
            else:
                others.append(received)
        for queue, places in dealt.items():
            expected = queue.ready[: len(places)]
            assert sorted(places) == expected, "the oldest are delivered first"
            del queue.ready[: len(places)]
        return others

    def delivered(
        self,
        channel: Channel,
        queue: Queue,
        method: commands.Basic.Deliver | commands.Basic.GetOk,
        body: bytes,
    ) -> int:
        """Check one delivery; answers the place of the message in its queue."""
        assert method.delivery_tag == channel.next_tag
        channel.next_tag += 1
        assert (method.exchange, method.routing_key) == ("", queue.name)
        place = int(body.split(b".")[0])
        assert queue.bodies[place] == body
        assert place in queue.ready
        assert method.redelivered == (place in queue.seen)
        queue.seen.add(place)
        return place

    def expect(self, number: int, *kinds: type) -> None:
        """These answers, and nothing else, come on channel *number* beside deliveries."""
        others = [r for r in self.take() if not isinstance(r.method, SELECTS)]
        assert [(r.channel, type(r.method)) for r in others] == [(number, kind) for kind in kinds]

    # ---- publishing

    @rule(
        number=channels,
        queue=queues,
        sizes=st.lists(st.integers(0, 120), min_size=1, max_size=8),
        persistent=st.booleans(),
    )
    def publish(self, number: int, queue: str, sizes: list[int], persistent: bool) -> None:
        channel = self.channels[number]
        model = self.queues[queue]
        held = sum(name == queue for name, _ in channel.published) if number == TX else 0
        first = len(model.bodies) + held
        if number != TX and any(name == queue for name, _ in self.channels[TX].published):
            return  # bodies name their place, which the transaction has taken
        bodies = [b"%d." % place + b"x" * size for place, size in enumerate(sizes, first)]
        if number == TX:
            channel.published += [(queue, body) for body in bodies]
        else:
            for body in bodies:
                model.add(body)
        if number == CONFIRM:
            channel.confirms += len(bodies)
        self.peer.publish(number, queue, *bodies, persistent=persistent)
        self.expect(number)
        assert channel.confirmed == channel.confirms

    @rule(number=channels, mandatory=st.booleans())
    def publish_to_nobody(self, number: int, mandatory: bool) -> None:
        if number == TX:
            return
        channel = self.channels[number]
        if number == CONFIRM:
            channel.confirms += 1
        self.peer.publish(number, "nobody", b"body", mandatory=mandatory)
        others = self.take()
        if mandatory:
            (returned,) = others
            assert isinstance(returned.method, commands.Basic.Return)
            assert (returned.method.reply_code, returned.body) == (312, b"body")
        else:
            assert others == []
        assert channel.confirmed == channel.confirms

    # ---- consuming

    @rule(number=channels, queue=queues, no_ack=st.booleans(), tag=st.sampled_from(["one", "two"]))
    def consume(self, number: int, queue: str, no_ack: bool, tag: str) -> None:
        channel = self.channels[number]
        if tag in channel.consumers:
            return
        channel.consumers[tag] = Consumer(self.queues[queue], no_ack, channel.prefetch)
        self.peer.send(number, commands.Basic.Consume(queue=queue, consumer_tag=tag, no_ack=no_ack))
        self.expect(number, commands.Basic.ConsumeOk)

    @rule(number=channels, tag=st.sampled_from(["one", "two"]))
    def cancel(self, number: int, tag: str) -> None:
        self.channels[number].consumers.pop(tag, None)
        self.peer.send(number, commands.Basic.Cancel(tag))
        self.expect(number, commands.Basic.CancelOk)

    @rule(number=channels, count=st.integers(0, 4), shared=st.booleans())
    def qos(self, number: int, count: int, shared: bool) -> None:
        channel = self.channels[number]
        if shared:
            channel.shared_prefetch = count
        else:
            channel.prefetch = count
        self.peer.send(number, commands.Basic.Qos(prefetch_count=count, global_=shared))
        self.expect(number, commands.Basic.QosOk)

    @rule(number=channels, queue=queues, no_ack=st.booleans())
    def get(self, number: int, queue: str, no_ack: bool) -> None:
        channel = self.channels[number]
        model = self.queues[queue]
        self.peer.send(number, commands.Basic.Get(queue=queue, no_ack=no_ack))
        (received,) = self.take()
        if not model.ready:
            assert isinstance(received.method, commands.Basic.GetEmpty)
            return
        assert isinstance(received.method, commands.Basic.GetOk)
        place = self.delivered(channel, model, received.method, received.body)
        assert model.ready.pop(0) == place
        assert received.method.message_count == len(model.ready)
        if not no_ack:
            channel.unacked[channel.next_tag - 1] = Delivery(model, place, None)

    # ---- settling

    def settled(self, channel: Channel, tags: list[int], *, requeue: bool) -> None:
        for tag in tags:
            delivery = channel.unacked.pop(tag)
            if requeue:
                delivery.queue.ready.append(delivery.place)
                delivery.queue.ready.sort()

    @rule(
        number=channels,
        data=st.data(),
        how=st.sampled_from(["ack", "nack", "reject"]),
        multiple=st.booleans(),
        requeue=st.booleans(),
    )
    def settle(
        self, number: int, data: st.DataObject, how: str, multiple: bool, requeue: bool
    ) -> None:
        channel = self.channels[number]
        open_tags = [tag for tag in channel.unacked if tag not in channel.settled]
        if how == "reject":
            multiple = False
        if how == "ack":
            requeue = False
        choices = [*open_tags, *([0] if multiple else [])]
        if not choices:
            return
        tag = data.draw(st.sampled_from(choices))
        tags = [t for t in open_tags if not tag or t <= tag] if multiple else [tag]
        if number == TX:
            channel.settled.update(dict.fromkeys(tags, requeue))
        else:
            self.settled(channel, tags, requeue=requeue)
        if how == "ack":
            self.peer.send(number, commands.Basic.Ack(tag, multiple))
        elif how == "nack":
            self.peer.send(number, commands.Basic.Nack(tag, multiple, requeue))
        else:
            self.peer.send(number, commands.Basic.Reject(tag, requeue))
        self.expect(number)

    @rule(number=channels, data=st.data())
    def ack_some_at_once(self, number: int, data: st.DataObject) -> None:
        channel = self.channels[number]
        open_tags = [tag for tag in channel.unacked if tag not in channel.settled]
        if not open_tags:
            return
        tags = data.draw(st.lists(st.sampled_from(open_tags), min_size=1, unique=True))
        if number == TX:
            channel.settled.update(dict.fromkeys(tags, False))
        else:
            self.settled(channel, tags, requeue=False)
        self.peer.send(number, *map(commands.Basic.Ack, tags))
        self.expect(number)

    @rule(number=channels, beyond=st.integers(0, 2))
    def settle_unknown(self, number: int, beyond: int) -> None:
        """A tag never issued closes the channel, and everything it holds goes back."""
        channel = self.channels[number]
        tag = channel.next_tag + beyond
        self.forget(channel)
        self.peer.send(number, commands.Basic.Ack(tag))
        (closed,) = self.take()
        assert isinstance(closed.method, commands.Channel.Close)
        assert closed.method.reply_code == 406
        assert closed.method.reply_text == f"PRECONDITION_FAILED - unknown delivery tag {tag}"
        self.peer.send(number, commands.Channel.CloseOk())
        self.open_channel(number)

    @rule(number=channels)
    def recover(self, number: int) -> None:
        channel = self.channels[number]
        tags = [tag for tag in channel.unacked if tag not in channel.settled]
        self.settled(channel, tags, requeue=True)
        self.peer.send(number, commands.Basic.Recover(requeue=True))
        self.expect(number, commands.Basic.RecoverOk)

    # ---- transactions

    @rule()
    def commit(self) -> None:
        channel = self.channels[TX]
        for name, body in channel.published:
            self.queues[name].add(body)
        for tag, requeue in channel.settled.items():
            self.settled(channel, [tag], requeue=requeue)
        channel.published, channel.settled = [], {}
        self.peer.send(TX, commands.Tx.Commit())
        self.expect(TX, commands.Tx.CommitOk)

    @rule()
    def rollback(self) -> None:
        channel = self.channels[TX]
        channel.published, channel.settled = [], {}
        self.peer.send(TX, commands.Tx.Rollback())
        self.expect(TX, commands.Tx.RollbackOk)

    # ---- ends

    def forget(self, channel: Channel) -> None:
        channel.consumers.clear()
        self.settled(channel, list(channel.unacked), requeue=True)
        channel.published, channel.settled = [], {}

    @rule(number=channels)
    def close_channel(self, number: int) -> None:
        self.forget(self.channels[number])
        self.peer.send(number, commands.Channel.Close(200, "", 0, 0))
        self.expect(number, commands.Channel.CloseOk)
        self.open_channel(number)

    @rule()
    def lose_connection(self) -> None:
        for channel in self.channels.values():
            self.forget(channel)
        self.peer.session.connection.lost()
        self.world.run()
        self.connect()

    @rule(queue=queues)
    def purge(self, queue: str) -> None:
        model = self.queues[queue]
        count = len(model.ready)
        model.ready.clear()
        self.peer.send(PLAIN, commands.Queue.Purge(queue=queue))
        (received,) = self.take()
        assert isinstance(received.method, commands.Queue.PurgeOk)
        assert received.method.message_count == count

    @precondition(lambda self: self.numbers < 3)
    @rule(queue=queues)
    def delete(self, queue: str) -> None:
        """Consumers are told; what is unacked may still be settled, to no effect."""
        self.numbers += 1
        model = self.queues[queue]
        cancelled = set()
        for number, channel in self.channels.items():
            for tag, consumer in list(channel.consumers.items()):
                if consumer.queue is model:
                    del channel.consumers[tag]
                    cancelled.add((number, tag))
        self.peer.send(PLAIN, commands.Queue.Delete(queue=queue))
        found = set()
        for received in self.take():
            if isinstance(received.method, commands.Basic.Cancel):
                found.add((received.channel, received.method.consumer_tag))
            else:
                assert isinstance(received.method, commands.Queue.DeleteOk)
                assert received.method.message_count == len(model.ready)
        assert found == cancelled
        transaction = self.channels[TX]
        transaction.published = [
            (name, body) for name, body in transaction.published if name != queue
        ]
        self.declare(queue)

    # ---- always

    @invariant()
    def counts_agree(self) -> None:
        for name, model in self.queues.items():
            found = self.peer.call(
                PLAIN, commands.Queue.Declare(queue=name, passive=True), commands.Queue.DeclareOk
            )
            consumers = [
                (channel, consumer)
                for channel in self.channels.values()
                for consumer in channel.consumers.values()
                if consumer.queue is model
            ]
            assert found.message_count == len(model.ready)
            assert found.consumer_count == len(consumers)
            queue = self.world.vhost.queues[name]
            assert queue.unacked == sum(
                delivery.queue is model
                for channel in self.channels.values()
                for delivery in channel.unacked.values()
            )
            if model.ready:
                assert all(channel.credit(consumer) <= 0 for channel, consumer in consumers)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.peer.session.connection.lost()
            self.world.close()
            assert self.world.budget.used == 0
        shutil.rmtree(self.directory, ignore_errors=True)


SELECTS = (commands.Tx.SelectOk, commands.Confirm.SelectOk)

TestChannelModel = ChannelModel.TestCase
TestChannelModel.settings = settings(max_examples=60, stateful_step_count=60)
