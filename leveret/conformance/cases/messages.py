"""Messages: properties of what is published, and all that comes with what is taken."""

import time
from collections.abc import Callable
from typing import NamedTuple, cast

from pamqp import commands
from pamqp.base import Frame as Method
from pamqp.common import FieldTable
from pamqp.header import ContentHeader

from leveret.conformance.cases.steps import (
    await_confirms,
    confirm,
    consume,
    counts,
    open_channel,
    publish_all,
)
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Wire, method

Properties = commands.Basic.Properties
NONE = b"\0\0"
"""No properties."""
_FILLING = 2000
"""The channel that `fill` opens and closes."""
_HEADER_START = b"\x00\x3c" + bytes(10)
"""Class id, weight and size of the body, which properties follow."""


class Taken(NamedTuple):
    """A message that was delivered, got or returned. `raw`: the properties as they came."""

    tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    raw: bytes
    body: bytes

    @property
    def properties(self) -> Properties:
        """The properties."""
        decoded = ContentHeader()
        decoded.unmarshal(_HEADER_START + self.raw)
        return decoded.properties

    @property
    def headers(self) -> FieldTable:
        """The property headers, empty if there is none."""
        return self.properties.headers or {}

    @property
    def deaths(self) -> list[FieldTable]:
        """The entries of the header x-death."""
        return cast("list[FieldTable]", self.headers.get("x-death", []))


def fill(wire: Wire, queue: str, *bodies: bytes, properties: bytes = NONE) -> None:
    """Publish to a queue and have it confirmed, so that the queue has dealt with all of them.

    No delivery may be on its way to *wire*.
    """
    open_channel(wire, _FILLING)
    confirm(wire, _FILLING)
    publish_all(wire, queue, *bodies, channel=_FILLING, properties=properties)
    await_confirms(wire, len(bodies), _FILLING)
    wire.call(_FILLING, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)


def delivery(wire: Wire, channel: int = 1) -> Taken:
    """The next delivery, for which it waits."""
    deliver = wire.expect(commands.Basic.Deliver, channel)
    return _taken(wire, deliver)


def deliveries(wire: Wire, count: int, channel: int = 1) -> list[Taken]:
    """The next *count* deliveries."""
    return [delivery(wire, channel) for _ in range(count)]


def bodies(wire: Wire, count: int, channel: int = 1) -> list[bytes]:
    """The bodies of the next *count* deliveries."""
    return [each.body for each in deliveries(wire, count, channel)]


def hold(wire: Wire, queue: str, channel: int = 1) -> Taken:
    """Get the first message of a queue, which is then to be settled. Raises Unmet if none is."""
    return _taken(wire, wire.call(channel, commands.Basic.Get(queue=queue), commands.Basic.GetOk))


def hold_each(wire: Wire, queue: str, count: int, channel: int = 1) -> list[int]:
    """Get *count* messages; answers their tags."""
    return [hold(wire, queue, channel).tag for _ in range(count)]


def is_empty(wire: Wire, queue: str, channel: int = 1) -> bool:
    """A get finds no message, and answers so."""
    answer = wire.answer(channel, commands.Basic.Get(queue=queue, no_ack=True))
    return isinstance(answer, commands.Basic.GetEmpty)


def returned(wire: Wire, channel: int = 1) -> tuple[commands.Basic.Return, Taken]:
    """The next message that comes back as unroutable."""
    told = wire.expect(commands.Basic.Return, channel)
    raw, body = wire.expect_content()
    return told, Taken(0, False, told.exchange or "", told.routing_key or "", raw, body)


def stay_quiet(wire: Wire, queue: str, channel: int = 1) -> None:
    """Check that no delivery of *queue* has come when the queue answers, and then the channel."""
    counts(wire, queue, channel)
    alive = commands.Exchange.Declare(exchange="amq.direct", passive=True)
    wire.call(channel, alive, commands.Exchange.DeclareOk)


def have_dead(ground: Ground, wire: Wire, **arguments: object) -> tuple[str, str]:
    """Declare a queue with *arguments* and one that gets its dead letters; answers both names.

    The dead letters are consumed on channel 2.
    """
    dead = ground.queue(wire)
    target = x(dead_letter_exchange="", dead_letter_routing_key=dead, **arguments)
    queue = ground.queue(wire, arguments=target)
    consume(wire, dead, 2, no_ack=True)
    return queue, dead


def reject(wire: Wire, queue: str, channel: int = 1) -> None:
    """Get the first message of a queue and reject it for good."""
    tag = hold(wire, queue, channel).tag
    tell(wire, commands.Basic.Reject(tag, False), channel=channel)


def tell(wire: Wire, *requests: Method, channel: int = 1) -> None:
    """Send methods that have no reply."""
    wire.send(*(method(channel, request) for request in requests))


def x(**arguments: object) -> FieldTable:
    """Arguments of a queue or consumer: `message_ttl` is x-message-ttl."""
    return cast(
        "FieldTable", {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    )


def until(is_so: Callable[[], bool]) -> None:
    """Ask again until it is so; the time of the case is the limit."""
    while not is_so():
        time.sleep(0.005)


def _taken(wire: Wire, told: commands.Basic.Deliver | commands.Basic.GetOk) -> Taken:
    raw, body = wire.expect_content()
    where = told.exchange or "", told.routing_key or ""
    return Taken(told.delivery_tag or 0, bool(told.redelivered), *where, raw, body)
