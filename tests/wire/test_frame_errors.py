"""Frames and channels: broken framing and order (rows 16 to 39), and what it leaves alone."""

import pytest
from pamqp import commands

from tests.wire.raw import (
    HEARTBEAT,
    Refusal,
    content,
    frame,
    header,
    method,
    publish,
)
from tests.wire.rows import case, row

PUBLISH = method(1, commands.Basic.Publish(routing_key="nowhere"))
DECLARE = b"\x00\x32\x00\x0a\x00\x00"
NO_METHOD = "expected method frame, got non method frame instead"
NO_HEADER = "expected content header for class 60, got non content header frame instead"
NO_BODY = "expected content body, got non content body frame instead"


def nested_table(depth):
    """A table in a table, and so on."""
    table = b"\x00\x00\x00\x00"
    for _ in range(depth):
        entry = b"\x01tF" + table
        table = len(entry).to_bytes(4, "big") + entry
    return table


def nested_array(depth):
    array = b"\x00\x00\x00\x00"
    for _ in range(depth):
        array = (len(array) + 1).to_bytes(4, "big") + b"A" + array
    entry = b"\x01aA" + array
    return len(entry).to_bytes(4, "big") + entry


# Nothing behind the fault is read.
BROKEN = [
    (b"\x01\x00\x01\x00\x00\x00\x01x\x00",
     'type 1, all octets = <<"x">>: {invalid_frame_end_marker,0}'),
    (b"\x01\x00\x01\x00\x02\x00\x01",
     "type 1, all octets = <<>>: {frame_too_large,131073,131072}"),
    (b"\x03\x00\x01\xff\xff\xff\xff",
     "type 3, all octets = <<>>: {frame_too_large,4294967295,131072}"),
    (b"\x00\x00\x00\x00\x00\x00\x04abcdefghijklmnopq",
     'type 0, first 16 octets = <<"abcdefghijklmnop">>: unknown_frame'),
]  # fmt: skip
CASES = [
    case(19, frame(8, 1, b""), 505, "type 8, all octets = <<>>", (0, 0)),
    case(20, header(0, 0), 505, "type 2, all octets = <<0,60,0,0,0,0,0,0,0,0,0,0,0,0>>", (0, 0)),
    case(20, frame(3, 0, b"abc"), 505, 'type 3, all octets = <<"abc">>', (0, 0)),
    case(21, content(1, b""), 505, NO_METHOD, (0, 0)),
    case(21, frame(3, 1, b"body"), 505, NO_METHOD, (0, 0)),
    case(22, PUBLISH * 2, 505, NO_HEADER, (60, 40)),
    case(22, PUBLISH + frame(3, 1, b"body"), 505, NO_HEADER, (60, 40)),
    case(23, PUBLISH + header(1, 4, class_id=15), 505,
         "expected content header for class 60, got one for class 15 instead", (60, 40)),
    case(24, PUBLISH + header(1, 4) + PUBLISH, 505, NO_BODY, (60, 40)),
    case(24, PUBLISH + header(1, 4) * 2, 505, NO_BODY, (60, 40)),
    case(24, PUBLISH + header(1, 4) + method(1, commands.Channel.Close(200, "", 0, 0)), 505,
         NO_BODY, (60, 40)),
    case(25, PUBLISH + header(1, 4) + frame(3, 1, b"12345"), 501,
         "content body frame exceeds remaining content size", (60, 40)),
    case(25, PUBLISH + header(1, 4) + frame(3, 1, b"123") + frame(3, 1, b"45"), 501,
         "content body frame exceeds remaining content size", (60, 40)),
    case(26, PUBLISH + header(1, 2**29 + 1), 501,
         "content body size 536870913 exceeds maximum allowed size 536870912", (60, 40)),
    case(26, PUBLISH + header(1, 2**63), 501,
         "content body size 9223372036854775808 exceeds maximum allowed size 536870912", (60, 40)),
    case(26, PUBLISH + header(1, 2**64 - 1), 501,
         "content body size 18446744073709551615 exceeds maximum allowed size 536870912",
         (60, 40)),
    case(27, frame(1, 1, DECLARE), 501, "cannot decode <<0,0>>", (50, 10)),
    case(27, frame(1, 1, DECLARE + b"\x05q"), 501, "cannot decode <<0,0,5,113>>", (50, 10)),
    case(27, frame(1, 1, b"\x00\x32"), 501, "cannot decode <<0,50>>", (0, 0)),
    case(27, frame(1, 1, DECLARE + b"\x01\xff\x00\x00\x00\x00\x00"), 501,
         "Malformed UTF-8 in shortstr", (50, 10)),
    case(27, frame(1, 1, b"\x00\x3c\x00\x28\x00\x00\x00\x01\xff\x00") + content(1, b"x"), 501,
         "Malformed UTF-8 in shortstr", (60, 40)),
    case(27, frame(1, 1, b"\x00\x3c\x00\x28\x00\x00\x05q") + content(1, b"x"), 501,
         "cannot decode <<0,0,5,113>>", (60, 40)),
    case(28, frame(1, 1, b"\x00\x32\x00\x63"), 503, "unknown method (50,99)", (50, 99)),
    case(28, frame(1, 1, b"\x00\x63\x00\x0a"), 503, "unknown method (99,10)", (99, 10)),
    case(28, frame(1, 0, b"\x00\x0a\x00\x63"), 503, "unknown method (10,99)", (10, 99)),
    case(30, PUBLISH + header(1, 4, weight=1), 505, NO_HEADER, (60, 40)),
    case(31, PUBLISH + header(1, 0) + frame(3, 1, b""), 505, NO_METHOD, (0, 0)),
    case(32, method(2, commands.Basic.Qos()), 504, "expected 'channel.open'", (60, 10)),
    case(32, method(2, commands.Channel.Close(200, "", 0, 0)), 504, "expected 'channel.open'",
         (20, 40)),
    case(32, publish(2, "q", b"x"), 504, "expected 'channel.open'", (60, 40)),
    case(32, method(2, commands.Basic.Ack(1)), 504, "expected 'channel.open'", (60, 80)),
    case(21, content(2, b"x"), 505, NO_METHOD, (0, 0)),
    case(33, method(1, commands.Channel.Open()), 504, "second 'channel.open' seen", (20, 10)),
    case(38, method(1, commands.Queue.DeclareOk("q", 0, 0)), 503, "unimplemented method",
         (50, 11)),
    case(38, method(1, commands.Connection.Open("/")), 503, "unimplemented method", (10, 40)),
]  # fmt: skip
NAMES = {
    501: "FRAME_ERROR",
    503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR",
    505: "UNEXPECTED_FRAME",
}


@row(16, 17, 18)
def test_a_broken_frame_closes_the_connection_and_ends_the_reading(connect):
    """After 3 s the socket is closed; all cases wait for it together."""
    peers = [connect(1) for _ in BROKEN]
    for peer, (data, _) in zip(peers, BROKEN, strict=True):
        peer.send(data, method(1, commands.Basic.Qos()))
    for peer, (_, text) in zip(peers, BROKEN, strict=True):
        assert peer.refusal() == Refusal("connection", 501, f"FRAME_ERROR - {text}", (0, 0))


@pytest.mark.parametrize(("data", "code", "text", "ids"), CASES)
def test_the_connection_is_closed(peer, data, code, text, ids):
    peer.send(data)
    assert peer.refusal() == Refusal("connection", code, f"{NAMES[code]} - {text}", ids)


@row(29)
@pytest.mark.parametrize(
    "properties",
    [
        b"\x80\x00",
        b"\x80\x00\x05a",
        b"\x00\x00a",
        b"\x80\x00\x01\xff",
        b"\x00\x02",
        b"\x00\x01",
        b"\xff\xff",
        b"\x20\x00\xff\xff\xff\xff",
        b"\x20\x00\x00\x00\x00\x03\x01a?",
        b"\x20\x00" + nested_table(1000),
        b"\x20\x00" + nested_array(1000),
    ],
)
@pytest.mark.parametrize("before", [0, 1, 5])
def test_undecodable_properties_close_the_connection(peer, properties, before):
    good = publish(1, "nowhere", b"x")
    peer.send(good * before, PUBLISH, content(1, b"x", properties), good)
    refusal = peer.refusal()
    assert refusal[:2] == ("connection", 541)
    assert refusal.text.startswith("INTERNAL_ERROR - cannot decode the message properties")
    assert refusal.ids == (60, 40)


@row(27)
@pytest.mark.parametrize("table", [nested_table(1000), nested_array(1000), nested_table(18_000)])
def test_tables_too_deep_close_the_connection(peer, table):
    peer.send(frame(1, 1, DECLARE + b"\x04deep\x00" + table))
    refusal = peer.refusal()
    assert refusal[:2] == ("connection", 501)
    assert refusal.text.startswith("FRAME_ERROR - cannot decode <<")
    assert len(refusal.text) <= 255
    assert refusal.ids == (50, 10)


def test_tables_as_deep_as_anybody_needs_are_fine(peer):
    peer.send(frame(1, 1, DECLARE + b"\x04deep\x08" + nested_table(100)))
    peer.expect(commands.Queue.DeclareOk, 1)


@row(17)
def test_a_payload_of_exactly_frame_max_is_taken(peer):
    peer.send(PUBLISH, header(1, 131072), frame(3, 1, bytes(131072)))
    peer.check()


def test_every_start_of_a_conversation_may_be_all_there_is(connect):
    """A truncated stream is waited for; its end is the end of the connection."""
    declare = method(1, commands.Queue.Declare(queue="truncated", auto_delete=True))
    data = declare + publish(1, "truncated", b"body") + HEARTBEAT
    for stop in range(1, len(data), 3):
        peer = connect(1)
        peer.send(data[:stop])
        peer.close()


@row(34)
def test_more_channels_than_negotiated(connect):
    peer = connect(1, 2, 3, channel_max=3)
    peer.send(method(4, commands.Channel.Open()))
    assert peer.refusal() == Refusal(
        "connection",
        530,
        "NOT_ALLOWED - number of channels opened (3) has reached the negotiated channel_max (3)",
        (20, 10),
    )


def test_all_channels_offered_can_be_open_at_once(connect):
    peer = connect(*range(1, 2048))
    peer.call(2047, commands.Basic.Qos(), commands.Basic.QosOk)


@row(36)
@pytest.mark.parametrize("active", [True, False])
def test_flow_is_echoed(peer, active):
    assert peer.call(1, commands.Channel.Flow(active), commands.Channel.FlowOk).active is active


@row(36)
def test_flow_pauses_deliveries(peer):
    peer.call(1, commands.Queue.Declare(queue="flow", exclusive=True), commands.Queue.DeclareOk)
    peer.call(1, commands.Channel.Flow(False), commands.Channel.FlowOk)
    peer.call(1, commands.Basic.Consume(queue="flow", no_ack=True), commands.Basic.ConsumeOk)
    peer.send(publish(1, "flow", b"1"), publish(1, "flow", b"2"))
    peer.call(1, commands.Basic.Qos(), commands.Basic.QosOk)
    peer.call(1, commands.Channel.Flow(True), commands.Channel.FlowOk)
    for body in (b"1", b"2"):
        peer.expect(commands.Basic.Deliver, 1)
        assert peer.expect_body() == body


@row(39)
def test_access_is_granted_to_old_clients(peer):
    peer.send(frame(1, 1, b"\x00\x1e\x00\x0a\x05/data\x1d"))
    assert peer.receive().payload == b"\x00\x1e\x00\x0b\x00\x01"


def test_a_number_is_used_again_after_close(peer):
    for _ in range(3):
        peer.call(1, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
        peer.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
        peer.send(method(1, commands.Queue.Declare(queue="missing", passive=True)))
        assert peer.refusal().scope == "channel"
        peer.call(1, commands.Channel.Open(), commands.Channel.OpenOk)


def test_a_new_channel_knows_nothing_of_the_one_before(peer):
    peer.call(1, commands.Queue.Declare(queue="", exclusive=True), commands.Queue.DeclareOk)
    peer.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    peer.call(1, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    peer.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    peer.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
    peer.send(method(1, commands.Basic.Get(queue="")))
    assert peer.refusal().text == "NOT_FOUND - no previously declared queue"


def test_closes_that_cross(peer):
    """The client closes while our own close is under way: it is answered, the number is free."""
    close = method(1, commands.Channel.Close(200, "", 0, 0))
    peer.send(method(1, commands.Queue.Declare(queue="missing", passive=True)), close)
    peer.expect(commands.Channel.Close, 1)
    peer.expect(commands.Channel.CloseOk, 1)
    peer.send(method(1, commands.Channel.CloseOk()))
    peer.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    peer.check()


def test_what_follows_an_error_on_its_channel_is_ignored_until_close_ok(peer):
    peer.call(1, commands.Queue.Declare(queue="after", exclusive=True), commands.Queue.DeclareOk)
    failing = publish(1, "k", b"lost", exchange="missing")
    peer.send(
        publish(1, "after", b"before"),
        failing,
        publish(1, "after", b"ignored") * 10,
        method(1, commands.Queue.Delete(queue="after")),
        method(1, commands.Channel.Open()),
    )
    assert peer.refusal() == Refusal(
        "channel", 404, "NOT_FOUND - no exchange 'missing' in vhost '/'", (60, 40)
    )
    peer.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    assert (
        peer.call(1, commands.Queue.Purge(queue="after"), commands.Queue.PurgeOk).message_count == 1
    )


def test_other_channels_go_on(connect):
    peer = connect(1, 2)
    peer.send(publish(1, "k", exchange="missing"))
    peer.expect(commands.Channel.Close, 1)
    peer.call(2, commands.Queue.Declare(queue="", exclusive=True), commands.Queue.DeclareOk)


def test_the_connection_closes_in_the_middle_of_a_content(peer):
    close = method(0, commands.Connection.Close(200, "", 0, 0))
    peer.send(PUBLISH, header(1, 100), frame(3, 1, bytes(50)), close, frame(3, 1, bytes(50)))
    peer.expect(commands.Connection.CloseOk, 0)
    peer.expect_end()


def test_contents_of_channels_interleave(connect):
    peer = connect(1, 2)
    peer.call(1, commands.Queue.Declare(queue="woven", exclusive=True), commands.Queue.DeclareOk)
    one, two = (method(n, commands.Basic.Publish(routing_key="woven")) for n in (1, 2))
    peer.send(one, two, header(2, 2), header(1, 2), frame(3, 1, b"a"), frame(3, 2, b"c"))
    peer.send(HEARTBEAT, frame(3, 2, b"d"), frame(3, 1, b"b"))
    bodies = []
    for _ in range(2):
        peer.call(1, commands.Basic.Get(queue="woven", no_ack=True), commands.Basic.GetOk)
        bodies.append(peer.expect_body())
    assert bodies == [b"cd", b"ab"]


def test_nothing_is_answered_to_a_close_of_ours_but_close_and_close_ok(peer):
    peer.send(method(1, commands.Channel.Open()))
    peer.expect(commands.Connection.Close, 0)
    peer.send(method(1, commands.Basic.Qos()), HEARTBEAT, b"not a frame")
    peer.close()


def test_closes_of_the_connection_that_cross(peer):
    close = method(0, commands.Connection.Close(200, "", 0, 0))
    peer.send(method(1, commands.Channel.Open()), close)
    peer.expect(commands.Connection.Close, 0)
    peer.expect(commands.Connection.CloseOk, 0)
    peer.expect_end()
