"""Wire: a client that sends whatever it is told to, byte by byte, and reads frames by hand.

It keeps a transcript of all frames, which is the evidence of a case, and gives up at a deadline.
Methods are pamqp's; what pamqp refuses to encode is written as bytes (`frame`, `method_frame`).
"""

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from pamqp import commands
from pamqp.base import Frame as Method
from pamqp.common import FieldTable
from pamqp.exceptions import PAMQPException
from pamqp.frame import marshal, unmarshal

from leveret.conformance.case import Unmet

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"
CAPABILITIES: FieldTable = {
    "authentication_failure_close": True,
    "consumer_cancel_notify": True,
    "publisher_confirms": True,
    "basic.nack": True,
    "connection.blocked": True,
}
PERSISTENT = b"\x10\x00\x02"
"""Properties with delivery-mode 2 and nothing else."""
_SECRETS = ("response", "new_secret")
"""Arguments of connection.start-ok, secure-ok and update-secret."""
_CLOSE_OK = b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x33\xce"
_SHOWN_BYTES = 48
_TRANSCRIPT_LINES = 400

AnyMethod = TypeVar("AnyMethod", bound=Method)


class CaseTimeout(Exception):
    """The broker did not do what was waited for in the time of the case."""


class Ended(Unmet):
    """The broker ended the connection without a word."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the broker listens and who we are there."""

    host: str
    port: int
    user: str
    password: str
    vhost: str

    @classmethod
    def parse(cls, uri: str) -> "Address":
        """The address in *uri*, `amqp://user:password@host:port/vhost`. Raises ValueError."""
        parts = urlsplit(uri)
        if parts.scheme != "amqp" or not parts.hostname:
            raise ValueError(f"{uri}: not of the form amqp://user:password@host:port/vhost")
        return cls(
            parts.hostname,
            parts.port or 5672,
            unquote(parts.username or "guest"),
            unquote(parts.password or "guest"),
            unquote(parts.path[1:]) or "/",
        )


class RawFrame(NamedTuple):
    """One frame as it came."""

    kind: int
    channel: int
    payload: bytes

    @property
    def method(self) -> Method:
        """The method in it. Raises Unmet if it is another frame."""
        try:
            _, _, method = unmarshal(frame(*self))
        except (PAMQPException, ValueError) as error:
            shown = self.payload[:_SHOWN_BYTES].hex(" ")
            raise Unmet(f"a frame that cannot be read: {shown}: {error}") from None
        if not isinstance(method, Method):
            raise Unmet(f"expected a method, saw {self}")
        return method

    def __str__(self) -> str:
        if self.kind == 1:
            with suppress(Unmet):
                return f"channel {self.channel}: {describe(self.method)}"
            return f"channel {self.channel}: method {self.payload[:_SHOWN_BYTES].hex(' ')}"
        names = {2: "header", 3: "body", 8: "heartbeat"}
        name = names.get(self.kind, f"frame of type {self.kind}")
        return f"channel {self.channel}: {name} of {len(self.payload)} bytes"


class Refusal(NamedTuple):
    """How a channel or a connection was closed: scope, code, text, class and method id."""

    scope: str
    code: int
    text: str
    ids: tuple[int, int] = (0, 0)

    def fits(self, expected: object) -> bool:
        """Is it as *expected*: a refusal of which an empty text, or ids of zero, mean any?"""
        return (
            isinstance(expected, Refusal)
            and (self.scope, self.code) == (expected.scope, expected.code)
            and expected.text in ("", self.text)
            and expected.ids in ((0, 0), self.ids)
        )

    def __str__(self) -> str:
        return f"{self.scope} closed: {self.code} {self.text}".rstrip()


def channel_closed(code: int, text: str = "") -> Refusal:
    """A channel.close with *code*; an empty text stands for any."""
    return Refusal("channel", code, text)


def connection_closed(code: int, text: str = "") -> Refusal:
    """A connection.close with *code*; an empty text stands for any."""
    return Refusal("connection", code, text)


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """A frame of any kind."""
    start = bytes([kind]) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big")
    return start + payload + b"\xce"


def method(channel: int, value: Method) -> bytes:
    """A method frame."""
    return bytes(marshal(value, channel))


def method_frame(channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
    """A method frame with *arguments* as given, for what pamqp does not encode."""
    ids = class_id.to_bytes(2, "big") + method_id.to_bytes(2, "big")
    return frame(1, channel, ids + arguments)


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


def publish(
    channel: int,
    key: str,
    body: bytes = b"",
    *,
    exchange: str = "",
    mandatory: bool = False,
    immediate: bool = False,
    properties: bytes = b"\0\0",
) -> bytes:
    """A whole publish."""
    value = commands.Basic.Publish(
        exchange=exchange, routing_key=key, mandatory=mandatory, immediate=immediate
    )
    return method(channel, value) + content(channel, body, properties)


def describe(value: Method) -> str:
    """A method with its arguments, but no password, in a line."""
    arguments = ", ".join(
        f"{name}={'(hidden)' if name in _SECRETS else _short(field)}" for name, field in value
    )
    return f"{value.name}({arguments})"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 2 * _SHOWN_BYTES else f"{text[: 2 * _SHOWN_BYTES]}..."


class Wire:
    """One connection to the broker. What it waits for it waits for until *deadline*.

    *deadline* is of time.monotonic; *transcript* gets a line for each frame.
    """

    def __init__(self, address: Address, deadline: float, transcript: list[str], name: str) -> None:
        self.address = address
        self._deadline = deadline
        self._transcript = transcript
        self._name = name
        self._data = b""
        self._frames: list[RawFrame] = []
        self.server_properties: FieldTable = {}
        try:
            self.socket = socket.create_connection((address.host, address.port), self._left_s())
        except TimeoutError:
            raise CaseTimeout("no connection") from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    # ---- bytes and frames

    def send(self, *pieces: bytes) -> None:
        """Send all of it in one piece. Raises Ended if the broker does not read any more."""
        data = b"".join(pieces)
        for line in _lines(data):
            self._note(f"{self._name} > {line}")
        self.socket.settimeout(self._left_s())
        try:
            self.socket.sendall(data)
        except TimeoutError:
            raise CaseTimeout("the broker reads nothing") from None
        except ConnectionError:
            raise Ended("the connection was ended while we sent") from None

    def receive_bytes(self) -> bytes:
        """Everything up to the end of the connection."""
        received = self._data
        with suppress(Ended):
            while True:
                received += self._receive()
        return received

    def _receive(self) -> bytes:
        self.socket.settimeout(self._left_s())
        try:
            data = self.socket.recv(262144)
        except TimeoutError:
            raise CaseTimeout("nothing came") from None
        except ConnectionError:
            data = b""
        if not data:
            self._note(f"{self._name} < end of the connection")
            raise Ended("the connection ended")
        return data

    def receive(self) -> RawFrame:
        """The next frame that is no heartbeat. Raises Ended."""
        while True:
            while self._frames:
                one = self._frames.pop(0)
                self._note(f"{self._name} < {one}")
                if one.kind != 8:
                    return one
            self._data += self._receive()
            self._frames += self._cut()

    def _cut(self) -> Iterator[RawFrame]:
        while len(self._data) >= 8:
            stop = 7 + int.from_bytes(self._data[3:7], "big")
            if len(self._data) <= stop:
                return
            if self._data[stop] != 0xCE:
                raise Unmet(f"no frame: {self._data[:_SHOWN_BYTES].hex(' ')}")
            one = RawFrame(
                self._data[0], int.from_bytes(self._data[1:3], "big"), self._data[7:stop]
            )
            self._data = self._data[stop + 1 :]
            yield one

    def expect(self, expected: type[AnyMethod], channel: int | None = None) -> AnyMethod:
        """The next frame, which must be this method. Raises Unmet."""
        received = self.receive()
        value = received.method
        if not isinstance(value, expected) or channel not in (None, received.channel):
            raise Unmet(f"expected {expected.name}, saw {received}")
        return value

    def expect_body(self) -> bytes:
        """The body of the content behind a deliver, get-ok or return."""
        return self.expect_content()[1]

    def expect_content(self) -> tuple[bytes, bytes]:
        """Properties, with their flags, and body behind a deliver, get-ok or return."""
        head = self.receive()
        if head.kind != 2:
            raise Unmet(f"expected a header, saw {head}")
        size = int.from_bytes(head.payload[4:12], "big")
        body = b""
        while len(body) < size:
            piece = self.receive()
            if piece.kind != 3:
                raise Unmet(f"expected a body, saw {piece}")
            body += piece.payload
        return head.payload[12:], body

    def expect_delivery(self, channel: int | None = None) -> tuple[commands.Basic.Deliver, bytes]:
        """A delivery and its body."""
        deliver = self.expect(commands.Basic.Deliver, channel)
        return deliver, self.expect_body()

    def expect_end(self) -> None:
        """Nothing more comes but the end of the connection. Raises Unmet."""
        try:
            received = self.receive()
        except Ended:
            return
        raise Unmet(f"expected the end of the connection, saw {received}")

    def expect_silence(self, channel: int) -> None:
        """Nothing has come for *channel*: the next frame answers what is asked now."""
        self.call(channel, commands.Basic.Qos(prefetch_count=0), commands.Basic.QosOk)

    def refusal(self) -> Refusal:
        """The close that comes next, confirmed as the protocol asks for. Raises Unmet."""
        return self._confirmed(self.receive())

    def _confirmed(self, received: RawFrame) -> Refusal:
        """Answer the close that was received."""
        close = received.method
        if isinstance(close, commands.Connection.Close):
            with suppress(Ended):
                self.send(method(0, commands.Connection.CloseOk()))
            scope = "connection"
        elif isinstance(close, commands.Channel.Close):
            self.send(method(received.channel, commands.Channel.CloseOk()))
            scope = "channel"
        else:
            raise Unmet(f"expected a close, saw {received}")
        ids = close.class_id or 0, close.method_id or 0
        return Refusal(scope, close.reply_code or 0, close.reply_text, ids)

    # ---- conversations

    def call(self, channel: int, request: Method, reply: type[AnyMethod]) -> AnyMethod:
        """Send a method and expect its reply."""
        self.send(method(channel, request))
        return self.expect(reply, channel)

    def refused(self, channel: int, request: Method) -> Refusal:
        """Send a method and expect to be refused."""
        self.send(method(channel, request))
        return self.refusal()

    def answer(self, channel: int, request: Method) -> Method | Refusal:
        """Send a method; answers the reply to it, or how it was refused."""
        self.send(method(channel, request))
        received = self.receive()
        if isinstance(received.method, commands.Connection.Close | commands.Channel.Close):
            return self._confirmed(received)
        return received.method

    def start(self) -> commands.Connection.Start:
        """Greet; answers the broker's greeting."""
        self.send(PROTOCOL_HEADER)
        start = self.expect(commands.Connection.Start, 0)
        self.server_properties = start.server_properties or {}
        return start

    def shake_hands(
        self, login: commands.Connection.StartOk | None = None, **tuning: int
    ) -> commands.Connection.Tune:
        """Everything up to connection.open; answers what the broker proposed."""
        self.start()
        login = login or start_ok(self.address.user, self.address.password)
        tune = self.call(0, login, commands.Connection.Tune)
        values = {"channel_max": tune.channel_max, "frame_max": tune.frame_max, "heartbeat": 0}
        self.send(method(0, commands.Connection.TuneOk(**(values | tuning))))
        return tune

    def open(self, *channels: int, vhost: str | None = None, **tuning: int) -> "Wire":
        """Shake hands, enter the vhost, and open *channels*."""
        self.shake_hands(None, **tuning)
        vhost = self.address.vhost if vhost is None else vhost
        self.call(0, commands.Connection.Open(vhost), commands.Connection.OpenOk)
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
        """Leave in the way of the protocol, if that is still possible."""
        with suppress(OSError):
            self.socket.settimeout(0.2)
            self.socket.sendall(method(0, commands.Connection.Close(200, "", 0, 0)))
            # It is for us to hang up behind close-ok: a broker may wait for that.
            while (data := self.socket.recv(65536)) and not data.endswith(_CLOSE_OK):
                pass
        self.abort()

    def abort(self) -> None:
        """Drop the connection without a word."""
        self.socket.close()

    def _left_s(self) -> float:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise CaseTimeout("the time of the case is over")
        return left_s

    def _note(self, line: str) -> None:
        if len(self._transcript) < _TRANSCRIPT_LINES:
            self._transcript.append(line)


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


def _lines(data: bytes) -> Iterator[str]:
    """What is sent, a line a frame as long as it consists of frames."""
    position = 0
    while position + 8 <= len(data):
        kind, channel = data[position], int.from_bytes(data[position + 1 : position + 3], "big")
        stop = position + 7 + int.from_bytes(data[position + 3 : position + 7], "big")
        if kind not in (1, 2, 3, 8) or stop >= len(data) or data[stop] != 0xCE:
            break
        yield str(RawFrame(kind, channel, data[position + 7 : stop]))
        position = stop + 1
    if position < len(data):
        yield f"bytes {data[position:][:_SHOWN_BYTES].hex(' ')}"
