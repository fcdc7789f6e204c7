"""A raw client: frames as they are on the wire, several publishes in one write."""

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple, TypeVar, cast

from pamqp import body, commands, frame, header
from pamqp.base import Frame as Method

Answer = TypeVar("Answer", bound=Method)

_FRAME = struct.Struct(">BHI")
CHANNEL = 1
PROPERTIES = {"capabilities": {"consumer_cancel_notify": True}}


class Delivery(NamedTuple):
    method: commands.Basic.Deliver
    header: bytes
    body: bytes


class Closed(Exception):
    """The broker closed the connection or the channel; the message is its reply text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class RawClient:
    """One connection with channel 1 open, used by one thread at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self._socket.sendall(b"AMQP\x00\x00\x09\x01")
        self._expect(commands.Connection.Start)
        self._send(0, commands.Connection.StartOk(PROPERTIES, "PLAIN", "\0guest\0guest", "en_US"))
        tune = self._expect(commands.Connection.Tune)
        self._send(0, commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0))
        self._send(0, commands.Connection.Open("/"))
        self._expect(commands.Connection.OpenOk)
        self.open_channel()

    def open_channel(self) -> None:
        self.call(commands.Channel.Open(), commands.Channel.OpenOk)

    def close(self) -> None:
        """Hang up without a word."""
        self._socket.close()

    def send(self, *methods: Method) -> None:
        self._socket.sendall(b"".join(frame.marshal(method, CHANNEL) for method in methods))

    def publish(self, *messages: bytes) -> None:
        """Send messages that `encode_publish` made, in one write."""
        self._socket.sendall(b"".join(messages))

    def call(self, method: Method, answer: type[Answer]) -> Answer:
        """Send a method and wait for its answer; what comes before that must not be anything."""
        self.send(method)
        return self._expect(answer)

    def events(self) -> Iterator[Method | Delivery]:
        """Everything that comes, for ever. Raises OSError and Closed."""
        while True:
            event = self.next_event()
            assert event is not None
            yield event

    def next_event(self, timeout: float | None = 20) -> Method | Delivery | None:
        """The next method or delivery, None if there is none in time. Raises OSError, Closed."""
        try:
            kind, channel, payload = self._next_frame(timeout)
        except TimeoutError:
            return None
        assert kind == 1, kind
        method = decode(payload, channel)
        if isinstance(method, commands.Connection.Close | commands.Channel.Close):
            raise Closed(method.reply_code, method.reply_text)
        if not isinstance(method, commands.Basic.Deliver):
            return method
        _, _, properties = self._next_frame()
        size = int.from_bytes(properties[4:12], "big")
        content = b""
        while len(content) < size:
            content += self._next_frame()[2]
        return Delivery(method, properties, content)

    def _expect(self, answer: type[Answer]) -> Answer:
        event = self.next_event()
        assert isinstance(event, answer), event
        return event

    def _send(self, channel: int, method: Method) -> None:
        self._socket.sendall(frame.marshal(method, channel))

    def _next_frame(self, timeout: float | None = 20) -> tuple[int, int, bytes]:
        received = self._received
        while len(received) < 7 or len(received) < 8 + _FRAME.unpack_from(received)[2]:
            self._socket.settimeout(timeout)
            data = self._socket.recv(262144)
            if not data:
                raise ConnectionResetError("end of stream")
            received += data
        kind, channel, size = _FRAME.unpack_from(received)
        assert received[7 + size] == 0xCE
        payload = bytes(received[7 : 7 + size])
        del received[: 8 + size]
        return kind, channel, payload


def decode(payload: bytes, channel: int = 0) -> Method:
    """The method in the payload of a method frame."""
    data = _FRAME.pack(1, channel, len(payload)) + payload + b"\xce"
    return cast("Method", frame.unmarshal(data)[2])


def encode_properties(properties: commands.Basic.Properties, size: int) -> bytes:
    """The payload of a content header."""
    return frame.marshal(header.ContentHeader(0, size, properties), CHANNEL)[7:-1]


def encode_publish(
    exchange: str, routing_key: str, properties: commands.Basic.Properties, content: bytes
) -> bytes:
    """The frames of a mandatory publish."""
    publish = commands.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=True)
    parts = [
        frame.marshal(publish, CHANNEL),
        frame.marshal(header.ContentHeader(0, len(content), properties), CHANNEL),
    ]
    if content:
        parts.append(frame.marshal(body.ContentBody(content), CHANNEL))
    return b"".join(parts)


@contextlib.contextmanager
def connected(port: int) -> Iterator[RawClient]:
    client = RawClient(port)
    try:
        yield client
    finally:
        client.close()
