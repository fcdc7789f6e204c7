"""Rules of the class exchange: types, and exchanges that are always there (28 to 33)."""

from pamqp import commands
from pamqp.common import FieldTable

from leveret.conformance.case import Chapter, Met, Need, Seen, Unmet, judge
from leveret.conformance.cases.steps import (
    DEFAULT_REFUSED,
    NOT_ON_DEFAULT,
    bind,
    drain,
    fan,
    named,
    no_exchange,
    properties,
    publish_all,
    refused_each,
    remove,
    reply,
)
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Refusal

chapter = Chapter("exchange-types")

Declare = commands.Exchange.Declare
Delete = commands.Exchange.Delete
PREDECLARED = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
}


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


@chapter.case(30, spec="they route as their types do")
def predeclared_exchanges_route(ground: Ground) -> None:
    """The exchanges amq.* route by key, to all, by pattern and by headers."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    headers: FieldTable = {"for": queue}
    for name, kind in PREDECLARED.items():
        key = f"{queue}.#" if kind == "topic" else queue
        bind(wire, queue, name, key, headers if kind == "headers" else None)
        body = f"{queue} {name}".encode()
        publish_all(wire, queue, body, exchange=name, properties=properties(headers=headers))
        judge(body in drain(wire, queue), spec=True)


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
