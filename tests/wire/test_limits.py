"""Clients that want too much, say too little or never read: they cost little and nobody else."""

import select
import socket
from contextlib import closing
from pathlib import Path

import pytest
from pamqp import commands

from tests.conftest import BrokerProcess
from tests.waiting import eventually
from tests.wire.raw import (
    PERSISTENT,
    PROTOCOL_HEADER,
    Peer,
    Refusal,
    frame,
    header,
    method,
    publish,
    start_ok,
)
from tests.wire.rows import row

pytestmark = pytest.mark.slow
MIB = 1024 * 1024


def memory(broker: BrokerProcess) -> int:
    """Bytes of the broker's process that lie in memory."""
    status = Path(f"/proc/{broker.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


@pytest.fixture
def server(tmp_path):
    """A broker for each test, whose memory nobody has used yet; a handshake may take a second."""
    broker = BrokerProcess(tmp_path / "data", "--log-level", "error", "--handshake-timeout-s", "1")
    broker.start()
    yield broker
    assert broker.stop() == 0
    assert "Traceback" not in broker.log_path.read_text()


@pytest.fixture
def _bystander(server):
    with closing(Peer(server.port).open()) as peer:
        yield peer


def is_closed(one: socket.socket) -> bool:
    """Has the broker hung up?"""
    one.setblocking(False)
    try:
        while one.recv(65536):
            continue
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


@row(2)
def test_two_thousand_connections_that_never_speak_are_closed(server, bystander):
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2000)]
    half = [one for one in silent[::4] if one.send(PROTOCOL_HEADER)]
    assert len(half) == 500
    while not is_closed(silent[0]):
        bystander.check()  # others are served meanwhile
    for one in silent:
        eventually(lambda one=one: is_closed(one))
        one.close()


PREFIXES = {
    "a start-ok that never ends": frame(1, 0, b"\x00\x0a\x00\x0b" + bytes(8000))[:-1],
    "heartbeats": b"\x08\x00\x00\x00\x00\x00\x00\xce" * 500,
    "a start-ok and frames of nobody": method(0, start_ok()) + frame(3, 1, bytes(8000)) * 7,
}


@pytest.mark.parametrize("name", PREFIXES)
def test_memory_for_one_who_has_not_logged_in_is_small(server, name):
    """64 KiB for each of 500 peers, with everything that a connection takes."""
    prefix = (PROTOCOL_HEADER + PREFIXES[name]).ljust(60_000, b"\x00")
    before = memory(server)
    peers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(500)]
    for peer in peers:
        peer.setblocking(False)
        assert peer.send(prefix) > 0
    for peer in peers:
        # The broker has read as much as it wants to: it answered.
        select.select([peer], [], [], 15)
    grown = memory(server) - before
    assert grown < 500 * 64 * 1024
    for peer in peers:
        peer.close()


LIMIT = 100 * MIB


def send_without_reading(peer: Peer, data: bytes) -> int:
    """Send *data* again and again until the broker takes no more of it; answers the bytes."""
    peer.socket.setblocking(False)
    data *= MIB // len(data)
    sent = 0
    while sent < LIMIT and select.select([], [peer.socket], [], 2)[1]:
        sent += peer.socket.send(data[sent % len(data) :])
    return sent


def test_a_publisher_that_never_reads_its_returns_is_not_read_from(server, connect, bystander):
    peer = connect(1)
    before = memory(server)
    assert send_without_reading(peer, publish(1, "nowhere", bytes(50_000), mandatory=True)) < LIMIT
    assert memory(server) - before < 64 * MIB
    bystander.check()


def test_a_client_that_never_reads_its_replies_is_not_read_from(server, connect, bystander):
    peer = connect(1)
    name = "n" * 255
    peer.call(1, commands.Queue.Declare(queue=name, exclusive=True), commands.Queue.DeclareOk)
    before = memory(server)
    sent = send_without_reading(peer, method(1, commands.Queue.Declare(queue=name, passive=True)))
    assert sent < LIMIT
    assert memory(server) - before < 64 * MIB
    bystander.check()


def test_a_consumer_that_never_reads_does_not_make_memory_grow(server, connect, bystander):
    publisher, consumer = connect(1), connect(1)
    declare = commands.Queue.Declare(queue="unread", durable=True)
    publisher.call(1, declare, commands.Queue.DeclareOk)
    publisher.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    consumer.call(1, commands.Basic.Consume(queue="unread", no_ack=True), commands.Basic.ConsumeOk)
    before = memory(server)
    body = bytes(10_000)
    message = publish(1, "unread", body, properties=PERSISTENT)
    for start in range(0, 10_000, 500):
        publisher.send(message * 500)
        while publisher.expect(commands.Basic.Ack).delivery_tag < start + 500:
            pass
    grown = memory(server) - before
    assert grown < 48 * MIB
    # It was only waiting: all is delivered as soon as it reads.
    for _ in range(10_000):
        consumer.expect(commands.Basic.Deliver, 1)
        assert len(consumer.expect_body()) == len(body)
    publisher.call(1, commands.Queue.Delete(queue="unread"), commands.Queue.DeleteOk)


@row(81)
def test_a_message_over_the_maximum_is_refused_once_it_is_read(make_broker):
    broker = make_broker("--max-message-size", "1000", name="small").start()
    with closing(Peer(broker.port).open(1)) as peer:
        declare = commands.Queue.Declare(queue="q", exclusive=True)
        peer.call(1, declare, commands.Queue.DeclareOk)
        good = publish(1, "q", bytes(1000))
        for size in (1001, 500_000):
            peer.send(good * 6, publish(1, "q", bytes(size)), good)
            text = f"message size {size} is larger than configured max size 1000"
            expected = Refusal("channel", 406, f"PRECONDITION_FAILED - {text}", (60, 40))
            assert peer.refusal() == expected
            peer.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
            purged = peer.call(1, commands.Queue.Purge(queue="q"), commands.Queue.PurgeOk)
            assert purged.message_count == 6


def test_a_backlog_behind_a_closed_channel_is_dropped_quickly(server, connect, bystander):
    """Small publishes to a channel that is closing cost the same each, however many wait."""
    peer = connect(1)
    peer.send(publish(1, "nowhere", b"x") * 10)
    peer.check()
    peer.send(method(1, commands.Queue.Declare(queue="missing", passive=True)))
    peer.expect(commands.Channel.Close, 1)
    peer.send(publish(1, "nowhere", b"x") * 200_000)  # with a cost that grew, minutes
    peer.send(method(1, commands.Channel.CloseOk()))
    peer.check()


def test_a_frame_larger_than_a_client_takes_is_cut_for_it(connect):
    publisher, consumer = connect(1), connect(1, 2, frame_max=4096)
    declare = commands.Queue.Declare(queue="cut", auto_delete=True)
    publisher.call(1, declare, commands.Queue.DeclareOk)
    body = bytes(range(256)) * 400
    for size in (1, 4088, 4089, len(body)):
        publisher.send(publish(1, "cut", body[:size]))
        publisher.check()
        consumer.call(2, commands.Basic.Get(queue="cut", no_ack=True), commands.Basic.GetOk)
        head = consumer.receive()
        assert head.kind == 2
        received = b""
        while len(received) < size:
            piece = consumer.receive()
            assert piece.channel == 2
            assert len(piece.payload) <= 4088
            received += piece.payload
        assert received == body[:size]
    publisher.call(1, commands.Queue.Delete(queue="cut"), commands.Queue.DeleteOk)


def test_an_endless_body_of_empty_frames_takes_no_memory(server, connect):
    peer = connect(1)
    peer.send(method(1, commands.Basic.Publish(routing_key="nowhere")), header(1, 5))
    before = memory(server)
    for _ in range(20):
        peer.send(frame(3, 1, b"") * 20_000)
    peer.send(frame(3, 1, b"12345"))
    peer.check()
    assert memory(server) - before < 16 * MIB
