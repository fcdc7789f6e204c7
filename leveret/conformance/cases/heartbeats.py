"""Heartbeats (section 2.3): the broker sends them, and notices who sends nothing."""

import time

from leveret.conformance.case import Chapter, Seen, Unmet, judge
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import HEARTBEAT, Wire, frame

chapter = Chapter("heartbeats")
INTERVAL_S = 1


def _await_heartbeats(wire: Wire, count: int) -> None:
    """Wait for heartbeats, at least one an interval; raises Unmet if something else comes."""
    data = b""
    while len(data) < count * len(HEARTBEAT):
        piece = wire.socket.recv(4096)
        data += piece
        if not piece or data != (HEARTBEAT * (len(data) // 8 + 1))[: len(data)]:
            raise Unmet(f"expected heartbeats, saw {data.hex(' ') or 'the end'}")


@chapter.case("2.3-heartbeats-are-sent", spec="heartbeats on channel 0")
def idle_connection(ground: Ground) -> None:
    """Over a connection on which nothing happens heartbeats are sent."""
    _await_heartbeats(ground.wire(1, heartbeat=INTERVAL_S), 2)


@chapter.case("2.3-silent-client", spec="the connection ends without a close")
def silent_client(ground: Ground) -> Seen:
    """A client that sends nothing for two intervals is dropped, without a word."""
    wire = ground.wire(1, heartbeat=INTERVAL_S)
    received = wire.receive_bytes()
    return judge(received.replace(HEARTBEAT, b""), spec=b"")


@chapter.case("2.3-any-bytes-count", spec="the connection stays")
def bytes_are_as_good_as_heartbeats(ground: Ground) -> None:
    """A client that sends anything, even a part of a frame, is there."""
    wire = ground.wire(1, heartbeat=INTERVAL_S)
    body = frame(3, 0, bytes(64))
    end = time.monotonic() + 4 * INTERVAL_S
    for at in range(len(body)):
        _await_heartbeats(wire, 1)
        wire.send(body[at : at + 1])
        if time.monotonic() > end:
            break


@chapter.case("2.3-heartbeats-of-the-client", spec="the connection stays")
def heartbeats_keep_the_connection(ground: Ground) -> None:
    """A client that sends heartbeats and nothing else is there."""
    wire = ground.wire(1, heartbeat=INTERVAL_S)
    end = time.monotonic() + 4 * INTERVAL_S
    while time.monotonic() < end:
        _await_heartbeats(wire, 1)
        wire.send(HEARTBEAT)
    wire.check()


@chapter.case("2.3-heartbeat-between-frames", spec="it is taken")
def heartbeats_at_any_time(ground: Ground) -> None:
    """A heartbeat may come without any having been agreed on."""
    wire = ground.wire(1)
    wire.send(HEARTBEAT * 3)
    wire.check()
