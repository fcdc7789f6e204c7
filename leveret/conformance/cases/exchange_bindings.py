"""Rules of the class exchange: bindings between exchanges (46 to 57)."""

from pamqp import commands

from leveret.conformance.case import Chapter, Met, Need, Seen, judge
from leveret.conformance.cases.steps import (
    DEFAULT_REFUSED,
    NOT_ON_DEFAULT,
    add_user,
    bind_exchange,
    drain,
    fan,
    no_exchange,
    publish_all,
    reply,
    the_exchange,
    unbind_exchange,
    wire_of,
)
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import channel_closed, connection_closed

chapter = Chapter("exchange-bindings")

Bind = commands.Exchange.Bind
Unbind = commands.Exchange.Unbind


@chapter.case(46, spec="one binding")
def duplicate_bindings(ground: Ground) -> Seen:
    """A second binding of two exchanges that is like the first is none."""
    wire = ground.wire(1)
    source, destination = ground.exchange(wire, "direct"), ground.exchange(wire, "fanout")
    (queue,) = fan(ground, wire, destination, "")
    for _ in range(2):
        bind_exchange(wire, destination, source, "k")
    publish_all(wire, "k", b"1", exchange=source)
    unbind_exchange(wire, destination, source, "k")
    publish_all(wire, "k", b"2", exchange=source)
    return judge(drain(wire, queue), spec=[b"1"])


@chapter.case(47, spec="one message each")
def an_exchange_bound_to_itself(ground: Ground) -> Seen:
    """An exchange may be bound to itself."""
    wire = ground.wire(1)
    exchange = ground.exchange(wire, "fanout")
    bind_exchange(wire, exchange, exchange)
    (queue,) = fan(ground, wire, exchange, "")
    publish_all(wire, "", b"1", b"2", exchange=exchange)
    return judge(drain(wire, queue), spec=[b"1", b"2"])


@chapter.case(47, spec="one message each")
def exchanges_bound_in_a_circle(ground: Ground) -> Seen:
    """Exchanges may be bound in a circle."""
    wire = ground.wire(1)
    circle = [ground.exchange(wire, "fanout") for _ in range(3)]
    queues = [fan(ground, wire, exchange, "")[0] for exchange in circle]
    for number, exchange in enumerate(circle):
        bind_exchange(wire, circle[(number + 1) % 3], exchange)
    publish_all(wire, "", b"1", exchange=circle[0])
    return judge([drain(wire, queue) for queue in queues], spec=[[b"1"]] * 3)


@chapter.case(48, spec="one message")
def several_matching_bindings(ground: Ground) -> Seen:
    """A message reaches an exchange once, however many bindings and ways lead there."""
    wire = ground.wire(1)
    source, middle = ground.exchange(wire, "topic"), ground.exchange(wire, "fanout")
    destination = ground.exchange(wire, "fanout")
    (queue,) = fan(ground, wire, destination, "")
    for key in ("a.*", "#", "a.b"):
        bind_exchange(wire, destination, source, key)
    bind_exchange(wire, middle, source, "#")
    bind_exchange(wire, destination, middle)
    publish_all(wire, "a.b", b"1", exchange=source)
    return judge(drain(wire, queue), spec=[b"1"])


@chapter.case(49, spec="404 not-found")
def bind_a_missing_destination(ground: Ground) -> Seen:
    """An exchange that does not exist cannot be bound."""
    name = ground.exchange_name()
    refusal = ground.wire(1).refused(1, Bind(destination=name, source="amq.direct"))
    return judge(refusal, spec=no_exchange(ground, name))


@chapter.case(50, spec="bound", rabbitmq=NOT_ON_DEFAULT)
def bind_the_default_exchange_as_destination(ground: Ground) -> Seen:
    """An exchange.bind without a destination means the default exchange."""
    wire = ground.wire(1)
    answer = reply(wire, Bind(destination="", source=ground.exchange(wire, "fanout")))
    return judge(answer, spec="Exchange.BindOk", rabbitmq=DEFAULT_REFUSED)


@chapter.case(51, spec="404 not-found")
def bind_to_a_missing_source(ground: Ground) -> Seen:
    """An exchange cannot be bound to one that does not exist."""
    name = ground.exchange_name()
    refusal = ground.wire(1).refused(1, Bind(destination="amq.direct", source=name))
    return judge(refusal, spec=no_exchange(ground, name))


@chapter.case(52, spec="bound", rabbitmq=NOT_ON_DEFAULT)
def bind_to_the_default_exchange_as_source(ground: Ground) -> Seen:
    """An exchange.bind without a source means the default exchange."""
    wire = ground.wire(1)
    answer = reply(wire, Bind(destination=ground.exchange(wire, "fanout"), source=""))
    return judge(answer, spec="Exchange.BindOk", rabbitmq=DEFAULT_REFUSED)


@chapter.case(
    53,
    spec="the connection is closed",
    rabbitmq="the channel is closed: 403",
    needs=frozenset([Need.MANAGEMENT]),
)
def an_unbind_that_fails(ground: Ground) -> Seen:
    """An exchange.unbind that fails ends the connection."""
    owner = ground.wire(1)
    source, name = ground.exchange(owner, "direct"), ground.exchange(owner, "direct")
    bind_exchange(owner, name, source, "k")
    user = add_user(ground, ".*", "^$", ".*")
    refusal = wire_of(ground, user, user, 1).refused(1, Unbind(0, name, source, "k"))
    if refusal.scope == "connection":
        return Seen(Met.SPEC, str(refusal))
    what = the_exchange(ground, name)
    text = f"ACCESS_REFUSED - write access to {what} refused for user '{user}'"
    text_of_3 = f"ACCESS_REFUSED - access to {what} refused for user '{user}'"
    if refusal.fits(channel_closed(403, text_of_3)):
        return Seen(Met.RABBITMQ, str(refusal))
    return judge(refusal, spec=connection_closed(403), rabbitmq=channel_closed(403, text))


@chapter.case(53, spec="the connection is closed", rabbitmq="the channel is closed: 403")
def an_unbind_from_the_default_exchange(ground: Ground) -> Seen:
    """An exchange.unbind that is refused for what it names ends the connection."""
    wire = ground.wire(1)
    refusal = wire.refused(1, Unbind(destination="amq.direct", source="", routing_key="k"))
    if refusal.scope == "connection":
        return Seen(Met.SPEC, str(refusal))
    return judge(refusal, spec=connection_closed(403), rabbitmq=DEFAULT_REFUSED)


@chapter.case(54, spec="404 not-found", rabbitmq="unbind-ok")
def unbind_a_missing_destination(ground: Ground) -> Seen:
    """An exchange that does not exist cannot be unbound."""
    unbind_it = Unbind(destination=ground.exchange_name(), source="amq.direct", routing_key="k")
    answer = reply(ground.wire(1), unbind_it)
    return judge(answer, spec=channel_closed(404), rabbitmq="Exchange.UnbindOk")


@chapter.case(55, spec="unbind-ok", rabbitmq=NOT_ON_DEFAULT)
def unbind_the_default_exchange_as_destination(ground: Ground) -> Seen:
    """An exchange.unbind without a destination means the default exchange."""
    wire = ground.wire(1)
    answer = reply(wire, Unbind(destination="", source=ground.exchange(wire, "fanout")))
    return judge(answer, spec="Exchange.UnbindOk", rabbitmq=DEFAULT_REFUSED)


@chapter.case(56, spec="404 not-found", rabbitmq="unbind-ok")
def unbind_from_a_missing_source(ground: Ground) -> Seen:
    """An exchange cannot be unbound from one that does not exist."""
    unbind_it = Unbind(destination="amq.direct", source=ground.exchange_name(), routing_key="k")
    answer = reply(ground.wire(1), unbind_it)
    return judge(answer, spec=channel_closed(404), rabbitmq="Exchange.UnbindOk")


@chapter.case(57, spec="unbind-ok", rabbitmq=NOT_ON_DEFAULT)
def unbind_from_the_default_exchange_as_source(ground: Ground) -> Seen:
    """An exchange.unbind without a source means the default exchange."""
    wire = ground.wire(1)
    answer = reply(wire, Unbind(destination=ground.exchange(wire, "fanout"), source=""))
    return judge(answer, spec="Exchange.UnbindOk", rabbitmq=DEFAULT_REFUSED)
