"""ChannelSession: what the model would find too, but seldom."""

import pytest
from pamqp import commands
from pamqp.base import Frame as Method

from tests.broker.peer import Peer
from tests.broker.world import World


@pytest.fixture
def peer(world: World) -> Peer:
    """A connection with channel 1 and the queues `q` and `p`."""
    peer = Peer(world)
    peer.send(1, commands.Channel.Open())
    for queue in ("q", "p"):
        peer.send(1, commands.Queue.Declare(queue=queue, durable=True))
    peer.receive()
    return peer


def methods(peer: Peer) -> list[Method]:
    return [received.method for received in peer.receive()]


def deliveries(peer: Peer) -> list[bytes]:
    return [
        received.body
        for received in peer.receive()
        if isinstance(received.method, commands.Basic.Deliver)
    ]


def test_what_was_fetched_takes_no_place_of_a_shared_prefetch(peer: Peer) -> None:
    peer.publish(1, "q", b"a", b"b", b"c")
    peer.send(1, commands.Basic.Get(queue="q"), commands.Basic.Qos(0, 1, True))
    peer.receive()
    peer.send(1, commands.Basic.Consume(queue="q"))
    assert deliveries(peer) == [b"b"]
    peer.send(1, commands.Basic.Ack(1))
    assert deliveries(peer) == []
    peer.send(1, commands.Basic.Ack(2))
    assert deliveries(peer) == [b"c"]


def test_settling_what_a_deleted_queue_delivered_frees_a_shared_prefetch(peer: Peer) -> None:
    peer.publish(1, "q", b"a")
    peer.publish(1, "p", b"b")
    peer.send(1, commands.Basic.Qos(0, 1, True), commands.Basic.Consume(queue="q"))
    peer.send(1, commands.Basic.Consume(queue="p"), commands.Queue.Delete(queue="q"))
    assert deliveries(peer) == [b"a"]
    peer.send(1, commands.Basic.Ack(1))
    assert deliveries(peer) == [b"b"]


def test_recover_leaves_what_the_transaction_has_settled(peer: Peer) -> None:
    peer.publish(1, "q", b"a", b"b")
    peer.send(1, commands.Tx.Select(), *[commands.Basic.Get(queue="q")] * 2)
    peer.send(1, commands.Basic.Ack(1), commands.Basic.Recover(requeue=True))
    peer.receive()
    peer.send(1, commands.Tx.Commit())
    assert isinstance(methods(peer)[-1], commands.Tx.CommitOk)
    peer.send(1, *[commands.Basic.Get(queue="q")] * 2)
    assert [received.body for received in peer.receive()] == [b"b", b""]


def test_what_a_rollback_gives_back_can_be_recovered(peer: Peer) -> None:
    peer.publish(1, "q", b"a")
    peer.send(1, commands.Tx.Select(), commands.Basic.Get(queue="q"), commands.Basic.Ack(1))
    peer.send(1, commands.Tx.Rollback(), commands.Basic.Recover(requeue=True))
    peer.receive()
    peer.send(1, commands.Basic.Get(queue="q"))
    (received,) = peer.receive()
    assert isinstance(received.method, commands.Basic.GetOk)
    assert received.method.redelivered


def test_a_commit_to_a_queue_that_was_deleted_goes_nowhere(peer: Peer, world: World) -> None:
    peer.send(1, commands.Tx.Select())
    peer.publish(1, "q", b"a")
    peer.publish(1, "p", b"b")
    peer.send(1, commands.Queue.Delete(queue="q"), commands.Tx.Commit())
    assert isinstance(methods(peer)[-1], commands.Tx.CommitOk)
    assert world.vhost.queues["p"].ready.count == 1
    peer.send(1, commands.Queue.Declare(queue="q", durable=True))
    (declared,) = methods(peer)
    assert isinstance(declared, commands.Queue.DeclareOk)
    assert declared.message_count == 0


def test_a_backlog_larger_than_a_turn_is_delivered_to_its_end(peer: Peer) -> None:
    """More than the output limit of one turn, and the socket never says that it is full."""
    body = bytes(100_000)
    for _ in range(20):
        peer.publish(1, "q", body)
    peer.send(1, commands.Basic.Consume(queue="q", no_ack=True))
    assert len(deliveries(peer)) == 20


def test_a_blocked_socket_is_given_nothing_until_it_drains(peer: Peer, world: World) -> None:
    peer.send(1, commands.Basic.Consume(queue="q", no_ack=True))
    peer.receive()
    peer.session.pause_output()
    peer.publish(1, "q", b"a")
    assert deliveries(peer) == []
    peer.session.resume_output()
    world.run()
    assert deliveries(peer) == [b"a"]


def test_flow_stops_deliveries_until_it_resumes(peer: Peer) -> None:
    peer.send(1, commands.Basic.Consume(queue="q"), commands.Channel.Flow(active=False))
    peer.publish(1, "q", b"a")
    assert deliveries(peer) == []
    peer.send(1, commands.Channel.Flow(active=True))
    assert deliveries(peer) == [b"a"]
