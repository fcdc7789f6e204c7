"""SIGKILL under load, again and again: what was confirmed is there, what was acked is gone."""

import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from pamqp import commands

from tests.conftest import BrokerProcess
from tests.durability.client import Closed, Delivery, RawClient, connected, encode_publish
from tests.durability.journal import Ack, Journal, make_message, message_id

QUEUES = ("one", "two", "three")
FANOUT = "everywhere"
WINDOW = 300
PREFETCH = 40

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


class World:
    """A broker, what its clients know, and what they do until it is killed."""

    def __init__(self, broker: BrokerProcess, max_body: int, seed: int) -> None:
        self.broker = broker
        self.journal = Journal(max_body, {queue: {} for queue in QUEUES})
        self.random = random.Random(seed)
        self.definitions: dict[str, str] = {}
        self._names = itertools.count()
        self._sequences = {f"p{n}": itertools.count() for n in range(4)}

    def declare(self) -> None:
        with connected(self.broker.port) as client:
            client.call(
                commands.Exchange.Declare(exchange=FANOUT, exchange_type="fanout", durable=True),
                commands.Exchange.DeclareOk,
            )
            for queue in QUEUES:
                client.call(
                    commands.Queue.Declare(queue=queue, durable=True), commands.Queue.DeclareOk
                )
                client.call(
                    commands.Queue.Bind(queue=queue, exchange=FANOUT), commands.Queue.BindOk
                )

    def run_until_killed(self) -> None:
        """Load from all sides, and SIGKILL once some messages more have been confirmed."""
        wanted = self.journal.confirmed + self.random.choice((20, 200, 600, 1500))
        roles: list[Callable[[], None]] = [
            lambda: self._confirming_producer("p0"),
            lambda: self._confirming_producer("p1"),
            lambda: self._confirming_producer("p2"),
            lambda: self._committing_producer("p3"),
            *(lambda queue=queue: self._consumer(queue) for queue in QUEUES),
            self._definer,
        ]
        with ThreadPoolExecutor(len(roles)) as pool:
            running = [pool.submit(_until_connection_is_lost, role) for role in roles]
            try:
                self.journal.wait_for_confirms(wanted)
            finally:
                self.broker.kill()
                for role in running:
                    role.result()

    # ---- what the clients do

    def _messages(self, producer: str, count: int) -> Iterator[tuple[tuple[str, ...], str, bytes]]:
        """Messages to publish: their queues, id and frames."""
        choice = random.Random(self.random.random())
        for sequence in itertools.islice(self._sequences[producer], count):
            identity = message_id(producer, sequence)
            properties, body = make_message(identity, self.journal.max_body)
            queues = QUEUES if choice.random() < 0.1 else (choice.choice(QUEUES),)
            exchange, key = (FANOUT, "") if len(queues) > 1 else ("", queues[0])
            self.journal.sent(queues, producer, sequence)
            yield queues, identity, encode_publish(exchange, key, properties, body)

    def _confirming_producer(self, producer: str) -> None:
        with connected(self.broker.port) as client:
            client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
            unconfirmed: deque[tuple[tuple[str, ...], str]] = deque()
            confirmed = 0
            choice = random.Random(producer)
            while True:
                burst = list(self._messages(producer, choice.randint(1, 60)))
                unconfirmed += [(queues, identity) for queues, identity, _ in burst]
                client.publish(*(frames for _, _, frames in burst))
                while len(unconfirmed) > WINDOW or (unconfirmed and choice.random() < 0.3):
                    ack = client.next_event()
                    assert isinstance(ack, commands.Basic.Ack), ack
                    tag = ack.delivery_tag or 0
                    count = tag - confirmed
                    assert count == 1 or (ack.multiple and count > 1), "confirms come in order"
                    confirmed = tag
                    self.journal.confirm([unconfirmed.popleft() for _ in range(count)])

    def _committing_producer(self, producer: str) -> None:
        with connected(self.broker.port) as client:
            client.call(commands.Tx.Select(), commands.Tx.SelectOk)
            while True:
                burst = list(self._messages(producer, 20))
                client.publish(*(frames for _, _, frames in burst))
                client.call(commands.Tx.Commit(), commands.Tx.CommitOk)
                self.journal.confirm([(queues, identity) for queues, identity, _ in burst])

    def _consumer(self, queue: str) -> None:
        choice = random.Random(queue)
        qos = commands.Basic.Qos(prefetch_count=PREFETCH)
        held: list[tuple[int, str]] = []
        acked: list[str] = []
        unproven: deque[list[str]] = deque()
        with connected(self.broker.port) as client:
            client.call(qos, commands.Basic.QosOk)
            client.call(commands.Basic.Consume(queue=queue), commands.Basic.ConsumeOk)
            for event in client.events():
                if isinstance(event, commands.Basic.QosOk):
                    self.journal.acked(queue, unproven.popleft(), Ack.PROVEN)
                    continue
                assert isinstance(event, Delivery), event
                tag = event.method.delivery_tag or 0
                identity = self.journal.delivered(queue, event)
                kind = choice.random()
                if kind < 0.05:
                    client.send(commands.Basic.Nack(tag, requeue=True))
                elif kind < 0.5:
                    self.journal.acked(queue, [identity], Ack.SENT)
                    client.send(commands.Basic.Ack(tag))
                    acked.append(identity)
                else:
                    held.append((tag, identity))
                if len(held) >= PREFETCH // 2:
                    up_to = choice.randrange(len(held))
                    covered = [identity for _, identity in held[: up_to + 1]]
                    self.journal.acked(queue, covered, Ack.SENT)
                    unproven.append(acked + covered)
                    client.send(commands.Basic.Ack(held[up_to][0], multiple=True), qos)
                    acked = []
                    del held[: up_to + 1]

    def _definer(self) -> None:
        """Declare and delete durable queues, exchanges and bindings."""
        there: deque[str] = deque()
        with connected(self.broker.port) as client:
            for number in self._names:
                name = f"defined-{number}"
                self.definitions[name] = "unknown"
                client.call(
                    commands.Queue.Declare(queue=name, durable=True), commands.Queue.DeclareOk
                )
                client.call(
                    commands.Exchange.Declare(exchange=name, durable=True),
                    commands.Exchange.DeclareOk,
                )
                client.call(
                    commands.Queue.Bind(queue=name, exchange=name, routing_key="key"),
                    commands.Queue.BindOk,
                )
                self.definitions[name] = "there"
                there.append(name)
                if len(there) > 3:
                    self._delete(client, there.popleft())

    def _delete(self, client: RawClient, name: str) -> None:
        self.definitions[name] = "unknown"
        client.call(commands.Queue.Delete(queue=name), commands.Queue.DeleteOk)
        client.call(commands.Exchange.Delete(exchange=name), commands.Exchange.DeleteOk)
        self.definitions[name] = "deleted"

    # ---- what they find after the restart

    def check(self) -> None:
        for queue in QUEUES:
            self._check_queue(queue)
        with connected(self.broker.port) as client:
            client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
            for name, state in self.definitions.items():
                if state == "there":
                    _check_bound(client, name)
            for name, state in self.definitions.items():
                if state == "deleted":
                    assert not _exists(client, name), f"{name} was deleted"
                client.call(commands.Queue.Delete(queue=name), commands.Queue.DeleteOk)
                client.call(commands.Exchange.Delete(exchange=name), commands.Exchange.DeleteOk)
        self.definitions = {
            name: "deleted" for name, state in self.definitions.items() if state != "deleted"
        }

    def _check_queue(self, queue: str) -> None:
        """Read all there is, acknowledge most of it and prove that; the rest goes back."""
        with connected(self.broker.port) as client:
            found = client.call(
                commands.Queue.Declare(queue=queue, passive=True), commands.Queue.DeclareOk
            )
            client.call(commands.Basic.Consume(queue=queue), commands.Basic.ConsumeOk)
            identities = []
            for tag in range(1, (found.message_count or 0) + 1):
                event = client.next_event()
                assert isinstance(event, Delivery), event
                assert event.method.delivery_tag == tag
                identities.append(self.journal.delivered(queue, event))
            self.journal.check_contents(queue, identities)
            self.journal.forget_missing(queue, identities)
            kept = {tag for tag in range(1, len(identities) + 1) if self.random.random() < 0.2}
            acked = [tag for tag in range(1, len(identities) + 1) if tag not in kept]
            client.send(*map(commands.Basic.Ack, acked))
            client.call(commands.Basic.Qos(prefetch_count=1), commands.Basic.QosOk)
            self.journal.acked(queue, [identities[tag - 1] for tag in acked], Ack.PROVEN)


def _until_connection_is_lost(role: Callable[[], None]) -> None:
    with suppress(ConnectionError):
        role()


def _exists(client: RawClient, queue: str) -> bool:
    client.send(commands.Queue.Declare(queue=queue, passive=True))
    try:
        client.next_event()
    except Closed:
        client.send(commands.Channel.CloseOk())
        client.open_channel()
        return False
    return True


def _check_bound(client: RawClient, name: str) -> None:
    """The exchange *name* leads to the queue *name*: a mandatory publish is not returned."""
    client.publish(encode_publish(name, "key", commands.Basic.Properties(), b"x"))
    answer = client.next_event()
    assert isinstance(answer, commands.Basic.Ack), f"{name}: {answer}"


@pytest.mark.parametrize(
    ("rounds", "max_body", "options"),
    [
        pytest.param(20, 600, (), id="default"),
        pytest.param(
            12,
            20_000,
            ("--segment-bytes", "1MiB", "--cache-bytes-per-queue", "64KiB"),
            id="small-segments",
        ),
        pytest.param(6, 2_000, ("--sync", "interval", "--segment-bytes", "1MiB"), id="interval"),
    ],
)
def test_confirmed_messages_outlive_every_kill(
    make_broker: Callable[..., BrokerProcess], rounds: int, max_body: int, options: tuple[str, ...]
) -> None:
    broker = make_broker(*options).start()
    world = World(broker, max_body, seed=rounds)
    world.declare()
    for _ in range(rounds):
        world.run_until_killed()
        broker.start()
        world.check()
    world.check()
    assert broker.stop() == 0
    assert "Traceback" not in Path(broker.log_path).read_text()
