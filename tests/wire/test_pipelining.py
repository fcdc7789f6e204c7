"""Requests sent without waiting for replies: done and answered in their order."""

import pytest
from pamqp import commands

from tests.wire.raw import PERSISTENT, method, publish
from tests.wire.rows import row

Basic = commands.Basic
Queue = commands.Queue
Exchange = commands.Exchange


def names_of(peer, count):
    """The next *count* methods, by name; contents are skipped."""
    names = []
    while len(names) < count:
        received = peer.receive()
        if received.kind == 1:
            names.append(received.method.name)
    return names


@pytest.mark.parametrize("durable", [False, True])
def test_a_whole_session_in_one_write(peer, durable):
    """Durable declarations wait for the disk; what builds on them waits behind them."""
    peer.send(
        method(1, Exchange.Declare(exchange="piped", exchange_type="fanout", durable=durable)),
        method(1, Queue.Declare(queue="piped", durable=durable)),
        method(1, Queue.Bind(queue="piped", exchange="piped", routing_key="")),
        method(1, commands.Confirm.Select()),
        publish(1, "", b"hello", exchange="piped", properties=PERSISTENT),
        method(1, Basic.Consume(queue="piped", no_ack=True)),
    )
    assert names_of(peer, 5) == [
        "Exchange.DeclareOk",
        "Queue.DeclareOk",
        "Queue.BindOk",
        "Confirm.SelectOk",
        "Basic.ConsumeOk",
    ]
    rest = [peer.receive() for _ in range(4)]  # the ack may come before or behind the delivery
    assert sorted(one.method.name for one in rest if one.kind == 1) == [
        "Basic.Ack",
        "Basic.Deliver",
    ]
    assert [one.payload for one in rest if one.kind == 3] == [b"hello"]
    peer.send(
        method(1, Queue.Unbind(queue="piped", exchange="piped", routing_key="")),
        method(1, Queue.Delete(queue="piped")),
        method(1, Exchange.Delete(exchange="piped")),
        method(1, Exchange.Declare(exchange="piped", passive=True)),
    )
    deleted = names_of(peer, 5)
    deleted.remove("Basic.Cancel")
    assert deleted == [
        "Queue.UnbindOk",
        "Queue.DeleteOk",
        "Exchange.DeleteOk",
        "Channel.Close",
    ]


@pytest.mark.parametrize("durable", [False, True])
def test_without_replies(peer, durable):
    peer.send(
        method(1, Exchange.Declare(exchange="quiet", durable=durable, nowait=True)),
        method(1, Queue.Declare(queue="quiet", durable=durable, nowait=True)),
        method(1, Queue.Bind(queue="quiet", exchange="quiet", routing_key="k", nowait=True)),
        method(1, Queue.Declare(queue="quiet2", durable=durable, nowait=True)),
        method(1, Queue.Delete(queue="quiet2", nowait=True)),
        method(1, commands.Confirm.Select(nowait=True)),
        publish(1, "k", b"1", exchange="quiet"),
        method(1, Queue.Purge(queue="quiet", nowait=True)),
        publish(1, "k", b"2", exchange="quiet"),
        method(1, Basic.Consume(queue="quiet", consumer_tag="c", no_ack=True, nowait=True)),
        method(1, Basic.Cancel(consumer_tag="c", nowait=True)),
        publish(1, "k", b"3", exchange="quiet"),
        method(1, Basic.Get(queue="quiet", no_ack=True)),
        method(1, Queue.Declare(queue="quiet", passive=True)),
        method(1, Queue.Delete(queue="quiet", nowait=True)),
        method(1, Exchange.Delete(exchange="quiet", nowait=True)),
        method(1, Queue.Declare(queue="quiet", passive=True)),
    )
    confirmed = 0
    replies = []
    while not replies or replies[-1].name != "Channel.Close":
        received = peer.receive()
        if received.kind != 1:
            continue
        one = received.method
        if isinstance(one, Basic.Ack):
            confirmed = one.delivery_tag
        elif not isinstance(one, Basic.Deliver):
            replies.append(one)
    # How many were delivered before the cancel depends on how the bytes arrived.
    assert replies.pop(0).name in ("Basic.GetEmpty", "Basic.GetOk")
    assert [one.name for one in replies] == ["Queue.DeclareOk", "Channel.Close"]
    assert replies[-1].reply_text == "NOT_FOUND - no queue 'quiet' in vhost '/'"
    assert confirmed in (0, 3)  # the channel may be closed before the confirms


def test_publishes_around_a_durable_declare_keep_their_order(peer):
    peer.call(1, Queue.Declare(queue="order", exclusive=True), commands.Queue.DeclareOk)
    pieces = []
    for number in range(50):
        pieces.append(publish(1, "order", b"%d" % number))
        if number % 7 == 0:
            pieces.append(method(1, Queue.Declare(queue=f"d{number}", durable=True)))
            pieces.append(method(1, Queue.Delete(queue=f"d{number}")))
    peer.send(*pieces)
    assert names_of(peer, 16) == ["Queue.DeclareOk", "Queue.DeleteOk"] * 8
    peer.call(1, Basic.Consume(queue="order", no_ack=True), Basic.ConsumeOk)
    for number in range(50):
        peer.expect(Basic.Deliver)
        assert peer.expect_body() == b"%d" % number


def test_channels_of_a_connection_wait_for_each_others_declarations(connect):
    """One connection is read in order, so another channel finds what this one declared."""
    peer = connect(1, 2)
    peer.send(
        method(1, Queue.Declare(queue="shared", durable=True)),
        method(2, Queue.Declare(queue="shared", passive=True)),
        method(1, Queue.Delete(queue="shared")),
    )
    assert names_of(peer, 3) == ["Queue.DeclareOk", "Queue.DeclareOk", "Queue.DeleteOk"]


def test_a_client_that_leaves_while_a_declare_waits_for_the_disk(connect):
    for _ in range(10):
        peer = connect(1)
        peer.send(method(1, Queue.Declare(queue="left", durable=True)), b"\x01\x00")
        peer.close()
    peer = connect(1)
    peer.call(1, Queue.Declare(queue="left", durable=True), Queue.DeclareOk)
    peer.call(1, Queue.Delete(queue="left"), Queue.DeleteOk)


def test_a_close_behind_a_durable_declare_comes_after_its_reply(peer):
    close = method(0, commands.Connection.Close(200, "", 0, 0))
    peer.send(method(1, Queue.Declare(queue="last", durable=True, auto_delete=True)), close)
    assert names_of(peer, 2) == ["Queue.DeclareOk", "Connection.CloseOk"]
    peer.expect_end()


@row(37)
def test_commits_of_transactions_keep_the_order(peer):
    peer.call(1, Queue.Declare(queue="tx", durable=True), Queue.DeclareOk)
    pieces = [method(1, commands.Tx.Select())]
    for number in range(10):
        pieces.append(publish(1, "tx", b"%d" % number, properties=PERSISTENT))
        pieces.append(method(1, commands.Tx.Commit() if number % 2 else commands.Tx.Rollback()))
    peer.send(*pieces, method(1, Queue.Declare(queue="tx", passive=True)))
    assert names_of(peer, 11) == ["Tx.SelectOk"] + ["Tx.RollbackOk", "Tx.CommitOk"] * 5
    assert peer.expect(Queue.DeclareOk).message_count == 5
    peer.call(1, Queue.Delete(queue="tx"), Queue.DeleteOk)
