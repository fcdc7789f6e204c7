"""Errors of queues (rows 54 to 60 and 65 to 71 of the catalogue)."""

from collections.abc import Iterable

from pamqp import commands
from pamqp.base import Frame as Method
from pamqp.common import FieldTable

from leveret.conformance.case import Chapter, Met, Seen, judge
from leveret.conformance.cases.connection import MANAGED
from leveret.conformance.cases.refusals import (
    judge_words,
    refused_for,
    refused_requests,
)
from leveret.conformance.cases.steps import (
    consume,
    locked,
    publish_all,
    reply,
    the_exchange,
    the_queue,
)
from leveret.conformance.cases.tenants import enter, new_vhost
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Refusal, channel_closed, frame, method
from leveret.conformance.rules import Level

chapter = Chapter("errors-queues")
Declare = commands.Queue.Declare
Delete = commands.Queue.Delete
Bind = commands.Queue.Bind
Unbind = commands.Queue.Unbind
Purge = commands.Queue.Purge
Consume = commands.Basic.Consume
Get = commands.Basic.Get
MISSING = "conformance-missing"
REPLY_TO = "amq.rabbitmq.reply-to"
DIRECT = "amq.direct"


def _refused(ground: Ground, code: int, text: str, *requests: Method) -> Seen:
    return judge_words(refused_requests(ground, code, text, requests))


@chapter.case("error-54", spec="404 not-found", rabbitmq="404 no queue 'q' in vhost '/'")
def missing_queue(ground: Ground) -> Seen:
    """A queue that does not exist can neither be looked at nor consumed, purged or bound."""
    requests = (
        Declare(queue=MISSING, passive=True),
        Consume(queue=MISSING),
        Get(queue=MISSING),
        Purge(queue=MISSING),
        Bind(queue=MISSING, exchange=DIRECT, routing_key="k"),
    )
    return _refused(ground, 404, f"no {the_queue(ground, MISSING)}", *requests)


@chapter.case("error-55", spec="404 not-found", rabbitmq="404 no previously declared queue")
def no_name_and_no_queue(ground: Ground) -> Seen:
    """Without a name the queue is meant that was declared last, which there must be."""
    requests = (
        Consume(queue=""),
        Get(queue=""),
        Purge(queue=""),
        Delete(queue=""),
        Bind(queue="", exchange=DIRECT, routing_key="k"),
        Unbind(queue="", exchange=DIRECT, routing_key="k"),
    )
    return _refused(ground, 404, "no previously declared queue", *requests)


@chapter.case("error-56", spec="403 access-refused", rabbitmq="403 ... contains reserved prefix")
def reserved_name(ground: Ground) -> Seen:
    """A new queue may not have a name that begins with amq."""
    text = "queue name 'amq.mine' contains reserved prefix 'amq.*'"
    return _refused(ground, 403, text, Declare(queue="amq.mine", exclusive=True))


def _inequivalent(
    ground: Ground, queue: str, argument: str, values: str, request: Method
) -> Iterable[tuple[Refusal, Refusal]]:
    """A declare of a durable queue that differs in one argument."""
    text = f"inequivalent arg '{argument}' for {the_queue(ground, queue)}: received {values}"
    return refused_requests(ground, 406, text, [request])


@chapter.case("error-57", spec="406 precondition-failed", rabbitmq="406 inequivalent arg 'durable'")
def flag_that_differs(ground: Ground) -> Seen:
    """A queue cannot be declared with other flags than it has."""
    name = ground.queue(ground.wire(1), durable=True)
    durable = Declare(0, name, durable=False)
    auto_delete = Declare(0, name, durable=True, auto_delete=True)
    false, true = "'false' but current is 'true'", "'true' but current is 'false'"
    return judge_words(
        [
            *_inequivalent(ground, name, "durable", false, durable),
            *_inequivalent(ground, name, "auto_delete", true, auto_delete),
        ]
    )


@chapter.case("error-58", spec="406 precondition-failed", rabbitmq="406 inequivalent arg 'x-...'")
def argument_that_differs(ground: Ground) -> Seen:
    """A queue cannot be declared with another argument than it has, more, or less."""
    wire = ground.wire(1)
    plain = ground.queue(wire, durable=True)
    limited = ground.queue(wire, durable=True, arguments={"x-message-ttl": 70_000})
    observed: list[tuple[Refusal, Refusal]] = []
    for name, arguments, values in (
        (
            plain,
            {"x-message-ttl": 70_000},
            "the value '70000' of type 'signedint' but current is none",
        ),
        (limited, {}, "none but current is the value '70000' of type 'signedint'"),
        (limited, {"x-message-ttl": 80_000}, "'80000' but current is '70000'"),
    ):
        request = Declare(0, name, durable=True, arguments=dict(arguments))
        observed += _inequivalent(ground, name, "x-message-ttl", values, request)
    request = Declare(0, plain, durable=True, arguments={"x-dead-letter-exchange": "dlx"})
    values = "the value 'dlx' of type 'longstr' but current is none"
    observed += _inequivalent(ground, plain, "x-dead-letter-exchange", values, request)
    return judge_words(observed)


def _with_argument(name: str, entry: bytes) -> bytes:
    """A declare of an exclusive queue with one argument, encoded by hand."""
    bare = method(1, Declare(queue=name, exclusive=True))[7:-5]
    return frame(1, 1, bare + len(entry).to_bytes(4, "big") + entry)


@chapter.case("error-59", rabbitmq="declare-ok")
def integers_of_another_width(ground: Ground) -> None:
    """An integer is the same in any width, and arguments that mean nothing are not compared."""
    wire = ground.wire(1)
    name = ground.queue(wire, arguments={"x-expires": 70_000})
    wire.send(_with_argument(name, b"\x09x-expiresl" + (70_000).to_bytes(8, "big")))
    wire.expect(commands.Queue.DeclareOk, 1)
    more: FieldTable = {"x-expires": 70_000, "x-anything": 5}
    wire.call(1, Declare(0, name, exclusive=True, arguments=more), commands.Queue.DeclareOk)


@chapter.case("error-60", spec="405 resource-locked", rabbitmq="405 cannot obtain exclusive ...")
def exclusive_queue_of_another_connection(ground: Ground) -> Seen:
    """An exclusive queue is locked for all other connections."""
    name = ground.queue(ground.wire(1))
    requests = (
        Declare(queue=name, exclusive=True),
        Declare(queue=name),
        Declare(queue=name, passive=True),
        Consume(queue=name),
        Get(queue=name),
        Purge(queue=name),
        Delete(queue=name),
        Bind(queue=name, exchange=DIRECT, routing_key="k"),
    )
    return judge_words(
        [(ground.wire(1).refused(1, request), locked(ground, name)) for request in requests]
    )


@chapter.case("error-60", spec="405 resource-locked", rabbitmq="405 cannot obtain exclusive ...")
def exclusive_flag_that_differs(ground: Ground) -> Seen:
    """A queue that is not exclusive cannot be declared as such."""
    wire = ground.wire(1)
    name = ground.queue(wire, durable=True)
    refused = wire.refused(1, Declare(queue=name, durable=True, exclusive=True))
    return judge_words([(refused, locked(ground, name))])


@chapter.case("error-65", rabbitmq="406 queue limit in vhost 'v' (N) is reached", needs=MANAGED)
def vhost_with_enough_queues(ground: Ground) -> Seen:
    """A vhost has no more queues than its limit."""
    vhost, name = new_vhost(ground), ground.queue_name()
    ground.manage("PUT", "vhost-limits", vhost, "max-queues", body={"value": 0})
    declare = Declare(queue=name, exclusive=True)
    text = f"cannot declare queue '{name}': queue limit in vhost '{vhost}' (0) is reached"
    refused = enter(ground, vhost, None, 1).refused(1, declare)
    return judge(refused, rabbitmq=refused_for(declare, 406, text))


@chapter.case("error-66", spec="406 precondition-failed", rabbitmq="406 queue 'q' ... in use")
def delete_of_a_queue_with_consumers(ground: Ground) -> Seen:
    """A delete with if-unused needs the queue to have no consumers."""
    wire = ground.wire(1)
    name = ground.queue(wire, durable=True)
    consume(wire, name)
    text = f"{the_queue(ground, name)} in use"
    return _refused(ground, 406, text, Delete(queue=name, if_unused=True))


@chapter.case("error-66", spec="406 precondition-failed", rabbitmq="406 queue 'q' ... not empty")
def delete_of_a_queue_with_messages(ground: Ground) -> Seen:
    """A delete with if-empty needs the queue to be empty, which is looked at first."""
    wire = ground.wire(1, 2)
    name = ground.queue(wire, durable=True)
    wire.call(2, commands.Basic.Qos(prefetch_count=1), commands.Basic.QosOk)
    consume(wire, name, 2)
    publish_all(wire, name, b"1", b"2")
    wire.expect_delivery(2)
    text = f"{the_queue(ground, name)} not empty"
    requests = (
        Delete(queue=name, if_empty=True),
        Delete(queue=name, if_empty=True, if_unused=True),
    )
    return _refused(ground, 406, text, *requests)


@chapter.case("error-67", spec="404 not-found", rabbitmq="delete-ok with 0 messages")
def delete_of_a_missing_one(ground: Ground) -> Seen:
    """A delete of a queue that does not exist succeeds."""
    wire = ground.wire(1)
    for is_conditional in (False, True):
        delete = Delete(queue=MISSING, if_empty=is_conditional, if_unused=is_conditional)
        answer = wire.answer(1, delete)
        if isinstance(answer, commands.Queue.DeleteOk):
            judge(answer.message_count, rabbitmq=0)
        seen = judge(
            answer if isinstance(answer, Refusal) else answer.name,
            spec=channel_closed(404),
            rabbitmq="Queue.DeleteOk",
        )
    return seen


@chapter.case("error-68", spec="404 not-found", rabbitmq="unbind-ok")
def unbind_of_what_is_not_bound(ground: Ground) -> Seen:
    """An unbind of a binding, queue or exchange that does not exist succeeds."""
    wire = ground.wire(1)
    name, exchange = ground.queue(wire), ground.exchange(wire, "direct")
    for request in (
        Unbind(queue=name, exchange=exchange, routing_key="k"),
        Unbind(queue=name, exchange=MISSING, routing_key="k"),
        Unbind(queue=MISSING, exchange=exchange, routing_key="k"),
        commands.Exchange.Unbind(source=exchange, destination=DIRECT, routing_key="k"),
        commands.Exchange.Unbind(source=MISSING, destination=exchange),
        commands.Exchange.Unbind(source=exchange, destination=MISSING),
    ):
        name_of_ok = f"{request.name}Ok"
        seen = judge(reply(wire, request), spec=channel_closed(404), rabbitmq=name_of_ok)
    return seen


@chapter.case("error-69", spec="404 not-found", rabbitmq="404 no exchange 'e' in vhost '/'")
def bind_to_what_is_missing(ground: Ground) -> Seen:
    """A bind needs both ends to be there."""
    wire = ground.wire(1)
    queue = ground.queue(wire, durable=True)
    exchange = ground.exchange(wire, "direct")
    text = f"no {the_exchange(ground, MISSING)}"
    return _refused(
        ground,
        404,
        text,
        Bind(queue=queue, exchange=MISSING, routing_key="k"),
        commands.Exchange.Bind(source=MISSING, destination=exchange),
        commands.Exchange.Bind(source=exchange, destination=MISSING),
    )


@chapter.case("error-70", rabbitmq="403 cannot bind or unbind to a volatile ... queue; 3.x: 404")
def bind_of_a_direct_reply_to(ground: Ground) -> Seen:
    """The queue of direct replies cannot be bound."""
    request = Bind(queue=REPLY_TO, exchange=DIRECT, routing_key="k")
    text = "cannot bind or unbind to a volatile (direct reply-to) queue"
    observed = ground.wire(1).refused(1, request)
    older = refused_for(request, 404, f"no {the_queue(ground, REPLY_TO)}")
    return judge(
        observed, rabbitmq=older if observed.fits(older) else refused_for(request, 403, text)
    )


@chapter.case("error-71", level=Level.SHOULD, rabbitmq="declare-ok; 541 since 4.3")
def transient_queue_for_all(ground: Ground) -> Seen:
    """A queue may be neither durable nor exclusive, as several clients declare them."""
    declare = Declare(queue=ground.queue_name(), auto_delete=True)
    answer = ground.wire(1).answer(1, declare)
    if isinstance(answer, Refusal) and (answer.scope, answer.code) == ("connection", 541):
        return Seen(Met.RABBITMQ, str(answer))
    return judge(answer if isinstance(answer, Refusal) else answer.name, rabbitmq="Queue.DeclareOk")
