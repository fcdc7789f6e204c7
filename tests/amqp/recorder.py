"""A connection without a broker: what is told to the broker is written down, frames are by hand."""

from pamqp import commands
from pamqp.base import Frame as Method

from leveret.amqp.channel import ChannelReceiver
from leveret.amqp.connection import Connection, ConnectionState
from leveret.amqp.constants import PROTOCOL_HEADER
from leveret.amqp.errors import HardError, NotAllowed, NotFound
from leveret.amqp.frames import FRAME_HEADER, encode_frame
from leveret.amqp.methods import METHOD_CLASSES, build_method, decode_method, encode_method
from leveret.amqp.properties import Facts, FactsReader
from leveret.amqp.publish_shape import ShapeBook
from leveret.amqp.tuning import Tuning

ZERO = {"bit": False, "shortstr": "", "longstr": b"", "table": {}}


def method_frame(channel: int, method: Method) -> bytes:
    return encode_frame(1, channel, encode_method(method))


def header_frame(
    channel: int, size: int, *, class_id: int = 60, weight: int = 0, properties: bytes = b"\0\0"
) -> bytes:
    payload = class_id.to_bytes(2, "big") + weight.to_bytes(2, "big") + size.to_bytes(8, "big")
    return encode_frame(2, channel, payload + properties)


def body_frames(channel: int, body: bytes, room: int = 131064) -> bytes:
    pieces = (body[start : start + room] for start in range(0, len(body), room))
    return b"".join(encode_frame(3, channel, piece) for piece in pieces)


def publish_frames(channel: int, exchange: str = "", key: str = "q", body: bytes = b"") -> bytes:
    publish = build_method(
        commands.Basic.Publish,
        ticket=0,
        exchange=exchange,
        routing_key=key,
        mandatory=False,
        immediate=False,
    )
    content = header_frame(channel, len(body)) + body_frames(channel, body)
    return method_frame(channel, publish) + content


def plain(cls: type[Method]) -> Method:
    """A method whose arguments are all zero or empty, but for what would itself be at fault."""
    arguments = {name: ZERO.get(cls.amqp_type(name), 0) for name in cls.attributes()}
    if cls is commands.Connection.TuneOk:
        arguments |= {"channel_max": 10, "frame_max": 131072}
    return build_method(cls, **arguments)


START_OK = method_frame(0, plain(commands.Connection.StartOk))
TUNE_OK = method_frame(0, plain(commands.Connection.TuneOk))
OPEN = method_frame(0, plain(commands.Connection.Open))
CLOSE = method_frame(0, plain(commands.Connection.Close))
CLOSE_OK = method_frame(0, plain(commands.Connection.CloseOk))
HANDSHAKE = PROTOCOL_HEADER + START_OK + TUNE_OK + OPEN


def channel_frame(number: int, cls: type[Method]) -> bytes:
    """A method without particular arguments on channel *number*."""
    return method_frame(number, plain(cls))


class ChannelRecorder:
    """Notes what comes on one channel. Refuses the exchange `missing` and the queue `missing`
    softly, the queue `hard` hard, and holds the connection for the queue `durable`."""

    def __init__(self, number: int, recorder: "Recorder") -> None:
        self.number = number
        self._recorder = recorder
        self._calls = recorder.calls

    def publish(
        self, methods: list[bytes], facts: Facts, contents: list[bytes], content_length: int
    ) -> None:
        for method, content in zip(methods, contents, strict=True):
            assert not content_length or len(content) == content_length
            if method[3 : 3 + method[2]] == b"missing":
                raise NotFound("no exchange 'missing'")
            self._calls.append(("publish", self.number, method, facts, content))

    def ack(self, tags: list[int]) -> None:
        self._calls += [("ack", self.number, tag) for tag in tags]

    def method(self, method: Method) -> None:
        if isinstance(method, commands.Queue.Declare):
            if method.queue == "missing":
                raise NotFound("no queue 'missing'")
            if method.queue == "hard":
                raise NotAllowed("hard")
            if method.queue == "durable":
                self._recorder.connection.hold()
        self._calls.append((method.name, self.number, dict(method)))

    def closed(self) -> None:
        self._calls.append(("channel closed", self.number))


class Recorder:
    """Notes what comes on one connection; logs everybody in, unless *judge* is put off."""

    def __init__(
        self,
        *,
        judge: bool = True,
        tuning: Tuning | None = None,
        max_message_size: int = 1 << 30,
    ) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.judge = judge
        self.confirming: set[int] = set()
        self.lingers: list[float] = []
        self.connection = Connection(
            self, tuning or Tuning(), FactsReader(), ShapeBook(), max_message_size=max_message_size
        )

    def start(self) -> Method:
        return plain(commands.Connection.Start)

    def start_ok(self, method: commands.Connection.StartOk) -> None:
        self.calls.append(("start-ok",))
        if self.judge:
            self.connection.accept_login()

    def open(self, virtual_host: str) -> None:
        if virtual_host == "missing":
            raise NotAllowed("vhost missing not found")
        self.calls.append(("open", virtual_host))

    def open_channel(self, number: int) -> ChannelReceiver:
        self.calls.append(("channel opened", number))
        return ChannelRecorder(number, self)

    def update_secret(self, method: Method) -> None:
        self.calls.append(("update-secret",))

    def blocked(self) -> None:
        self.calls.append(("blocked",))

    def is_confirming(self, number: int) -> bool:
        return number in self.confirming

    def refuse(self, number: int, count: int) -> None:
        self.calls += [("refuse", number)] * count

    def closed(self) -> None:
        self.calls.append(("closed",))

    def finished(self, linger_s: float) -> None:
        self.lingers.append(linger_s)

    # ---- what a test asks

    @property
    def output(self) -> bytes:
        """Everything sent so far."""
        return b"".join(self.connection.output)

    def sent(self) -> list[str]:
        """Everything sent since the last time: names of methods, `close 504` with their code."""
        data, self.connection.output = self.output, []
        if data.startswith(b"AMQP"):
            assert data == PROTOCOL_HEADER
            return ["header"]
        names = []
        for kind, _, payload in cut(data):
            assert kind == 1
            method = decode_method(payload)
            name = method.name.lower().removeprefix("connection.")
            arguments = dict(method)
            names.append(
                f"{name} {arguments['reply_code']!r}" if "reply_code" in arguments else name
            )
        return names


def cut(data: bytes) -> list[tuple[int, int, bytes]]:
    """All frames of *data*: type, channel, payload."""
    frames = []
    position = 0
    while position < len(data):
        kind, channel, size = FRAME_HEADER.unpack_from(data, position)
        assert data[position + 7 + size] == 0xCE
        frames.append((kind, channel, data[position + 7 : position + 7 + size]))
        position += size + 8
    return frames


def opened(channels: int = 1, **options: object) -> Recorder:
    """A connection that is open, with this many channels, and nothing noted so far."""
    recorder = Recorder(**options)  # type: ignore[arg-type]  # as the constructor's
    recorder.connection.receive_data(HANDSHAKE)
    for number in range(1, channels + 1):
        recorder.connection.receive_data(channel_frame(number, commands.Channel.Open))
    assert recorder.connection.state is ConnectionState.OPEN
    recorder.connection.output = []
    recorder.calls.clear()
    return recorder


def in_state(state: ConnectionState) -> Recorder:
    """A connection that has come to *state*; in OPEN with channel 1."""
    recorder = Recorder(judge=state is not ConnectionState.AWAIT_VERDICT)
    if state in (ConnectionState.OPEN, ConnectionState.CLOSING, ConnectionState.CLOSED):
        recorder = opened()
        if state is ConnectionState.CLOSING:
            recorder.connection.close(HardError("enough"))
        elif state is ConnectionState.CLOSED:
            recorder.connection.receive_data(CLOSE)
    else:
        steps = {
            ConnectionState.AWAIT_HEADER: b"",
            ConnectionState.AWAIT_START_OK: PROTOCOL_HEADER,
            ConnectionState.AWAIT_VERDICT: PROTOCOL_HEADER + START_OK,
            ConnectionState.AWAIT_TUNE_OK: PROTOCOL_HEADER + START_OK,
            ConnectionState.AWAIT_OPEN: PROTOCOL_HEADER + START_OK + TUNE_OK,
        }
        if steps[state]:
            recorder.connection.receive_data(steps[state])
    assert recorder.connection.state is state
    recorder.connection.output = []
    recorder.calls.clear()
    recorder.lingers.clear()
    return recorder


ALL_METHODS = [METHOD_CLASSES[index] for index in sorted(METHOD_CLASSES)]
