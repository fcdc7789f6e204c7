"""What queues with arguments and policies do, as a client sees it."""

import pytest
from pamqp import commands

from tests.broker.peer import Outgoing, Peer
from tests.broker.world import World


def connect(world: World) -> Peer:
    peer = Peer(world)
    peer.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    return peer


@pytest.fixture
def peer(world: World) -> Peer:
    return connect(world)


def declare(peer: Peer, name: str, *, durable: bool = False, **arguments: object) -> None:
    """Declare a queue with *arguments*, named without `x-`."""
    named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    method = commands.Queue.Declare(queue=name, durable=durable, arguments=named)  # type: ignore[arg-type]  # plain values
    peer.call(1, method, commands.Queue.DeclareOk)


def ready(peer: Peer, name: str) -> int | None:
    """How many messages wait in the queue called *name*."""
    method = commands.Queue.Declare(queue=name, passive=True)
    return peer.call(1, method, commands.Queue.DeclareOk).message_count


def bodies(peer: Peer) -> list[bytes]:
    return [
        received.body
        for received in peer.receive()
        if isinstance(received.method, commands.Basic.Deliver)
    ]


# ---- priorities


def test_messages_with_priorities_expire_each_at_its_time_after_a_restart(world: World) -> None:
    peer = connect(world)
    declare(peer, "q", durable=True, max_priority=5)
    peer.publish_each(1, Outgoing("q", b"old", expiration="60000"))
    world.wait(30_000)
    peer.publish_each(1, Outgoing("q", b"young", expiration="60000"))
    world.restart()
    peer = connect(world)
    world.wait(30_000)
    assert ready(peer, "q") == 1
    world.wait(30_000)
    assert ready(peer, "q") == 0


def test_the_old_take_none_of_the_young_with_them_after_a_restart(world: World) -> None:
    declare(peer := connect(world), "q", durable=True, max_priority=5)
    peer.publish_each(1, Outgoing("q", b"old", expiration="60000"))
    world.wait(30_000)
    peer.publish_each(1, Outgoing("q", b"young", expiration="60000"))
    world.restart()
    world.now_ms += 30_000
    peer = connect(world)
    peer.send(1, commands.Basic.Consume(queue="q", no_ack=True))
    assert bodies(peer) == [b"young"]


@pytest.mark.parametrize("durable", [False, True])
def test_a_commit_to_a_deleted_queue_with_priorities_goes_nowhere(
    peer: Peer, world: World, durable: bool
) -> None:
    declare(peer, "q", durable=durable, max_priority=5)
    peer.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
    peer.publish(1, "q", b"1")
    other = connect(world)
    other.call(1, commands.Queue.Delete(queue="q"), commands.Queue.DeleteOk)
    peer.call(1, commands.Tx.Commit(), commands.Tx.CommitOk)


# ---- limits


def test_what_consumers_made_room_for_is_not_dead_lettered(peer: Peer) -> None:
    declare(peer, "dead")
    declare(
        peer,
        "q",
        max_length=1,
        overflow="reject-publish-dlx",
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
    )
    peer.call(1, commands.Basic.Consume(queue="q", no_ack=True), commands.Basic.ConsumeOk)
    peer.publish(1, "q", b"1", b"2", b"3")
    assert bodies(peer) == [b"1", b"2", b"3"]
    assert ready(peer, "dead") == 0


def test_what_does_not_fit_is_dead_lettered_once(peer: Peer) -> None:
    declare(peer, "dead")
    declare(
        peer,
        "q",
        max_length=1,
        overflow="reject-publish-dlx",
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
    )
    peer.call(1, commands.Basic.Qos(prefetch_count=1), commands.Basic.QosOk)
    peer.call(1, commands.Basic.Consume(queue="q"), commands.Basic.ConsumeOk)
    peer.publish(1, "q", b"1", b"2", b"3", b"4")
    assert bodies(peer) == [b"1"]
    assert ready(peer, "q") == 1
    assert ready(peer, "dead") == 2
