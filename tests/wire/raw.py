"""A client that sends whatever it is told to, byte by byte, and reads frames by hand.

`FrameCutter` knows no socket; `Peer` is one connection over a real one. Methods are pamqp's, so
that the broker's own codec does not judge itself.
"""

import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple, TypeVar

from pamqp import commands
from pamqp.base import Frame as Method
from pamqp.common import FieldTable
from pamqp.frame import marshal, unmarshal

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"
CAPABILITIES: FieldTable = {
    "authentication_failure_close": True,
    "consumer_cancel_notify": True,
    "publisher_confirms": True,
    "basic.nack": True,
    "connection.blocked": True,
}
TIMEOUT_S = 15.0

AnyMethod = TypeVar("AnyMethod", bound=Method)


class RawFrame(NamedTuple):
    """One frame as it came."""

    kind: int
    channel: int
    payload: bytes

    @property
    def method(self) -> Method:
        """The method in it."""
        assert self.kind == 1, self
        _, _, method = unmarshal(frame(self.kind, self.channel, self.payload))
        assert isinstance(method, Method)
        return method


class FrameCutter:
    """Cuts what was received into frames."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> Iterator[RawFrame]:
        """Take more bytes; gives the frames that are complete now."""
        self._data += data
        while len(self._data) >= 8:
            kind = self._data[0]
            channel = int.from_bytes(self._data[1:3], "big")
            stop = 7 + int.from_bytes(self._data[3:7], "big")
            if len(self._data) <= stop:
                return
            assert self._data[stop] == 0xCE, self._data[:80]
            payload = self._data[7:stop]
            self._data = self._data[stop + 1 :]
            yield RawFrame(kind, channel, payload)


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """A frame of any kind."""
    return b"%c%b%b%b\xce" % (
        kind,
        channel.to_bytes(2, "big"),
        len(payload).to_bytes(4, "big"),
        payload,
    )


def method(channel: int, value: Method) -> bytes:
    """A method frame."""
    return bytes(marshal(value, channel))


def header(
    channel: int, size: int, properties: bytes = b"\0\0", *, class_id: int = 60, weight: int = 0
) -> bytes:
    """A header frame; *properties* begin with their flags."""
    ids = class_id.to_bytes(2, "big") + weight.to_bytes(2, "big")
    return frame(2, channel, ids + size.to_bytes(8, "big") + properties)


def content(channel: int, body: bytes, properties: bytes = b"\0\0", room: int = 131064) -> bytes:
    """A header frame and the body frames behind it."""
    pieces = [body[start : start + room] for start in range(0, len(body), room)]
    frames = [frame(3, channel, piece) for piece in pieces]
    return header(channel, len(body), properties) + b"".join(frames)


PERSISTENT = b"\x10\x00\x02"


def publish(
    channel: int,
    key: str,
    body: bytes = b"",
    *,
    exchange: str = "",
    mandatory: bool = False,
    properties: bytes = b"\0\0",
) -> bytes:
    """A whole publish."""
    value = commands.Basic.Publish(exchange=exchange, routing_key=key, mandatory=mandatory)
    return method(channel, value) + content(channel, body, properties)


class Refusal(NamedTuple):
    """How the broker closed a channel or a connection."""

    scope: str
    code: int
    text: str
    ids: tuple[int, int]


class Peer:
    """One connection to the broker at *port*."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._cutter = FrameCutter()
        self._frames: list[RawFrame] = []

    # ---- bytes and frames

    def send(self, *pieces: bytes) -> None:
        """Send all of it in one piece."""
        self.socket.sendall(b"".join(pieces))

    def receive_bytes(self) -> bytes:
        """Everything up to the end of the connection."""
        received = b""
        with suppress(ConnectionError):  # a reset is an end, too
            while data := self.socket.recv(65536):
                received += data
        return received

    def receive(self) -> RawFrame:
        """The next frame that is no heartbeat; raises EOFError at the end of the connection."""
        while True:
            while self._frames:
                one = self._frames.pop(0)
                if one.kind != 8:
                    return one
            data = self.socket.recv(262144)
            if not data:
                raise EOFError
            self._frames += self._cutter.feed(data)

    def expect(self, expected: type[AnyMethod], channel: int | None = None) -> AnyMethod:
        """The next frame, which must be this method."""
        received = self.receive()
        value = received.method
        assert isinstance(value, expected), f"{value.name}: {dict(value)}"
        assert channel is None or received.channel == channel
        return value

    def expect_body(self) -> bytes:
        """The content behind a deliver, get-ok or return."""
        head = self.receive()
        assert head.kind == 2
        size = int.from_bytes(head.payload[4:12], "big")
        body = b""
        while len(body) < size:
            piece = self.receive()
            assert piece.kind == 3
            body += piece.payload
        return body

    def expect_end(self) -> None:
        """Nothing more comes but the end of the connection."""
        try:
            received = self.receive()
        except (EOFError, ConnectionError):
            return
        raise AssertionError(f"not the end but {received}")

    def refusal(self) -> Refusal:
        """The close that comes next, confirmed as the protocol asks for."""
        received = self.receive()
        close = received.method
        if isinstance(close, commands.Connection.Close):
            self.send(method(0, commands.Connection.CloseOk()))
            self.expect_end()
            scope = "connection"
        else:
            assert isinstance(close, commands.Channel.Close), f"{close.name}: {dict(close)}"
            self.send(method(received.channel, commands.Channel.CloseOk()))
            scope = "channel"
        ids = close.class_id or 0, close.method_id or 0
        return Refusal(scope, close.reply_code or 0, close.reply_text, ids)

    # ---- conversations

    def call(self, channel: int, request: Method, reply: type[AnyMethod]) -> AnyMethod:
        """Send a method and expect its reply."""
        self.send(method(channel, request))
        return self.expect(reply, channel)

    def shake_hands(self, login: commands.Connection.StartOk, **tuning: int) -> None:
        """Everything up to connection.open."""
        self.send(PROTOCOL_HEADER)
        self.expect(commands.Connection.Start, 0)
        self.call(0, login, commands.Connection.Tune)
        values = {"channel_max": 2047, "frame_max": 131072, "heartbeat": 0} | tuning
        self.send(method(0, commands.Connection.TuneOk(**values)))

    def open(self, *channels: int, **tuning: int) -> "Peer":
        """Shake hands and open *channels*."""
        self.shake_hands(start_ok(), **tuning)
        self.call(0, commands.Connection.Open("/"), commands.Connection.OpenOk)
        for number in channels:
            self.call(number, commands.Channel.Open(), commands.Channel.OpenOk)
        return self

    def check(self, channel: int = 2047) -> None:
        """The connection works: a channel opens, answers and closes."""
        self.call(channel, commands.Channel.Open(), commands.Channel.OpenOk)
        declare = commands.Exchange.Declare(exchange="amq.direct", passive=True)
        self.call(channel, declare, commands.Exchange.DeclareOk)
        self.call(channel, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)

    def close(self) -> None:
        """Drop the connection without a word."""
        self.socket.close()


def start_ok(
    username: str = "guest",
    password: str = "guest",
    *,
    mechanism: str = "PLAIN",
    response: str | None = None,
    can_close: bool = True,
) -> commands.Connection.StartOk:
    """An answer to connection.start; *can_close*: the client takes a close for a failed login."""
    properties: FieldTable = {
        "capabilities": CAPABILITIES | {"authentication_failure_close": can_close}
    }
    if response is None:
        response = f"\0{username}\0{password}"
    return commands.Connection.StartOk(properties, mechanism, response, "en_US")
