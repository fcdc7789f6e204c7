"""What queues with arguments and policies do, as a client sees it."""

from typing import Any, NoReturn

import pytest
from pamqp import commands

from leveret.amqp.message import encode_message
from leveret.amqp.properties import NO_PROPERTIES
from leveret.broker.policies import PolicySet
from leveret.queues.arguments import QueueArguments
from leveret.queues.classic import ClassicQueue
from leveret.queues.declaration import QueueDeclaration
from leveret.queues.memory_store import MemoryStore
from leveret.queues.ready import ReadyList
from leveret.storage.errors import DiskFull
from tests.broker.peer import Outgoing, Peer
from tests.broker.test_policies import policy
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


def message(body: bytes) -> tuple[int, bytes]:
    """Attributes and bytes of a message to `q`."""
    header = NO_PROPERTIES.with_changes()
    header = header[:4] + len(body).to_bytes(8, "big") + header[12:]
    return encode_message("", "q", header, body, 0)


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


def test_bytes_are_counted_of_what_was_out_when_their_limit_came(peer: Peer, world: World) -> None:
    declare(peer, "q")
    peer.publish(1, "q", b"1" * 100)
    peer.call(1, commands.Basic.Get(queue="q"), commands.Basic.GetOk)
    world.vhost.use_policies(PolicySet([policy("p", max_length_bytes=100)]))
    peer.send(1, commands.Basic.Nack(1, requeue=True))
    peer.call(1, commands.Basic.Get(queue="q", no_ack=True), commands.Basic.GetOk)
    peer.publish(1, "q", b"2" * 100, b"3" * 100)
    assert ready(peer, "q") == 1


def test_bytes_are_counted_of_what_came_in_the_turn_of_their_limit(
    peer: Peer, world: World
) -> None:
    declare(peer, "q")
    attributes, payload = message(b"1" * 100)
    world.vhost.queues["q"].publish([payload], attributes, 0, world.now_ms)
    world.vhost.use_policies(PolicySet([policy("p", max_length_bytes=100)]))
    world.run()
    peer.call(1, commands.Basic.Get(queue="q", no_ack=True), commands.Basic.GetOk)
    peer.publish(1, "q", b"2" * 100, b"3" * 100)
    assert ready(peer, "q") == 1


# ---- returned messages


def test_a_retry_delay_begins_when_the_message_comes_back(peer: Peer, world: World) -> None:
    declare(peer, "q", delayed_retry_min=60_000, delayed_retry_type="all")
    peer.publish(1, "q", b"1")
    peer.call(1, commands.Basic.Get(queue="q"), commands.Basic.GetOk)
    world.now_ms += 600_000
    peer.send(1, commands.Basic.Nack(1, requeue=True))
    peer.call(1, commands.Basic.Get(queue="q"), commands.Basic.GetEmpty)
    world.wait(60_000)
    peer.call(1, commands.Basic.Get(queue="q"), commands.Basic.GetOk)


def test_what_waited_for_its_next_try_expires(peer: Peer, world: World) -> None:
    declare(peer, "q", delayed_retry_min=60_000, delayed_retry_type="all")
    peer.publish_each(1, Outgoing("q", b"1", expiration="90000"))
    peer.call(1, commands.Basic.Get(queue="q"), commands.Basic.GetOk)
    peer.send(1, commands.Basic.Nack(1, requeue=True))
    world.wait(60_000)
    assert ready(peer, "q") == 1
    world.wait(30_000)
    assert ready(peer, "q") == 0


# ---- the end of queues


def test_a_queue_that_is_due_can_be_deleted(peer: Peer, world: World) -> None:
    declare(peer, "q", expires=1000)
    world.now_ms += 1000
    peer.call(1, commands.Queue.Delete(queue="q"), commands.Queue.DeleteOk)


def test_a_deleted_queue_that_is_due_takes_none_of_its_name_with_it(
    peer: Peer, world: World
) -> None:
    declare(peer, "q", durable=True, expires=1000)
    deleted = world.vhost.queues["q"]
    world.now_ms += 1000
    world.vhost.remove_queue(deleted)
    declaration = QueueDeclaration("q", False, False, False, {})
    queue, _ = world.vhost.declare_queue(declaration, None)
    world.turn.touch(deleted)  # as a commit does that was routed before
    world.run()
    assert world.vhost.queues == {"q": queue}


def test_a_stopped_queue_does_not_expire(peer: Peer, world: World) -> None:
    declare(peer, "q", durable=True)
    world.broker.queue_failed(world.vhost.queues["q"], OSError("broken"))
    world.vhost.use_policies(PolicySet([policy("p", expires=5)]))
    world.wait(10)
    assert "q" in world.vhost.queues


def test_a_refused_consumer_of_direct_replies_leaves_no_queue(peer: Peer, world: World) -> None:
    consume = commands.Basic.Consume(
        queue="amq.rabbitmq.reply-to", no_ack=True, arguments={"x-priority": "high"}
    )
    assert "invalid arg 'x-priority'" in peer.closed(1, consume)
    assert not world.vhost.queues


# ---- dead letters at least once

SAFE: dict[str, Any] = {
    "dead_letter_exchange": "amq.fanout",
    "dead_letter_strategy": "at-least-once",
    "overflow": "reject-publish",
}


def reject_one(peer: Peer) -> None:
    """Reject a message of `q`, fetched with the first tag of the channel."""
    peer.publish(1, "q", b"1")
    peer.call(1, commands.Basic.Get(queue="q"), commands.Basic.GetOk)
    peer.send(1, commands.Basic.Nack(1, requeue=False))


def bind_dead(peer: Peer, *names: str) -> None:
    for name in names:
        bind = commands.Queue.Bind(queue=name, exchange="amq.fanout", routing_key="")
        peer.call(1, bind, commands.Queue.BindOk)


def test_a_queue_gets_no_second_dead_letter_because_another_is_full(
    peer: Peer, world: World
) -> None:
    declare(peer, "has room")
    declare(peer, "full", max_length=1, overflow="reject-publish")
    bind_dead(peer, "has room", "full")
    peer.publish(1, "full", b"0")
    declare(peer, "q", **SAFE)
    reject_one(peer)
    world.wait(5_000)
    assert (ready(peer, "has room"), ready(peer, "full")) == (1, 1)
    peer.call(1, commands.Basic.Get(queue="full", no_ack=True), commands.Basic.GetOk)
    world.wait(5_000)
    world.wait(5_000)
    assert (ready(peer, "has room"), ready(peer, "full")) == (1, 1)


def test_a_queue_gets_no_second_dead_letter_because_another_has_stopped(
    peer: Peer, world: World
) -> None:
    declare(peer, "sound")
    declare(peer, "stopped", durable=True)
    bind_dead(peer, "sound", "stopped")
    world.broker.queue_failed(world.vhost.queues["stopped"], OSError("broken"))
    declare(peer, "q", durable=True, **SAFE)
    reject_one(peer)
    world.wait(5_000)
    assert ready(peer, "sound") == 1
    world.restart()
    assert ready(connect(world), "q") == 1, "it is not in all queues"


def test_messages_without_a_place_to_go_to_any_more_are_gone(peer: Peer, world: World) -> None:
    values = {key.replace("_", "-"): value for key, value in SAFE.items()}
    world.vhost.use_policies(PolicySet([policy("p", "q", **values)]))
    declare(peer, "q", durable=True)
    reject_one(peer)
    world.vhost.use_policies(PolicySet())
    world.wait(5_000)
    world.restart()
    assert ready(connect(world), "q") == 0


# ---- a full disk


class FullQueue(ClassicQueue):
    """A queue whose disk is full."""

    def flush(self) -> NoReturn:
        raise DiskFull("no room")


def test_what_had_no_room_as_a_dead_letter_is_in_its_queue_after_a_restart(
    peer: Peer, world: World
) -> None:
    declaration = QueueDeclaration("dead", False, False, False, {})
    world.vhost.add_queue(FullQueue(declaration, MemoryStore(), ReadyList(0)), QueueArguments())
    declare(peer, "q", durable=True, dead_letter_exchange="", dead_letter_routing_key="dead")
    reject_one(peer)
    world.restart()
    assert ready(connect(world), "q") == 1


class BrokenQueue(FullQueue):
    """A queue whose disk is broken."""

    def flush(self) -> NoReturn:
        raise OSError("broken")


def test_a_dead_letter_that_may_be_lost_with_a_queue_is_sent_again(
    peer: Peer, world: World
) -> None:
    declaration = QueueDeclaration("broken", False, False, False, {})
    broken = BrokenQueue(declaration, MemoryStore(), ReadyList(0))
    declare(peer, "dead")
    bind_dead(peer, "dead")
    declare(peer, "q", durable=True, **SAFE)
    peer.publish(1, "q", b"1")
    peer.call(1, commands.Basic.Get(queue="q"), commands.Basic.GetOk)
    world.vhost.add_queue(broken, QueueArguments())
    world.turn.touch(broken)
    peer.send(1, commands.Basic.Nack(1, requeue=False))
    world.wait(5_000)
    assert ready(peer, "dead") == 2, "at least once"
    world.restart()
    assert ready(connect(world), "q") == 0
