"""A broker that is worked with at random, and what its clients were promised at each point."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from pamqp import commands

from tests.broker.peer import Outgoing
from tests.broker.test_delays import bind, declare_delayed
from tests.broker.test_duplicates import declare, open_channel
from tests.broker.world import World
from tests.crash.recording import Recording

NONE: frozenset[int] = frozenset()
TO_DEAD = {
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "dead",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}
PLAIN = ("one", "two", "source", "short-lived", "levels")
QUEUES = (*PLAIN, "q", "dead")
"""Delayed messages come to "q"."""
ORDERED = ("one", "two", "source", "short-lived")
DYING = ("source", "short-lived")


@dataclass(frozen=True)
class Facts:
    """What is known of the messages by their numbers: where each was sent, and sets of them.

    `confirmed` must be there, but for `given_up`, which may be settled; `settled` must not come
    back.
    """

    sent: dict[int, str] = field(default_factory=dict)
    confirmed: frozenset[int] = NONE
    given_up: frozenset[int] = NONE
    settled: frozenset[int] = NONE

    def after_restart(self) -> "Facts":
        """What was given up and not settled may be there or not, from now on."""
        confirmed = self.confirmed - self.given_up
        return replace(self, confirmed=confirmed, given_up=self.settled)


def prepare(root: Path) -> None:
    """A broker with queues, stopped again."""
    root.mkdir(parents=True)
    world = World(root)
    peer = open_channel(world)
    for name in ("one", "two", "q", "dead"):
        declare(peer, name)
    declare(peer, "source", **TO_DEAD)
    declare(peer, "short-lived", **TO_DEAD, **{"x-message-ttl": 100})
    declare(peer, "levels", **{"x-max-priority": 3})
    declare_delayed(peer)
    bind(peer)
    world.commit()
    world.close()


class BrokerStory:
    """Random acts of clients, from *seed*, noted in *recording*."""

    def __init__(
        self, root: Path, recording: Recording, seed: int, facts: Facts | None = None
    ) -> None:
        self.choice = random.Random(seed)
        self._recording = recording
        self.facts = facts or Facts()
        self._note()
        self.world = World(root, cache_bytes=self.choice.choice((0, 1 << 20)))
        self._peer = open_channel(self.world)
        self._peer.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
        self._unconfirmed: list[tuple[int, bool]] = []
        self._held: list[tuple[int, int, str]] = []

    def _note(self, **changes: object) -> None:
        self.facts = replace(self.facts, **changes)  # type: ignore[arg-type]
        self._recording.note(self.facts)

    def run(self, steps: int) -> None:
        acts = [self.publish, self.publish, self.publish_delayed, self.get, self.get, self.settle]
        acts += [self.settle, self.commit, self.wait, self.purge]
        weights = [4, 4, 2, 4, 4, 4, 4, 3, 3, 0.3]
        for _ in range(steps):
            self.choice.choices(acts, weights)[0]()

    def publish(self) -> None:
        queue = self.choice.choice(PLAIN)
        self._publish(
            queue,
            [self._message(queue) for _ in range(self.choice.choice((1, 3, 20)))],
        )

    def publish_delayed(self) -> None:
        messages = [
            self._message("q", exchange="e", headers={"x-delay": self.choice.randint(1, 400)})
            for _ in range(self.choice.choice((1, 5)))
        ]
        self._publish("q", messages)

    def _message(self, queue: str, **others: object) -> Outgoing:
        number = len(self.facts.sent)
        self.facts = replace(self.facts, sent=self.facts.sent | {number: queue})
        persistent = self.choice.random() < 0.9
        self._unconfirmed.append((number, persistent))
        body = b"%d|" % number + b"x" * self.choice.choice((0, 50, 400))
        priority = self.choice.randrange(4)
        return Outgoing(queue, body, persistent=persistent, priority=priority, **others)  # type: ignore[arg-type]

    def _publish(self, queue: str, messages: list[Outgoing]) -> None:
        self._note()
        self._peer.publish_each(1, *messages)
        self._take_confirms()

    def _take_confirms(self) -> None:
        acks = [received.method for received in self._peer.receive()]
        assert all(isinstance(ack, commands.Basic.Ack) for ack in acks), acks
        if acks:
            confirmed = {number for number, is_persistent in self._unconfirmed if is_persistent}
            self._unconfirmed = []
            self._note(confirmed=self.facts.confirmed | confirmed)

    def get(self) -> None:
        for _ in range(self.choice.randint(1, 8)):
            queue = self.choice.choice(QUEUES)
            self._peer.send(1, commands.Basic.Get(queue=queue))
            for received in self._peer.receive():
                method = received.method
                if isinstance(method, commands.Basic.GetOk):
                    self._held.append((method.delivery_tag or 0, number_of(received.body), queue))

    def settle(self) -> None:
        """Ack, give back or reject some of what is held."""
        self.choice.shuffle(self._held)
        for tag, number, queue in self._held[:6]:
            kind = self.choice.choice(("ack", "ack", "ack", "requeue", "reject"))
            if kind == "ack" or (kind == "reject" and queue not in DYING):
                self._note(given_up=self.facts.given_up | {number})
            if kind == "ack":
                self._peer.send(1, commands.Basic.Ack(tag))
            else:
                self._peer.send(1, commands.Basic.Reject(tag, requeue=kind == "requeue"))
        del self._held[:6]

    def purge(self) -> None:
        queue = self.choice.choice(("one", "two"))
        purged = {number for number, home in self.facts.sent.items() if home == queue}
        held = {number for _, number, _ in self._held}
        self._note(given_up=self.facts.given_up | (purged - held))
        self._peer.send(1, commands.Queue.Purge(queue=queue))
        self._peer.receive()

    def commit(self) -> None:
        self.world.commit()
        self._note(settled=self.facts.settled | self.facts.given_up)

    def wait(self) -> None:
        self.world.wait(self.choice.choice((1, 50, 200)))

    def stop(self) -> None:
        self.world.close()


def number_of(body: bytes) -> int:
    return int(body.partition(b"|")[0])


def contents(world: World) -> dict[str, list[int]]:
    """The numbers of the messages in each queue; what is delayed has come."""
    peer = open_channel(world)
    found = {name: list[int]() for name in QUEUES if name in world.vhost.queues}
    for name, numbers in found.items():
        while True:
            peer.send(1, commands.Basic.Get(queue=name, no_ack=True))
            (got,) = peer.receive()
            if isinstance(got.method, commands.Basic.GetEmpty):
                break
            assert isinstance(got.method, commands.Basic.GetOk), got
            numbers.append(number_of(got.body))
    return found


def check_world(root: Path, facts: Facts, *, is_journaled: bool) -> None:
    """Start a broker on *root* and see that it has what it must."""
    world = World(root)
    try:
        stopped = [queue.name for queue in world.vhost.queues.values() if queue.stopped]
        assert not stopped, stopped
        world.wait(10_000)
        check_contents(contents(world), facts, is_journaled=is_journaled)
    finally:
        world.close()


def check_contents(found: dict[str, list[int]], facts: Facts, *, is_journaled: bool) -> None:
    everything = set(flat(found.values()))
    missing = facts.confirmed - facts.given_up - everything
    assert not missing, f"lost: {[(n, facts.sent[n]) for n in sorted(missing)[:5]]}"
    back = facts.settled & everything
    assert not (is_journaled and back), f"back: {[(n, facts.sent[n]) for n in sorted(back)[:5]]}"
    for queue, numbers in found.items():
        for number in numbers:
            home = facts.sent[number]
            assert queue == home or (queue == "dead" and home in DYING), (queue, number, home)
        if queue in ORDERED:
            assert numbers == sorted(set(numbers)), f"{queue}: {numbers}"


def flat(lists: Iterable[list[int]]) -> list[int]:
    return [number for numbers in lists for number in numbers]
