"""Field tables and properties (section 2.4): what is published comes back octet by octet."""

import struct
from collections.abc import Callable

from pamqp import commands

from leveret.conformance.case import Chapter, Met, Need, Seen, judge
from leveret.conformance.cases.connection import close_or_end
from leveret.conformance.cases.steps import bind, consume, named, publish_all
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import (
    frame,
    method,
    publish,
)

chapter = Chapter("tables")
Basic = commands.Basic
DECLARE = commands.Queue.Declare(queue="NAME", exclusive=True)
HEADERS = b"\x20\x00"
"""The flags of properties of which there are only headers."""


def table(*entries: tuple[bytes, bytes]) -> bytes:
    """A field table of names and values, these with their types."""
    data = b"".join(b"%c%b%b" % (len(name), name, value) for name, value in entries)
    return len(data).to_bytes(4, "big") + data


def text(value: bytes) -> bytes:
    """A short string."""
    return b"%c%b" % (len(value), value)


def come_back(ground: Ground, *sent: bytes) -> Seen:
    """Publish with each of these properties: they are delivered with the same octets."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    for properties in sent:
        publish_all(wire, queue, b"body", properties=properties)
    consume(wire, queue, no_ack=True)
    for properties in sent:
        wire.expect(Basic.Deliver, 1)
        received, _ = wire.expect_content()
        judge(received.hex(" "), spec=properties.hex(" "))
    return Seen(text="the same octets")


# ---- types of fields

TYPES = {
    "S_long_string": [b"S\0\0\0\0", b"S\0\0\0\x05hello", b"S\0\0\0\x04\xff\x00\xfe\x80"],
    "I_32_bits": [b"I\0\0\0\0", b"I\xff\xff\xff\xff", b"I\x7f\xff\xff\xff"],
    "i_unsigned_32_bits": [b"i\0\0\0\x01", b"i\xff\xff\xff\xff"],
    # To the specification it is a short string: these octets are one, too.
    "s_16_bits": [b"s\x01A", b"s\x01\x7f"],
    "u_unsigned_16_bits": [b"u\0\x01", b"u\xff\xff"],
    "b_8_bits": [b"b\x01", b"b\x80"],
    "B_unsigned_8_bits": [b"B\x01", b"B\xff"],
    "l_64_bits": [b"l" + bytes(8), b"l\x7f" + b"\xff" * 7],
    "d_double": [b"d" + struct.pack(">d", value) for value in (0.0, -1.5, 1e300)],
    "f_float": [b"f" + struct.pack(">f", value) for value in (0.0, -1.5, 2.0**100)],
    "t_boolean": [b"t\x00", b"t\x01"],
    "D_decimal": [b"D\x02\0\0\x01\x3a", b"D\x00\0\0\0\0"],
    "T_timestamp": [b"T" + bytes(8), b"T\0\0\0\0\x65\0\0\0"],
    "F_table": [b"F\0\0\0\0", b"F" + table((b"a", b"I\0\0\0\x01"), (b"b", b"V"))],
    "A_array": [b"A\0\0\0\0", b"A\0\0\0\x0bI\0\0\0\x01S\0\0\0\x01x"],
    "x_octets": [b"x\0\0\0\0", b"x\0\0\0\x03\xff\x00\x01"],
    "V_void": [b"V"],
}


def _type_comes_back(name: str, values: list[bytes]) -> Callable[[Ground], Seen]:
    """The case for one type."""

    def run(ground: Ground) -> Seen:
        return come_back(ground, *(HEADERS + table((b"field", value)) for value in values))

    run.__name__ = f"type_{name}"
    run.__doc__ = f"Headers of type {name.replace('_', ' ')} are delivered as they are."
    return run


for _name, _values in TYPES.items():
    chapter.case("2.4-field-types", spec="the same octets")(_type_comes_back(_name, _values))


@chapter.case("2.4-field-types", spec="the same octets", rabbitmq="the same, or as type l")
def type_of_large_numbers(ground: Ground) -> Seen:
    """Headers of type L, 64 bits as l, are delivered with the same value."""
    value = b"\0\0\0\0\0\0\0\x05"
    wire = ground.wire(1)
    queue = ground.queue(wire)
    publish_all(wire, queue, b"body", properties=HEADERS + table((b"field", b"L" + value)))
    wire.call(1, Basic.Get(queue=queue, no_ack=True), Basic.GetOk)
    received, _ = wire.expect_content()
    if received == HEADERS + table((b"field", b"l" + value)):
        return Seen(Met.RABBITMQ, "as type l")
    return judge(received, spec=HEADERS + table((b"field", b"L" + value)))


@chapter.case("2.4-field-tables", spec="the same octets")
def tables_in_tables(ground: Ground) -> Seen:
    """Tables and arrays may be nested, at least a hundred deep."""
    nested_table, nested_array = b"I\0\0\0\x01", b"I\0\0\0\x01"
    for _ in range(100):
        nested_table = b"F" + table((b"deeper", nested_table))
        nested_array = b"A" + len(nested_array).to_bytes(4, "big") + nested_array
    sent = (HEADERS + table((b"field", value)) for value in (nested_table, nested_array))
    return come_back(ground, *sent)


@chapter.case("2.4-field-tables", spec="the same octets")
def many_headers_in_their_order(ground: Ground) -> Seen:
    """Headers are delivered in the order of the publish, however many there are."""
    entries = [(b"header-%d" % (number * 7919 % 1000), b"I\0\0\0\x01") for number in range(1000)]
    return come_back(ground, HEADERS + table(*entries))


@chapter.case("2.4-header-names", spec="the same octets")
def names_of_headers(ground: Ground) -> Seen:
    """The name of a header is any short string: of 255 octets, with spaces, in any script."""
    names = (b"n" * 255, b"with space", "größe".encode(), "名前".encode(), b"x-mine", b"a.b#*")
    return come_back(ground, *(HEADERS + table((name, b"t\x01")) for name in names))


@chapter.case("2.4-unknown-type", spec="the connection ends")
def unknown_type_of_field(ground: Ground) -> Seen:
    """An argument or a header of a type that does not exist ends the connection."""
    unknown = table((b"a", b"?"))
    declare = b"\x00\x32\x00\x0a\x00\x00\x04name\x08" + unknown
    for data in (frame(1, 1, declare), publish(1, "q", b"x", properties=HEADERS + unknown)):
        wire = ground.wire(1)
        wire.send(data)
        end = close_or_end(wire)
        if not isinstance(end, str):
            judge(end.scope, spec="connection")
    return Seen(text=str(end))


@chapter.case("2.4-arguments", spec="declare-ok")
def arguments_of_any_type(ground: Ground) -> None:
    """An argument that means nothing to the broker may be of any type."""
    wire = ground.wire(1)
    for values in TYPES.values():
        name = ground.queue_name()
        arguments = table(*((b"x-any-%d" % number, value) for number, value in enumerate(values)))
        declare = method(1, commands.Queue.Declare(queue=name, exclusive=True))
        # The frame without its end, the empty table in it, and the seven octets before it.
        wire.send(frame(1, 1, declare[7:-5] + arguments))
        wire.expect(commands.Queue.DeclareOk, 1)


# ---- properties


def _each_property(user: str) -> dict[str, bytes]:
    """Every property by itself, with its flag."""
    return {
        "content-type": b"\x80\x00" + text(b"text/plain"),
        "content-encoding": b"\x40\x00" + text(b"gzip"),
        "headers": b"\x20\x00" + table((b"a", b"S\0\0\0\x01b")),
        "delivery-mode": b"\x10\x00\x02",
        "priority": b"\x08\x00\xff",
        "correlation-id": b"\x04\x00" + text("größe".encode()),
        "reply-to": b"\x02\x00" + text(b"somewhere"),
        "expiration": b"\x01\x00" + text(b"600000"),
        "message-id": b"\x00\x80" + text(b"m" * 255),
        "timestamp": b"\x00\x40" + b"\x00\x00\x00\x00\xff\xff\xff\xff",
        "type": b"\x00\x20" + text(b"kind"),
        "user-id": b"\x00\x10" + text(user.encode()),
        "app-id": b"\x00\x08" + text(b""),
        "cluster-id": b"\x00\x04" + text(b"reserved"),
    }


def _all_properties(user: str) -> bytes:
    """All properties together."""
    return b"\xff\xfc" + b"".join(one[2:] for one in _each_property(user).values())


@chapter.case("2.4-properties", spec="the same octets")
def each_property(ground: Ground) -> Seen:
    """Every property is delivered as it was published, be it alone or with all others."""
    user = ground.facilities.address.user
    return come_back(ground, b"\0\0", *_each_property(user).values(), _all_properties(user))


@chapter.case("2.4-properties", spec="the same octets")
def properties_of_get_and_return(ground: Ground) -> Seen:
    """Messages that are got or come back have the properties of the publish."""
    properties = _all_properties(ground.facilities.address.user)
    wire = ground.wire(1)
    queue = ground.queue(wire, durable=True)
    wire.send(publish(1, ground.queue_name(), b"x", mandatory=True, properties=properties))
    wire.expect(Basic.Return, 1)
    returned = wire.expect_content()
    publish_all(wire, queue, b"x", properties=properties)
    wire.call(1, Basic.Get(queue=queue, no_ack=True), Basic.GetOk)
    return judge((returned, wire.expect_content()), spec=((properties, b"x"),) * 2)


@chapter.case("2.4-properties", spec="the same octets", needs=frozenset([Need.RESTART]), limit_s=90)
def properties_after_a_restart(ground: Ground) -> Seen:
    """A persistent message has its properties after a restart, of whatever types they are."""
    wire = ground.wire(1)
    queue = ground.queue(wire, durable=True)
    headers = table(*((b"f%d" % at, values[-1]) for at, values in enumerate(TYPES.values())))
    sent = _all_properties(ground.facilities.address.user), b"\x30\x00" + headers + b"\x02"
    wire.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    for number, properties in enumerate(sent, start=1):
        publish_all(wire, queue, b"x", properties=properties)
        while wire.expect(Basic.Ack, 1).delivery_tag != number:
            pass
    ground.restart()
    wire = ground.wire(1)
    for properties in sent:
        wire.call(1, Basic.Get(queue=queue, no_ack=True), Basic.GetOk)
        seen = judge(wire.expect_content()[0].hex(" "), spec=properties.hex(" "))
    return seen


# ---- names


@chapter.case("2.4-names", spec="each is declared and found")
def names_of_queues(ground: Ground) -> None:
    """The name of a queue may have 255 octets, spaces, and letters of any script."""
    wire = ground.wire(1)
    begin = ground.queue_name()
    for name in (begin.ljust(255, "n"), f"{begin} with space", f"{begin}-名前", f"{begin}/#*%"):
        wire.send(named(1, DECLARE, name))
        judge(wire.expect(commands.Queue.DeclareOk, 1).queue, spec=name)


@chapter.case("2.4-line-ends", rabbitmq="they are dropped")
def line_ends_in_names(ground: Ground) -> Seen:
    """Line feeds and carriage returns in the names of queues and exchanges are dropped."""
    wire = ground.wire(1)
    queue, exchange = ground.queue_name(), ground.exchange_name()
    cut = len(queue) - 2
    wire.send(named(1, DECLARE, f"{queue[:cut]}\r\n{queue[cut:]}"))
    declared = wire.expect(commands.Queue.DeclareOk, 1).queue
    wire.send(named(1, commands.Exchange.Declare(exchange="NAME"), f"{exchange}\n"))
    wire.expect(commands.Exchange.DeclareOk, 1)
    bind(wire, queue, exchange, "k")
    publish_all(wire, "k", b"body", exchange=exchange)
    wire.call(1, Basic.Get(queue=queue, no_ack=True), Basic.GetOk)
    return judge((declared, wire.expect_body()), rabbitmq=(queue, b"body"))
