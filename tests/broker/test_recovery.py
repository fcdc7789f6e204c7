"""What clients and operators see of queues that are not recovered yet."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pamqp import commands

from leveret.broker.commands import run_command
from leveret.broker.recovery import NotRecovered
from tests.broker.peer import Outgoing
from tests.broker.test_duplicates import declare, open_channel
from tests.broker.world import World

QUEUES = ("a", "b")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Queues with one message each, bound to amq.fanout and by headers; dead ones of b go to a."""
    world = World(tmp_path)
    peer = open_channel(world)
    declare(peer, "a")
    declare(peer, "b", x_dead_letter_exchange="", x_dead_letter_routing_key="a")
    for name in QUEUES:
        for exchange in ("amq.fanout", "amq.headers"):
            bind = commands.Queue.Bind(queue=name, exchange=exchange, arguments={"to": name})
            peer.call(1, bind, commands.Queue.BindOk)
        peer.publish(1, name, b"old")
    world.commit()
    world.recovers = False
    yield world
    world.close()


def drain(world: World, name: str) -> list[bytes]:
    peer = open_channel(world)
    bodies: list[bytes] = []
    while True:
        peer.send(1, commands.Basic.Get(queue=name, no_ack=True))
        world.recover(only_wanted=True)
        world.run()
        (got,) = peer.receive()
        if isinstance(got.method, commands.Basic.GetEmpty):
            return bodies
        bodies.append(got.body)


def states(world: World) -> dict[object, object]:
    rows = run_command(world.broker, "list_queues", {})
    assert isinstance(rows, list)
    return {row["name"]: row["state"] for row in rows}


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        (commands.Queue.Declare(queue="a", durable=True), commands.Queue.DeclareOk),
        (commands.Queue.Declare(queue="a", passive=True), commands.Queue.DeclareOk),
        (commands.Queue.Bind(queue="a", exchange="amq.topic"), commands.Queue.BindOk),
        (commands.Queue.Unbind(queue="a", exchange="amq.fanout"), commands.Queue.UnbindOk),
        (commands.Queue.Purge(queue="a"), commands.Queue.PurgeOk),
        (commands.Queue.Delete(queue="a"), commands.Queue.DeleteOk),
        (commands.Basic.Get(queue="a"), commands.Basic.GetOk),
        (commands.Basic.Consume(queue="a", consumer_tag="c"), commands.Basic.ConsumeOk),
    ],
    ids=lambda value: value.name if isinstance(value, commands.Queue.Declare) else "",
)
def test_whoever_names_a_queue_waits_for_it_alone(
    world: World, method: commands.Basic.Get, answer: type[commands.Basic.GetOk]
) -> None:
    world.restart()
    peer, other = open_channel(world), open_channel(world)
    peer.send(1, method)
    assert peer.receive() == []
    assert peer.session.connection.is_held
    other.call(1, commands.Queue.Declare(queue="new", durable=True), commands.Queue.DeclareOk)
    world.recover(only_wanted=True)
    world.commit()
    received = [got.method for got in peer.receive()]
    assert isinstance(received[0], answer)
    if isinstance(received[0], commands.Queue.DeclareOk | commands.Queue.PurgeOk):
        assert received[0].message_count == 1
    assert states(world)["b"] == "recovering"


def test_an_operator_sees_which_queues_are_recovered(world: World) -> None:
    world.restart()
    assert states(world) == {"a": "recovering", "b": "recovering"}
    world.recover()
    assert states(world) == {"a": "running", "b": "running"}
    assert not world.vhost.recovering


@pytest.mark.parametrize(
    "message",
    [
        Outgoing("a", b"new"),
        Outgoing("", b"new", "amq.fanout"),
        Outgoing("", b"new", "amq.headers", headers={"to": "a"}),
        Outgoing("none", b"new", headers={"CC": ["a"]}),
    ],
    ids=["direct", "fanout", "headers", "CC"],
)
def test_a_publish_waits_and_comes_behind_what_was_there_once(
    world: World, message: Outgoing
) -> None:
    world.restart()
    peer = open_channel(world)
    peer.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    there = Outgoing("elsewhere", b"unroutable")
    peer.publish_each(1, there, message, message, there)
    world.commit()
    acks = [got.method for got in peer.receive()]
    assert all(isinstance(ack, commands.Basic.Ack) and ack.delivery_tag == 1 for ack in acks)
    world.recover(only_wanted=True)
    world.commit()
    last = peer.receive()[-1].method
    assert isinstance(last, commands.Basic.Ack)
    assert last.delivery_tag == 4
    assert drain(world, "a") == [b"old", b"new", b"new"]


def test_publishes_to_what_is_there_do_not_wait(world: World) -> None:
    world.restart()
    assert drain(world, "a") == [b"old"]
    peer = open_channel(world)
    peer.publish(1, "a", b"new")
    assert not peer.session.connection.is_held
    assert drain(world, "a") == [b"new"]
    assert states(world)["b"] == "recovering"


@pytest.mark.parametrize("headers", [None, {"CC": ["b"]}])
def test_a_commit_waits_and_is_done_once(world: World, headers: dict[str, object] | None) -> None:
    world.restart()
    peer = open_channel(world)
    peer.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
    peer.publish(1, "a", b"1", headers=headers)
    peer.publish(1, "a", b"2", headers=headers)
    assert not peer.session.connection.is_held
    peer.send(1, commands.Tx.Commit())
    assert peer.receive() == []
    world.recover(only_wanted=True)
    world.commit()
    (received,) = peer.receive()
    assert isinstance(received.method, commands.Tx.CommitOk)
    assert drain(world, "a") == [b"old", b"1", b"2"]


def test_a_dead_letter_waits_for_its_queue(world: World) -> None:
    world.restart()
    peer = open_channel(world)
    peer.send(1, commands.Basic.Get(queue="b"))
    world.recover(only_wanted=True)
    world.run()
    (got,) = peer.receive()
    assert isinstance(got.method, commands.Basic.GetOk)
    peer.send(1, commands.Basic.Reject(got.method.delivery_tag, requeue=False))
    assert not peer.session.connection.is_held
    world.crash()
    assert drain(world, "b") == [b"old"]  # it was not settled without its dead letter
    peer = open_channel(world)
    peer.publish(1, "b", b"new")
    peer.send(1, commands.Basic.Get(queue="b"))
    (got,) = peer.receive()
    assert isinstance(got.method, commands.Basic.GetOk)
    peer.send(1, commands.Basic.Reject(got.method.delivery_tag, requeue=False))
    world.recover(only_wanted=True)
    world.commit()
    assert drain(world, "a") == [b"old", b"new"]
    world.restart()
    assert drain(world, "b") == []


def test_delays_begin_when_all_queues_are_there(world: World) -> None:
    peer = open_channel(world)
    peer.publish(1, "a", b"delayed", headers={"x-delay": 100})
    world.commit()
    world.restart()
    world.wait(1000)
    assert not world.vhost.recovery.work(only_wanted=True)
    world.recover()
    world.run()
    assert drain(world, "a") == [b"old", b"delayed"]


def test_a_policy_set_meanwhile_holds_for_what_is_recovered_later(world: World) -> None:
    world.restart()
    policy = {"name": "p", "pattern": "a", "definition": {"max-length": 1}}
    run_command(world.broker, "set_policy", policy)
    peer = open_channel(world)
    peer.publish(1, "a", b"new")
    world.recover()
    world.run()
    assert drain(world, "a") == [b"new"]


@pytest.mark.parametrize("target", [{"to_queue": "a"}, {"to_exchange": "amq.fanout"}])
def test_a_command_waits_for_each_queue_it_needs(world: World, target: dict[str, object]) -> None:
    world.restart()
    arguments = {"queue": "b", **target}
    for awaited in ("b", "a"):
        with pytest.raises(NotRecovered) as missing:
            run_command(world.broker, "copy_messages", arguments)
        assert [queue.name for queue in missing.value.queues] == [awaited]
        world.broker.recovery.want(missing.value.queues, list)
        world.recover(only_wanted=True)
    run_command(world.broker, "copy_messages", arguments)
    world.run()
    assert drain(world, "a") == [b"old", b"old"]


def test_a_queue_that_is_damaged_is_there_but_stopped(world: World) -> None:
    queue = world.vhost.queues["a"]
    world.close()
    (log,) = (world.directory / "vhosts/1/queues" / str(queue.id)).glob("*.log")
    log.write_bytes(b"LVSG" + b"\xff" * 100)
    world._open()
    peer = open_channel(world)
    peer.send(1, commands.Basic.Get(queue="a"))
    world.recover(only_wanted=True)
    world.run()
    (received,) = peer.receive()
    assert isinstance(received.method, commands.Channel.Close)
    assert received.method.reply_code == 404
    assert (received.method.class_id, received.method.method_id) == (60, 70)
    assert states(world) == {"a": "stopped", "b": "recovering"}


def test_a_client_may_leave_while_it_waits(world: World) -> None:
    world.restart()
    peer = open_channel(world)
    peer.publish(1, "a", b"read, but not routed")
    peer.lose()
    world.recover()
    assert drain(world, "a") == [b"old"]


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_vhost_is_deleted_with_queues_that_are_not_recovered(
    world: World, is_begun: bool
) -> None:
    world.restart()
    peer = open_channel(world)
    peer.send(1, commands.Basic.Get(queue="a"))
    recovery = world.broker.recovery
    if is_begun:
        recovery.work()
    run_command(world.broker, "delete_vhost", {"name": "/"})
    world.commit()
    recovery.finish()
    world.recover()
    assert len(recovery) == 0
    assert not list((world.directory / "vhosts").glob("*/queues/*"))


def test_a_queue_that_is_only_to_be_installed_is_not_recovered_again(world: World) -> None:
    world.restart()
    recovery = world.broker.recovery
    recovery.work()
    peer = open_channel(world)
    peer.send(1, commands.Basic.Get(queue="a"))
    assert peer.receive() == []
    recovery.finish()
    world.run()
    (got,) = peer.receive()
    assert got.body == b"old"


def test_a_stop_in_the_middle_loses_nothing(world: World) -> None:
    world.restart()
    assert drain(world, "a") == [b"old"]
    peer = open_channel(world)
    peer.publish(1, "a", b"new")
    world.restart()
    world.recover()
    assert drain(world, "a") == [b"new"]
    assert drain(world, "b") == [b"old"]


@pytest.mark.parametrize("is_begun", [False, True])
def test_nothing_delayed_goes_on_in_a_vhost_deleted_meanwhile(
    world: World, caplog: pytest.LogCaptureFixture, is_begun: bool
) -> None:
    peer = open_channel(world)
    peer.publish(1, "a", b"delayed", headers={"x-delay": 100})
    world.commit()
    world.restart()
    world.wait(1000)
    recovery = world.broker.recovery
    if is_begun:
        recovery.work()
    run_command(world.broker, "delete_vhost", {"name": "/"})
    world.commit()
    recovery.finish()
    world.run()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_delays_begin_though_the_last_queue_was_deleted(world: World) -> None:
    peer = open_channel(world)
    peer.publish(1, "a", b"delayed", headers={"x-delay": 100})
    world.commit()
    world.restart()
    world.wait(1000)
    assert drain(world, "a") == [b"old"]
    world.vhost.remove_queue(world.vhost.queues["b"])
    world.commit()
    assert drain(world, "a") == [b"delayed"]
