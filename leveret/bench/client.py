"""Connection to the broker: handshake and declarations one by one, the work by its raw bytes."""

import socket
import struct
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote, urlsplit

from pamqp import commands
from pamqp.base import Frame
from pamqp.common import FieldTable
from pamqp.exceptions import PAMQPException
from pamqp.frame import marshal, unmarshal

from leveret.bench.errors import BenchError

TIMEOUT_S = 10.0
_FRAME_HEAD = struct.Struct(">BHI")
_MAX_FRAME_MAX = 131072
_BUFFER_SIZE = 256 * 1024


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker listens and who we are there."""

    host: str
    port: int
    user: str
    password: str
    vhost: str

    @classmethod
    def parse(cls, uri: str) -> Self:
        """The address in *uri*, `amqp://user:password@host:port/vhost`.

        Raises BenchError if it is none.
        """
        try:
            parts = urlsplit(uri)
            port = parts.port or 5672
        except ValueError as error:
            raise BenchError(f"{uri}: {error}") from None
        if parts.scheme != "amqp" or not parts.hostname:
            raise BenchError(f"{uri}: not of the form amqp://user:password@host:port/vhost")
        return cls(
            host=parts.hostname,
            port=port,
            user=unquote(parts.username or "guest"),
            password=unquote(parts.password or "guest"),
            vhost=unquote(parts.path[1:]) or "/",
        )

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class ReceiveBuffer:
    """Bytes received and not yet worked off: `data[start:end]`."""

    def __init__(self) -> None:
        self.data = bytearray(_BUFFER_SIZE)
        self.start = 0
        self.end = 0

    def receive(self, sock: socket.socket) -> None:
        """Read once from *sock*.

        Raises BlockingIOError if nothing is there, BenchError at its end.
        """
        self._make_room()
        with memoryview(self.data) as view, view[self.end :] as room:
            length = sock.recv_into(room)
        if not length:
            raise BenchError("the broker closed the connection without a word")
        self.end += length

    def take_frame(self) -> bytes | None:
        """Remove and return the next frame; None until all of it is there."""
        if self.end - self.start < _FRAME_HEAD.size:
            return None
        _, _, length = _FRAME_HEAD.unpack_from(self.data, self.start)
        size = _FRAME_HEAD.size + length + 1
        if self.end - self.start < size:
            return None
        frame = bytes(self.data[self.start : self.start + size])
        self.start += size
        return frame

    def _make_room(self) -> None:
        """Move what is left to the front; a message larger than the buffer makes it grow."""
        left = self.data[self.start : self.end]
        self.data[: len(left)] = left
        self.start, self.end = 0, len(left)
        if self.end > len(self.data) // 2:
            self.data.extend(bytes(len(self.data)))


class Connection:
    """A connection with one open channel."""

    def __init__(self, address: Address) -> None:
        self.buffer = ReceiveBuffer()
        try:
            self.socket = socket.create_connection((address.host, address.port), TIMEOUT_S)
        except OSError as error:
            raise BenchError(f"cannot connect to {address}: {error.strerror or error}") from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.frame_max = self._open(address)
        except (BenchError, OSError) as error:
            self.socket.close()
            raise BenchError(f"{address}: {error}") from None

    def call(self, method: Frame, channel: int = 1) -> Frame:
        """Send *method* and return the reply to it."""
        self.socket.sendall(marshal(method, channel))
        return self._reply()

    def close(self) -> None:
        """Close in the way of the protocol."""
        self.socket.settimeout(TIMEOUT_S)
        self.call(commands.Connection.Close(200, "", 0, 0), 0)
        self.socket.close()

    def abort(self) -> None:
        """Close the socket only."""
        self.socket.close()

    def _open(self, address: Address) -> int:
        self.socket.sendall(b"AMQP\x00\x00\x09\x01")
        self._expect(commands.Connection.Start, self._reply())
        credentials = f"\0{address.user}\0{address.password}"
        # Without this capability RabbitMQ closes the socket on wrong credentials and says nothing.
        capabilities: FieldTable = {"capabilities": {"authentication_failure_close": True}}
        tune = self.call(commands.Connection.StartOk(capabilities, "PLAIN", credentials), 0)
        self._expect(commands.Connection.Tune, tune)
        assert isinstance(tune, commands.Connection.Tune)
        frame_max = min(tune.frame_max or _MAX_FRAME_MAX, _MAX_FRAME_MAX)
        tune_ok = commands.Connection.TuneOk(tune.channel_max, frame_max, 0)
        self.socket.sendall(marshal(tune_ok, 0))
        self.call(commands.Connection.Open(address.vhost), 0)
        self.call(commands.Channel.Open())
        return frame_max

    def _expect(self, expected: type[Frame], reply: Frame) -> None:
        if not isinstance(reply, expected):
            raise BenchError(f"the broker sent {reply.name} in place of {expected.name}")

    def _reply(self) -> Frame:
        while True:
            while (frame := self.buffer.take_frame()) is None:
                try:
                    self.buffer.receive(self.socket)
                except TimeoutError:
                    raise BenchError(f"no answer within {TIMEOUT_S:g} s") from None
            # pamqp counts a method without arguments as false.
            if (method := decode_method(frame)) is not None:
                return method


def decode_method(frame: bytes) -> Frame | None:
    """The method in *frame*, None for a heartbeat or a note that the broker is (un)blocked.

    Raises BenchError if it ends the work: the broker closes or cancels, or sends no AMQP.
    """
    try:
        _, _, method = unmarshal(frame)
    except (PAMQPException, ValueError, struct.error) as error:
        raise BenchError(f"the broker sent a frame that cannot be read: {error}") from None
    if isinstance(method, commands.Connection.Close | commands.Channel.Close):
        what = "connection" if isinstance(method, commands.Connection.Close) else "channel"
        raise BenchError(f"the broker closed the {what}: {method.reply_code} {method.reply_text}")
    if isinstance(method, commands.Basic.Cancel):
        raise BenchError("the broker cancelled the consumer")
    ignored = commands.Connection.Blocked | commands.Connection.Unblocked
    if not isinstance(method, Frame) or isinstance(method, ignored):
        return None
    return method
