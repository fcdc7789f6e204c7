"""Rules of the class basic: what is published and kept (94 to 101, 111 to 116)."""

from pamqp import commands
from pamqp.base import Frame as Method
from pamqp.common import FieldTable

from leveret.conformance.case import Chapter, Met, Need, Seen, Unmet, judge
from leveret.conformance.cases.steps import (
    await_confirms,
    bind,
    confirm,
    consume,
    counts,
    drain,
    enqueue,
    get,
    no_exchange,
    outcome,
    properties,
    publish_all,
    the_exchange,
)
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import PERSISTENT, Wire, channel_closed, describe, publish

chapter = Chapter("basic-publishing")


def deliveries(wire: Wire, count: int, channel: int = 1) -> list[bytes]:
    """The bodies of the next deliveries."""
    return [wire.expect_delivery(channel)[1] for _ in range(count)]


# ---- what is kept


@chapter.case(94, spec="they are there", needs=frozenset([Need.RESTART]), limit_s=90)
def persistent_messages_after_a_restart(ground: Ground) -> Seen:
    """Persistent messages that were confirmed outlive the broker, in their order."""
    wire = ground.wire(1)
    queue = ground.queue(wire, durable=True)
    bodies = [b"%d" % number for number in range(10)]
    enqueue(wire, queue, *bodies, delivery_mode=2)
    ground.restart()
    return judge(drain(ground.wire(1), queue), spec=bodies)


@chapter.case(94, spec="they are gone", needs=frozenset([Need.RESTART]), limit_s=90)
def transient_messages_after_a_restart(ground: Ground) -> Seen:
    """Transient messages in a durable queue do not outlive the broker."""
    wire = ground.wire(1)
    queue = ground.queue(wire, durable=True)
    enqueue(wire, queue, b"1", delivery_mode=1)
    enqueue(wire, queue, b"2", delivery_mode=2)
    enqueue(wire, queue, b"3")
    ground.restart()
    return judge(drain(ground.wire(1), queue), spec=[b"2"])


@chapter.case(95, spec="none is lost")
def many_persistent_messages(ground: Ground) -> Seen:
    """A queue without limits loses no persistent message."""
    wire = ground.wire(1)
    queue = ground.queue(wire, durable=True)
    bodies = [b"%d" % number + bytes(4000) for number in range(1000)]
    enqueue(wire, queue, *bodies, delivery_mode=2)
    judge(counts(wire, queue), spec=(1000, 0))
    consume(wire, queue, no_ack=True)
    return judge(deliveries(wire, 1000) == bodies, spec=True)


@chapter.case(95, spec="none is lost", rabbitmq="the oldest makes way")
def overflow_of_persistent_messages(ground: Ground) -> Seen:
    """Persistent messages are not dropped when a queue is full."""
    wire = ground.wire(1)
    queue = ground.queue(wire, durable=True, arguments={"x-max-length": 1})
    enqueue(wire, queue, b"1", b"2", delivery_mode=2)
    return judge(drain(wire, queue), spec=[b"1", b"2"], rabbitmq=[b"2"])


@chapter.case(95, spec="the publisher is told")
def overflow_that_is_refused(ground: Ground) -> Seen:
    """A full queue that refuses what comes keeps what it has and tells the publisher."""
    wire = ground.wire(1)
    arguments: FieldTable = {"x-max-length": 1, "x-overflow": "reject-publish"}
    queue = ground.queue(wire, durable=True, arguments=arguments)
    confirm(wire)
    publish_all(wire, queue, b"1", properties=PERSISTENT)
    judge(await_confirms(wire, 1), spec=[])
    wire.send(publish(1, queue, b"2", properties=PERSISTENT))
    judge(wire.expect(commands.Basic.Nack, 1).delivery_tag, spec=2)
    return judge(drain(wire, queue), spec=[b"1"])


# ---- priorities and order


def in_priority_order(ground: Ground, arguments: FieldTable, *priorities: int) -> list[int]:
    """The order in which messages published with these priorities are got."""
    wire = ground.wire(1)
    queue = ground.queue(wire, arguments=arguments)
    for priority in priorities:
        body = b"%d" % priority
        publish_all(wire, queue, body, properties=properties(priority=priority))
    return [int(body) for body in drain(wire, queue)]


@chapter.case(99, spec="9 before 0", rabbitmq="in the order of publishing")
def priorities_of_any_queue(ground: Ground) -> Seen:
    """A message of high priority overtakes those of low priority."""
    got = in_priority_order(ground, {}, 0, 0, 9)
    return judge(got, spec=[9, 0, 0], rabbitmq=[0, 0, 9])


@chapter.case(99, spec="9 before 0")
def priorities_of_a_priority_queue(ground: Ground) -> Seen:
    """In a queue with x-max-priority a message of high priority overtakes."""
    got = in_priority_order(ground, {"x-max-priority": 9}, 0, 4, 0, 9, 5)
    return judge(got, spec=[9, 5, 4, 0, 0])


@chapter.case(100, spec="ten levels")
def ten_priorities(ground: Ground) -> Seen:
    """There may be ten levels of priority."""
    got = in_priority_order(ground, {"x-max-priority": 9}, *range(10), *range(10))
    return judge(got, spec=sorted([*range(10), *range(10)], reverse=True))


@chapter.case(101, spec="in the order of publishing")
def order_of_persistent_and_transient_messages(ground: Ground) -> Seen:
    """Messages of one priority stay in order, persistent or not."""
    wire = ground.wire(1)
    queue = ground.queue(wire, durable=True)
    bodies = [b"%d" % number for number in range(20)]
    for number, body in enumerate(bodies):
        mode = 1 if number % 3 else 2
        publish_all(wire, queue, body, properties=properties(delivery_mode=mode))
    return judge(drain(wire, queue), spec=bodies)


@chapter.case(101, spec="in the order of publishing")
def order_within_a_priority(ground: Ground) -> Seen:
    """Messages of one priority stay in order in a queue of several, persistent or not."""
    wire = ground.wire(1)
    queue = ground.queue(wire, durable=True, arguments={"x-max-priority": 5})
    for number in range(12):
        fields = properties(priority=number % 2, delivery_mode=1 + number % 3 // 2)
        publish_all(wire, queue, b"%d" % number, properties=fields)
    got = [int(body) for body in drain(wire, queue)]
    return judge(got, spec=[*range(1, 12, 2), *range(0, 12, 2)])


# ---- publishing


@chapter.case(111, spec="404 not-found")
def publish_to_a_missing_exchange(ground: Ground) -> Seen:
    """What is published to an exchange that does not exist is refused."""
    wire = ground.wire(1)
    name = ground.exchange_name()
    wire.send(publish(1, "k", b"1", exchange=name))
    return judge(outcome(wire), spec=no_exchange(ground, name)._replace(ids=(60, 40)))


@chapter.case(112, spec="accepted")
def publish_to_the_default_exchange(ground: Ground) -> None:
    """A publish without an exchange is one to the default exchange, even if no queue is there."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    publish_all(wire, ground.queue_name(), b"1")
    publish_all(wire, queue, b"2")
    got = get(wire, queue)
    judge(got and (got[0].exchange, got[0].routing_key, got[1]), spec=("", queue, b"2"))


@chapter.case(113, spec="403 access-refused")
def publish_to_an_internal_exchange(ground: Ground) -> Seen:
    """Nobody publishes to an internal exchange."""
    wire = ground.wire(1, 2)
    name = ground.exchange(wire, "fanout", internal=True)
    queue = ground.queue(wire)
    bind(wire, queue, name)
    wire.send(publish(2, "k", b"1", exchange=name))
    text = f"ACCESS_REFUSED - cannot publish to internal {the_exchange(ground, name)}"
    seen = judge(outcome(wire, 2), spec=channel_closed(403, text))
    judge(drain(wire, queue), spec=[])
    return seen


@chapter.case(113, spec="routed")
def route_through_an_internal_exchange(ground: Ground) -> Seen:
    """An internal exchange routes what other exchanges bring it."""
    wire = ground.wire(1)
    name = ground.exchange(wire, "fanout", internal=True)
    source, queue = ground.exchange(wire, "fanout"), ground.queue(wire)
    bind(wire, queue, name)
    wire.call(1, commands.Exchange.Bind(0, name, source), commands.Exchange.BindOk)
    publish_all(wire, "k", b"1", exchange=source)
    return judge(drain(wire, queue), spec=[b"1"])


@chapter.case(115, spec="returned: 312 no-route")
def a_mandatory_message_without_a_route(ground: Ground) -> Seen:
    """A mandatory message that no queue gets is returned, with all that belongs to it."""
    wire = ground.wire(1)
    exchange = ground.exchange(wire, "direct")
    fields = properties(content_type="text/plain", headers={"n": 1})
    wire.send(publish(1, "k", b"1", exchange=exchange, mandatory=True, properties=fields))
    returned = wire.expect(commands.Basic.Return, 1)
    saw = returned.reply_code, returned.reply_text, returned.exchange, returned.routing_key
    judge(saw, spec=(312, "NO_ROUTE", exchange, "k"))
    return judge(wire.expect_content(), spec=(fields, b"1"))


@chapter.case(115, spec="each returned, in order")
def mandatory_messages_to_a_missing_queue(ground: Ground) -> Seen:
    """Mandatory messages to the default exchange are returned if there is no such queue."""
    wire = ground.wire(1)
    name = ground.queue_name()
    bodies = [b"", b"2", bytes(300_000)]
    wire.send(*(publish(1, name, body, mandatory=True) for body in bodies))
    returned: list[bytes] = []
    for _ in bodies:
        judge(wire.expect(commands.Basic.Return, 1).routing_key, spec=name)
        returned.append(wire.expect_body())
    return judge(returned == bodies, spec=True)


@chapter.case(115, spec="no return")
def a_mandatory_message_with_a_route(ground: Ground) -> Seen:
    """A mandatory message that a queue gets is not returned, nor one that is not mandatory."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    wire.send(publish(1, queue, b"1", mandatory=True))
    wire.send(publish(1, ground.queue_name(), b"2"))
    judge(outcome(wire), spec="ok")
    return judge(drain(wire, queue), spec=[b"1"])


def not_immediate(answer: Method) -> Seen:
    """Check that *answer* is the refusal of the immediate bit."""
    if not isinstance(answer, commands.Connection.Close):
        raise Unmet(f"expected connection.close, saw {describe(answer)}")
    judge((answer.reply_code, answer.reply_text), spec=(540, "NOT_IMPLEMENTED - immediate=true"))
    return Seen(Met.RABBITMQ, "refused")


@chapter.case(116, spec="returned: 313 no-consumers", rabbitmq="540 not-implemented")
def an_immediate_message_without_a_consumer(ground: Ground) -> Seen:
    """An immediate message that no consumer gets at once is returned."""
    wire = ground.wire(1)
    wire.send(publish(1, ground.queue(wire), b"1", immediate=True))
    answer = wire.receive().method
    if isinstance(answer, commands.Basic.Return):
        judge((answer.reply_code, wire.expect_body()), spec=(313, b"1"))
        return Seen(Met.SPEC, "returned")
    return not_immediate(answer)


@chapter.case(116, spec="delivered", rabbitmq="540 not-implemented")
def an_immediate_message_with_a_consumer(ground: Ground) -> Seen:
    """An immediate message goes to a consumer that waits for it."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    consume(wire, queue, no_ack=True)
    wire.send(publish(1, queue, b"1", immediate=True))
    answer = wire.receive().method
    if isinstance(answer, commands.Basic.Deliver):
        judge(wire.expect_body(), spec=b"1")
        return Seen(Met.SPEC, "delivered")
    return not_immediate(answer)
