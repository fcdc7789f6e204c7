"""Session: one client connection as the broker sees it: its user, vhost and exclusive queues.

It receives what the protocol state machine (`amqp.connection`) makes of the client's bytes, and
owns nothing of the socket but a `Transport` to write to.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Protocol, cast

from pamqp import commands
from pamqp.base import Frame as Method

from leveret.amqp.channel import ChannelReceiver
from leveret.amqp.connection import Connection, ConnectionState
from leveret.amqp.errors import (
    AmqpError,
    ConnectionForced,
    HardError,
    InternalError,
    LoginRefused,
    SoftError,
)
from leveret.amqp.methods import build_method
from leveret.amqp.properties import FactsReader
from leveret.amqp.publish_hold import Admission
from leveret.amqp.publish_shape import ShapeBook
from leveret.amqp.sasl import Credentials, MalformedResponse, parse_amqplain, parse_plain
from leveret.amqp.tables import Field, Table
from leveret.amqp.tuning import Tuning
from leveret.broker.advertised import SERVER_PROPERTIES, Advertise
from leveret.broker.alarms import Alarms, Level
from leveret.broker.channel_session import ChannelSession
from leveret.broker.handlers import HANDLERS
from leveret.broker.permissions import Permissions
from leveret.broker.timestamps import Timestamping
from leveret.broker.turn import Turn
from leveret.broker.users import LoginRefusedReason, User
from leveret.broker.vhost import VHost
from leveret.queues.classic import ClassicQueue

logger = logging.getLogger(__name__)

OUTPUT_LIMIT = 512 * 1024
"""Bytes collected for one connection in a turn before its consumers must wait for the next."""

ADMISSIONS = {
    Level.OFF: Admission.FREE,
    Level.LOW: Admission.HELD,
    Level.HARD: Admission.REFUSED,
}

MECHANISMS = {"PLAIN": parse_plain, "AMQPLAIN": parse_amqplain}


class Transport(Protocol):
    """The socket of a session."""

    def write(self, data: bytes | bytearray) -> None:
        """Send *data* behind what was sent before."""

    def released(self) -> None:
        """The connection reads again after a hold."""

    def finish(self, linger_s: float) -> None:
        """Close once everything is sent, after waiting *linger_s* for the peer to do so."""


class LoginRules(Protocol):
    """Who may log in, and what for."""

    @property
    def alarms(self) -> Alarms:
        """What the broker is short of."""

    def authenticate(self, credentials: Credentials, *, is_loopback: bool) -> User:
        """The user with these credentials. Raises LoginRefusedReason."""

    def enter(self, session: "Session", user: User, vhost_name: str) -> tuple[VHost, Permissions]:
        """Let *session* into a vhost. Raises NotAllowed."""

    def leave(self, session: "Session") -> None:
        """*session* is gone, if it ever entered."""

    def check_channel(self, user: User) -> None:
        """Raise NotAllowed if *user* must not open another channel."""

    def check_consumer(self, count: int) -> None:
        """Raise NotAllowed if a channel that has *count* consumers must not have another."""


class Session:
    """One connection. Implements `ConnectionReceiver`; made for each accepted socket."""

    __slots__ = (
        "_capabilities",
        "_is_blocked",
        "_mechanism",
        "_permissions",
        "_rules",
        "_server_properties",
        "_transport",
        "_turn",
        "blocked_output",
        "connection",
        "is_loopback",
        "offered_frame_max",
        "output_size",
        "peer",
        "timestamping",
        "user",
        "vhost",
        "wants_live_prefetch",
    )

    def __init__(
        self,
        transport: Transport,
        rules: LoginRules,
        turn: Turn,
        *,
        tuning: Tuning,
        facts_reader: FactsReader,
        shapes: ShapeBook,
        max_message_size: int,
        peer: str,
        is_loopback: bool,
        advertise: Advertise = Advertise.LEVERET,
        timestamping: Timestamping = Timestamping.NEVER,
    ) -> None:
        self._transport = transport
        self._rules = rules
        self._turn = turn
        self.connection = Connection(self, tuning, facts_reader, shapes, max_message_size)
        self.offered_frame_max = tuning.frame_max
        self.timestamping = timestamping
        self.peer = peer
        self.is_loopback = is_loopback
        self._server_properties = SERVER_PROPERTIES[advertise]
        self.user: User | None = None
        self.vhost: VHost | None = None
        self._permissions: Permissions | None = None
        self.output_size = 0
        self.blocked_output = False
        self._is_blocked = False
        self._capabilities: Table = {}
        self.wants_live_prefetch = False
        self._mechanism = ""

    @property
    def permissions(self) -> Permissions:
        """What the user may do in the vhost."""
        assert self._permissions is not None
        return self._permissions

    @property
    def state(self) -> str:
        """RabbitMQ's word for what the connection is doing."""
        return "blocked" if self._is_blocked else self.connection.state.value

    @property
    def channel_count(self) -> int:
        """How many channels are open."""
        return len(self.connection.channels)

    # ---- in, out

    def receive_data(self, data: bytes) -> None:
        """Bytes from the socket."""
        self.connection.receive_data(data)
        if self.connection.output:
            self._turn.output(self)

    def send(self, data: bytes | bytearray) -> None:
        """Add bytes to the output of this turn."""
        self.connection.output.append(data)
        self.output_size += len(data)
        self._turn.output(self)

    def send_method(self, number: int, method: Method) -> None:
        """Add a method to the output of this turn."""
        self.connection.send(number, method)
        self._turn.output(self)

    def flush(self) -> None:
        """Hand the output of this turn to the socket, in one piece."""
        output = self.connection.output
        was_full = self.output_size >= OUTPUT_LIMIT
        self.output_size = 0
        if output:
            self.connection.output = []
            self._transport.write(output[0] if len(output) == 1 else b"".join(output))
        if was_full and not self.blocked_output:
            # Consumers were stopped by the limit alone, so nothing else would call them again.
            self.wake_consumers()

    @property
    def has_room(self) -> bool:
        """May more deliveries be added in this turn?"""
        return not self.blocked_output and self.output_size < OUTPUT_LIMIT

    def pause_output(self) -> None:
        """The socket's buffer is full: deliver nothing until `resume_output`."""
        self.blocked_output = True

    def resume_output(self) -> None:
        """The socket takes data again."""
        self.blocked_output = False
        self.wake_consumers()

    def wake_consumers(self) -> None:
        """Look again at the queues that this connection consumes from."""
        for channel in self.connection.channels.values():
            receiver = channel.receiver
            assert isinstance(receiver, ChannelSession)
            receiver.wake_consumers()

    def check_deadlines(self, now_ms: int) -> None:
        """Look for deliveries that have been unacknowledged for too long."""
        for channel in list(self.connection.channels.values()):
            receiver = channel.receiver
            assert isinstance(receiver, ChannelSession)
            receiver.check_deadlines(now_ms)

    def commit_then(self, action: Callable[[], None], *, logs: bool = False) -> None:
        """Do *action* once the definitions so far are durable; read nothing from here before.

        With *logs*: once the messages of this turn are, too.
        """
        assert self.vhost is not None

        def committed(error: Exception | None) -> None:
            if error is not None:
                self.fail(error)
            elif self.connection.state is ConnectionState.OPEN:
                action()
            self._resume()

        self.connection.hold()
        if logs:
            self._turn.wait_for_logs(committed)
        else:
            self.vhost.definitions.wait(committed)
            self._turn.wait_for_commit()

    def wait_for(
        self, queues: list[ClassicQueue], number: int, method: bytes, do: Callable[[], object]
    ) -> None:
        """*do* what came on channel *number* again when *queues* may be recovered.

        Nothing is read from here before. No queues: when what waits already is done.
        """
        is_first = not self.connection.has_deferred
        self.connection.defer(number, method, do)
        if is_first:
            assert self.vhost is not None
            self.vhost.recovery.want(queues, self._resume)

    def _resume(self) -> None:
        self.connection.release()
        self._transport.released()
        self._turn.output(self)

    def fail(self, error: Exception) -> None:
        """Something that this connection relied on did not reach the disk."""
        logger.error("commit failed: peer=%s: %s", self.peer, error)
        self.connection.close(InternalError("the storage of this broker failed"))
        self._turn.output(self)

    # ---- ConnectionReceiver

    def start(self) -> Method:
        """Greet."""
        return build_method(
            commands.Connection.Start,
            version_major=0,
            version_minor=9,
            server_properties=self._server_properties,
            mechanisms=" ".join(MECHANISMS),
            locales="en_US",
        )

    def start_ok(self, method: commands.Connection.StartOk) -> None:
        """Judge the credentials."""
        properties: Table = method.client_properties or {}  # type: ignore[assignment]
        self._capabilities = _table(properties.get("capabilities"))
        self.wants_live_prefetch = properties.get("product") == Field("S", "py-amqp")
        self._mechanism = method.mechanism
        parse = MECHANISMS.get(method.mechanism)
        try:
            if parse is None:
                raise MalformedResponse(f"mechanism {method.mechanism!r} is not offered")
            response = cast(bytes, method.response)  # as methods decodes long strings
            credentials = parse(response)
        except MalformedResponse as error:
            logger.warning("login failed: peer=%s: %s", self.peer, error)
            self.connection.refuse_login(None)
            return
        try:
            self.user = self._rules.authenticate(credentials, is_loopback=self.is_loopback)
        except LoginRefusedReason as reason:
            logger.warning("login refused: peer=%s: %s", self.peer, reason)
            self.connection.refuse_login(self._refusal())
            return
        self.connection.accept_login()

    def _refusal(self) -> HardError | None:
        if not self.has_capability("authentication_failure_close"):
            return None
        return LoginRefused(
            f"Login was refused using authentication mechanism {self._mechanism}. "
            "For details see the broker logfile."
        )

    def has_capability(self, name: str) -> bool:
        """Did the client say that it can *name*?"""
        field = self._capabilities.get(name)
        return field is not None and field.value is True

    def open(self, virtual_host: str) -> None:
        """Enter a vhost."""
        assert self.user is not None
        self.vhost, self._permissions = self._rules.enter(self, self.user, virtual_host)
        logger.info("connected: peer=%s user=%s vhost=%s", self.peer, self.user.name, virtual_host)
        self._rules.alarms.listen(self)
        self._follow_alarms()

    def open_channel(self, number: int) -> ChannelReceiver:
        """Make the broker's side of a channel."""
        assert self.vhost is not None
        assert self.user is not None
        self._rules.check_channel(self.user)
        return ChannelSession(number, self, self.vhost, self._turn, HANDLERS)

    def check_consumer(self, count: int) -> None:
        """Raise NotAllowed if a channel that has *count* consumers must not have another."""
        self._rules.check_consumer(count)

    def update_secret(self, method: Method) -> None:
        """A password does not expire: there is nothing to renew."""

    def closed(self) -> None:
        """Remove the exclusive queues."""
        self._rules.alarms.ignore(self)
        self._is_blocked = False
        self._rules.leave(self)
        if self.vhost is not None:
            self.vhost.release(self)

    def finished(self, linger_s: float) -> None:
        """Hang up when all is said: an answer is not sent before what it speaks of is written."""
        self._turn.output(self)
        self._turn.afterwards(lambda: self._transport.finish(linger_s))

    # ---- alarms

    def alarms_changed(self) -> None:
        """Hold publishes, or release them, once this turn is over."""
        self._turn.afterwards(self._follow_alarms)

    def _follow_alarms(self) -> None:
        connection, level = self.connection, self._rules.alarms.level
        if connection.state in (ConnectionState.CLOSING, ConnectionState.CLOSED):
            return
        if level is Level.OFF and self._is_blocked:
            self._is_blocked = False
            if self.has_capability("connection.blocked"):
                connection.send(0, commands.Connection.Unblocked())
        connection.admit(ADMISSIONS[level])
        if connection.output:
            self._turn.output(self)
        self._transport.released()

    def blocked(self) -> None:
        """The client publishes during an alarm: tell it, if it understands."""
        reason = self._rules.alarms.reason
        if not reason:
            return  # what is held is about to be released
        self._is_blocked = True
        if self.has_capability("connection.blocked"):
            self.connection.send(0, commands.Connection.Blocked(reason))

    def is_confirming(self, number: int) -> bool:
        """Is channel *number* in confirm mode?"""
        return self._channel(number).publisher.confirms is not None

    def refuse(self, number: int, count: int) -> None:
        """Nack *count* publishes, behind the confirms of those before them."""
        confirms = self._channel(number).publisher.confirms
        assert confirms is not None
        confirms.publish(count, durable=False, refused=range(count))
        self._turn.confirm(confirms)

    def _channel(self, number: int) -> ChannelSession:
        receiver = self.connection.channels[number].receiver
        assert isinstance(receiver, ChannelSession)
        return receiver

    # ---- errors that are not the answer to a frame

    def deliveries(self, queue: ClassicQueue) -> Iterator[tuple[int, int, str | None]]:
        """What it has unacknowledged of *queue*: offset, channel, consumer tag if there is one."""
        for number in self.connection.channels:
            for holder, offset in self._channel(number).unacked:
                if holder.queue is queue:
                    tag = None if holder.consumer is None else holder.consumer.tag
                    yield offset, number, tag

    def close(self, reason: str) -> None:
        """Close the connection from our side (320)."""
        if self.connection.state is ConnectionState.OPEN:
            self.connection.close(ConnectionForced(reason))
            self._turn.output(self)
        elif self.connection.state is not ConnectionState.CLOSING:
            self._transport.finish(0)

    def reject(self, number: int, error: AmqpError) -> None:
        """Close a channel, or the connection, for something found out later than its frame."""
        if isinstance(error, SoftError) and number in self.connection.channels:
            self.connection.close_channel(number, error, 0, 0)
        elif isinstance(error, HardError):
            self.connection.close(error)
        self._turn.output(self)


def _table(field: Field | None) -> Table:
    return field.value if field is not None and isinstance(field.value, dict) else {}
