"""Delayed messages: by exchanges of the type and by the header alone, in order, over restarts."""

from typing import Any

import pytest
from pamqp import commands

from tests.broker.peer import Peer
from tests.broker.test_duplicates import count, declare, open_channel
from tests.broker.world import World


def declare_delayed(peer: Peer, name: str = "e") -> None:
    peer.call(
        1,
        commands.Exchange.Declare(
            exchange=name,
            exchange_type="x-delayed-message",
            durable=True,
            arguments={"x-delayed-type": "direct"},
        ),
        commands.Exchange.DeclareOk,
    )


def bind(peer: Peer, exchange: str = "e", queue: str = "q") -> None:
    peer.call(
        1,
        commands.Queue.Bind(queue=queue, exchange=exchange, routing_key="q"),
        commands.Queue.BindOk,
    )


def bodies(peer: Peer) -> list[bytes]:
    """What is in the queue now."""
    taken = []
    while True:
        peer.send(1, commands.Basic.Get(queue="q", no_ack=True))
        (got,) = peer.receive()
        if isinstance(got.method, commands.Basic.GetEmpty):
            return taken
        taken.append(got.body)


def delayed(peer: Peer, body: bytes, delay: Any, exchange: str = "e", **others: Any) -> None:
    peer.publish(1, "q", body, exchange=exchange, headers={"x-delay": delay}, **others)


@pytest.mark.parametrize("exchange", ["e", "", "amq.direct"])
def test_messages_go_on_when_their_time_has_come_and_in_that_order(
    world: World, exchange: str
) -> None:
    peer = open_channel(world)
    declare_delayed(peer)
    declare(peer, "q")
    bind(peer)
    bind(peer, "amq.direct")
    for body, delay in ((b"300", 300), (b"100", 100), (b"now", 0), (b"200", 200), (b"past", -5)):
        delayed(peer, body, delay, exchange)
    assert bodies(peer) == [b"now", b"past"]
    world.wait(99)
    assert bodies(peer) == []
    world.wait(1)
    assert bodies(peer) == [b"100"]
    world.wait(1000)
    assert bodies(peer) == [b"200", b"300"]


def test_they_survive_a_restart_and_are_not_sent_twice(world: World) -> None:
    peer = open_channel(world)
    declare_delayed(peer)
    declare(peer, "q")
    bind(peer)
    for number in range(20):
        delayed(peer, b"%d" % number, 100 * number + 1)
    world.wait(501)
    assert count(peer) == 6
    world.commit()
    world.restart()
    peer = open_channel(world)
    assert count(peer) == 6
    world.wait(10_000)
    assert bodies(peer) == [b"%d" % number for number in range(20)]
    world.commit()
    world.restart()
    peer = open_channel(world)
    world.wait(10_000)
    assert bodies(peer) == []


def test_a_delayed_message_is_confirmed_when_it_is_on_disk(world: World) -> None:
    peer = open_channel(world)
    declare_delayed(peer)
    peer.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    delayed(peer, b"m", 100, persistent=False)
    (ack,) = peer.receive()
    assert isinstance(ack.method, commands.Basic.Ack)


def test_a_message_waits_once(world: World) -> None:
    peer = open_channel(world)
    declare(peer, "q", x_dead_letter_exchange="", x_dead_letter_routing_key="q", x_message_ttl=50)
    delayed(peer, b"m", 100, "")
    world.wait(100)
    peer.send(1, commands.Basic.Get(queue="q"))
    (got,) = peer.receive()
    peer.send(1, commands.Basic.Reject(got.method.delivery_tag, requeue=False))
    assert count(peer) == 1, "its dead letter was not delayed again"


def test_what_no_queue_takes_is_returned_at_once_by_a_plain_exchange(world: World) -> None:
    peer = open_channel(world)
    delayed(peer, b"m", 100, "", mandatory=True)
    (returned,) = peer.receive()
    assert isinstance(returned.method, commands.Basic.Return)


def test_a_waiting_message_can_be_listed_and_cancelled(world: World) -> None:
    peer = open_channel(world)
    declare_delayed(peer)
    declare(peer, "q")
    bind(peer)
    delayed(peer, b"one", 100)
    delayed(peer, b"two", 50)
    pending = world.vhost.delays.pending(None, 10)
    assert [due.due_ms - world.now_ms for due in pending] == [50, 100]
    assert world.vhost.delays.cancel(pending[0].offset)
    assert not world.vhost.delays.cancel(pending[0].offset)
    world.run()
    world.wait(1000)
    assert bodies(peer) == [b"one"]


def test_with_the_exchange_gone_its_messages_go_nowhere(world: World) -> None:
    peer = open_channel(world)
    declare_delayed(peer)
    delayed(peer, b"m", 100)
    peer.call(1, commands.Exchange.Delete(exchange="e"), commands.Exchange.DeleteOk)
    world.wait(100)
    world.commit()
    assert len(world.vhost.delays) == 0
