"""AmqpTransport: one TCP connection; the only module that knows how bytes are moved.

`asyncio.Protocol` under uvloop: anyio's streams wait for the drain on each send and pause reading
around each receive, which a broker that answers many messages a chunk cannot afford.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol, cast

from leveret.amqp.connection import ConnectionState
from leveret.amqp.heartbeat import HeartbeatClock
from leveret.broker.session import Session
from leveret.broker.turn import Turn

logger = logging.getLogger(__name__)

TICK_S = 1.0
"""Between two calls of `tick`."""
WRITE_HIGH_WATER = 1024 * 1024
"""Bytes waiting for the socket above which nothing more is delivered to it."""
WRITE_LOW_WATER = 256 * 1024
OUTPUT_ABUSE = 16 * 1024 * 1024
"""Bytes of replies waiting for a client that does not read them: above it, it is not read from."""
LARGE_CHUNK = 128 * 1024
"""libuv reads a full socket 32 times in a row. After a chunk of this many bytes the others, the
consumers of these very messages among them, have their turn first."""


class MakeSession(Protocol):
    """How a session comes to be; the launcher knows."""

    def __call__(self, transport: "AmqpTransport", *, peer: str, is_loopback: bool) -> Session:
        """A session that writes to *transport*."""


class AmqpTransport(asyncio.Protocol):
    """Bytes between a socket and its `Session`."""

    __slots__ = (
        "_accepted_at",
        "_clock_ms",
        "_connections",
        "_heartbeat",
        "_is_reading",
        "_make_session",
        "_received",
        "_sent",
        "_session",
        "_transport",
        "_turn",
    )

    def __init__(
        self,
        make_session: MakeSession,
        connections: "set[AmqpTransport]",
        turn: Turn,
        clock_ms: Callable[[], int],
    ) -> None:
        self._make_session = make_session
        self._connections = connections
        self._turn = turn
        self._clock_ms = clock_ms
        self._transport: asyncio.Transport | None = None
        self._session: Session | None = None
        self._heartbeat: HeartbeatClock | None = None
        self._accepted_at = time.monotonic()
        self._is_reading = True
        self._received = False
        self._sent = False

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A socket was accepted."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(WRITE_HIGH_WATER, WRITE_LOW_WATER)
        address = transport.get_extra_info("peername")
        peer = f"{address[0]}:{address[1]}" if address else "?"
        is_loopback = bool(address) and (address[0] == "::1" or address[0].startswith("127."))
        self._session = self._make_session(self, peer=peer, is_loopback=is_loopback)
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Bytes came in."""
        assert self._session is not None
        self._received = True
        self._turn.now_ms = self._clock_ms()
        self._session.receive_data(data)
        if self._session.connection.is_held:
            self._pause_reading()
        elif len(data) >= LARGE_CHUNK or self._turn.is_behind:
            self._pause_reading()
            self._turn.afterwards(self._resume_reading)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self._turn.now_ms = self._clock_ms()
        self._connections.discard(self)
        if self._session is not None:
            self._session.connection.lost()
        self._transport = None

    def pause_writing(self) -> None:
        """The socket's buffer is over the high-water mark."""
        assert self._session is not None
        self._session.pause_output()

    def resume_writing(self) -> None:
        """The socket's buffer is under the low-water mark."""
        assert self._session is not None
        self._session.resume_output()
        self._resume_reading()

    # ---- Transport of a Session

    def write(self, data: bytes | bytearray) -> None:
        """Send *data*."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._sent = True
        transport.write(data)
        if transport.get_write_buffer_size() > OUTPUT_ABUSE:
            self._pause_reading()

    def released(self) -> None:
        """What the session waited for is on disk: read on."""
        self._resume_reading()

    def finish(self, linger_s: float) -> None:
        """Close once all is sent; before that give the peer *linger_s* seconds to do it."""
        if self._transport is None:
            return
        if linger_s:
            asyncio.get_running_loop().call_later(linger_s, self._close)
        else:
            self._transport.close()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def _pause_reading(self) -> None:
        if self._is_reading and self._transport is not None:
            self._is_reading = False
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        transport, session = self._transport, self._session
        if self._is_reading or transport is None or session is None or transport.is_closing():
            return
        if session.connection.is_held or transport.get_write_buffer_size() > OUTPUT_ABUSE:
            return
        self._is_reading = True
        transport.resume_reading()

    # ---- once a second

    def tick(self, now: float, handshake_timeout_s: float) -> None:
        """Heartbeats, the time limits of the handshake and of deliveries."""
        session = self._session
        if session is None or self._transport is None:
            return
        connection = session.connection
        if connection.state is not ConnectionState.OPEN:
            if (
                connection.state not in (ConnectionState.CLOSING, ConnectionState.CLOSED)
                and now - self._accepted_at > handshake_timeout_s
            ):
                logger.warning("handshake timed out: peer=%s", session.peer)
                self._transport.abort()
            return
        if self._heartbeat is None:
            self._heartbeat = HeartbeatClock(connection.tuning.heartbeat_s, now)
        heartbeat = self._heartbeat
        if self._received or not self._is_reading:
            heartbeat.received(now)
            self._received = False
        if self._sent:
            # It may have been right after the last tick: of a second, no more than that is left.
            heartbeat.sent(now - TICK_S)
            self._sent = False
        if heartbeat.is_dead(now):
            logger.warning("missed heartbeats: peer=%s", session.peer)
            self._transport.abort()
        elif heartbeat.due(now):
            connection.send_heartbeat()
            self._turn.output(session)
        self._turn.now_ms = self._clock_ms()
        session.check_deadlines(self._turn.now_ms)

    def shut_down(self, reason: str) -> None:
        """Tell the client that the broker stops (320)."""
        if self._session is not None:
            self._session.close(reason)
