"""A proxy before a broker that gets one thing wrong, on each connection anew.

A fault sees the units of one direction and answers what goes on in place of each. A unit is a
frame, or a method with its content. Bytes that are no frames pass as they are.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from pamqp import commands
from pamqp.base import Frame as Method
from pamqp.exceptions import PAMQPException
from pamqp.frame import marshal, unmarshal

CARRIERS = (
    commands.Basic.Publish.index,
    commands.Basic.Return.index,
    commands.Basic.Deliver.index,
    commands.Basic.GetOk.index,
)
"""Methods with a content."""
HEADER_BYTES = 8


@dataclass(slots=True)
class Unit:
    """A frame as it came, and the frames of the content behind it."""

    kind: int
    channel: int
    data: bytes
    content: bytes = b""
    method: Method | None = None

    def encode(self) -> bytes:
        """The bytes that go on."""
        return self.data + self.content

    def with_method(self, method: Method) -> "Unit":
        """The same with another method, or as it is if pamqp does not encode that one."""
        try:
            return replace(self, data=bytes(marshal(method, self.channel)), method=method)
        except ValueError:
            return self


class Side(Enum):
    """Whose words a fault twists."""

    BROKER = "broker"
    CLIENT = "client"


Twist = Callable[[Unit], list[Unit]]
"""Answers what goes on in place of a unit."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that a broker may do wrong: `make` gives the twist for a connection."""

    side: Side
    make: Callable[[], Twist]


class BrokenBroker:
    """Listens on `port` and passes on to *broker_port*, with a fault or without one."""

    def __init__(self, broker_port: int, fault: Fault | None) -> None:
        self._broker_port = broker_port
        self._fault = fault
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        """End every connection and every thread."""
        # A thread that waits in accept() does not notice a close.
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._threads[0].join()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        for one in self._sockets:
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self._broker_port))
            self._sockets += [client, broker]
            for one in (client, broker):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for side, source, target in (
                (Side.CLIENT, client, broker),
                (Side.BROKER, broker, client),
            ):
                is_twisted = self._fault is not None and self._fault.side is side
                twist = self._fault.make() if self._fault and is_twisted else None
                thread = threading.Thread(target=_pass_on, args=(source, target, side, twist))
                self._threads.append(thread)
                thread.start()


def _pass_on(source: socket.socket, target: socket.socket, side: Side, twist: Twist | None) -> None:
    cut = Cutter(HEADER_BYTES if side is Side.CLIENT else 0)
    with contextlib.suppress(OSError):
        while data := source.recv(262144):
            if twist is None:
                target.sendall(data)
                continue
            pieces = [
                b"".join(one.encode() for one in twist(piece)) if isinstance(piece, Unit) else piece
                for piece in cut.feed(data)
            ]
            target.sendall(b"".join(pieces))
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


class Cutter:
    """Cuts bytes into units; *greeting* bytes at the beginning pass as they are."""

    def __init__(self, greeting: int) -> None:
        self._greeting = greeting
        self._data = b""
        self._open: dict[int, Unit] = {}
        """By channel: a unit whose content has not come in full."""
        self._missing: dict[int, int] = {}
        """By channel: the bytes of a body that are still to come; -1 before its header."""
        self._is_lost = False

    def feed(self, data: bytes) -> Iterator[Unit | bytes]:
        """The units, and bytes that are none, that end in *data*."""
        self._data += data
        if self._greeting and len(self._data) >= self._greeting:
            yield self._take(self._greeting)
            self._greeting = 0
        while not self._greeting and not self._is_lost and len(self._data) >= 8:
            size = 8 + int.from_bytes(self._data[3:7], "big")
            if self._data[0] not in (1, 2, 3, 8) or size > 200_000:
                self._is_lost = True
            elif len(self._data) < size:
                return
            else:
                yield from self._frame(self._take(size))
        if self._is_lost:
            yield self._take(len(self._data))

    def _take(self, size: int) -> bytes:
        taken, self._data = self._data[:size], self._data[size:]
        return taken

    def _frame(self, data: bytes) -> Iterator[Unit | bytes]:
        kind, channel = data[0], int.from_bytes(data[1:3], "big")
        waiting = self._open.get(channel)
        if kind in (2, 3) and waiting:
            waiting.content += data
            if kind == 2:
                self._missing[channel] = int.from_bytes(data[11:19], "big")
            else:
                self._missing[channel] -= len(data) - 8
            if self._missing[channel] <= 0:
                yield self._open.pop(channel)
            return
        if waiting:
            # The content is broken off: what there is of it goes on.
            yield self._open.pop(channel).encode()
        unit = Unit(kind, channel, data, method=_method(data) if kind == 1 else None)
        if kind == 1 and int.from_bytes(data[7:11], "big") in CARRIERS:
            self._open[channel] = unit
        else:
            yield unit


def _method(data: bytes) -> Method | None:
    try:
        _, _, value = unmarshal(data)
    except (PAMQPException, ValueError):
        return None
    return value if isinstance(value, Method) else None
