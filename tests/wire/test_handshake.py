"""Handshake: what a client may do wrong before its connection is open (rows 1 to 9, 15)."""

import pytest
from pamqp import commands

from leveret.amqp.properties import FactsReader
from leveret.amqp.publish_shape import ShapeBook
from leveret.amqp.tuning import Tuning
from leveret.broker.session import Session
from tests.broker.peer import FakeTransport
from tests.broker.world import World
from tests.wire.raw import (
    HEARTBEAT,
    PROTOCOL_HEADER,
    FrameCutter,
    Refusal,
    content,
    frame,
    method,
    start_ok,
)
from tests.wire.rows import case, row

REFUSED = (
    "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
    "For details see the broker logfile."
)


def greeted(connect):
    peer = connect()
    peer.send(PROTOCOL_HEADER)
    peer.expect(commands.Connection.Start, 0)
    return peer


def logged_in(connect):
    peer = greeted(connect)
    peer.call(0, start_ok(), commands.Connection.Tune)
    return peer


def tuned(connect):
    peer = logged_in(connect)
    peer.send(method(0, commands.Connection.TuneOk(2047, 131072, 0)))
    return peer


@row(1)
@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"AMQP\x00\x00\x09\x02",
        b"AMQP\x01\x01\x00\x09",
        b"AMQP\x00\x01\x00\x00",
        b"AMQP\x03\x01\x00\x00",
        b"x",
        bytes(70_000),
    ],
)
def test_another_protocol_is_answered_by_ours(connect, data):
    peer = connect()
    peer.send(data)
    assert peer.receive_bytes() in (PROTOCOL_HEADER, b"")  # the rest may be lost to a reset


def test_start_tells_what_the_broker_can(connect):
    peer = connect()
    peer.send(PROTOCOL_HEADER)
    start = peer.expect(commands.Connection.Start, 0)
    assert (start.version_major, start.version_minor) == (0, 9)
    assert start.mechanisms.split() == ["PLAIN", "AMQPLAIN"]
    assert start.locales == "en_US"
    assert start.server_properties["capabilities"]["publisher_confirms"] is True
    assert set(start.server_properties) == {
        "capabilities",
        "cluster_name",
        "copyright",
        "information",
        "platform",
        "product",
        "version",
    }
    tune = peer.call(0, start_ok(), commands.Connection.Tune)
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131072, 60)


def test_amqplain(connect):
    response = "\x05LOGINS\0\0\0\x05guest\x08PASSWORDS\0\0\0\x05guest"
    peer = greeted(connect)
    peer.call(0, start_ok(mechanism="AMQPLAIN", response=response), commands.Connection.Tune)


@row(3)
@pytest.mark.parametrize("name", ["guest", "nobody", ""])
def test_bad_credentials_are_told_to_a_client_that_understands(connect, name):
    peer = greeted(connect)
    peer.send(method(0, start_ok(name, "wrong")))
    assert peer.refusal() == Refusal("connection", 403, REFUSED, (0, 0))


@row(5)
@pytest.mark.parametrize("can_close", [True, False])
def test_guest_is_refused_from_another_machine(tmp_path, can_close):
    """Without a socket: this machine may have no address but its own."""
    world = World(tmp_path)
    transport = FakeTransport()
    session = Session(
        transport,
        world.broker,
        world.turn,
        tuning=Tuning(),
        facts_reader=FactsReader(),
        shapes=ShapeBook(),
        max_message_size=1000,
        peer="192.0.2.1:5000",
        is_loopback=False,
    )
    session.receive_data(PROTOCOL_HEADER + method(0, start_ok(can_close=can_close)))
    world.run()
    start, *rest = FrameCutter().feed(bytes(transport.written))
    assert isinstance(start.method, commands.Connection.Start)
    closes = [one.method for one in rest]
    assert [(close.reply_code, close.reply_text) for close in closes] == [
        (403, REFUSED)
    ] * can_close
    assert transport.is_finished
    world.close()


SILENT = {
    "bad credentials": method(0, start_ok(password="wrong", can_close=False)),
    "unknown mechanism": method(0, start_ok(mechanism="CRAM-MD5")),
    "no mechanism": method(0, start_ok(mechanism="")),
    "malformed response": method(0, start_ok(response="guest")),
    "tune-ok instead of start-ok": method(0, commands.Connection.TuneOk(1, 131072, 0)),
    "close": method(0, commands.Connection.Close(200, "", 0, 0)),
    "channel.open": method(1, commands.Channel.Open()),
    "body": content(1, b"body"),
    "header on channel 0": content(0, b""),
    "end octet": HEARTBEAT[:-1] + b"\x00",
    "8193 octets": frame(1, 0, bytes(8193)),
    "undecodable start-ok": frame(1, 0, b"\x00\x0a\x00\x0b\xff\xff\xff\xff"),
    "unknown method": frame(1, 0, b"\x00\x0a\x00\xff"),
}


@row(4, 6, 15, 20)
def test_who_has_not_logged_in_is_told_nothing(connect):
    """After 3 s the socket is closed; all cases wait for it together."""
    peers = {name: greeted(connect) for name in SILENT}
    for name, peer in peers.items():
        peer.send(SILENT[name])
        peer.send(HEARTBEAT)
    for name, peer in peers.items():
        assert peer.receive_bytes() == b"", name


TUNINGS = [
    case(7, (3000, 131072), "channel_max = 3000 is higher than the maximum allowed value (2047)"),
    case(
        7, (0, 131072), "channel_max = 0 (no limit) is higher than the maximum allowed value (2047)"
    ),
    case(8, (2047, 131073), "frame_max = 131073 is higher than the maximum allowed value (131072)"),
    case(
        8, (2047, 0), "frame_max = 0 (no limit) is higher than the maximum allowed value (131072)"
    ),
    case(8, (2047, 4095), "frame_max = 4095 is lower than the minimum allowed value (4096)"),
]


@pytest.mark.parametrize(("limits", "text"), TUNINGS)
def test_a_tuning_beyond_the_offer_is_refused(connect, limits, text):
    peer = logged_in(connect)
    peer.send(method(0, commands.Connection.TuneOk(*limits, 0)))
    expected = Refusal("connection", 530, f"NOT_ALLOWED - negotiated {text}", (10, 30))
    assert peer.refusal() == expected


@row(8)
def test_the_smallest_tuning_is_accepted(connect):
    """4096 is the minimum of the specification; RabbitMQ refuses less than 8192 since 4.1."""
    connect(1, channel_max=1, frame_max=4096).call(1, commands.Basic.Qos(), commands.Basic.QosOk)


@row(9)
def test_an_unknown_vhost_is_refused(connect):
    peer = tuned(connect)
    peer.send(method(0, commands.Connection.Open("foo")))
    expected = Refusal("connection", 530, "NOT_ALLOWED - vhost foo not found", (10, 40))
    assert peer.refusal() == expected


@row(15)
@pytest.mark.parametrize(
    "value",
    [
        commands.Connection.TuneOk(2047, 131072, 0),
        start_ok(),
        commands.Connection.SecureOk("x"),
        commands.Connection.Start(),
        commands.Channel.Open(),
        commands.Basic.Ack(1),
    ],
    ids=lambda value: value.name,
)
@pytest.mark.parametrize("state", ["opening", "running"])
def test_a_method_in_the_wrong_state_is_refused(connect, state, value):
    peer = tuned(connect)
    if state == "running":
        peer.call(0, commands.Connection.Open("/"), commands.Connection.OpenOk)
    peer.send(method(0, value))
    assert peer.refusal() == Refusal(
        "connection",
        504,
        f"CHANNEL_ERROR - unexpected method in connection state {state}",
        (value.index >> 16, value.frame_id),
    )


@row(20)
def test_a_channel_before_the_connection_is_open_is_refused(connect):
    peer = tuned(connect)
    peer.send(method(1, commands.Channel.Open()))
    refusal = peer.refusal()
    assert refusal.code == 505
    assert refusal.text.startswith("UNEXPECTED_FRAME - type 1, all octets = <<")


def test_the_reserved_argument_of_open_ok_is_empty(connect):
    """Clients skip it as four octets, whatever it holds."""
    peer = connect(1)
    peer.send(method(2, commands.Channel.Open()))
    assert peer.receive().payload == b"\x00\x14\x00\x0b" + bytes(4)


def test_a_whole_handshake_in_one_write_and_byte_by_byte(connect):
    handshake = [
        PROTOCOL_HEADER,
        method(0, start_ok()),
        method(0, commands.Connection.TuneOk(2047, 131072, 0)),
        method(0, commands.Connection.Open("/")),
        method(1, commands.Channel.Open()),
    ]
    pieces = b"".join(handshake)
    for cut in ([pieces], [pieces[at : at + 1] for at in range(len(pieces))]):
        peer = connect()
        for piece in cut:
            peer.send(piece)
        peer.expect(commands.Connection.Start, 0)
        peer.expect(commands.Connection.Tune, 0)
        peer.expect(commands.Connection.OpenOk, 0)
        peer.expect(commands.Channel.OpenOk, 1)
        peer.call(0, commands.Connection.Close(200, "bye", 0, 0), commands.Connection.CloseOk)
        peer.expect_end()


def test_an_update_of_the_secret_is_accepted(connect):
    peer = connect(1)
    peer.call(
        0, commands.Connection.UpdateSecret("secret", "renewed"), commands.Connection.UpdateSecretOk
    )
