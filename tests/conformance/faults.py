"""What a broker may do wrong, each by the name of what it does then."""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

from pamqp import commands
from pamqp.base import Frame as Method

from tests.conformance.broken_broker import Fault, Side, Twist, Unit

HEARTBEAT = 8
BODY_START = 7
"""Of a frame: type, channel and size come first."""


def changes(kind: type[Method], side: Side = Side.BROKER, **fields: Any) -> Fault:
    """Each method of this kind has other fields; a function is given the value it replaces."""

    def twist(unit: Unit) -> list[Unit]:
        if not isinstance(unit.method, kind):
            return [unit]
        changed = copy(unit.method)
        for name, value in fields.items():
            old = getattr(changed, name)
            setattr(changed, name, value(old) if callable(value) else value)
        return [unit.with_method(changed)]

    return Fault(side, lambda: twist)


def asks(kind: type[Method], **fields: Any) -> Fault:
    """The broker does as if it had been asked for something else."""
    return changes(kind, Side.CLIENT, **fields)


def replaces(kind: type[Method], by: Callable[[Unit], list[Unit]]) -> Fault:
    """Other units come in place of such a method."""

    def twist(unit: Unit) -> list[Unit]:
        return by(unit) if isinstance(unit.method, kind) else [unit]

    return Fault(Side.BROKER, lambda: twist)


def forgets(kind: type[Method]) -> Fault:
    """Such a method does not come."""
    return replaces(kind, lambda _: [])


def delays(first: type[Method], second: type[Method]) -> Fault:
    """What comes as *first* comes after the next *second*."""

    def make() -> Twist:
        held: list[Unit] = []

        def twist(unit: Unit) -> list[Unit]:
            if isinstance(unit.method, first):
                held.append(unit)
                return []
            if isinstance(unit.method, second):
                released = [unit, *held]
                held.clear()
                return released
            return [unit]

        return twist

    return Fault(Side.BROKER, make)


def swaps_deliveries() -> Fault:
    """Of two deliveries the second comes first, with the tag of the first."""

    def make() -> Twist:
        held: list[Unit] = []

        def twist(unit: Unit) -> list[Unit]:
            if not isinstance(unit.method, commands.Basic.Deliver):
                return [unit]
            if not held:
                held.append(unit)
                return []
            first = held.pop()
            return [replace(first, content=unit.content), replace(unit, content=first.content)]

        return twist

    return Fault(Side.BROKER, make)


def loses_properties() -> Fault:
    """Contents come without a property."""

    def strip(unit: Unit) -> list[Unit]:
        size = int.from_bytes(unit.content[3:7], "big")
        head = unit.content[: BODY_START + 12]
        bare = head[:3] + (14).to_bytes(4, "big") + head[BODY_START:] + b"\0\0\xce"
        return [replace(unit, content=bare + unit.content[size + 8 :])]

    return replaces(commands.Basic.Deliver | commands.Basic.GetOk, strip)  # type: ignore[arg-type]


def no_heartbeats() -> Fault:
    """Nothing shows that the broker lives."""

    def twist(unit: Unit) -> list[Unit]:
        return [] if unit.kind == HEARTBEAT else [unit]

    return Fault(Side.BROKER, lambda: twist)


def without(name: str) -> Fault:
    """The argument of a queue is not known."""

    def drop(arguments: dict[str, Any] | None) -> dict[str, Any]:
        return {key: value for key, value in (arguments or {}).items() if key != name}

    return asks(commands.Queue.Declare, arguments=drop)


def plus_one(value: int) -> int:
    return value + 1


def close_connection(unit: Unit) -> list[Unit]:
    close = unit.method
    assert isinstance(close, commands.Channel.Close)
    ids = close.class_id, close.method_id
    wrong = commands.Connection.Close(close.reply_code, close.reply_text, *ids)
    return [replace(unit, channel=0).with_method(wrong)]


def confirm(unit: Unit) -> list[Unit]:
    assert isinstance(unit.method, commands.Basic.Nack)
    ack = commands.Basic.Ack(unit.method.delivery_tag, unit.method.multiple)
    return [unit.with_method(ack)]


def twice(unit: Unit) -> list[Unit]:
    return [unit, unit]


FAULTS = {
    "tells not that a message comes again": changes(commands.Basic.Deliver, redelivered=False),
    "says always that a message comes again": changes(commands.Basic.Deliver, redelivered=True),
    "delivers in another order": swaps_deliveries(),
    "delivers twice": replaces(commands.Basic.Deliver, twice),
    "begins delivery tags with 2": changes(commands.Basic.Deliver, delivery_tag=plus_one),
    "delivers to another consumer": changes(commands.Basic.Deliver, consumer_tag="other"),
    "names another exchange": changes(commands.Basic.Deliver, exchange="other"),
    "loses properties": loses_properties(),
    "closes the connection for what concerns a channel": replaces(
        commands.Channel.Close, close_connection
    ),
    "closes channels with another code": changes(commands.Channel.Close, reply_code=541),
    "closes channels with another text": changes(commands.Channel.Close, reply_text="no"),
    "closes connections with another code": changes(commands.Connection.Close, reply_code=541),
    "names no class and method in a close": changes(
        commands.Channel.Close, class_id=0, method_id=0
    ),
    "answers no close": forgets(commands.Connection.CloseOk),
    "loses confirms": forgets(commands.Basic.Ack),
    "confirms before it returns": delays(commands.Basic.Return, commands.Basic.Ack),
    "confirms other publishes": changes(commands.Basic.Ack, delivery_tag=plus_one),
    "confirms what it refuses": replaces(commands.Basic.Nack, confirm),
    "returns for another reason": changes(commands.Basic.Return, reply_code=313),
    "keeps what cannot be routed": forgets(commands.Basic.Return),
    "does not say that a consumer is cancelled": forgets(commands.Basic.Cancel),
    "sends no heartbeats": no_heartbeats(),
    "counts one message too many": changes(commands.Queue.DeclareOk, message_count=plus_one),
    "counts one consumer too many": changes(commands.Queue.DeclareOk, consumer_count=plus_one),
    "declares a queue of another name": changes(commands.Queue.DeclareOk, queue="other"),
    "purges one message too many": changes(commands.Queue.PurgeOk, message_count=plus_one),
    "deletes one message too many": changes(commands.Queue.DeleteOk, message_count=plus_one),
    "knows no locale": changes(commands.Connection.Start, locales="xx"),
    "says nothing of itself": changes(commands.Connection.Start, server_properties={}),
    "delivers one more than the prefetch": asks(commands.Basic.Qos, prefetch_count=plus_one),
    "declares what is only asked about": asks(commands.Queue.Declare, passive=False),
    "shares exclusive queues": asks(commands.Queue.Declare, exclusive=False),
    "keeps queues that are to be deleted": asks(commands.Queue.Declare, auto_delete=False),
    "makes internal exchanges public": asks(commands.Exchange.Declare, internal=False),
    "deletes queues in use": asks(commands.Queue.Delete, if_unused=False),
    "deletes queues with messages": asks(commands.Queue.Delete, if_empty=False),
    "deletes exchanges in use": asks(commands.Exchange.Delete, if_unused=False),
    "lets others consume beside an exclusive consumer": asks(
        commands.Basic.Consume, exclusive=False
    ),
    "waits for acknowledgements that nobody sends": asks(commands.Basic.Consume, no_ack=False),
    "drops what is to be requeued": asks(commands.Basic.Reject, requeue=False),
    "requeues what is to be dropped": asks(commands.Basic.Reject, requeue=True),
    "acknowledges one for many": asks(commands.Basic.Ack, multiple=False),
    "acknowledges many for one": asks(commands.Basic.Ack, multiple=True),
    "takes no notice of mandatory": asks(commands.Basic.Publish, mandatory=False),
    "keeps expired messages": without("x-message-ttl"),
    "keeps unused queues": without("x-expires"),
    "has no dead letters": without("x-dead-letter-exchange"),
    "gives dead letters another key": without("x-dead-letter-routing-key"),
    "has no priorities": without("x-max-priority"),
    "sets no limit to a queue": without("x-max-length"),
    "drops where it must refuse": without("x-overflow"),
    "has several active consumers": without("x-single-active-consumer"),
}
"""What a broken broker does, and how."""
