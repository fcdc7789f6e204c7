"""Rules of the class queue: declare (58 to 69)."""

import re

from pamqp import commands
from pamqp.base import Frame as Method
from pamqp.common import FieldTable

from leveret.conformance.case import Chapter, Met, Need, Seen, judge
from leveret.conformance.cases.steps import (
    OK,
    bind,
    counts,
    drain,
    enqueue,
    locked,
    named,
    no_queue,
    open_channel,
    outcome,
    publish_all,
    refused_each,
    reply,
    the_queue,
)
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import (
    Refusal,
    Wire,
    channel_closed,
    connection_closed,
    method,
    publish,
)

chapter = Chapter("queue")

GENERATED = re.compile(r"amq\.gen-[\w-]{22}")
RESTART = frozenset([Need.RESTART])
Bind = commands.Queue.Bind
Declare = commands.Queue.Declare
DeclareOk = commands.Queue.DeclareOk
Delete = commands.Queue.Delete
Purge = commands.Queue.Purge
Unbind = commands.Queue.Unbind


def generated_name(wire: Wire) -> str:
    """Declare a queue without a name; answers the name that it got."""
    return wire.call(1, Declare(exclusive=True), DeclareOk).queue or ""


def inequivalent(ground: Ground, argument: str, name: str, difference: str) -> Refusal:
    """The refusal of a declare that does not fit what is there."""
    start = f"PRECONDITION_FAILED - inequivalent arg '{argument}' for {the_queue(ground, name)}"
    return channel_closed(406, f"{start}: received {difference}")


@chapter.case(58, spec="it is bound by its name")
def bound_to_the_default_exchange(ground: Ground) -> Seen:
    """A new queue gets what is published to the default exchange with its name."""
    wire = ground.wire(1)
    exclusive, durable = ground.queue(wire), ground.queue(wire, durable=True)
    for queue in (exclusive, durable):
        publish_all(wire, queue, queue.encode())
    got = [drain(wire, queue) for queue in (exclusive, durable)]
    return judge(got, spec=[[exclusive.encode()], [durable.encode()]])


@chapter.case(58, spec="the binding goes with it")
def not_bound_to_the_default_exchange_any_more(ground: Ground) -> Seen:
    """What is published with the name of a deleted queue has no route."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    wire.call(1, Delete(queue=queue), commands.Queue.DeleteOk)
    wire.send(publish(1, queue, b"1", mandatory=True))
    returned = wire.expect(commands.Basic.Return, 1)
    return judge((returned.reply_code, returned.routing_key), spec=(312, queue))


@chapter.case(59, spec="257 queues are no problem")
def many_queues(ground: Ground) -> None:
    """There may be more than 256 queues."""
    wire = ground.wire(1)
    wire.send(*(method(1, Declare(exclusive=True)) for _ in range(257)))
    names = {wire.expect(DeclareOk, 1).queue for _ in range(257)}
    judge(len(names), spec=257)


@chapter.case(60, spec="a name of its own each")
def generated_names(ground: Ground) -> None:
    """A queue declared without a name gets one that no other has."""
    wire = ground.wire(1)
    names = [generated_name(wire) for _ in range(3)]
    judge(len(set(names)), spec=3)
    for name in names:
        publish_all(wire, name, name.encode())
        judge(drain(wire, name), spec=[name.encode()])


@chapter.case(60, spec="any name", rabbitmq="amq.gen- and 22 characters")
def form_of_generated_names(ground: Ground) -> Seen:
    """A generated name begins with amq.gen- and goes on with what nobody can guess."""
    name = generated_name(ground.wire(1))
    return Seen(Met.BOTH if GENERATED.fullmatch(name) else Met.SPEC, name)


@chapter.case(61, spec="403 access-refused")
def a_reserved_name(ground: Ground) -> Seen:
    """A name that begins with `amq.` is not for a new queue."""
    name = f"amq.{ground.queue_name()}"
    return judge(
        ground.wire(1).refused(1, Declare(queue=name, exclusive=True)),
        spec=channel_closed(
            403, f"ACCESS_REFUSED - queue name '{name}' contains reserved prefix 'amq.*'"
        ),
    )


@chapter.case(61, spec="declare-ok", rabbitmq="declare-ok, or 403 if not passive")
def redeclare_a_reserved_name(ground: Ground) -> Seen:
    """A queue that has a reserved name may be declared again, passively or not."""
    wire = ground.wire(1)
    name = generated_name(wire)
    judge(wire.call(1, Declare(queue=name, passive=True), DeclareOk).queue, spec=name)
    answer = reply(wire, Declare(queue=name, exclusive=True))
    if answer == "Queue.DeclareOk":
        return Seen()
    text = f"ACCESS_REFUSED - queue name '{name}' contains reserved prefix 'amq.*'"
    judge(answer, spec=channel_closed(403, text))
    return Seen(Met.RABBITMQ, str(answer))


@chapter.case(62, spec="406 precondition-failed", rabbitmq="any name")
def odd_characters(ground: Ground) -> Seen:
    """A queue name has only letters, digits and - _ . :"""
    wire = ground.wire(1)
    name = f"{ground.queue_name()} b/ç"
    wire.send(named(1, Declare(queue="NAME", exclusive=True, nowait=True), name))
    return judge(outcome(wire), spec=channel_closed(406), rabbitmq=OK)


@chapter.case(62, spec="406 precondition-failed", rabbitmq="the ends of lines are left out")
def ends_of_lines(ground: Ground) -> Seen:
    """CR and LF in a queue name are refused, or as good as not there."""
    wire = ground.wire(1)
    name = ground.queue_name()
    declare = Declare(queue="NAME", exclusive=True, nowait=True)
    wire.send(named(1, declare, f"\r{name}\r\n"))
    seen = judge(outcome(wire), spec=channel_closed(406), rabbitmq=OK)
    if seen.met is Met.RABBITMQ:
        judge(wire.call(1, Declare(queue=name, passive=True), DeclareOk).queue, spec=name)
        wire.send(named(1, Delete(queue="NAME"), f"{name}\n"))
        wire.expect(commands.Queue.DeleteOk, 1)
        refusal = wire.refused(1, Declare(queue=name, passive=True))
        judge(refusal, spec=no_queue(ground, name))
    return seen


@chapter.case(63, spec="404 not-found")
def passive_declare_of_a_missing_queue(ground: Ground) -> Seen:
    """A passive declare of a queue that does not exist is refused."""
    name = ground.queue_name()
    refusal = ground.wire(1).refused(1, Declare(queue=name, passive=True))
    return judge(refusal, spec=no_queue(ground, name))


@chapter.case(63, spec="declare-ok, whatever else it says")
def passive_declare_of_an_existing_queue(ground: Ground) -> None:
    """A passive declare of a queue that exists succeeds, whatever it says of it."""
    wire = ground.wire(1)
    name = ground.queue(wire)
    arguments: FieldTable = {"x-message-ttl": 1}
    declare = Declare(0, name, True, True, False, True, arguments=arguments)
    answer = wire.call(1, declare, DeclareOk)
    judge((answer.queue, answer.message_count, answer.consumer_count), spec=(name, 0, 0))


@chapter.case(64, spec="declare-ok")
def redeclare_of_the_same(ground: Ground) -> None:
    """A queue may be redeclared as it is."""
    wire = ground.wire(1)
    arguments: FieldTable = {"x-message-ttl": 60000, "x-max-length": 10}
    declare = Declare(0, ground.queue_name(), False, True, True, True, arguments=arguments)
    for _ in range(2):
        judge(wire.call(1, declare, DeclareOk).queue, spec=declare.queue)


@chapter.case(64, spec="406 inequivalent arg 'durable'")
def redeclare_with_another_durability(ground: Ground) -> Seen:
    """A queue is not redeclared with another durability."""
    wire = ground.wire(1)
    name = ground.queue(wire, durable=True)
    difference = "'false' but current is 'true'"
    refusal = wire.refused(1, Declare(queue=name))
    return judge(refusal, spec=inequivalent(ground, "durable", name, difference))


@chapter.case(64, spec="406 inequivalent arg 'durable'", rabbitmq="no exclusive queue is durable")
def redeclare_an_exclusive_queue_with_another_durability(ground: Ground) -> Seen:
    """An exclusive queue is not redeclared with another durability."""
    wire = ground.wire(1)
    name = ground.queue(wire)
    answer = reply(wire, Declare(queue=name, durable=True, exclusive=True))
    return judge(answer, spec=channel_closed(406), rabbitmq="Queue.DeclareOk")


@chapter.case(64, spec="405 resource-locked")
def redeclare_exclusive(ground: Ground) -> None:
    """A queue is not redeclared as exclusive, nor an exclusive one as shared."""
    wire = ground.wire(1, 2)
    shared = ground.queue(wire, durable=True)
    refusal = wire.refused(1, Declare(queue=shared, durable=True, exclusive=True))
    judge(refusal, spec=locked(ground, shared))
    exclusive = ground.queue(wire, 2, durable=True, exclusive=True)
    judge(wire.refused(2, Declare(queue=exclusive, durable=True)), spec=locked(ground, exclusive))


@chapter.case(64, spec="406 inequivalent arg")
def redeclare_with_other_arguments(ground: Ground) -> None:
    """A queue is not redeclared with another value of an argument, one more or one less."""
    wire = ground.wire(1)
    plain = ground.queue(wire)
    limited = ground.queue(wire, arguments={"x-max-length": 100_000})
    current = "the value '100000' of type 'signedint'"
    attempts: list[tuple[str, FieldTable, str]] = [
        (plain, {"x-max-length": 100_000}, f"{current} but current is none"),
        (limited, {}, f"none but current is {current}"),
        (limited, {"x-max-length": 200_000}, "'200000' but current is '100000'"),
    ]
    for channel, (name, arguments, difference) in enumerate(attempts, start=2):
        open_channel(wire, channel)
        request = Declare(queue=name, exclusive=True, arguments=arguments)
        expected = inequivalent(ground, "x-max-length", name, difference)
        judge(wire.refused(channel, request), spec=expected)


@chapter.case(64, spec="406 inequivalent arg", rabbitmq="not compared")
def redeclare_with_unknown_arguments(ground: Ground) -> Seen:
    """All arguments are compared, also those that the broker has no use for."""
    wire = ground.wire(1)
    name = ground.queue(wire, arguments={"x-color": "red"})
    request = Declare(queue=name, exclusive=True, arguments={"x-color": "blue"})
    return judge(reply(wire, request), spec=channel_closed(406), rabbitmq="Queue.DeclareOk")


@chapter.case(65, spec="it is there", needs=RESTART, limit_s=90)
def durable_queues_after_a_restart(ground: Ground) -> None:
    """A durable queue outlives the broker with its properties and its arguments."""
    arguments: FieldTable = {"x-max-length": 5}
    declare = Declare(queue=ground.queue_name(), durable=True, arguments=arguments)
    ground.wire(1).call(1, declare, DeclareOk)
    ground.restart()
    ground.wire(1).call(1, declare, DeclareOk)


@chapter.case(66, spec="both work", rabbitmq="both work; 541 for transient ones from 4.3")
def durable_and_transient(ground: Ground) -> Seen:
    """There are durable and transient queues that connections share."""
    wire = ground.wire(1)
    durable = ground.queue(wire, durable=True)
    enqueue(wire, durable, b"1")
    judge(drain(wire, durable), spec=[b"1"])
    transient = ground.queue_name()
    answer = reply(wire, Declare(queue=transient))
    if isinstance(answer, Refusal):
        judge(answer, spec=connection_closed(541))
        return Seen(Met.RABBITMQ, str(answer))
    enqueue(wire, transient, b"1")
    judge(drain(ground.wire(1), transient), spec=[b"1"])
    return Seen()


@chapter.case(66, spec="the transient one is gone", needs=RESTART, limit_s=90)
def transient_queues_after_a_restart(ground: Ground) -> Seen:
    """A transient queue does not outlive the broker."""
    wire = ground.wire(1)
    name = ground.queue_name()
    answer = reply(wire, Declare(queue=name))
    if isinstance(answer, Refusal):
        judge(answer, spec=connection_closed(541))
        return Seen(Met.RABBITMQ, str(answer))
    ground.restart()
    refusal = ground.wire(1).refused(1, Declare(queue=name, passive=True))
    return judge(refusal, spec=no_queue(ground, name))


@chapter.case(67, spec="both work")
def exclusive_and_shared(ground: Ground) -> None:
    """There are queues of one connection, on all its channels, and queues that all share."""
    wire = ground.wire(1, 2)
    exclusive, shared = ground.queue(wire), ground.queue(wire, durable=True)
    enqueue(wire, exclusive, b"1")
    judge(counts(wire, exclusive), spec=(1, 0))
    judge(drain(wire, exclusive, 2), spec=[b"1"])
    enqueue(wire, shared, b"1")
    judge(counts(wire, shared), spec=(1, 0))
    judge(drain(ground.wire(1), shared), spec=[b"1"])


@chapter.case(68, spec="405 resource-locked")
def an_exclusive_queue_of_another_connection(ground: Ground) -> None:
    """Nothing can be done with an exclusive queue of another connection."""
    owner = ground.wire(1)
    name = ground.queue(owner)
    publish_all(owner, name, b"1")
    requests: list[Method] = [
        Declare(queue=name, exclusive=True),
        Declare(queue=name, passive=True),
        Bind(queue=name, exchange="amq.direct", routing_key=name),
        Purge(queue=name),
        Delete(queue=name),
        commands.Basic.Consume(queue=name),
        commands.Basic.Get(queue=name),
    ]
    refused_each(ground.wire(), locked(ground, name), requests)
    judge(drain(owner, name), spec=[b"1"])


@chapter.case(68, spec="405 resource-locked")
def unbind_an_exclusive_queue_of_another_connection(ground: Ground) -> Seen:
    """The bindings of an exclusive queue cannot be taken away by another connection."""
    owner = ground.wire(1)
    name = ground.queue(owner)
    bind(owner, name, "amq.direct", name)
    request = Unbind(queue=name, exchange="amq.direct", routing_key=name)
    seen = judge(ground.wire(1).refused(1, request), spec=locked(ground, name))
    enqueue(owner, name, b"1", exchange="amq.direct")
    judge(drain(owner, name), spec=[b"1"])
    return seen


@chapter.case(68, spec="routed")
def publish_to_an_exclusive_queue_of_another_connection(ground: Ground) -> Seen:
    """Everybody may publish what is routed to an exclusive queue."""
    owner, other = ground.wire(1), ground.wire(1)
    name = ground.queue(owner)
    enqueue(other, name, b"1")
    return judge(drain(owner, name), spec=[b"1"])


@chapter.case(69, spec="ignored", rabbitmq="406 inequivalent arg 'auto_delete'")
def redeclare_auto_delete(ground: Ground) -> Seen:
    """The auto-delete bit is ignored if the queue exists."""
    wire = ground.wire(1)
    name = ground.queue(wire)
    return judge(
        reply(wire, Declare(queue=name, exclusive=True, auto_delete=True)),
        spec="Queue.DeclareOk",
        rabbitmq=inequivalent(ground, "auto_delete", name, "'true' but current is 'false'"),
    )
