"""Basic, confirm and tx: what is refused and how (rows 73 to 83, 92 and 93)."""

import pytest
from pamqp import commands

from tests.wire.raw import Refusal, content, frame, method, publish

Basic = commands.Basic
USER_ID = b"\x00\x10\x05other"


@pytest.fixture
def ready(peer):
    """A connection with an exclusive queue `q` and a consumer `c` that has tags 1 to 3."""
    peer.call(1, commands.Queue.Declare(queue="q", exclusive=True), commands.Queue.DeclareOk)
    peer.call(1, Basic.Consume(queue="q", consumer_tag="c"), Basic.ConsumeOk)
    for _ in range(3):
        peer.send(publish(1, "q", b"body"))
        peer.expect(Basic.Deliver, 1)
        peer.expect_body()
    return peer


HARD = [
    # 73, 78 and 80; 79 (immediate) is served here
    (method(1, Basic.Consume(queue="q", consumer_tag="c")), 530,
     "NOT_ALLOWED - attempt to reuse consumer tag 'c'", (60, 20)),
    (method(1, Basic.Qos(prefetch_size=7)), 540, "NOT_IMPLEMENTED - prefetch_size!=0 (7)",
     (60, 10)),
    (method(1, Basic.Recover(requeue=False)), 540, "NOT_IMPLEMENTED - requeue=false", (60, 110)),
    (frame(1, 1, b"\x00\x3c\x00\x64\x00"), 540, "NOT_IMPLEMENTED - requeue=false",
     (60, 100)),
]  # fmt: skip


@pytest.mark.parametrize(("data", "code", "text", "ids"), HARD)
def test_the_connection_is_closed(ready, data, code, text, ids):
    ready.send(data)
    assert ready.refusal() == Refusal("connection", code, text, ids)


UNKNOWN = "PRECONDITION_FAILED - unknown delivery tag {}"
SOFT = [
    # 75
    (method(1, Basic.Consume(queue="q", exclusive=True)), 403,
     "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use", (60, 20)),
    # 77
    (method(1, Basic.Ack(4)), 406, UNKNOWN.format(4), (60, 80)),
    (method(1, Basic.Ack(0)), 406, UNKNOWN.format(0), (60, 80)),
    (method(1, Basic.Ack(1)) * 2, 406, UNKNOWN.format(1), (60, 80)),
    (method(1, Basic.Ack(2, multiple=True)) + method(1, Basic.Ack(1)), 406, UNKNOWN.format(1),
     (60, 80)),
    (method(1, Basic.Ack(9, multiple=True)), 406, UNKNOWN.format(9), (60, 80)),
    (method(1, Basic.Nack(5)), 406, UNKNOWN.format(5), (60, 120)),
    (method(1, Basic.Nack(5, multiple=True)), 406, UNKNOWN.format(5), (60, 120)),
    (method(1, Basic.Reject(2**62)), 406, UNKNOWN.format(2**62), (60, 90)),
    # 83
    (method(1, Basic.Publish(routing_key="q")) + content(1, b"x", USER_ID), 406,
     "PRECONDITION_FAILED - user_id property set to 'other' but authenticated user was 'guest'",
     (60, 40)),
    # 93
    (method(1, commands.Tx.Commit()), 406, "PRECONDITION_FAILED - channel is not transactional",
     (90, 20)),
    (method(1, commands.Tx.Rollback()), 406, "PRECONDITION_FAILED - channel is not transactional",
     (90, 30)),
]  # fmt: skip


@pytest.mark.parametrize(("data", "code", "text", "ids"), SOFT)
def test_the_channel_is_closed(ready, data, code, text, ids):
    ready.send(data)
    assert ready.refusal() == Refusal("channel", code, text, ids)


def test_nobody_may_join_an_exclusive_consumer(connect):
    first, second = connect(1), connect(1)
    declare = commands.Queue.Declare(queue="alone", auto_delete=True)
    first.call(1, declare, commands.Queue.DeclareOk)
    first.call(1, Basic.Consume(queue="alone", exclusive=True), Basic.ConsumeOk)
    second.send(method(1, Basic.Consume(queue="alone")))
    assert second.refusal().text == ("ACCESS_REFUSED - queue 'alone' in vhost '/' in exclusive use")
    second.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    second.call(1, Basic.Get(queue="alone"), Basic.GetEmpty)


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (commands.Confirm.Select(), commands.Tx.Select(), "from confirm to tx mode"),
        (commands.Tx.Select(), commands.Confirm.Select(), "from tx to confirm mode"),
    ],
)
def test_confirms_and_transactions_do_not_mix(peer, first, second, text):
    peer.send(method(1, first), method(1, second))
    peer.receive()
    expected = f"PRECONDITION_FAILED - cannot switch {text}"
    ids = second.index >> 16, second.frame_id
    assert peer.refusal() == Refusal("channel", 406, expected, ids)


def test_all_of_nothing_may_be_acknowledged(peer):
    peer.send(method(1, Basic.Ack(0, multiple=True)), method(1, Basic.Nack(0, multiple=True)))
    peer.check()


def test_an_unknown_tag_leaves_what_came_before_acknowledged(ready):
    ready.send(*(method(1, Basic.Ack(tag)) for tag in (1, 2, 9, 3)))
    assert ready.refusal().text == UNKNOWN.format(9)
    ready.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    assert ready.call(1, commands.Queue.Purge(queue="q"), commands.Queue.PurgeOk).message_count == 1


def test_a_mandatory_message_comes_back_before_its_confirm(peer):
    peer.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    peer.send(publish(1, "nowhere", b"hello", mandatory=True, properties=b"\x80\x00\x04text"))
    returned = peer.expect(Basic.Return, 1)
    assert (returned.reply_code, returned.reply_text) == (312, "NO_ROUTE")
    assert (returned.exchange, returned.routing_key) == ("", "nowhere")
    assert peer.receive().payload.endswith(b"\x80\x00\x04text")
    assert peer.receive().payload == b"hello"
    ack = peer.expect(Basic.Ack, 1)
    assert (ack.delivery_tag, ack.multiple) == (1, False)


def test_what_precedes_a_refused_publish_is_kept(peer):
    """Also if all of it comes in one piece, and is routed by the run."""
    peer.call(1, commands.Queue.Declare(queue="kept", exclusive=True), commands.Queue.DeclareOk)
    good = publish(1, "kept", b"body")
    for before in range(1, 8):
        peer.send(good * before, publish(1, "kept", b"body", exchange="nope"), good)
        assert peer.refusal().code == 404
        peer.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
        purged = peer.call(1, commands.Queue.Purge(queue="kept"), commands.Queue.PurgeOk)
        assert purged.message_count == before
