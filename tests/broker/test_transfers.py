"""Messages that an operator moves where a target does not take them all."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pamqp import commands

from leveret.broker.commands import run_command
from leveret.broker.commands_replay import AfterLogs
from leveret.broker.errors import RequestError
from tests.broker.peer import Outgoing
from tests.broker.test_duplicates import declare, open_channel
from tests.broker.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    peer = open_channel(world)
    declare(peer, "source")
    declare(peer, "target", x_max_length_bytes=10, x_overflow="reject-publish")
    yield world
    world.close()


def publish(world: World, *messages: Outgoing) -> None:
    open_channel(world).publish_each(1, *messages)


def move(world: World, **arguments: object) -> dict[str, Any]:
    answer = run_command(world.broker, "move_messages", {"queue": "source", **arguments})
    assert isinstance(answer, AfterLogs)
    world.commit()
    return cast("dict[str, Any]", answer.answer)


def drain(world: World, queue: str) -> list[bytes]:
    peer = open_channel(world)
    bodies: list[bytes] = []
    while True:
        peer.send(1, commands.Basic.Get(queue=queue, no_ack=True))
        (got,) = peer.receive()
        if not isinstance(got.method, commands.Basic.GetOk):
            return bodies
        bodies.append(got.body)


@pytest.mark.parametrize("target", [{"to_queue": "target"}, {"to_exchange": "amq.fanout"}])
def test_nothing_overtakes_what_a_full_queue_refuses(
    world: World, target: dict[str, object]
) -> None:
    bind = commands.Queue.Bind(queue="target", exchange="amq.fanout")
    open_channel(world).call(1, bind, commands.Queue.BindOk)
    publish(
        world,
        Outgoing("source", b"12345678"),
        Outgoing("source", b"12345678"),
        Outgoing("source", b"2", expiration="100000"),
    )
    answer = move(world, **target)
    assert (answer["count"], answer["refused"], answer["next"]) == (1, 1, 2)
    assert drain(world, "target") == [b"12345678"]
    assert drain(world, "source") == [b"12345678", b"2"]


def test_a_target_that_stops_in_between_gets_no_message_twice(world: World) -> None:
    peer = open_channel(world)
    for queue in ("sound", "stopped"):
        declare(peer, queue)
        bind = commands.Queue.Bind(queue=queue, exchange="amq.direct", routing_key=queue)
        peer.call(1, bind, commands.Queue.BindOk)
    publish(world, *(Outgoing("source", body) for body in (b"1", b"2")))
    answer = move(world, to_exchange="amq.direct", routing_key="sound", limit=1)
    assert answer["count"] == 1
    world.vhost.fail_queue(world.vhost.queues["stopped"], OSError("as if"))
    for target in (
        {"to_queue": "stopped"},
        {"to_exchange": "amq.direct", "routing_key": "stopped"},
    ):
        with pytest.raises(RequestError, match=r"takes no messages: .*has stopped"):
            move(world, **target)
    assert drain(world, "sound") == [b"1"]
    assert drain(world, "source") == [b"2"]


def test_what_was_sent_before_a_target_that_has_stopped_is_moved(world: World) -> None:
    peer = open_channel(world)
    for queue in ("sound", "stopped"):
        declare(peer, queue)
        bind = commands.Queue.Bind(
            queue=queue, exchange="amq.headers", arguments={"to": queue, "x-match": "all"}
        )
        peer.call(1, bind, commands.Queue.BindOk)
    names = ("sound", "sound", "stopped", "sound")
    publish(world, *(Outgoing("source", b"1", headers={"to": name}) for name in names))
    world.vhost.fail_queue(world.vhost.queues["stopped"], OSError("as if"))
    answer = move(world, to_exchange="amq.headers")
    assert (answer["count"], answer["next"]) == (2, 2)
    with pytest.raises(RequestError, match="takes no messages"):
        move(world, to_exchange="amq.headers", start=2)
    assert len(drain(world, "sound")) == len(drain(world, "source")) == 2


@pytest.mark.parametrize("is_replayed", [False, True])
def test_what_did_not_arrive_is_what_it_was_before(world: World, is_replayed: bool) -> None:
    publish(world, Outgoing("source", b"1", expiration="1000"))
    world.commit()
    queue = world.vhost.queues["source"]
    if is_replayed:
        drain(world, "source")
        run_command(world.broker, "rewind_queue", {"queue": "source"})
    declare(open_channel(world), "failing")
    run_command(world.broker, "move_messages", {"queue": "source", "to_queue": "failing"})
    assert queue.ready.ranges() == []
    world.turn.touch(queue)
    log = world.vhost.queues["failing"].log
    assert log is not None
    log.fail(OSError("as if"))
    world.commit()
    assert queue.ready.ranges() == [(0, 1)]
    world.wait(2000)
    assert queue.ready.count == is_replayed
