"""Queues with rules: cases that the model (test_rules_model) has found."""

from typing import Any

import pytest
from pamqp import commands

from tests.broker.peer import Outgoing, Peer
from tests.broker.world import World


class Client(Peer):
    """A connection with a channel in confirm mode, 1, and a plain one, 2."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        for number in (1, 2):
            self.call(number, commands.Channel.Open(), commands.Channel.OpenOk)
        self.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)

    def declare(self, queue: str, **arguments: object) -> None:
        """Declare a durable queue: `message_ttl` is x-message-ttl."""
        table: dict[str, Any] = {
            f"x-{name.replace('_', '-')}": value for name, value in arguments.items()
        }
        declare = commands.Queue.Declare(queue=queue, durable=True, arguments=table)
        self.call(1, declare, commands.Queue.DeclareOk)

    def consume(self, queue: str, tag: str = "consumer", *, prefetch: int = 0) -> None:
        consume = commands.Basic.Consume(queue=queue, consumer_tag=tag)
        self.send(2, commands.Basic.Qos(prefetch_count=prefetch), consume)
        self.receive()

    def bodies(self) -> list[bytes]:
        """The bodies that have been delivered."""
        return [
            received.body
            for received in self.receive()
            if isinstance(received.method, commands.Basic.Deliver)
        ]

    def get(self, queue: str) -> int | None:
        """Get a message, to be settled later; answers its tag."""
        self.send(2, commands.Basic.Get(queue=queue))
        method = self.receive()[-1].method
        return method.delivery_tag if isinstance(method, commands.Basic.GetOk) else None


@pytest.fixture
def client(world: World) -> Client:
    return Client(world)


def test_tries_are_told_to_those_who_do_not_acknowledge(client: Client) -> None:
    client.declare("queue", delivery_limit=5)
    client.publish(1, "queue", b"a", b"b")
    for _ in range(2):
        tag = client.get("queue")
        client.send(2, commands.Basic.Reject(tag, True), commands.Basic.Get(queue="queue"))
        client.send(2, commands.Basic.Reject((tag or 0) + 1, True))
    client.receive()
    client.send(2, commands.Basic.Get(queue="queue", no_ack=True))
    counts = {"x-acquired-count": 4, "x-delivery-count": 4}
    assert client.receive()[-1].properties.headers == counts


def test_a_large_message_is_not_overtaken_while_consumers_make_room(client: Client) -> None:
    client.declare("queue", max_length_bytes=20, overflow="reject-publish")
    client.consume("queue")
    bodies = [b"5....", b"16..............", b"1", b"21...................", b"2", b"20" * 10]
    client.publish(1, "queue", *bodies)
    assert client.bodies() == [*bodies[:3], *bodies[4:]]


def test_what_fits_beside_a_large_message_is_taken_if_nobody_makes_room(client: Client) -> None:
    client.declare("queue", max_length_bytes=20, overflow="reject-publish")
    client.consume("queue", prefetch=1)
    client.publish(1, "queue", b"1", b"2" * 10, b"3" * 11, b"4" * 10, b"5")
    answers = [
        (type(received.method).__name__, getattr(received.method, "delivery_tag", None))
        for received in client.receive()
    ]
    assert answers == [("Deliver", 1), ("Ack", 2), ("Nack", 3), ("Ack", 4), ("Nack", 5)]


def test_each_end_of_the_broker_fails_what_was_handed_out(world: World) -> None:
    client = Client(world)
    client.declare("queue", delivery_limit=5)
    client.publish(1, "queue", b"a")
    for ends in range(3):
        client.receive()
        tag = client.get("queue")
        client.send(2, commands.Basic.Nack(tag, False, True), commands.Basic.Get(queue="queue"))
        headers = client.receive()[-1].properties.headers
        assert headers == {"x-acquired-count": 2 * ends + 1, "x-delivery-count": ends}
        world.crash()
        client = Client(world)


def test_a_message_that_is_dead_is_nobodys_turn(world: World, client: Client) -> None:
    client.declare("queue")
    client.consume("queue", "first")
    client.consume("queue", "second", prefetch=1)
    client.publish_each(1, Outgoing("queue", b"a", expiration="10"), Outgoing("queue", b"b"))
    world.wait(10)
    client.send(2, commands.Basic.Nack(1, False, True))
    client.send(2, commands.Basic.Ack(2))
    client.receive()
    client.publish(1, "queue", b"c")
    method = client.receive()[0].method
    assert isinstance(method, commands.Basic.Deliver)
    assert method.consumer_tag == "first"
