"""Connection: the server's side of one connection, without IO (§2.2.4, §1.4).

    AWAIT_HEADER -> AWAIT_START_OK -> AWAIT_VERDICT -> AWAIT_TUNE_OK -> AWAIT_OPEN -> OPEN
    any of them  -> CLOSING (close sent; all but close and close-ok is discarded) -> CLOSED

`receive_data` takes bytes as the socket gives them; what is to be sent collects in `output`.
Publishes and acks go to the channel's receiver by the run (`fastpath`); everything else frame by
frame. `AWAIT_VERDICT` lasts until the receiver has judged the credentials, which may take a slow
hash in another thread.

Not states but data: negotiated sizes, and `hold`, which stops the reading of further frames while
a reply waits for the disk, so that what follows finds what it built upon. `admit` holds back only
publishes, and what must not overtake them (`publish_hold`).
"""

import logging
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Protocol

from pamqp import commands
from pamqp.base import Frame as Method

from leveret.amqp.channel import (
    CLOSE,
    CLOSE_OK,
    NO_METHOD_FRAME,
    Channel,
    ChannelReceiver,
    ChannelState,
)
from leveret.amqp.constants import (
    PROTOCOL_HEADER,
    FrameType,
    ReplyCode,
)
from leveret.amqp.errors import (
    AmqpError,
    ChannelError,
    FrameError,
    HardError,
    InternalError,
    NotAllowed,
    SoftError,
    UnexpectedFrame,
)
from leveret.amqp.fastpath import ACK, PUBLISH, PublishReader, take_acks
from leveret.amqp.frames import (
    FRAME_HEADER_SIZE,
    HEARTBEAT_FRAME,
    encode_frame,
    erlang_binary,
    read_frame,
)
from leveret.amqp.methods import decode_method, encode_method
from leveret.amqp.properties import FactsReader
from leveret.amqp.publish_hold import Admission, HeldChannel, HoldReceiver, PublishHold
from leveret.amqp.publish_shape import ShapeBook
from leveret.amqp.tuning import Tuning

logger = logging.getLogger(__name__)

INITIAL_FRAME_MAX = 8192
"""Payload limit before the tuning: nobody has logged in yet."""

CHANNEL_OPEN = b"\x00\x14\x00\x0a"
BLIND_LINGER_S = 3.0
"""How long the socket of a peer that broke the framing or its login stays open."""
CLOSE_OK_LIMIT_S = 30.0


class ConnectionState(Enum):
    """Where the connection is in its life; the value is its name in error texts."""

    AWAIT_HEADER = "pre_init"
    AWAIT_START_OK = "starting"
    AWAIT_VERDICT = "securing"
    AWAIT_TUNE_OK = "tuning"
    AWAIT_OPEN = "opening"
    OPEN = "running"
    CLOSING = "closing"
    CLOSED = "closed"


class ConnectionReceiver(HoldReceiver, Protocol):
    """What the broker does with what arrives on one connection."""

    def start(self) -> Method:
        """The connection.start to greet the peer with."""

    def start_ok(self, method: commands.Connection.StartOk) -> None:
        """Credentials came; answer, now or later, with `accept_login` or `refuse_login`."""

    def open(self, virtual_host: str) -> None:
        """The peer opens *virtual_host*. Raises NotAllowed."""

    def open_channel(self, number: int) -> ChannelReceiver:
        """The peer opens a channel."""

    def update_secret(self, method: Method) -> None:
        """The peer renews its credentials; answered with update-secret-ok by the caller."""

    def closed(self) -> None:
        """No channel is left and none will come: drop what belonged to this connection."""

    def finished(self, linger_s: float) -> None:
        """Nothing more will be said; the socket may be closed after *linger_s* seconds."""


class Connection:
    """State machine of one connection. See the module's docstring."""

    __slots__ = (
        "_blind",
        "_deferred",
        "_hold",
        "_max_body",
        "_pending",
        "_publish_hold",
        "_publishes",
        "_receiver",
        "channels",
        "facts_reader",
        "output",
        "state",
        "tuning",
    )

    def __init__(
        self,
        receiver: ConnectionReceiver,
        tuning: Tuning,
        facts_reader: FactsReader,
        shapes: ShapeBook,
        max_message_size: int,
    ) -> None:
        self._receiver = receiver
        self._pending = b""
        self._hold = False
        self._deferred: deque[tuple[int, bytes, Callable[[], object]]] = deque()
        self._blind = False
        self._max_body = max_message_size
        self._publish_hold: PublishHold | None = None
        self._publishes = PublishReader(facts_reader, shapes, max_message_size)
        self.facts_reader = facts_reader
        self.tuning = tuning
        self.state = ConnectionState.AWAIT_HEADER
        self.channels: dict[int, Channel] = {}
        self.output: list[bytes | bytearray] = []

    # ---- in

    def receive_data(self, data: bytes) -> None:
        """Take bytes as they come; incomplete frames are kept until the rest is there."""
        if self._pending:
            data = self._pending + data
            self._pending = b""
        if self._hold:
            self._pending = data
            return
        position = 0
        while True:
            try:
                position = self._receive(data, position)
            except _Rejected as rejected:
                position = rejected.position
                self._reject(rejected)
                continue
            except Exception:  # a fault of ours is the end of this connection, not of the broker
                logger.exception("connection closed for a fault of the broker")
                self._blind = True
                self.close(InternalError("the broker failed to process a frame"))
            break
        if position < len(data) and not self._blind:
            self._pending = data[position:] if position else data

    def hold(self) -> None:
        """Read no further frame until `release`."""
        self._hold = True

    def release(self) -> None:
        """Go on reading, first what has already been received."""
        self._hold = False
        if self._pending or self._publish_hold is not None or self._deferred:
            self.receive_data(b"")

    def defer(self, number: int, method: bytes, do: Callable[[], object]) -> None:
        """Hold, and *do* this upon `release`, before what comes next.

        *number* is the channel that it came on, *method* the ids of its method. It may raise
        AmqpError, and defer again.
        """
        self._hold = True
        self._deferred.append((number, method, do))

    @property
    def has_deferred(self) -> bool:
        """Does something wait to be done upon `release`?"""
        return bool(self._deferred)

    @property
    def is_held(self) -> bool:
        """Should nothing more be read: does a reply wait for the disk, or are too many held?"""
        return self._hold or (self._publish_hold is not None and self._publish_hold.is_full)

    def admit(self, admission: Admission) -> None:
        """Do with publishes as *admission* says, first with those that are held."""
        hold = self._publish_hold
        if hold is None:
            if admission is Admission.FREE:
                return
            hold = self._publish_hold = PublishHold(self._receiver)
            for channel in self.channels.values():
                hold.enter(channel)
        hold.admission = admission
        if admission is Admission.FREE:
            hold.has_blocked = False
        hold.is_due = True
        if not self._hold:
            self.receive_data(b"")

    def _receive(self, data: bytes, position: int) -> int:
        """Work off the complete frames from *position* on; answer the position behind them.

        Raises _Rejected with the position behind the frame that was at fault.
        """
        end = len(data)
        if self._deferred:
            self._do_deferred(position)
        if self.state is ConnectionState.AWAIT_HEADER:
            position = self._protocol_header(data)
        if self._publish_hold is not None and self._publish_hold.is_due:
            self._work_off(self._publish_hold, position)
        channels = self.channels
        publishes = self._publishes
        while position < end and not self._hold:
            if self._blind:
                return end
            number = 0
            method = b""
            start = position
            try:
                if self.state is ConnectionState.OPEN and data[position] == FrameType.METHOD:
                    method = data[position + FRAME_HEADER_SIZE : position + 11]
                    if method == PUBLISH or method == ACK:
                        number = int.from_bytes(data[position + 1 : position + 3], "big")
                        channel = channels.get(number)
                        if channel is not None and channel.is_idle:
                            if method == PUBLISH:
                                run = publishes.take_alike(data, position)
                                if run is None:
                                    run = publishes.take(data, position, end, number)
                                if run is not None:
                                    position = run.position
                                    channel.inlet.publish(*run[2:])
                                    continue
                            else:
                                acks = take_acks(data, position)
                                if acks is not None:
                                    position, tags = acks
                                    self._acknowledge(channel, tags)
                                    continue
                number = 0
                method = b""
                frame = read_frame(data, position, end, self._max_payload)
                if frame is None:
                    break
                kind, number, payload, position = frame
                channel = channels.get(number)
                if channel is not None and channel.is_in_content:
                    method = PUBLISH
                elif kind == FrameType.METHOD and len(payload) >= len(PUBLISH):
                    method = payload[:4]
                self._frame(kind, number, payload)
            except AmqpError as error:
                if isinstance(error, FrameError) and position == start:
                    self._blind = True  # where the next frame begins is anybody's guess
                raise _Rejected(position, number, method, error) from error
        return position

    def _do_deferred(self, position: int) -> None:
        """Do what was deferred, until it is held up again. Raises _Rejected with *position*."""
        waiting, self._deferred = self._deferred, deque()
        try:
            while waiting and not self._hold:
                number, method, do = waiting.popleft()
                channel = self.channels.get(number)
                if channel is None or channel.state is not ChannelState.OPEN:
                    continue  # it was closed meanwhile
                try:
                    do()
                except AmqpError as error:
                    raise _Rejected(position, number, method, error) from error
        finally:
            self._deferred += waiting

    def _work_off(self, hold: PublishHold, position: int) -> None:
        """Do what is held, as far as it may be done now. Raises _Rejected with *position*."""
        for held in list(hold.channels.values()):
            while not self._hold and (work := held.take()) is not None:
                try:
                    work.do()
                except AmqpError as error:
                    number = held.channel.number
                    raise _Rejected(position, number, work.method, error) from error
        if self._hold:
            return
        hold.is_due = False
        if hold.closes and hold.is_empty:
            self._peer_closes()
        elif hold.admission is Admission.FREE:
            hold.leave()
            self._publish_hold = None

    @staticmethod
    def _acknowledge(channel: Channel, tags: list[tuple[int, bool]] | list[int]) -> None:
        singles: list[int] = []
        for tag in tags:
            if isinstance(tag, int):
                channel.inlet.ack(tags)  # type: ignore[arg-type]  # all of one kind
                return
            if tag[1]:
                if singles:
                    channel.inlet.ack(singles)
                    singles = []
                channel.inlet.method(commands.Basic.Ack(tag[0], multiple=True))
            else:
                singles.append(tag[0])
        if singles:
            channel.inlet.ack(singles)

    @property
    def _max_payload(self) -> int:
        if self.state in (ConnectionState.OPEN, ConnectionState.CLOSING):
            return self.tuning.frame_max  # as RabbitMQ: 8 bytes of grace
        return INITIAL_FRAME_MAX

    def _protocol_header(self, data: bytes) -> int:
        if PROTOCOL_HEADER.startswith(data[:8]):
            if len(data) < len(PROTOCOL_HEADER):
                return 0 if not data else self._wait_for_header(data)
            self.state = ConnectionState.AWAIT_START_OK
            self.send(0, self._receiver.start())
            return len(PROTOCOL_HEADER)
        self.output.append(PROTOCOL_HEADER)
        self._finish(linger_s=0)
        return len(data)

    def _wait_for_header(self, data: bytes) -> int:
        self._pending = data
        return len(data)

    def _frame(self, kind: int, number: int, payload: bytes) -> None:
        if self.state is ConnectionState.CLOSING:
            self._closing_frame(kind, number, payload)
        elif kind == FrameType.HEARTBEAT:
            if number:
                raise UnexpectedFrame("type 8, all octets = <<>>")
        elif number == 0:
            if kind != FrameType.METHOD:
                raise UnexpectedFrame(f"type {kind}, all octets = {erlang_binary(payload[:48])}")
            self._channel_0(decode_method(payload))
        elif self.state is not ConnectionState.OPEN:
            raise UnexpectedFrame(f"type {kind}, all octets = {erlang_binary(payload[:48])}")
        else:
            self._channel_frame(kind, number, payload)

    def _closing_frame(self, kind: int, number: int, payload: bytes) -> None:
        if kind != FrameType.METHOD or number:
            return
        if payload.startswith(b"\x00\x0a\x00\x32"):
            self.send(0, commands.Connection.CloseOk())
            self._finish(linger_s=0)
        elif payload.startswith(b"\x00\x0a\x00\x33"):
            self._finish(linger_s=0)

    # ---- channel 0

    def _channel_0(self, method: Method) -> None:
        match self.state, method:
            case ConnectionState.AWAIT_START_OK, commands.Connection.StartOk():
                self.state = ConnectionState.AWAIT_VERDICT
                self._receiver.start_ok(method)
            case ConnectionState.AWAIT_TUNE_OK, commands.Connection.TuneOk():
                self.tuning = self.tuning.agreed(
                    method.channel_max or 0, method.frame_max or 0, method.heartbeat or 0
                )
                self._publishes.max_payload = self.tuning.frame_max
                self.state = ConnectionState.AWAIT_OPEN
            case ConnectionState.AWAIT_OPEN, commands.Connection.Open():
                self._receiver.open(method.virtual_host)
                self.state = ConnectionState.OPEN
                self.send(0, commands.Connection.OpenOk())
            case ConnectionState.OPEN | ConnectionState.AWAIT_OPEN, commands.Connection.Close():
                if self._publish_hold is not None and not self._publish_hold.is_empty:
                    self._publish_hold.closes = True
                else:
                    self._peer_closes()
            case ConnectionState.OPEN, commands.Connection.UpdateSecret():
                self._receiver.update_secret(method)
                self.send(0, commands.Connection.UpdateSecretOk())
            case _:
                raise ChannelError(f"unexpected method in connection state {self.state.value}")

    def _peer_closes(self) -> None:
        self._drop_channels()
        self._receiver.closed()
        self.send(0, commands.Connection.CloseOk())
        self._finish(linger_s=0)

    def accept_login(self) -> None:
        """The credentials are good: go on to the tuning."""
        if self.state is not ConnectionState.AWAIT_VERDICT:
            return
        self.state = ConnectionState.AWAIT_TUNE_OK
        offer = self.tuning
        self.send(
            0, commands.Connection.Tune(offer.channel_max, offer.frame_max, offer.heartbeat_s)
        )

    def refuse_login(self, error: HardError | None) -> None:
        """The credentials are bad: tell the peer by *error*, or say nothing and hang up later."""
        if self.state is not ConnectionState.AWAIT_VERDICT:
            return
        if error is not None:
            self.close(error)
        else:
            self._blind = True
            self._finish(linger_s=BLIND_LINGER_S)

    # ---- channels

    def _channel_frame(self, kind: int, number: int, payload: bytes) -> None:
        channel = self.channels.get(number)
        if channel is None:
            self._absent_channel(kind, number, payload)
        elif channel.state is ChannelState.CLOSING:
            if kind != FrameType.METHOD:
                return
            if payload.startswith(CLOSE):
                self.send(number, commands.Channel.CloseOk())
                del self.channels[number]
            elif payload.startswith(CLOSE_OK):
                del self.channels[number]
        elif kind == FrameType.METHOD and channel.is_idle and payload.startswith(CLOSE):
            decode_method(payload)
            inlet = channel.inlet
            if isinstance(inlet, HeldChannel) and inlet.is_waiting:
                inlet.wait(CLOSE, partial(self._peer_closes_channel, channel))
            else:
                self._peer_closes_channel(channel)
        elif kind == FrameType.METHOD and channel.is_idle and payload.startswith(CHANNEL_OPEN):
            raise ChannelError("second 'channel.open' seen")
        else:
            channel.receive(kind, payload)

    def _peer_closes_channel(self, channel: Channel) -> None:
        del self.channels[channel.number]
        channel.inlet.closed()
        self.send(channel.number, commands.Channel.CloseOk())

    def _absent_channel(self, kind: int, number: int, payload: bytes) -> None:
        if kind == FrameType.METHOD and payload.startswith(CLOSE_OK):
            return  # the answer to a close that crossed with the peer's own
        if kind != FrameType.METHOD:
            raise UnexpectedFrame(NO_METHOD_FRAME)
        if not payload.startswith(CHANNEL_OPEN):
            raise ChannelError("expected 'channel.open'")
        decode_method(payload)
        limit = self.tuning.channel_max
        if limit and (number > limit or len(self.channels) >= limit):
            raise NotAllowed(
                f"number of channels opened ({len(self.channels)}) has reached the negotiated "
                f"channel_max ({limit})"
            )
        receiver = self._receiver.open_channel(number)
        channel = Channel(number, receiver, self.facts_reader, self._max_body)
        self.channels[number] = channel
        if self._publish_hold is not None:
            self._publish_hold.enter(channel)
        # Clients skip the reserved argument as if it had no octets, which it has with pamqp's "0".
        opened = commands.Channel.OpenOk()
        opened.channel_id = ""
        self.send(number, opened)

    def close_channel(self, number: int, error: SoftError, class_id: int, method_id: int) -> None:
        """Close one channel for *error*; the ids name the method at fault."""
        channel = self.channels[number]
        channel.state = ChannelState.CLOSING
        channel.inlet.closed()
        logger.warning("channel %s closed: %s", number, error.reply_text)
        self.send(number, commands.Channel.Close(error.code, error.reply_text, class_id, method_id))

    def _drop_channels(self) -> None:
        channels, self.channels = self.channels, {}
        for channel in channels.values():
            if channel.state is ChannelState.OPEN:
                channel.inlet.closed()

    # ---- out, and the end

    def send(self, number: int, method: Method) -> None:
        """Put a method into the output."""
        self.output.append(encode_frame(FrameType.METHOD, number, encode_method(method)))

    def send_heartbeat(self) -> None:
        """Put a heartbeat into the output."""
        self.output.append(HEARTBEAT_FRAME)

    def close(self, error: HardError, class_id: int = 0, method_id: int = 0) -> None:
        """Close the connection for *error*, which the peer is told of (§1.4.2.8)."""
        if self.state in (ConnectionState.CLOSING, ConnectionState.CLOSED):
            return
        logger.warning("connection closed: %s", error.reply_text)
        self._drop_channels()
        self._receiver.closed()
        self.state = ConnectionState.CLOSING
        self._hold = False
        self.send(0, commands.Connection.Close(error.code, error.reply_text, class_id, method_id))
        heartbeat_s = self.tuning.heartbeat_s or CLOSE_OK_LIMIT_S
        linger_s = BLIND_LINGER_S if self._blind else min(heartbeat_s, CLOSE_OK_LIMIT_S)
        self._receiver.finished(linger_s)

    def lost(self) -> None:
        """The socket is gone. Idempotent, and also called after an orderly close."""
        if self.state is ConnectionState.CLOSED:
            return
        closing = self.state is ConnectionState.CLOSING
        self.state = ConnectionState.CLOSED
        self._pending = b""
        if not closing:
            self._drop_channels()
            self._receiver.closed()

    def _finish(self, linger_s: float) -> None:
        self.state = ConnectionState.CLOSED
        self._blind = True
        self._receiver.finished(linger_s)

    def _reject(self, rejected: "_Rejected") -> None:
        error = rejected.error
        class_id = int.from_bytes(rejected.method[:2], "big")
        method_id = int.from_bytes(rejected.method[2:4], "big")
        if isinstance(error, SoftError) and rejected.number in self.channels:
            self.close_channel(rejected.number, error, class_id, method_id)
            return
        if self.state in (
            ConnectionState.AWAIT_START_OK,
            ConnectionState.AWAIT_VERDICT,
        ) or (self.state is ConnectionState.AWAIT_TUNE_OK and error.code != ReplyCode.NOT_ALLOWED):
            # Nobody is logged in: no word of explanation, as RabbitMQ.
            logger.warning("handshake failed: %s", error.reply_text)
            self._blind = True
            self._receiver.closed()
            self._finish(linger_s=BLIND_LINGER_S)
            return
        if isinstance(error, SoftError):
            hard = HardError(error.explanation)
            hard.code = error.code  # type: ignore[misc]  # a soft error of channel 0 (§2.1 of RabbitMQ)
            error = hard
        assert isinstance(error, HardError)
        if self.state is ConnectionState.AWAIT_TUNE_OK:
            method_id = commands.Connection.Tune.frame_id  # RabbitMQ names its offer
        self.close(error, class_id, method_id)


class _Rejected(Exception):
    """A frame that was at fault, and where the next one begins."""

    def __init__(self, position: int, number: int, method: bytes, error: AmqpError) -> None:
        super().__init__(error)
        self.position = position
        self.number = number
        self.method = method
        self.error = error
