"""Rules of the class exchange (28 to 57)."""

from pamqp import commands
from pamqp.common import FieldTable

from leveret.conformance.case import Chapter, Met, Need, Seen, Unmet, judge
from leveret.conformance.cases.steps import (
    OK,
    add_user,
    bind,
    bind_exchange,
    drain,
    named,
    no_exchange,
    open_channel,
    outcome,
    properties,
    publish_all,
    refused_each,
    remove,
    reply,
    the_exchange,
    unbind,
    unbind_exchange,
    wire_of,
)
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import (
    Refusal,
    Wire,
    channel_closed,
    connection_closed,
    method,
)

chapter = Chapter("exchange")

Bind = commands.Exchange.Bind
Declare = commands.Exchange.Declare
Delete = commands.Exchange.Delete
Unbind = commands.Exchange.Unbind

PREDECLARED = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
}
DEFAULT_REFUSED = channel_closed(
    403, "ACCESS_REFUSED - operation not permitted on the default exchange"
)
NOT_ON_DEFAULT = "403 operation not permitted on the default exchange"


def inequivalent(ground: Ground, argument: str, name: str, received: str, current: str) -> Refusal:
    """The refusal of a declare that does not fit what is there."""
    return channel_closed(
        406,
        f"PRECONDITION_FAILED - inequivalent arg '{argument}' for "
        f"{the_exchange(ground, name)}: received '{received}' but current is "
        f"'{current}'",
    )


def fan(ground: Ground, wire: Wire, exchange: str, *keys: str) -> list[str]:
    """A queue for each of *keys*, bound with it."""
    queues = [ground.queue(wire) for _ in keys]
    for queue, key in zip(queues, keys, strict=True):
        bind(wire, queue, exchange, key)
    return queues


# ---- types and instances


@chapter.case(28, spec="to the queues bound with the message's key")
def direct_routes_by_key(ground: Ground) -> Seen:
    """A direct exchange routes by the equality of keys."""
    wire = ground.wire(1)
    exchange = ground.exchange(wire, "direct")
    queues = fan(ground, wire, exchange, "red", "red", "blue")
    publish_all(wire, "red", b"1", exchange=exchange)
    return judge([drain(wire, queue) for queue in queues], spec=[[b"1"], [b"1"], []])


@chapter.case(28, spec="to all queues bound")
def fanout_routes_to_all(ground: Ground) -> Seen:
    """A fanout exchange routes to every queue bound, whatever the keys."""
    wire = ground.wire(1)
    exchange = ground.exchange(wire, "fanout")
    queues = fan(ground, wire, exchange, "red", "", "blue")
    publish_all(wire, "green", b"1", exchange=exchange)
    return judge([drain(wire, queue) for queue in queues], spec=[[b"1"]] * 3)


@chapter.case(29, spec="* one word, # any number of them")
def topic_routes_by_pattern(ground: Ground) -> Seen:
    """A topic exchange routes by patterns of words."""
    wire = ground.wire(1)
    exchange = ground.exchange(wire, "topic")
    patterns = "a.b", "a.*", "*", "#", "a.#", "#.b", "a.*.#", "*.*", "a.#.b.#", "a"
    queues = fan(ground, wire, exchange, *patterns)
    for key in ("a", "a.b", "a.b.b", "b.b"):
        publish_all(wire, key, key.encode(), exchange=exchange)
    got = {
        pattern: sorted(drain(wire, queue)) for pattern, queue in zip(patterns, queues, strict=True)
    }
    expected = {
        "a.b": [b"a.b"],
        "a.*": [b"a.b"],
        "*": [b"a"],
        "#": [b"a", b"a.b", b"a.b.b", b"b.b"],
        "a.#": [b"a", b"a.b", b"a.b.b"],
        "#.b": [b"a.b", b"a.b.b", b"b.b"],
        "a.*.#": [b"a.b", b"a.b.b"],
        "*.*": [b"a.b", b"b.b"],
        "a.#.b.#": [b"a.b", b"a.b.b"],
        "a": [b"a"],
    }
    return judge(got, spec=expected)


@chapter.case(29, rabbitmq="an empty key has no words", spec="an empty key is one word, or none")
def an_empty_key_in_a_topic_exchange(ground: Ground) -> Seen:
    """A message without a key matches # and not *."""
    wire = ground.wire(1)
    exchange = ground.exchange(wire, "topic")
    queues = fan(ground, wire, exchange, "", "#", "*", "#.*")
    publish_all(wire, "", b"1", exchange=exchange)
    got = [len(drain(wire, queue)) for queue in queues]
    if got == [1, 1, 1, 1]:
        return Seen(Met.SPEC, "one word")
    return judge(got, spec=[1, 1, 0, 0])


def route_headers(ground: Ground, bindings: list[FieldTable], headers: FieldTable) -> list[int]:
    """How many copies each binding got of a message with these headers."""
    wire = ground.wire(1)
    exchange = ground.exchange(wire, "headers")
    queues = [ground.queue(wire) for _ in bindings]
    for queue, arguments in zip(queues, bindings, strict=True):
        bind(wire, queue, exchange, arguments=arguments)
    publish_all(wire, "", b"1", exchange=exchange, properties=properties(headers=headers))
    return [len(drain(wire, queue)) for queue in queues]


@chapter.case(29, spec="all headers of the binding, or any of them")
def headers_match_all_or_any(ground: Ground) -> Seen:
    """A headers exchange routes by all or any of the headers; all is the default."""
    both: FieldTable = {"kind": "hare", "age": 3}
    got = route_headers(
        ground,
        [
            both | {"x-match": "all"},
            both | {"x-match": "any"},
            both,
            {"kind": "hare"},
            {"kind": "fox", "x-match": "any"},
        ],
        {"kind": "hare", "age": 4},
    )
    return judge(got, spec=[0, 1, 0, 1, 0])


@chapter.case(29, spec="a void field asks for presence")
def headers_without_a_value(ground: Ground) -> Seen:
    """A field without a value in a headers binding asks for the header, whatever its value."""
    got = route_headers(ground, [{"kind": None}, {"age": None}], {"kind": "hare"})
    return judge(got, spec=[1, 0])


@chapter.case(29, spec="fields that begin with x- do not count")
def headers_that_begin_with_x(ground: Ground) -> Seen:
    """Fields of a headers binding that begin with x- are not compared."""
    got = route_headers(ground, [{"x-color": "red", "kind": "hare"}], {"kind": "hare"})
    return judge(got, spec=[1])


@chapter.case(29, spec="all of no headers is true, any is not")
def headers_binding_without_headers(ground: Ground) -> Seen:
    """A headers binding without headers matches everything, or with any, nothing."""
    got = route_headers(ground, [{}, {"x-match": "all"}, {"x-match": "any"}], {"kind": "hare"})
    return judge(got, spec=[1, 1, 0])


@chapter.case(30, spec="they exist")
def predeclared_exchanges(ground: Ground) -> None:
    """There is a durable exchange amq.* of each standard type."""
    wire = ground.wire(1)
    for name, kind in PREDECLARED.items():
        wire.call(1, Declare(exchange=name, passive=True), commands.Exchange.DeclareOk)
        declare = Declare(exchange=name, exchange_type=kind, durable=True)
        wire.call(1, declare, commands.Exchange.DeclareOk)


@chapter.case(30, spec="they exist", needs=frozenset([Need.MANAGEMENT]))
def predeclared_exchanges_of_a_new_vhost(ground: Ground) -> None:
    """A new vhost has an exchange amq.* of each standard type."""
    vhost, user = ground.queue_name(), ground.facilities.address.user
    ground.manage("PUT", "vhosts", vhost)
    remove(ground, "vhosts", vhost)
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    ground.manage("PUT", "permissions", vhost, user, body=everything)
    wire = ground.wire(1, vhost=vhost)
    for name in PREDECLARED:
        wire.call(1, Declare(exchange=name, passive=True), commands.Exchange.DeclareOk)
    queue = ground.queue(wire)
    publish_all(wire, queue, b"1")
    judge(drain(wire, queue), spec=[b"1"])


@chapter.case(31, spec="to the queue of that name")
def the_default_exchange(ground: Ground) -> Seen:
    """A message published without an exchange goes to the queue that its key names."""
    wire = ground.wire(1)
    queues = [ground.queue(wire) for _ in range(2)]
    publish_all(wire, queues[0], b"1")
    return judge([drain(wire, queue) for queue in queues], spec=[[b"1"], []])


@chapter.case(31, spec="bound", rabbitmq=NOT_ON_DEFAULT)
def bind_to_the_default_exchange(ground: Ground) -> Seen:
    """A queue.bind without an exchange means the default exchange."""
    wire = ground.wire(1)
    bind_to_default = commands.Queue.Bind(queue=ground.queue(wire), exchange="", routing_key="k")
    return judge(reply(wire, bind_to_default), spec="Queue.BindOk", rabbitmq=DEFAULT_REFUSED)


@chapter.case(32, spec="403 access-refused")
def the_default_exchange_cannot_be_declared(ground: Ground) -> None:
    """Nobody declares, looks for or deletes the default exchange."""
    requests = Declare(exchange=""), Declare(exchange="", passive=True), Delete(exchange="")
    refused_each(ground.wire(), DEFAULT_REFUSED, requests)


@chapter.case(32, spec="404 not-found")
def the_default_exchange_has_no_other_name(ground: Ground) -> None:
    """The default exchange is not to be had by another name."""
    wire = ground.wire(1, 2)
    for channel, name in enumerate(("amq.default", "(AMQP default)"), start=1):
        wire.send(named(channel, Declare(exchange="NAME", passive=True), name))
        judge(wire.refusal(), spec=no_exchange(ground, name))


@chapter.case(33, spec="accepted, or refused as unknown")
def another_type(ground: Ground) -> Seen:
    """A type that begins with x- exists and routes, or is refused as unknown."""
    wire = ground.wire(1)
    name = ground.exchange_name()
    answer = reply(wire, Declare(exchange=name, exchange_type="x-consistent-hash"))
    if isinstance(answer, Refusal):
        if answer.code not in (406, 503):
            raise Unmet(f"expected 406 or 503; saw {answer}")
        return Seen(text=f"no x-consistent-hash: {answer}")
    queues = fan(ground, wire, name, "1", "1")
    publish_all(wire, "k", b"1", exchange=name)
    return judge(sorted(drain(wire, queue) for queue in queues), spec=[[], [b"1"]])


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
    """A new exchange cannot have a name that begins with amq."""
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


@chapter.case(45, spec="deleted")
def delete_an_unused_exchange(ground: Ground) -> Seen:
    """An exchange without bindings of its own is deleted if unused is asked for."""
    wire = ground.wire(1)
    source, name = ground.exchange(wire, "direct"), ground.exchange(wire, "direct")
    bind_exchange(wire, name, source)
    wire.call(1, Delete(exchange=name, if_unused=True), commands.Exchange.DeleteOk)
    refusal = wire.refused(1, Declare(exchange=name, passive=True))
    return judge(refusal, spec=no_exchange(ground, name))


# ---- bind and unbind


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
