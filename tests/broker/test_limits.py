from collections.abc import Iterator
from pathlib import Path

import pytest
from pamqp import commands

from leveret.broker.commands import run_command
from leveret.broker.connections import NODE_NAME
from leveret.broker.errors import InvalidRequest
from leveret.broker.limits import NodeLimits, UserLimits, VHostLimits
from tests.broker.peer import Peer
from tests.broker.world import World


@pytest.fixture
def small(tmp_path: Path) -> Iterator[World]:
    """A broker for three connections, two channels and eight exchanges."""
    world = World(tmp_path, limits=NodeLimits(connections=3, channels=2, exchanges=8))
    yield world
    world.close()


def limit(world: World, **limits: object) -> None:
    """Set limits of the vhost `/`, or of *user*."""
    user = limits.pop("user", None)
    values = {name.replace("_", "-"): value for name, value in limits.items()}
    if user is None:
        run_command(world.broker, "set_vhost_limits", {"vhost": "/", "limits": values})
    else:
        run_command(world.broker, "set_user_limits", {"user": user, "limits": values})


def refusal(world: World, **options: str) -> str:
    """The text with which a connection is closed that may not be opened."""
    peer = Peer(world, refused=True, **options)  # type: ignore[arg-type]  # as named
    method = peer.receive()[-1].method
    assert isinstance(method, commands.Connection.Close)
    assert method.reply_code == 530
    assert (method.class_id, method.method_id) == (10, 40)
    return str(method.reply_text)


def test_vhost_has_a_limit_of_connections(world: World) -> None:
    limit(world, max_connections=1)
    first = Peer(world)
    assert refusal(world) == (
        "NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (1) "
        "is reached"
    )
    first.call(0, commands.Connection.Close(200, "", 0, 0), commands.Connection.CloseOk)
    second = Peer(world)
    second.session.connection.lost()
    Peer(world)
    limit(world, max_connections=-1)
    Peer(world)


def test_user_has_a_limit_of_connections_in_all_vhosts(world: World) -> None:
    run_command(world.broker, "add_vhost", {"name": "shop"})
    run_command(
        world.broker,
        "set_permissions",
        {"user": "guest", "vhost": "shop", "configure": "", "write": "", "read": ""},
    )
    limit(world, user="guest", max_connections=2)
    Peer(world)
    Peer(world, vhost="shop")
    assert refusal(world) == (
        "NOT_ALLOWED - connection refused for user 'guest': user connection limit (2) is reached"
    )


def test_node_has_a_limit_of_connections(small: World) -> None:
    for _ in range(3):
        Peer(small)
    assert refusal(small, vhost="nowhere") == (
        "NOT_ALLOWED - connection refused: node connection limit (3) is reached"
    )


def test_limit_of_0_allows_none(world: World) -> None:
    limit(world, max_connections=0)
    assert "connection limit (0) is reached" in refusal(world)
    limit(world, max_connections=-1)
    limit(world, user="guest", max_connections=0)
    assert "user connection limit (0) is reached" in refusal(world)


def test_user_has_a_limit_of_channels_on_all_connections(world: World) -> None:
    limit(world, user="guest", max_channels=2)
    one, two = Peer(world), Peer(world)
    one.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    two.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    assert one.closed(2, commands.Channel.Open()) == (
        "NOT_ALLOWED - number of channels opened for user 'guest' has reached the maximum "
        "allowed user limit of (2)"
    )
    two.call(3, commands.Channel.Open(), commands.Channel.OpenOk)


def test_node_has_a_limit_of_channels(small: World) -> None:
    one, two = Peer(small), Peer(small)
    one.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    one.call(2, commands.Channel.Open(), commands.Channel.OpenOk)
    one.call(2, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    one.call(2, commands.Channel.Open(), commands.Channel.OpenOk)
    assert two.closed(1, commands.Channel.Open()) == (
        f"NOT_ALLOWED - number of channels opened on node '{NODE_NAME}' has reached the maximum "
        "allowed limit of (2)"
    )


def test_vhost_has_a_limit_of_queues(world: World) -> None:
    limit(world, max_queues=1)
    peer = Peer(world)
    peer.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    peer.call(1, commands.Queue.Declare(queue="one"), commands.Queue.DeclareOk)
    peer.call(1, commands.Queue.Declare(queue="one"), commands.Queue.DeclareOk)
    assert peer.closed(1, commands.Queue.Declare(queue="two")) == (
        "PRECONDITION_FAILED - cannot declare queue 'two': queue limit in vhost '/' (1) is reached"
    )
    peer.call(1, commands.Queue.Delete(queue="one"), commands.Queue.DeleteOk)
    peer.call(1, commands.Queue.Declare(queue="two"), commands.Queue.DeclareOk)


def test_queue_for_direct_replies_does_not_count(world: World) -> None:
    limit(world, max_queues=1)
    peer = Peer(world)
    peer.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    consume = commands.Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True)
    peer.call(1, consume, commands.Basic.ConsumeOk)
    peer.call(1, commands.Queue.Declare(queue="one"), commands.Queue.DeclareOk)


def test_node_has_a_limit_of_exchanges(small: World) -> None:
    peer = Peer(small)
    peer.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    peer.call(1, commands.Exchange.Declare(exchange="one"), commands.Exchange.DeclareOk)
    peer.call(1, commands.Exchange.Declare(exchange="one"), commands.Exchange.DeclareOk)
    assert peer.closed(1, commands.Exchange.Declare(exchange="two")) == (
        "PRECONDITION_FAILED - cannot declare exchange 'two' in vhost '/': "
        "exchange limit of 8 is reached"
    )


def test_limits_are_merged_lifted_and_kept_over_a_restart(world: World) -> None:
    limit(world, max_connections=5, max_queues=6)
    limit(world, max_queues=-1)
    limit(world, user="guest", max_channels=7)
    world.commit()
    world.restart()
    assert world.vhost.limits == VHostLimits(max_connections=5)
    assert world.broker.user_limits == {"guest": UserLimits(max_channels=7)}
    run_command(world.broker, "clear_vhost_limits", {"vhost": "/"})
    run_command(world.broker, "clear_user_limits", {"user": "guest", "name": "max-channels"})
    world.commit()
    world.restart()
    assert world.vhost.limits == VHostLimits()
    assert world.broker.user_limits == {}


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max-cats": 1}, "Unrecognised vhost limit 'max-cats'"),
        ({"max-queues": "1"}, 'max-queues should be a number, actually was "1"'),
        ({"max-queues": True}, "max-queues should be a number, actually was true"),
    ],
)
def test_limit_that_is_none_is_refused(world: World, limits: object, reason: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        run_command(world.broker, "set_vhost_limits", {"vhost": "/", "limits": limits})
    assert reason in str(refused.value)
