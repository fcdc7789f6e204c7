"""Deduplication by exchanges and queues, confirmed and over restarts."""

from typing import Any

import pytest
from pamqp import commands

from tests.broker.peer import Peer
from tests.broker.world import World

HEADER = "x-deduplication-header"


def open_channel(world: World) -> Peer:
    peer = Peer(world)
    peer.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    return peer


def declare(peer: Peer, name: str, **arguments: Any) -> int | None:
    declare = commands.Queue.Declare(
        queue=name,
        durable=True,
        arguments={key.replace("_", "-"): value for key, value in arguments.items()},
    )
    return peer.call(1, declare, commands.Queue.DeclareOk).message_count


def publish(peer: Peer, exchange: str, key: str, *values: object) -> None:
    for value in values:
        peer.publish(1, key, b"m", exchange=exchange, headers={HEADER: value})


def count(peer: Peer, name: str = "q") -> int | None:
    passive = commands.Queue.Declare(queue=name, passive=True)
    return peer.call(1, passive, commands.Queue.DeclareOk).message_count


@pytest.mark.parametrize(
    ("type_name", "arguments"),
    [
        ("x-message-deduplication", {"x-cache-size": 3}),
        ("direct", {"x-message-deduplication": True, "x-cache-size": 3}),
    ],
)
def test_an_exchange_drops_what_came_before(
    world: World, type_name: str, arguments: dict[str, Any]
) -> None:
    peer = open_channel(world)
    peer.call(
        1,
        commands.Exchange.Declare(
            exchange="e", exchange_type=type_name, durable=True, arguments=arguments
        ),
        commands.Exchange.DeclareOk,
    )
    declare(peer, "q")
    peer.call(
        1, commands.Queue.Bind(queue="q", exchange="e", routing_key="k"), commands.Queue.BindOk
    )
    publish(peer, "e", "k", 1, 2, 1, "1", 2)
    assert count(peer) == 3, "an integer is not a string"
    publish(peer, "e", "k", 3)
    publish(peer, "e", "k", 1)
    assert count(peer) == 5, "only three are remembered"
    world.commit()
    world.restart()
    peer = open_channel(world)
    publish(peer, "e", "k", 1, 3)
    assert count(peer) == 5
    peer.publish(1, "k", b"m", b"m", exchange="e")
    assert count(peer) == 7, "messages without the header are all different"


def test_a_duplicate_is_confirmed_and_routed(world: World) -> None:
    peer = open_channel(world)
    declare(peer, "q", x_message_deduplication=True, x_cache_size=8)
    peer.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    for expected in (1, 2):
        peer.publish(1, "q", b"m", headers={HEADER: "a"}, mandatory=True)
        world.commit()
        (ack,) = peer.receive()
        assert isinstance(ack.method, commands.Basic.Ack)
        assert ack.method.delivery_tag == expected
    assert count(peer) == 1


def test_a_queue_with_a_cache_remembers_what_has_left(world: World) -> None:
    peer = open_channel(world)
    declare(peer, "q", x_message_deduplication=True, x_cache_size=8, x_cache_ttl=1000)
    publish(peer, "", "q", "a")
    peer.call(1, commands.Basic.Get(queue="q", no_ack=True), commands.Basic.GetOk)
    publish(peer, "", "q", "a")
    assert count(peer) == 0
    world.commit()
    world.restart()
    peer = open_channel(world)
    publish(peer, "", "q", "a")
    assert count(peer) == 0
    world.wait(1000)
    publish(peer, "", "q", "a")
    assert count(peer) == 1


@pytest.mark.parametrize("restarts", [False, True])
def test_a_queue_without_a_cache_frees_a_key_with_its_message(world: World, restarts: bool) -> None:
    peer = open_channel(world)
    declare(peer, "q", x_message_deduplication=True)
    publish(peer, "", "q", "a", "b")
    if restarts:
        world.commit()
        world.restart()
        peer = open_channel(world)
    publish(peer, "", "q", "a", "b")
    assert count(peer) == 2
    got = peer.call(1, commands.Basic.Get(queue="q"), commands.Basic.GetOk)
    publish(peer, "", "q", "a")
    assert count(peer) == 1, "it has not left yet"
    peer.send(1, commands.Basic.Ack(got.delivery_tag or 0))
    publish(peer, "", "q", "a")
    assert count(peer) == 2
    peer.call(1, commands.Queue.Purge(queue="q"), commands.Queue.PurgeOk)
    publish(peer, "", "q", "a", "b")
    assert count(peer) == 2


def test_a_refused_message_may_come_again(world: World) -> None:
    peer = open_channel(world)
    limits = {"x_max_length": 1, "x_overflow": "reject-publish"}
    declare(peer, "q", x_message_deduplication=True, x_cache_size=8, **limits)
    publish(peer, "", "q", "a", "b")
    peer.call(1, commands.Queue.Purge(queue="q"), commands.Queue.PurgeOk)
    publish(peer, "", "q", "b")
    assert count(peer) == 1


def test_a_new_exchange_remembers_nothing_of_one_of_its_name(world: World) -> None:
    peer = open_channel(world)
    declare(peer, "q")
    exchange = commands.Exchange.Declare(
        exchange="e",
        exchange_type="fanout",
        durable=True,
        arguments={"x-message-deduplication": True},
    )
    for _ in range(2):
        peer.call(1, exchange, commands.Exchange.DeclareOk)
        bind = commands.Queue.Bind(queue="q", exchange="e", routing_key="")
        peer.call(1, bind, commands.Queue.BindOk)
        publish(peer, "e", "", "a", "a")
        peer.call(1, commands.Exchange.Delete(exchange="e"), commands.Exchange.DeleteOk)
    assert count(peer) == 2


def declare_exchange(peer: Peer) -> None:
    method = commands.Exchange.Declare(
        exchange="e", exchange_type="x-message-deduplication", arguments={"x-cache-size": 3}
    )
    peer.call(1, method, commands.Exchange.DeclareOk)


def bind(peer: Peer, queue: str) -> None:
    method = commands.Queue.Bind(queue=queue, exchange="e", routing_key="k")
    peer.call(1, method, commands.Queue.BindOk)


def test_what_went_nowhere_may_come_again(world: World) -> None:
    peer = open_channel(world)
    declare_exchange(peer)
    publish(peer, "e", "k", "a")
    declare(peer, "q")
    bind(peer, "q")
    publish(peer, "e", "k", "a", "a")
    assert count(peer) == 1


def test_what_a_stopped_queue_refused_is_not_confirmed_when_it_comes_again(world: World) -> None:
    peer = open_channel(world)
    declare_exchange(peer)
    declare(peer, "q")
    bind(peer, "q")
    world.broker.queue_failed(world.vhost.queues["q"], OSError("broken"))
    for _ in range(2):
        peer = open_channel(world)
        peer.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
        publish(peer, "e", "k", "a")
        (received,) = peer.receive()
        assert isinstance(received.method, commands.Connection.Close)
