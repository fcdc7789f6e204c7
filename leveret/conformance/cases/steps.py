"""Steps that many cases take: bind, publish, get, consume, count, be refused.

All on channel 1 unless they are told otherwise.
"""

from collections.abc import Iterable, Iterator

from pamqp import commands
from pamqp.base import Frame as Method
from pamqp.common import FieldTable

from leveret.conformance.case import Unmet, judge
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import (
    Refusal,
    Wire,
    channel_closed,
    frame,
    method,
    publish,
    start_ok,
)

OK = "ok"
"""The outcome of what has no reply and was not refused."""
PUBLISHING_CHANNEL = 99
"""The channel of `enqueue`."""
FIRST_SPARE_CHANNEL = 100
"""Where `refused_each` begins: above the channels of any case."""


DEFAULT_REFUSED = channel_closed(
    403, "ACCESS_REFUSED - operation not permitted on the default exchange"
)
NOT_ON_DEFAULT = "403 operation not permitted on the default exchange"
NONE_DECLARED = channel_closed(404, "NOT_FOUND - no previously declared queue")


# ---- bindings


def bind(
    wire: Wire,
    queue: str,
    exchange: str,
    key: str = "",
    arguments: FieldTable | None = None,
    *,
    channel: int = 1,
) -> None:
    """Bind a queue to an exchange."""
    request = commands.Queue.Bind(0, queue, exchange, key, arguments=arguments)
    wire.call(channel, request, commands.Queue.BindOk)


def unbind(
    wire: Wire, queue: str, exchange: str, key: str = "", arguments: FieldTable | None = None
) -> None:
    """Take back what `bind` did."""
    request = commands.Queue.Unbind(0, queue, exchange, key, arguments)
    wire.call(1, request, commands.Queue.UnbindOk)


def bind_exchange(wire: Wire, destination: str, source: str, key: str = "") -> None:
    """Bind an exchange to another."""
    request = commands.Exchange.Bind(0, destination, source, key)
    wire.call(1, request, commands.Exchange.BindOk)


def unbind_exchange(wire: Wire, destination: str, source: str, key: str = "") -> None:
    """Take back what `bind_exchange` did."""
    request = commands.Exchange.Unbind(0, destination, source, key)
    wire.call(1, request, commands.Exchange.UnbindOk)


def fan(ground: Ground, wire: Wire, exchange: str, *keys: str) -> list[str]:
    """A queue for each of *keys*, bound with it."""
    queues = [ground.queue(wire) for _ in keys]
    for queue, key in zip(queues, keys, strict=True):
        bind(wire, queue, exchange, key)
    return queues


# ---- messages


def properties(**fields: object) -> bytes:
    """Properties of a message, as `publish` takes them."""
    return bytes(commands.Basic.Properties(**fields).marshal())  # type: ignore[arg-type]


def publish_all(
    wire: Wire,
    key: str,
    *bodies: bytes,
    exchange: str = "",
    channel: int = 1,
    properties: bytes = b"\0\0",
) -> None:
    """Publish messages with these bodies, in one piece."""
    messages = (
        publish(channel, key, body, exchange=exchange, properties=properties) for body in bodies
    )
    wire.send(*messages)


def confirm(wire: Wire, channel: int = 1) -> None:
    """Have the broker confirm what is published from now on."""
    wire.call(channel, commands.Confirm.Select(), commands.Confirm.SelectOk)


def await_confirms(wire: Wire, last: int, channel: int = 1) -> list[int]:
    """Wait until all publishes up to number *last* are settled; answers those refused."""
    open_tags = set(range(1, last + 1))
    refused: set[int] = set()
    while open_tags:
        received = wire.receive()
        settled = received.method
        if received.channel != channel or not isinstance(
            settled, commands.Basic.Ack | commands.Basic.Nack
        ):
            raise Unmet(f"expected a confirm, saw {received}")
        tag = settled.delivery_tag or 0
        covered = {open_tag for open_tag in open_tags if open_tag <= tag and settled.multiple}
        covered |= {tag} & open_tags
        open_tags -= covered
        if isinstance(settled, commands.Basic.Nack):
            refused |= covered
    return sorted(refused)


def enqueue(wire: Wire, key: str, *bodies: bytes, exchange: str = "", **fields: object) -> None:
    """Publish messages and wait until their queues have them; *fields* are properties.

    What is asked of a queue may overtake what was published to it before, so mere publishing does
    not do where something else than basic.get comes next. Takes a channel of its own.
    """
    open_channel(wire, PUBLISHING_CHANNEL)
    confirm(wire, PUBLISHING_CHANNEL)
    publish_all(
        wire,
        key,
        *bodies,
        exchange=exchange,
        channel=PUBLISHING_CHANNEL,
        properties=properties(**fields),
    )
    await_confirms(wire, len(bodies), PUBLISHING_CHANNEL)
    close_channel(wire, PUBLISHING_CHANNEL)


def get(
    wire: Wire, queue: str, channel: int = 1, *, no_ack: bool = True
) -> tuple[commands.Basic.GetOk, bytes] | None:
    """Take the first message of a queue; None if there is none."""
    answer = wire.answer(channel, commands.Basic.Get(queue=queue, no_ack=no_ack))
    if isinstance(answer, commands.Basic.GetEmpty):
        return None
    if not isinstance(answer, commands.Basic.GetOk):
        raise Unmet(f"expected a message or none, saw {answer}")
    return answer, wire.expect_body()


def drain(wire: Wire, queue: str, channel: int = 1) -> list[bytes]:
    """Take all messages of a queue; answers their bodies."""
    return list(_bodies(wire, queue, channel))


def _bodies(wire: Wire, queue: str, channel: int) -> Iterator[bytes]:
    while got := get(wire, queue, channel):
        yield got[1]


def consume(wire: Wire, queue: str, channel: int = 1, **options: object) -> str:
    """Start a consumer; answers its tag."""
    request = commands.Basic.Consume(queue=queue, **options)  # type: ignore[arg-type]
    return wire.call(channel, request, commands.Basic.ConsumeOk).consumer_tag or ""


def cancel(wire: Wire, tag: str, channel: int = 1) -> None:
    """End a consumer."""
    wire.call(channel, commands.Basic.Cancel(tag), commands.Basic.CancelOk)


# ---- names


def named(channel: int, request: Method, name: str) -> bytes:
    """The frame of *request* with *name*, which pamqp need not like, in the place of NAME."""
    text = name.encode()
    payload = method(channel, request)[7:-1].replace(b"\x04NAME", bytes([len(text)]) + text)
    return frame(1, channel, payload)


# ---- questions


def counts(wire: Wire, queue: str, channel: int = 1) -> tuple[int, int]:
    """How many messages of a queue are ready, and how many consumers it has."""
    request = commands.Queue.Declare(queue=queue, passive=True)
    answer = wire.call(channel, request, commands.Queue.DeclareOk)
    return answer.message_count or 0, answer.consumer_count or 0


def reply(wire: Wire, request: Method, channel: int = 1) -> str | Refusal:
    """Send a method; answers the name of the reply, or how it was refused."""
    answer = wire.answer(channel, request)
    return answer if isinstance(answer, Refusal) else str(answer.name)


def open_channel(wire: Wire, channel: int) -> None:
    """Open one more channel."""
    wire.call(channel, commands.Channel.Open(), commands.Channel.OpenOk)


def outcome(wire: Wire, channel: int = 1) -> str | Refusal:
    """How that ended which was sent and has no reply; `OK` unless it was refused."""
    request = commands.Exchange.Declare(exchange="amq.direct", passive=True)
    answer = wire.answer(channel, request)
    return answer if isinstance(answer, Refusal) else OK


def close_channel(wire: Wire, channel: int = 1) -> None:
    """Close a channel."""
    wire.call(channel, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)


def refused_each(wire: Wire, expected: Refusal, requests: Iterable[Method]) -> None:
    """Check that each of *requests*, on a channel of its own, is refused as *expected*."""
    for channel, request in enumerate(requests, start=FIRST_SPARE_CHANNEL):
        open_channel(wire, channel)
        judge(wire.refused(channel, request), spec=expected)


def the_queue(ground: Ground, name: str) -> str:
    """A queue as brokers name it in the texts of refusals."""
    return f"queue '{name}' in vhost '{ground.facilities.address.vhost}'"


def the_exchange(ground: Ground, name: str) -> str:
    """The same for an exchange."""
    return f"exchange '{name}' in vhost '{ground.facilities.address.vhost}'"


def locked(ground: Ground, name: str) -> Refusal:
    """The refusal of an exclusive queue of somebody else."""
    return channel_closed(
        405,
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked {the_queue(ground, name)}. "
        "It could be originally declared on another connection or the exclusive property value "
        "does not match that of the original declaration.",
    )


def no_queue(ground: Ground, name: str) -> Refusal:
    """The refusal of a queue that does not exist."""
    return channel_closed(404, f"NOT_FOUND - no {the_queue(ground, name)}")


def no_exchange(ground: Ground, name: str) -> Refusal:
    """The refusal of an exchange that does not exist."""
    return channel_closed(404, f"NOT_FOUND - no {the_exchange(ground, name)}")


def wire_of(ground: Ground, user: str, password: str, *channels: int) -> Wire:
    """An open connection of another user."""
    wire = ground.raw()
    wire.shake_hands(start_ok(user, password))
    wire.call(
        0, commands.Connection.Open(ground.facilities.address.vhost), commands.Connection.OpenOk
    )
    for channel in channels:
        open_channel(wire, channel)
    return wire


def add_user(ground: Ground, configure: str, write: str, read: str) -> str:
    """A user with these permissions and its own name as password; it is removed afterwards."""
    name = ground.queue_name()
    ground.manage("PUT", "users", name, body={"password": name, "tags": ""})
    remove(ground, "users", name)
    permissions = {"configure": configure, "write": write, "read": read}
    ground.manage("PUT", "permissions", ground.facilities.address.vhost, name, body=permissions)
    return name


def remove(ground: Ground, *path: str) -> None:
    """Have the management API delete something afterwards."""

    def undo() -> None:
        ground.manage("DELETE", *path)

    ground.afterwards(undo)
