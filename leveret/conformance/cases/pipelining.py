"""Pipelining (section 2.3): a client need not wait for answers, and bytes arrive in any pieces."""

from collections.abc import Iterator

from pamqp import commands
from pamqp.base import Frame as Method

from leveret.conformance.case import Chapter, Seen, judge
from leveret.conformance.cases.steps import drain, open_channel, publish_all
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import PERSISTENT, channel_closed, method, publish

chapter = Chapter("pipelining")
Basic = commands.Basic
Exchange = commands.Exchange
Queue = commands.Queue
IN_ORDER = "answers in the order of the methods"


def _session(queue: str, exchange: str) -> Iterator[Method]:
    """Methods that build on each other."""
    yield Exchange.Declare(exchange=exchange, exchange_type="fanout", durable=True)
    yield Queue.Declare(queue=queue, durable=True)
    yield Queue.Bind(queue=queue, exchange=exchange, routing_key="k")
    yield Queue.Purge(queue=queue)
    yield commands.Confirm.Select()
    yield Basic.Qos(prefetch_count=5)
    yield Queue.Unbind(queue=queue, exchange=exchange, routing_key="k")
    yield Queue.Delete(queue=queue)
    yield Exchange.Delete(exchange=exchange)


@chapter.case("2.3-pipelining", spec=IN_ORDER)
def session_in_one_write(ground: Ground) -> None:
    """A whole session may come in one write; each method is answered, in order."""
    wire = ground.wire(1)
    requests = list(_session(ground.queue_name(), ground.exchange_name()))
    wire.send(*(method(1, request) for request in requests))
    for request in requests:
        judge(wire.receive().method.name, spec=f"{request.name}Ok")


@chapter.case("2.3-pipelining", spec=IN_ORDER)
def session_byte_by_byte(ground: Ground) -> None:
    """It may as well come byte by byte."""
    wire = ground.wire(1)
    requests = list(_session(ground.queue_name(), ground.exchange_name()))
    data = b"".join(method(1, request) for request in requests)
    for at in range(len(data)):
        wire.send(data[at : at + 1])
    for request in requests:
        judge(wire.receive().method.name, spec=f"{request.name}Ok")


@chapter.case("2.3-pipelining", spec="no answers, and all of it is done")
def session_without_answers(ground: Ground) -> Seen:
    """With nowait nothing is answered, and what comes behind finds it done."""
    wire = ground.wire(1)
    queue, gone, exchange = ground.queue_name(), ground.queue_name(), ground.exchange_name()
    wire.send(
        method(1, Exchange.Declare(exchange=exchange, durable=True, nowait=True)),
        method(1, Queue.Declare(queue=queue, durable=True, nowait=True)),
        method(1, Queue.Bind(queue=queue, exchange=exchange, routing_key="k", nowait=True)),
        method(1, Queue.Declare(queue=gone, durable=True, nowait=True)),
        method(1, Queue.Delete(queue=gone, nowait=True)),
        publish(1, "k", b"1", exchange=exchange),
        method(1, Queue.Purge(queue=queue, nowait=True)),
        publish(1, "k", b"2", exchange=exchange),
    )
    judge(drain(wire, queue), spec=[b"2"])
    passive = Queue.Declare(queue=gone, passive=True)
    return judge(wire.refused(1, passive), spec=channel_closed(404))


@chapter.case("2.3-pipelining", spec="the order of the publishes")
def publishes_around_declarations(ground: Ground) -> Seen:
    """Messages keep their order, whatever methods are sent between them."""
    wire = ground.wire(1)
    queue, other = ground.queue(wire), ground.queue_name()
    bodies = [b"%d" % number for number in range(50)]
    for number, body in enumerate(bodies):
        publish_all(wire, queue, body)
        if number % 10 == 0:
            wire.send(method(1, Queue.Declare(queue=other, durable=True)))
            wire.send(method(1, Queue.Delete(queue=other)))
    for _ in range(5):
        wire.expect(Queue.DeclareOk, 1)
        wire.expect(Queue.DeleteOk, 1)
    return judge(drain(wire, queue), spec=bodies)


@chapter.case("2.3-pipelining", spec="declare-ok, then close-ok")
def close_behind_a_declare(ground: Ground) -> None:
    """A close behind a method that takes time comes after its answer."""
    wire = ground.wire(1)
    declare = Queue.Declare(queue=ground.queue_name(), durable=True)
    close = commands.Connection.Close(200, "", 0, 0)
    wire.send(method(1, declare), method(0, close))
    wire.expect(Queue.DeclareOk, 1)
    wire.expect(commands.Connection.CloseOk, 0)


@chapter.case("2.3-errors-in-a-piece", spec="what comes before is done, what comes behind is not")
def publishes_around_an_error(ground: Ground) -> Seen:
    """Of messages in one piece those before a failing one are kept, and those behind it not."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    good = publish(1, queue, b"body", properties=PERSISTENT)
    seen = []
    for before in range(1, 5):
        wire.send(good * before, publish(1, "k", exchange="conformance-missing"), good)
        judge(wire.refusal(), spec=channel_closed(404))
        open_channel(wire, 1)
        seen.append(wire.call(1, Queue.Purge(queue=queue), Queue.PurgeOk).message_count)
    return judge(seen, spec=[1, 2, 3, 4])


@chapter.case("2.3-errors-in-a-piece", spec="what comes before is done, what comes behind is not")
def acknowledgements_around_an_error(ground: Ground) -> Seen:
    """Of acknowledgements in one piece those before a failing one are kept."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    publish_all(wire, queue, b"1", b"2", b"3", b"4")
    for _ in range(4):
        wire.call(1, Basic.Get(queue=queue), Basic.GetOk)
        wire.expect_body()
    wire.send(*(method(1, Basic.Ack(tag)) for tag in (1, 2, 9, 3)))
    judge(wire.refusal(), spec=channel_closed(406))
    open_channel(wire, 1)
    return judge(drain(wire, queue), spec=[b"3", b"4"])


@chapter.case("2.3-truncated", spec="others are served")
def truncated_streams(ground: Ground) -> None:
    """A client may leave in the middle of anything."""
    other = ground.wire(1)
    queue = ground.queue(other)
    data = method(1, Basic.Publish(routing_key=queue)) + publish(1, queue, b"body")
    for stop in range(1, len(data), 7):
        wire = ground.wire(1)
        wire.send(data[:stop])
        wire.abort()
    other.check()
