"""What clients rely on in the life of queues: names, counts, and when they go."""

import re
import select
import time
from collections.abc import Callable

from pamqp import commands
from pamqp.common import FieldTable

from leveret.conformance.case import Chapter, Seen, Unmet, judge
from leveret.conformance.cases.steps import (
    OK,
    bind,
    cancel,
    close_channel,
    confirm,
    consume,
    counts,
    drain,
    enqueue,
    get,
    no_exchange,
    no_queue,
    open_channel,
    outcome,
    publish_all,
    reply,
)
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import PERSISTENT, Wire, channel_closed, method, publish

chapter = Chapter("life-cycle")

Ack = commands.Basic.Ack
Declare = commands.Queue.Declare
DeclareOk = commands.Queue.DeclareOk
Delete = commands.Queue.Delete
DeleteOk = commands.Queue.DeleteOk
EXPIRES_MS = 700
IN_USE_S = 1.2
"""Longer than a queue that expires after EXPIRES_MS would last unused."""
PAUSE_S = 0.05


def check_gone(ground: Ground, queue: str) -> Seen:
    """Check that there is no such queue any more."""
    refusal = ground.wire(1).refused(1, Declare(queue=queue, passive=True))
    return judge(refusal, spec=no_queue(ground, queue))


def await_gone(ground: Ground, queue: str) -> Seen:
    """Wait until there is no such queue any more."""
    wire = ground.wire(1)
    while (answer := reply(wire, Declare(queue=queue, passive=True))) == "Queue.DeclareOk":
        pass
    return judge(answer, spec=no_queue(ground, queue))


# ---- names


@chapter.case("2.5-generated-tags", rabbitmq="amq.ctag- and 22 characters")
def form_of_generated_tags(ground: Ground) -> Seen:
    """A generated consumer tag begins with amq.ctag- and goes on with what nobody can guess."""
    wire = ground.wire(1)
    tag = consume(wire, ground.queue(wire))
    if not re.fullmatch(r"amq\.ctag-[\w-]{22}", tag):
        raise Unmet(f"expected amq.ctag- and 22 characters; saw {tag}")
    return Seen(text=tag)


@chapter.case("2.5-generated-names", spec="the queue is there")
def a_name_that_nobody_was_told(ground: Ground) -> Seen:
    """A queue declared without a name and without an answer is the one declared last."""
    wire = ground.wire(1)
    wire.send(method(1, Declare(exclusive=True, nowait=True)))
    exchange = ground.exchange(wire, "fanout")
    bind(wire, "", exchange)
    publish_all(wire, "", b"1", exchange=exchange)
    return judge(drain(wire, ""), spec=[b"1"])


@chapter.case("2.5-last-declared", spec="the queue declared last")
def every_method_without_a_name(ground: Ground) -> None:
    """All methods without a queue's name are about the queue declared last on the channel."""
    wire = ground.wire(1)
    other, queue = ground.queue(wire), ground.queue(wire)
    enqueue(wire, other, b"1")
    enqueue(wire, queue, b"2", b"3")
    got = get(wire, "")
    judge(got and got[1], spec=b"2")
    tag = consume(wire, "", no_ack=True)
    judge(wire.expect_delivery(1)[1], spec=b"3")
    cancel(wire, tag)
    judge(wire.call(1, commands.Queue.Purge(), commands.Queue.PurgeOk).message_count, spec=0)
    wire.call(1, Delete(), DeleteOk)
    judge(counts(wire, other), spec=(1, 0))


@chapter.case("2.5-last-declared", rabbitmq="a passive declare counts")
def a_passive_declare_of_the_queue(ground: Ground) -> Seen:
    """The queue declared last may have been declared passively."""
    wire = ground.wire(1)
    queues = [ground.queue(wire) for _ in range(2)]
    wire.call(1, Declare(queue=queues[0], passive=True), DeclareOk)
    publish_all(wire, queues[0], b"1")
    return judge(drain(wire, ""), spec=[b"1"])


@chapter.case("2.5-last-declared", rabbitmq="a declare with no-wait counts")
def a_declare_without_an_answer(ground: Ground) -> Seen:
    """The queue declared last may have been declared without an answer."""
    wire = ground.wire(1)
    ground.queue(wire)
    name = ground.queue_name()
    wire.send(method(1, Declare(queue=name, exclusive=True, nowait=True)))
    publish_all(wire, name, b"1")
    return judge(drain(wire, ""), spec=[b"1"])


@chapter.case("2.5-last-declared", rabbitmq="404: no such queue")
def the_queue_declared_last_is_gone(ground: Ground) -> Seen:
    """The queue declared last keeps that place when it is deleted."""
    wire = ground.wire(1)
    ground.queue(wire)
    queue = ground.queue(wire)
    wire.call(1, Delete(queue=queue), DeleteOk)
    return judge(wire.refused(1, commands.Basic.Get()), spec=no_queue(ground, queue))


@chapter.case("2.5-no-wait", spec="done without a reply")
def methods_without_an_answer(ground: Ground) -> None:
    """What is asked with no-wait is done, and has no reply."""
    wire = ground.wire(1, 2)
    source, exchange, queue = ground.exchange_name(), ground.exchange_name(), ground.queue_name()
    fanout = commands.Exchange.Declare
    wire.send(
        method(1, fanout(exchange=source, exchange_type="fanout", nowait=True)),
        method(1, fanout(exchange=exchange, exchange_type="fanout", nowait=True)),
        method(1, Declare(queue=queue, exclusive=True, nowait=True)),
        method(1, commands.Queue.Bind(0, queue, exchange, "k", nowait=True)),
        method(1, commands.Exchange.Bind(0, exchange, source, "k", nowait=True)),
        publish(1, "", b"1", exchange=source),
    )
    judge(drain(wire, queue), spec=[b"1"])
    wire.send(method(1, commands.Exchange.Unbind(0, exchange, source, "k", nowait=True)))
    publish_all(wire, "", b"2", exchange=source)
    publish_all(wire, "", b"3", exchange=exchange)
    judge(drain(wire, queue), spec=[b"3"])
    wire.send(method(1, commands.Exchange.Delete(exchange=source, nowait=True)))
    enqueue(wire, queue, b"4")
    wire.send(method(1, commands.Queue.Purge(queue=queue, nowait=True)))
    judge(counts(wire, queue), spec=(0, 0))
    wire.send(method(1, Delete(queue=queue, nowait=True)))
    judge(wire.refused(1, Declare(queue=queue, passive=True)), spec=no_queue(ground, queue))
    passive = fanout(exchange=source, passive=True)
    judge(wire.refused(2, passive), spec=no_exchange(ground, source))


@chapter.case("2.5-no-wait", spec="the channel is closed")
def refusals_without_an_answer(ground: Ground) -> Seen:
    """What is refused is refused with no-wait, too."""
    wire = ground.wire(1)
    name = ground.queue_name()
    bind_missing = commands.Queue.Bind(0, name, "amq.direct", "k", nowait=True)
    return judge(wire.refused(1, bind_missing), spec=no_queue(ground, name))


# ---- counts


@chapter.case("2.5-counts", rabbitmq="messages that are ready, and consumers")
def counts_of_a_declare(ground: Ground) -> None:
    """A declare-ok counts the messages that are ready, not those unacknowledged, and consumers."""
    wire = ground.wire(1, 2)
    queue = ground.queue(wire)
    enqueue(wire, queue, b"1", b"2", b"3")
    get(wire, queue, no_ack=False)
    judge(counts(wire, queue), spec=(2, 0))
    wire.call(2, commands.Basic.Qos(prefetch_count=1), commands.Basic.QosOk)
    consume(wire, queue, 2)
    wire.expect_delivery(2)
    answer = wire.call(1, Declare(queue=queue, exclusive=True), DeclareOk)
    judge((answer.message_count, answer.consumer_count), spec=(1, 1))
    close_channel(wire, 2)
    wire.send(method(1, commands.Basic.Nack(0, multiple=True)))
    judge(drain(wire, queue), spec=[b"1", b"2", b"3"])


@chapter.case("2.5-counts", rabbitmq="messages that were ready")
def counts_of_purge_and_delete(ground: Ground) -> None:
    """Purge-ok and delete-ok count the messages that were ready."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    enqueue(wire, queue, b"1", b"2", b"3")
    get(wire, queue, no_ack=False)
    purge = commands.Queue.Purge(queue=queue)
    judge(wire.call(1, purge, commands.Queue.PurgeOk).message_count, spec=2)
    judge(wire.call(1, purge, commands.Queue.PurgeOk).message_count, spec=0)
    enqueue(wire, queue, b"4", b"5")
    get(wire, queue, no_ack=False)
    judge(wire.call(1, Delete(queue=queue), DeleteOk).message_count, spec=1)


@chapter.case("2.5-queue-type", rabbitmq="no type is the type classic")
def a_queue_type_left_out(ground: Ground) -> None:
    """A queue declared without a type is one of type classic, and the other way round."""
    wire = ground.wire(1)
    classic: FieldTable = {"x-queue-type": "classic"}
    kinds: list[FieldTable] = [{}, classic]
    for first, second in zip(kinds, reversed(kinds), strict=True):
        name = ground.queue(wire, arguments=first)
        wire.call(1, Declare(queue=name, exclusive=True, arguments=second), DeclareOk)


# ---- auto-delete


@chapter.case("2.5-auto-delete", spec="gone with the last consumer")
def auto_delete_after_cancel(ground: Ground) -> Seen:
    """An auto-delete queue goes when its last consumer is cancelled."""
    wire = ground.wire(1)
    queue = ground.queue(wire, auto_delete=True)
    tags = [consume(wire, queue) for _ in range(2)]
    cancel(wire, tags[0])
    judge(counts(wire, queue), spec=(0, 1))
    cancel(wire, tags[1])
    refusal = wire.refused(1, Declare(queue=queue, passive=True))
    return judge(refusal, spec=no_queue(ground, queue))


@chapter.case("2.5-auto-delete", spec="gone with the last consumer")
def auto_delete_after_the_channel(ground: Ground) -> Seen:
    """An auto-delete queue goes when the channel of its last consumer is closed."""
    wire = ground.wire(1, 2)
    queue = ground.queue(wire, durable=True, auto_delete=True)
    consume(wire, queue, 2)
    close_channel(wire, 2)
    refusal = wire.refused(1, Declare(queue=queue, passive=True))
    return judge(refusal, spec=no_queue(ground, queue))


@chapter.case("2.5-auto-delete", spec="gone with the last consumer")
def auto_delete_after_the_connection(ground: Ground) -> Seen:
    """An auto-delete queue goes when the connection of its last consumer is closed."""
    wire = ground.wire(1)
    queue = ground.queue(wire, durable=True, auto_delete=True)
    consume(wire, queue)
    wire.call(0, commands.Connection.Close(200, "", 0, 0), commands.Connection.CloseOk)
    return await_gone(ground, queue)


@chapter.case("2.5-auto-delete", spec="it stays")
def auto_delete_without_a_consumer(ground: Ground) -> None:
    """An auto-delete queue that never had a consumer stays; basic.get does not count."""
    first = ground.wire(1)
    queue = ground.queue(first, durable=True, auto_delete=True)
    enqueue(first, queue, b"1")
    judge(drain(first, queue), spec=[b"1"])
    first.call(0, commands.Connection.Close(200, "", 0, 0), commands.Connection.CloseOk)
    judge(counts(ground.wire(1), queue), spec=(0, 0))


@chapter.case("2.5-auto-delete", rabbitmq="dropped, not dead-lettered")
def auto_delete_with_messages(ground: Ground) -> Seen:
    """An auto-delete queue goes with the messages that are in it."""
    wire = ground.wire(1, 2)
    dead = ground.queue(wire)
    arguments: FieldTable = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    queue = ground.queue(wire, auto_delete=True, arguments=arguments)
    enqueue(wire, queue, b"1", b"2")
    wire.call(1, commands.Basic.Qos(prefetch_count=1), commands.Basic.QosOk)
    tag = consume(wire, queue)
    wire.expect_delivery(1)
    cancel(wire, tag)
    refusal = wire.refused(2, Declare(queue=queue, passive=True))
    judge(refusal, spec=no_queue(ground, queue))
    return judge(drain(wire, dead), spec=[])


# ---- exclusive


@chapter.case("2.5-exclusive", spec="it stays")
def exclusive_after_its_channel(ground: Ground) -> None:
    """An exclusive queue outlives the channel that declared it."""
    wire = ground.wire(1, 2)
    queue = ground.queue(wire)
    enqueue(wire, queue, b"1")
    close_channel(wire, 1)
    judge(counts(wire, queue, 2), spec=(1, 0))


@chapter.case("2.5-exclusive", spec="gone with the connection")
def exclusive_after_its_connection(ground: Ground) -> Seen:
    """An exclusive queue goes with its connection, whether it is durable or not."""
    wire = ground.wire(1)
    queues = [ground.queue(wire), ground.queue(wire, durable=True, exclusive=True)]
    wire.call(0, commands.Connection.Close(200, "", 0, 0), commands.Connection.CloseOk)
    check_gone(ground, queues[0])
    return check_gone(ground, queues[1])


@chapter.case("2.5-exclusive", spec="it is free")
def the_name_of_an_exclusive_queue(ground: Ground) -> None:
    """The name of an exclusive queue is free when its connection is closed."""
    wire = ground.wire(1)
    declare = Declare(queue=ground.queue_name(), exclusive=True)
    wire.call(1, declare, DeclareOk)
    wire.call(0, commands.Connection.Close(200, "", 0, 0), commands.Connection.CloseOk)
    ground.wire(1).call(1, declare, DeclareOk)


# ---- delete


@chapter.case("2.5-delete", rabbitmq="basic.cancel to the consumers")
def delete_with_consumers(ground: Ground) -> None:
    """The consumers of a deleted queue are told."""
    wire, other = ground.wire(1, 2), ground.wire(1)
    queue = ground.queue(wire, durable=True)
    tags = {consume(other, queue), consume(other, queue)}
    wire.call(1, Delete(queue=queue), DeleteOk)
    cancels = [other.expect(commands.Basic.Cancel, 1) for _ in tags]
    judge({each.consumer_tag for each in cancels}, spec=tags)
    judge({each.nowait for each in cancels}, spec={True})


@chapter.case("2.5-delete", rabbitmq="accepted, and nothing happens")
def acknowledge_after_delete(ground: Ground) -> Seen:
    """What was delivered from a deleted queue may still be acknowledged, once."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    enqueue(wire, queue, b"1", b"2", b"3")
    for _ in range(3):
        get(wire, queue, no_ack=False)
    wire.call(1, Delete(queue=queue), DeleteOk)
    wire.send(method(1, Ack(1)), method(1, commands.Basic.Nack(2)))
    wire.send(method(1, commands.Basic.Reject(3, requeue=False)))
    judge(outcome(wire), spec=OK)
    wire.send(method(1, Ack(1)))
    text = "PRECONDITION_FAILED - unknown delivery tag 1"
    return judge(outcome(wire), spec=channel_closed(406, text))


@chapter.case("2.5-delete", rabbitmq="acked")
def confirms_of_a_deleted_queue(ground: Ground) -> None:
    """What was published to a queue is confirmed though it is deleted at once."""
    wire = ground.wire(1)
    queue = ground.queue(wire, durable=True)
    confirm(wire)
    wire.send(publish(1, queue, b"1", properties=PERSISTENT), method(1, Delete(queue=queue)))
    answers = [wire.receive().method for _ in range(2)]
    judge({answer.name for answer in answers}, spec={"Basic.Ack", "Queue.DeleteOk"})


@chapter.case("2.5-delete", spec="gone with the queue")
def the_bindings_of_a_deleted_queue(ground: Ground) -> Seen:
    """The bindings of a deleted queue do not come back with its name."""
    wire = ground.wire(1)
    exchange = ground.exchange(wire, "fanout")
    queue = ground.queue(wire)
    bind(wire, queue, exchange)
    wire.call(1, Delete(queue=queue), DeleteOk)
    wire.call(1, Declare(queue=queue, exclusive=True), DeclareOk)
    publish_all(wire, "", b"1", exchange=exchange)
    publish_all(wire, queue, b"2")
    return judge(drain(wire, queue), spec=[b"2"])


# ---- x-expires


def expiring(ground: Ground, wire: Wire) -> str:
    """A queue that goes when it is unused."""
    return ground.queue(wire, arguments={"x-expires": EXPIRES_MS})


def pause(wire: Wire) -> None:
    """Let a little time go by in which nothing is expected to come."""
    came, _, _ = select.select([wire.socket], [], [], PAUSE_S)
    if came:
        raise Unmet(f"expected nothing, saw {wire.receive()}")


def await_expiry(wire: Wire, queue: str) -> None:
    """Publish to a queue, which is no use of it, until it is not there any more."""
    while True:
        wire.send(publish(1, queue, mandatory=True))
        wire.send(method(1, commands.Exchange.Declare(exchange="amq.direct", passive=True)))
        answer = wire.receive().method
        if isinstance(answer, commands.Basic.Return):
            wire.expect_body()
            wire.expect(commands.Exchange.DeclareOk, 1)
            return
        judge(answer.name, spec="Exchange.DeclareOk")
        pause(wire)


def keep_using(wire: Wire, use: Callable[[], object]) -> None:
    """Do *use* again and again for longer than an unused queue lasts."""
    end = time.monotonic() + IN_USE_S
    while time.monotonic() < end:
        use()
        pause(wire)


@chapter.case("2.5-expires", rabbitmq="gone")
def an_unused_queue(ground: Ground) -> Seen:
    """A queue with x-expires goes when it is unused so long; publishing is no use."""
    wire = ground.wire(1)
    queue = expiring(ground, wire)
    await_expiry(wire, queue)
    refusal = wire.refused(1, Declare(queue=queue, passive=True))
    return judge(refusal, spec=no_queue(ground, queue))


@chapter.case("2.5-expires", rabbitmq="basic.get is a use")
def a_queue_that_is_got_from(ground: Ground) -> None:
    """A queue with x-expires stays while basic.get asks for its messages."""
    wire = ground.wire(1)
    queue = expiring(ground, wire)
    keep_using(wire, lambda: get(wire, queue))


@chapter.case("2.5-expires", rabbitmq="a declare is a use")
def a_queue_that_is_declared(ground: Ground) -> None:
    """A queue with x-expires stays while it is declared again and again."""
    wire = ground.wire(1)
    queue = expiring(ground, wire)
    enqueue(wire, queue, b"1")
    declare = Declare(queue=queue, exclusive=True, arguments={"x-expires": EXPIRES_MS})
    keep_using(wire, lambda: wire.call(1, declare, DeclareOk))
    judge(drain(wire, queue), spec=[b"1"])


@chapter.case("2.5-expires", rabbitmq="a passive declare is a use")
def a_queue_that_is_looked_at(ground: Ground) -> None:
    """A queue with x-expires stays while it is declared passively again and again."""
    wire = ground.wire(1)
    queue = expiring(ground, wire)
    keep_using(wire, lambda: counts(wire, queue))


@chapter.case("2.5-expires", rabbitmq="it stays until the last consumer has gone")
def a_queue_that_has_a_consumer(ground: Ground) -> None:
    """A queue with x-expires stays while it has a consumer."""
    wire = ground.wire(1, 2)
    queue = expiring(ground, wire)
    tag = consume(wire, queue, 2, no_ack=True)
    keep_using(wire, lambda: outcome(wire))
    publish_all(wire, queue, b"1")
    judge(wire.expect_delivery(2)[1], spec=b"1")
    cancel(wire, tag, 2)
    await_expiry(wire, queue)
    open_channel(wire, 3)
    refusal = wire.refused(3, Declare(queue=queue, passive=True))
    judge(refusal, spec=no_queue(ground, queue))
