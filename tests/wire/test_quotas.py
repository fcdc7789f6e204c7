"""Who may come in, and how much there may be of what (rows 10 to 13, 35, 53, 65 and 74)."""

import platform
from contextlib import contextmanager

import pytest
from pamqp import commands

from leveret.server.commands.client import ask
from tests.conftest import BrokerProcess
from tests.waiting import eventually
from tests.wire.raw import Refusal, method, start_ok
from tests.wire.rows import case, row

Basic = commands.Basic
OPEN = (10, 40)
NODE_OPTIONS = (
    *("--connection-max", "3"),
    *("--channel-max-per-node", "3"),
    *("--consumer-max-per-channel", "2"),
    *("--exchange-max", "8"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A broker with limits of its own, and the user `u` who may enter `/`."""
    directory = tmp_path_factory.mktemp("quotas") / "data"
    broker = BrokerProcess(directory, "--log-level", "error", *NODE_OPTIONS).start()
    ask(directory, "add_user", name="u", password="u")
    ask(directory, "set_permissions", user="u", configure=".*", write=".*", read=".*")
    yield broker
    assert broker.stop() == 0
    assert "Traceback" not in broker.log_path.read_text()


@pytest.fixture(autouse=True)
def nobody_else(server, bystander):
    """Only the bystander is connected when a test begins."""
    eventually(lambda: len(ask(server.data_dir, "list_connections")) == 1)


@contextmanager
def limited(server, kind, name, limit, value):
    """While the context lasts, the user or vhost called *name* has this limit."""
    ask(server.data_dir, f"set_{kind}_limits", **{kind: name}, limits={limit: value})
    yield
    ask(server.data_dir, f"clear_{kind}_limits", **{kind: name})


def arrive(connect, user="u"):
    """Connect as *user*, up to connection.open."""
    peer = connect()
    peer.shake_hands(start_ok(user, user))
    peer.send(method(0, commands.Connection.Open("/")))
    return peer


def not_allowed(text, ids=OPEN):
    return Refusal("connection", 530, f"NOT_ALLOWED - {text}", ids)


@row(10)
def test_a_user_without_permissions_does_not_enter_a_vhost(server, connect):
    ask(server.data_dir, "add_user", name="stranger", password="stranger")
    peer = arrive(connect, "stranger")
    assert peer.refusal() == not_allowed("access to vhost '/' refused for user 'stranger'")
    arrive(connect).expect(commands.Connection.OpenOk)


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        case(11, "vhost", "/", "access to vhost '/' refused for user 'u': "
             "connection limit (2) is reached"),
        case(12, "user", "u", "connection refused for user 'u': "
             "user connection limit (1) is reached"),
    ],
)  # fmt: skip
def test_connections_are_limited(server, connect, kind, name, text):
    arrive(connect).expect(commands.Connection.OpenOk)
    limit = 2 if kind == "vhost" else 1
    with limited(server, kind, name, "max-connections", limit):
        assert arrive(connect).refusal() == not_allowed(text)
    arrive(connect).expect(commands.Connection.OpenOk)


@row(13)
def test_connections_to_the_node_are_limited(connect):
    for _ in range(2):
        arrive(connect).expect(commands.Connection.OpenOk)
    expected = not_allowed("connection refused: node connection limit (3) is reached")
    assert arrive(connect).refusal() == expected


@row(35)
def test_channels_of_a_user_are_limited(server, connect):
    first, second = arrive(connect), arrive(connect)
    for peer in (first, second):
        peer.expect(commands.Connection.OpenOk)
        peer.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    with limited(server, "user", "u", "max-channels", 2):
        second.send(method(2, commands.Channel.Open()))
        assert second.refusal() == not_allowed(
            "number of channels opened for user 'u' has reached the maximum allowed user limit "
            "of (2)",
            (20, 10),
        )
        first.call(2, commands.Channel.Open(), commands.Channel.OpenOk)


@row(35)
def test_channels_of_the_node_are_limited(connect):
    peer = connect(1, 2, 3)
    peer.send(method(4, commands.Channel.Open()))
    assert peer.refusal() == not_allowed(
        f"number of channels opened on node 'leveret@{platform.node()}' has reached the maximum "
        "allowed limit of (3)",
        (20, 10),
    )


@row(53)
def test_exchanges_are_limited(peer):
    declare = commands.Exchange.Declare(exchange="last", auto_delete=True)
    peer.call(1, declare, commands.Exchange.DeclareOk)
    peer.call(1, declare, commands.Exchange.DeclareOk)
    peer.send(method(1, commands.Exchange.Declare(exchange="more")))
    text = "cannot declare exchange 'more' in vhost '/': exchange limit of 8 is reached"
    expected = Refusal("channel", 406, f"PRECONDITION_FAILED - {text}", (40, 10))
    assert peer.refusal() == expected


@row(65)
def test_queues_of_a_vhost_are_limited(server, peer):
    declare = commands.Queue.Declare(queue="last", exclusive=True)
    with limited(server, "vhost", "/", "max-queues", 1):
        peer.call(1, declare, commands.Queue.DeclareOk)
        peer.call(1, declare, commands.Queue.DeclareOk)
        peer.send(method(1, commands.Queue.Declare(queue="more", exclusive=True)))
        text = "cannot declare queue 'more': queue limit in vhost '/' (1) is reached"
        expected = Refusal("channel", 406, f"PRECONDITION_FAILED - {text}", (50, 10))
        assert peer.refusal() == expected


@row(74)
def test_consumers_of_a_channel_are_limited(peer):
    peer.call(1, commands.Queue.Declare(queue="q", exclusive=True), commands.Queue.DeclareOk)
    for _ in range(2):
        tag = peer.call(1, Basic.Consume(queue="q"), Basic.ConsumeOk).consumer_tag
    peer.call(1, Basic.Cancel(consumer_tag=tag), Basic.CancelOk)
    peer.call(1, Basic.Consume(queue="q"), Basic.ConsumeOk)
    peer.send(method(1, Basic.Consume(queue="q")))
    expected = not_allowed("reached maximum (2) of consumers per channel", (60, 20))
    assert peer.refusal() == expected
