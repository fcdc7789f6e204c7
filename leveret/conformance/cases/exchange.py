"""Rules of the class exchange: declare and delete (34 to 45)."""

from pamqp import commands
from pamqp.common import FieldTable

from leveret.conformance.case import Chapter, Met, Need, Seen, judge
from leveret.conformance.cases.steps import (
    OK,
    bind_exchange,
    drain,
    fan,
    named,
    no_exchange,
    open_channel,
    outcome,
    publish_all,
    reply,
    the_exchange,
    unbind,
)
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Refusal, channel_closed, connection_closed, method

chapter = Chapter("exchange")

Declare = commands.Exchange.Declare
Delete = commands.Exchange.Delete


def inequivalent(ground: Ground, argument: str, name: str, received: str, current: str) -> Refusal:
    """The refusal of a declare that does not fit what is there."""
    return channel_closed(
        406,
        f"PRECONDITION_FAILED - inequivalent arg '{argument}' for "
        f"{the_exchange(ground, name)}: received '{received}' but current is "
        f"'{current}'",
    )


# ---- declare


@chapter.case(34, spec="17 exchanges are no problem")
def many_exchanges(ground: Ground) -> None:
    """There may be more than 16 exchanges."""
    wire = ground.wire(1)
    names = [ground.exchange(wire, "fanout") for _ in range(17)]
    for name in names:
        wire.call(1, Declare(exchange=name, passive=True), commands.Exchange.DeclareOk)


@chapter.case(35, spec="403 access-refused")
def a_reserved_name(ground: Ground) -> Seen:
    """A name that begins with `amq.` is not for a new exchange."""
    name = f"amq.{ground.exchange_name()}"
    return judge(
        ground.wire(1).refused(1, Declare(exchange=name)),
        spec=channel_closed(
            403, f"ACCESS_REFUSED - exchange name '{name}' contains reserved prefix 'amq.*'"
        ),
    )


@chapter.case(35, spec="404 not-found")
def passive_declare_of_a_reserved_name(ground: Ground) -> Seen:
    """A passive declare may name an amq. exchange that does not exist."""
    name = f"amq.{ground.exchange_name()}"
    refusal = ground.wire(1).refused(1, Declare(exchange=name, passive=True))
    return judge(refusal, spec=no_exchange(ground, name))


@chapter.case(36, spec="406 precondition-failed", rabbitmq="any name")
def odd_characters(ground: Ground) -> Seen:
    """An exchange name has only letters, digits and - _ . :"""
    wire = ground.wire(1)
    name = f"{ground.exchange_name()} b/ç"
    wire.send(named(1, Declare(exchange="NAME", exchange_type="fanout", nowait=True), name))
    seen = judge(outcome(wire), spec=channel_closed(406), rabbitmq=OK)
    if seen.met is Met.RABBITMQ:
        wire.send(named(1, Delete(exchange="NAME"), name))
        wire.expect(commands.Exchange.DeleteOk, 1)
    return seen


@chapter.case(36, spec="406 precondition-failed", rabbitmq="the ends of lines are left out")
def ends_of_lines(ground: Ground) -> Seen:
    """CR and LF in an exchange name are refused, or as good as not there."""
    wire = ground.wire(1)
    name = ground.exchange_name()
    declare = Declare(exchange="NAME", exchange_type="fanout", nowait=True)
    wire.send(named(1, declare, f"\r{name}\r\n"))
    seen = judge(outcome(wire), spec=channel_closed(406), rabbitmq=OK)
    if seen.met is Met.RABBITMQ:
        wire.call(1, Declare(exchange=name, passive=True), commands.Exchange.DeclareOk)
        wire.send(named(1, Delete(exchange="NAME"), f"{name}\n"))
        wire.expect(commands.Exchange.DeleteOk, 1)
        refusal = wire.refused(1, Declare(exchange=name, passive=True))
        judge(refusal, spec=no_exchange(ground, name))
    return seen


@chapter.case(37, spec="530 not-allowed", rabbitmq="406 inequivalent arg 'type'")
def redeclare_with_another_type(ground: Ground) -> Seen:
    """An exchange is not redeclared with another type."""
    wire = ground.wire(1)
    name = ground.exchange(wire, "direct")
    return judge(
        wire.refused(1, Declare(exchange=name, exchange_type="fanout")),
        spec=connection_closed(530),
        rabbitmq=inequivalent(ground, "type", name, "fanout", "direct"),
    )


@chapter.case(38, spec="503 command-invalid", rabbitmq="406; 503 up to 3.12")
def unknown_type(ground: Ground) -> Seen:
    """An exchange of a type that does not exist is refused."""
    declare = Declare(exchange=ground.exchange_name(), exchange_type="nope")
    refusal = ground.wire(1).refused(1, declare)
    if refusal.fits(connection_closed(503, "COMMAND_INVALID - unknown exchange type 'nope'")):
        return Seen(text=str(refusal))
    return judge(
        refusal,
        spec=connection_closed(503),
        rabbitmq=channel_closed(406, "PRECONDITION_FAILED - unknown exchange type 'nope'"),
    )


@chapter.case(39, spec="404 not-found")
def passive_declare_of_a_missing_exchange(ground: Ground) -> Seen:
    """A passive declare of an exchange that does not exist is refused."""
    name = ground.exchange_name()
    refusal = ground.wire(1).refused(1, Declare(exchange=name, passive=True))
    return judge(refusal, spec=no_exchange(ground, name))


@chapter.case(39, spec="everything but the name is ignored")
def passive_declare_of_an_existing_exchange(ground: Ground) -> None:
    """A passive declare of an exchange that exists succeeds, whatever it says of it."""
    wire = ground.wire(1)
    name = ground.exchange(wire, "direct")
    declare = Declare(
        exchange=name, exchange_type="fanout", passive=True, durable=True, auto_delete=True
    )
    wire.call(1, declare, commands.Exchange.DeclareOk)


@chapter.case(39, spec="nothing happens", rabbitmq="404 not-found")
def passive_declare_without_an_answer(ground: Ground) -> Seen:
    """A passive declare with no-wait has no effect."""
    wire = ground.wire(1)
    name = ground.exchange_name()
    wire.send(method(1, Declare(exchange=name, passive=True, nowait=True)))
    return judge(outcome(wire), spec=OK, rabbitmq=no_exchange(ground, name))


@chapter.case(40, spec="declare-ok")
def redeclare_of_the_same(ground: Ground) -> None:
    """An exchange may be redeclared as it is."""
    wire = ground.wire(1)
    declare = Declare(0, ground.exchange_name(), "topic", False, True, True, True)
    for _ in range(2):
        wire.call(1, declare, commands.Exchange.DeclareOk)


@chapter.case(40, spec="406 inequivalent arg 'durable'")
def redeclare_durable_as_transient(ground: Ground) -> None:
    """An exchange is not redeclared with another durability."""
    wire = ground.wire(1, 2)
    transient = ground.exchange(wire, "direct")
    refusal = wire.refused(1, Declare(exchange=transient, durable=True))
    judge(refusal, spec=inequivalent(ground, "durable", transient, "true", "false"))
    durable = ground.exchange(wire, "direct", 2, durable=True)
    refusal = wire.refused(2, Declare(exchange=durable))
    judge(refusal, spec=inequivalent(ground, "durable", durable, "false", "true"))


@chapter.case(40, spec="406 inequivalent arg 'internal'")
def redeclare_internal(ground: Ground) -> Seen:
    """An exchange is not redeclared as one that clients may not publish to."""
    wire = ground.wire(1)
    name = ground.exchange(wire, "direct")
    refusal = wire.refused(1, Declare(exchange=name, internal=True))
    return judge(refusal, spec=inequivalent(ground, "internal", name, "true", "false"))


@chapter.case(40, spec="406 inequivalent arg 'alternate-exchange'")
def redeclare_with_another_alternate_exchange(ground: Ground) -> None:
    """An exchange is not redeclared with another alternate exchange, or without it."""
    wire = ground.wire(1)
    arguments: FieldTable = {"alternate-exchange": "amq.fanout"}
    name = ground.exchange(wire, "direct", arguments=arguments)
    start = (
        f"PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for "
        f"{the_exchange(ground, name)}: received "
    )
    other: FieldTable = {"alternate-exchange": "amq.direct"}
    received = {
        "'amq.direct' but current is 'amq.fanout'": other,
        "none but current is the value 'amq.fanout' of type 'longstr'": {},
    }
    for channel, (text, changed) in enumerate(received.items(), start=2):
        open_channel(wire, channel)
        refusal = wire.refused(channel, Declare(exchange=name, arguments=changed))
        judge(refusal, spec=channel_closed(406, f"{start}{text}"))


@chapter.case(40, spec="406 precondition-failed", rabbitmq="not compared")
def redeclare_with_other_arguments(ground: Ground) -> Seen:
    """Arguments are compared, whatever they are."""
    wire = ground.wire(1)
    name = ground.exchange(wire, "direct", arguments={"x-color": "red"})
    answer = reply(wire, Declare(exchange=name, arguments={"x-color": "blue"}))
    return judge(answer, spec=channel_closed(406), rabbitmq="Exchange.DeclareOk")


@chapter.case(41, spec="both work")
def durable_and_transient(ground: Ground) -> None:
    """There are durable and transient exchanges."""
    wire = ground.wire(1)
    for durable in (True, False):
        exchange = ground.exchange(wire, "direct", durable=durable)
        (queue,) = fan(ground, wire, exchange, "k")
        publish_all(wire, "k", b"1", exchange=exchange)
        judge(drain(wire, queue), spec=[b"1"])


@chapter.case(
    41,
    spec="the durable one is there, the other is not",
    needs=frozenset([Need.RESTART]),
    limit_s=90,
)
def durable_and_transient_after_a_restart(ground: Ground) -> Seen:
    """A durable exchange outlives the broker, a transient one does not."""
    wire = ground.wire(1)
    durable = ground.exchange(wire, "topic", durable=True)
    transient = ground.exchange(wire, "topic")
    ground.restart()
    wire = ground.wire(1)
    declare = Declare(exchange=durable, exchange_type="topic", durable=True)
    wire.call(1, declare, commands.Exchange.DeclareOk)
    refusal = wire.refused(1, Declare(exchange=transient, passive=True))
    return judge(refusal, spec=no_exchange(ground, transient))


@chapter.case(42, spec="it stays")
def auto_delete_before_a_binding(ground: Ground) -> None:
    """An auto-delete exchange stays until the last of its bindings has gone."""
    first = ground.wire(1)
    exchange = ground.exchange(first, "fanout", auto_delete=True)
    first.call(0, commands.Connection.Close(200, "", 0, 0), commands.Connection.CloseOk)
    wire = ground.wire(1)
    queues = fan(ground, wire, exchange, "", "")
    unbind(wire, queues[0], exchange)
    wire.call(1, Declare(exchange=exchange, passive=True), commands.Exchange.DeclareOk)
    unbind(wire, queues[1], exchange)
    refusal = wire.refused(1, Declare(exchange=exchange, passive=True))
    judge(refusal, spec=no_exchange(ground, exchange))


@chapter.case(43, spec="ignored", rabbitmq="406 inequivalent arg 'auto_delete'")
def redeclare_auto_delete(ground: Ground) -> Seen:
    """The auto-delete bit is ignored if the exchange exists."""
    wire = ground.wire(1)
    name = ground.exchange(wire, "direct")
    return judge(
        reply(wire, Declare(exchange=name, auto_delete=True)),
        spec="Exchange.DeclareOk",
        rabbitmq=inequivalent(ground, "auto_delete", name, "true", "false"),
    )


# ---- delete


@chapter.case(44, spec="404 not-found", rabbitmq="delete-ok")
def delete_a_missing_exchange(ground: Ground) -> Seen:
    """An exchange that does not exist cannot be deleted."""
    answer = reply(ground.wire(1), Delete(exchange=ground.exchange_name()))
    return judge(answer, spec=channel_closed(404), rabbitmq="Exchange.DeleteOk")


@chapter.case(45, spec="406 precondition-failed")
def delete_an_exchange_in_use(ground: Ground) -> Seen:
    """An exchange with bindings is not deleted if unused is asked for."""
    wire = ground.wire(1, 2)
    name = ground.exchange(wire, "direct")
    (queue,) = fan(ground, wire, name, "k")
    in_use = the_exchange(ground, name)
    refusal = wire.refused(2, Delete(exchange=name, if_unused=True))
    seen = judge(refusal, spec=channel_closed(406, f"PRECONDITION_FAILED - {in_use} in use"))
    publish_all(wire, "k", b"1", exchange=name)
    judge(drain(wire, queue), spec=[b"1"])
    return seen


@chapter.case(45, spec="406 precondition-failed")
def delete_an_exchange_that_another_is_bound_to(ground: Ground) -> Seen:
    """A binding to an exchange is a use like one to a queue."""
    wire = ground.wire(1)
    name = ground.exchange(wire, "direct")
    bind_exchange(wire, ground.exchange(wire, "direct"), name)
    text = f"PRECONDITION_FAILED - {the_exchange(ground, name)} in use"
    refusal = wire.refused(1, Delete(exchange=name, if_unused=True))
    return judge(refusal, spec=channel_closed(406, text))


@chapter.case(45, spec="deleted, bindings or not")
def delete_an_exchange_with_bindings(ground: Ground) -> Seen:
    """An exchange with bindings is deleted if unused is not asked for."""
    wire = ground.wire(1)
    name = ground.exchange(wire, "direct")
    fan(ground, wire, name, "k")
    wire.call(1, Delete(exchange=name), commands.Exchange.DeleteOk)
    refusal = wire.refused(1, Declare(exchange=name, passive=True))
    return judge(refusal, spec=no_exchange(ground, name))


@chapter.case(45, spec="deleted")
def delete_an_unused_exchange(ground: Ground) -> Seen:
    """An exchange without bindings of its own is deleted if unused is asked for."""
    wire = ground.wire(1)
    source, name = ground.exchange(wire, "direct"), ground.exchange(wire, "direct")
    bind_exchange(wire, name, source)
    wire.call(1, Delete(exchange=name, if_unused=True), commands.Exchange.DeleteOk)
    refusal = wire.refused(1, Declare(exchange=name, passive=True))
    return judge(refusal, spec=no_exchange(ground, name))
