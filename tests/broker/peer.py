"""A client on the other side of a `Session`, without a socket."""

import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from pamqp import body, commands, frame, header
from pamqp.base import Frame as Method

from leveret.amqp.properties import FactsReader
from leveret.amqp.publish_shape import ShapeBook
from leveret.amqp.tuning import Tuning
from leveret.broker.session import Session
from tests.broker.world import World

Answer = TypeVar("Answer", bound=Method)

_FRAME = struct.Struct(">BHI")


@dataclass(slots=True)
class Received:
    """A method with the properties and the body of its content, if it has any."""

    channel: int
    method: Method
    body: bytes = b""
    properties: commands.Basic.Properties = field(default_factory=commands.Basic.Properties)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message that a client publishes."""

    routing_key: str
    body: bytes
    exchange: str = ""
    persistent: bool = True
    mandatory: bool = False
    priority: int | None = None
    expiration: str | None = None
    headers: dict[str, Any] | None = None
    timestamp: int | None = None

    def frames(self, channel: int) -> bytes:
        """basic.publish with its content."""
        publish = commands.Basic.Publish(
            exchange=self.exchange, routing_key=self.routing_key, mandatory=self.mandatory
        )
        timestamp = None if self.timestamp is None else datetime.fromtimestamp(self.timestamp, UTC)
        properties = commands.Basic.Properties(
            delivery_mode=2 if self.persistent else 1,
            priority=self.priority,
            expiration=self.expiration,
            headers=self.headers,
            timestamp=timestamp,
        )
        chunk = frame.marshal(publish, channel)
        chunk += frame.marshal(header.ContentHeader(0, len(self.body), properties), channel)
        return chunk + frame.marshal(body.ContentBody(self.body), channel)


@dataclass(eq=False)
class FakeTransport:
    """A socket that keeps what it is given (`Transport`)."""

    written: bytearray = field(default_factory=bytearray)
    is_finished: bool = False

    def write(self, data: bytes | bytearray) -> None:
        self.written += data

    def released(self) -> None:
        """It reads on by itself."""

    def finish(self, linger_s: float) -> None:
        self.is_finished = True


class Peer:
    """One connection, opened unless it is *refused*; the user's password is the name."""

    def __init__(
        self, world: World, *, user: str = "guest", vhost: str = "/", refused: bool = False
    ) -> None:
        self._world = world
        self.transport = FakeTransport()
        self.session = Session(
            self.transport,
            world.broker,
            world.turn,
            tuning=Tuning(2047, 131072, 60),
            facts_reader=FactsReader(),
            shapes=ShapeBook(),
            max_message_size=1 << 20,
            peer="test",
            is_loopback=True,
            timestamping=world.timestamping,
        )
        self._feed(b"AMQP\x00\x00\x09\x01")
        capabilities = {"capabilities": {"consumer_cancel_notify": True}}
        login = f"\0{user}\0{user}"
        self.send(0, commands.Connection.StartOk(capabilities, "PLAIN", login, "en_US"))
        self.send(0, commands.Connection.TuneOk(2047, 131072, 0), commands.Connection.Open(vhost))
        if not refused:
            assert isinstance(self.receive()[-1].method, commands.Connection.OpenOk)

    def _feed(self, data: bytes) -> None:
        self._world.turn.now_ms = self._world.now_ms
        self.session.receive_data(data)
        self._world.run()

    def send(self, channel: int, *methods: Method) -> None:
        self._feed(b"".join(frame.marshal(method, channel) for method in methods))

    def publish(
        self,
        channel: int,
        routing_key: str,
        *bodies: bytes,
        exchange: str = "",
        persistent: bool = True,
        mandatory: bool = False,
        headers: dict[str, Any] | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Publish all *bodies* in one chunk."""
        self.publish_each(
            channel,
            *(
                Outgoing(
                    routing_key,
                    content,
                    exchange,
                    persistent,
                    mandatory,
                    headers=headers,
                    timestamp=timestamp,
                )
                for content in bodies
            ),
        )

    def publish_each(self, channel: int, *messages: Outgoing) -> None:
        """Publish *messages* in one chunk."""
        self._feed(b"".join(message.frames(channel) for message in messages))

    def lose(self) -> None:
        """The socket breaks."""
        self._world.turn.now_ms = self._world.now_ms
        self.session.connection.lost()
        self._world.run()

    def call(self, channel: int, method: Method, answer: type[Answer]) -> Answer:
        """Send a method; its answer is all that comes."""
        self.send(channel, method)
        (received,) = self.receive()
        assert isinstance(received.method, answer), received
        return received.method

    def closed(self, channel: int, *methods: Method) -> str:
        """Send methods; answers the reply text of the close that they are answered with."""
        self.send(channel, *methods)
        method = self.receive()[-1].method
        assert isinstance(method, commands.Connection.Close | commands.Channel.Close), method
        if isinstance(method, commands.Connection.Close):
            assert method.reply_code >= 500 or method.reply_code == 320
            self.send(0, commands.Connection.CloseOk())
        else:
            self.send(channel, commands.Channel.CloseOk(), commands.Channel.Open())
            self.receive()
        return str(method.reply_text)

    def receive(self) -> list[Received]:
        """Everything that has come since this was last asked."""
        data = bytes(self.transport.written)
        self.transport.written.clear()
        received: list[Received] = []
        position = 0
        while position < len(data):
            kind, channel, size = _FRAME.unpack_from(data, position)
            stop = position + 8 + size
            if kind == 1:
                method = cast("Method", frame.unmarshal(data[position:stop])[2])
                received.append(Received(channel, method))
            elif kind == 2:
                content = cast("header.ContentHeader", frame.unmarshal(data[position:stop])[2])
                received[-1].properties = content.properties
            elif kind == 3:
                received[-1].body += data[position + 7 : stop - 1]
            position = stop
        return received
