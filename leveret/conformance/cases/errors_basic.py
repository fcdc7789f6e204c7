"""Errors of consuming, getting and acknowledging (rows 73 to 80 and 86 to 90 of the catalogue)."""

from pamqp import commands
from pamqp.base import Frame as Method
from pamqp.common import FieldTable

from leveret.conformance.case import Chapter, Seen, Unmet, judge
from leveret.conformance.cases.refusals import (
    judge_versions,
    judge_words,
    refusal,
    refused_bytes,
    refused_for,
)
from leveret.conformance.cases.steps import consume, open_channel, publish_all, the_queue
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Refusal, Wire, connection_closed, frame, method
from leveret.conformance.rules import Level

chapter = Chapter("errors-basic")
Basic = commands.Basic
REPLY_TO = "amq.rabbitmq.reply-to"


# ---- consuming


@chapter.case("error-73", spec="530 not-allowed", rabbitmq="530 attempt to reuse consumer tag 't'")
def tag_of_another_consumer(ground: Ground) -> Seen:
    """A consumer's tag is in use once on a channel."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    consume(wire, queue, consumer_tag="c")
    request = Basic.Consume(queue=queue, consumer_tag="c")
    expected = refused_for(request, 530, "attempt to reuse consumer tag 'c'")
    return judge_words([(wire.refused(1, request), expected)])


def _in_exclusive_use(ground: Ground, wire: Wire, queue: str, *, exclusive: bool) -> Seen:
    request = Basic.Consume(queue=queue, exclusive=exclusive)
    expected = refused_for(request, 403, f"{the_queue(ground, queue)} in exclusive use")
    return judge_words([(wire.refused(1, request), expected)])


@chapter.case("error-75", spec="403 access-refused", rabbitmq="403 queue 'q' ... in exclusive use")
def exclusive_consumer_of_a_queue_in_use(ground: Ground) -> Seen:
    """A queue that is consumed has no exclusive consumer."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    consume(wire, queue)
    return _in_exclusive_use(ground, wire, queue, exclusive=True)


@chapter.case("error-75", spec="403 access-refused", rabbitmq="403 queue 'q' ... in exclusive use")
def consumer_beside_an_exclusive_one(ground: Ground) -> Seen:
    """Beside an exclusive consumer there is no other; a get is let pass."""
    wire = ground.wire(1)
    queue = ground.queue(wire, durable=True)
    consume(wire, queue, exclusive=True)
    for exclusive in (True, False):
        other = ground.wire(1)
        seen = _in_exclusive_use(ground, other, queue, exclusive=exclusive)
    open_channel(other, 1)
    other.call(1, Basic.Get(queue=queue), Basic.GetEmpty)
    return seen


@chapter.case("error-75", rabbitmq="403 queue 'q' ... in exclusive use")
def exclusive_consumer_of_a_queue_for_one(ground: Ground) -> Seen:
    """A queue with a single active consumer has no exclusive one."""
    wire = ground.wire(1)
    queue = ground.queue(wire, arguments={"x-single-active-consumer": True})
    return _in_exclusive_use(ground, wire, queue, exclusive=True)


@chapter.case("error-76", rabbitmq='406 invalid arg ...: "expected integer, got longstr"')
def priority_that_is_no_number(ground: Ground) -> Seen:
    """The priority of a consumer is an integer."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    request = Basic.Consume(queue=queue, arguments={"x-priority": "high"})
    reason = '"expected integer, got longstr"'
    text = f"invalid arg 'x-priority' for {the_queue(ground, queue)}: {reason}"
    return judge(wire.refused(1, request), rabbitmq=refused_for(request, 406, text))


@chapter.case("error-86", rabbitmq="406 reply consumer cannot acknowledge")
def direct_replies_with_acknowledgements(ground: Ground) -> Seen:
    """Direct replies are not acknowledged."""
    request = Basic.Consume(queue=REPLY_TO)
    expected = refused_for(request, 406, "reply consumer cannot acknowledge")
    return judge(ground.wire(1).refused(1, request), rabbitmq=expected)


@chapter.case("error-86", rabbitmq="406 reply consumer already set")
def second_consumer_of_direct_replies(ground: Ground) -> Seen:
    """A channel has one consumer of direct replies."""
    wire = ground.wire(1)
    request = Basic.Consume(queue=REPLY_TO, no_ack=True)
    wire.call(1, request, Basic.ConsumeOk)
    expected = refused_for(request, 406, "reply consumer already set")
    return judge(wire.refused(1, request), rabbitmq=expected)


# ---- acknowledging


@chapter.case("error-77", spec="406 precondition-failed", rabbitmq="406 unknown delivery tag 5")
def unknown_tag(ground: Ground) -> Seen:
    """What is settled was delivered on the channel, and not settled before."""
    seen = []
    for sent, tag in (
        ([Basic.Ack(4)], 4),
        ([Basic.Ack(0)], 0),
        ([Basic.Ack(1), Basic.Ack(1)], 1),
        ([Basic.Ack(2, multiple=True), Basic.Ack(1)], 1),
        ([Basic.Ack(9, multiple=True)], 9),
        ([Basic.Nack(5)], 5),
        ([Basic.Nack(0)], 0),
        ([Basic.Nack(5, multiple=True)], 5),
        ([Basic.Reject(0)], 0),
        ([Basic.Reject(2**62)], 2**62),
    ):
        wire = ground.wire(1)
        queue = ground.queue(wire)
        publish_all(wire, queue, b"1", b"2", b"3")
        consume(wire, queue)
        for _ in range(3):
            wire.expect_delivery(1)
        wire.send(*(method(1, value) for value in sent))
        expected = refused_for(sent[-1], 406, f"unknown delivery tag {tag}")
        seen.append((wire.refusal(), expected))
    return judge_words(seen)


@chapter.case("error-78", spec="qos-ok", rabbitmq="540 prefetch_size!=0 (7)")
def prefetch_in_octets(ground: Ground) -> Seen:
    """A window in octets is not offered."""
    request = Basic.Qos(prefetch_size=7)
    answer = ground.wire(1).answer(1, request)
    seen = answer if isinstance(answer, Refusal) else answer.name
    expected = refused_for(request, 540, "prefetch_size!=0 (7)")
    return judge(seen, spec="Basic.QosOk", rabbitmq=expected)


@chapter.case("error-80", spec="deliveries come again", rabbitmq="540 requeue=false")
def recover_without_requeue(ground: Ground) -> Seen:
    """Deliveries cannot be had again by the same consumer."""
    expected = "requeue=false"
    refused = {
        (60, 110): method(1, Basic.Recover(requeue=False)),
        (60, 100): frame(1, 1, b"\x00\x3c\x00\x64\x00"),
    }
    for ids, data in refused.items():
        seen = judge(
            refused_bytes(ground, data),
            spec="deliveries come again",
            rabbitmq=refusal(540, expected, ids),
        )
    return seen


# ---- other types of queues


def _of_type(ground: Ground, kind: str, **arguments: object) -> str:
    """A queue of this type; raises Unmet if there is none."""
    name = ground.queue_name()
    table: FieldTable = {"x-queue-type": kind, **arguments}  # type: ignore[dict-item]
    declare = commands.Queue.Declare(queue=name, durable=True, arguments=table)
    answer = ground.wire(1).answer(1, declare)
    if isinstance(answer, Refusal):
        raise Unmet(f"there are no queues of type {kind}: {answer}")
    return name


def _refused(ground: Ground, code: int, text: str, request: Method) -> Seen:
    observed = ground.wire(1).refused(1, request)
    return judge(observed, rabbitmq=refused_for(request, code, text))


@chapter.case("error-87", level=Level.MAY, rabbitmq="540 basic.get not supported by stream queues")
def get_from_a_stream(ground: Ground) -> Seen:
    """A stream is consumed, and neither got from nor purged."""
    name = _of_type(ground, "stream")
    queue = the_queue(ground, name)
    purge = f"queue.purge not supported by stream queues {queue}"
    _refused(ground, 540, purge, commands.Queue.Purge(queue=name))
    get = f"basic.get not supported by stream queues {queue}"
    return _refused(ground, 540, get, Basic.Get(queue=name))


@chapter.case("error-88", level=Level.MAY, rabbitmq="406 ... prefetch count is not set, 540 ...")
def consumer_of_a_stream(ground: Ground) -> Seen:
    """A stream needs a prefetch count and acknowledgements."""
    name = _of_type(ground, "stream")
    queue = the_queue(ground, name)
    text = f"consumer prefetch count is not set for {queue}"
    request = Basic.Consume(queue=name)
    observed = ground.wire(1).refused(1, request)
    versions = (
        refused_for(request, 406, one)
        for one in (text, text.replace("queue '", "stream queue '", 1))
    )
    judge_versions(observed, *versions)
    wire = ground.wire(1)
    wire.call(1, Basic.Qos(prefetch_count=1), Basic.QosOk)
    return judge(
        wire.refused(1, Basic.Consume(queue=name, no_ack=True)), rabbitmq=connection_closed(540)
    )


@chapter.case("error-89", rabbitmq="540 queue 'q' in vhost '/' does not support global qos")
def quorum_queue_and_a_limit_of_the_channel(ground: Ground) -> Seen:
    """A quorum queue cannot be consumed on a channel with a limit for all of its consumers."""
    name = _of_type(ground, "quorum")
    wire = ground.wire(1)
    wire.call(1, Basic.Qos(prefetch_count=5, global_=True), Basic.QosOk)
    request = Basic.Consume(queue=name)
    text = f"{the_queue(ground, name)} does not support global qos"
    return judge(wire.refused(1, request), rabbitmq=refused_for(request, 540, text))


@chapter.case("error-90", rabbitmq="405 cannot obtain access to locked queue ... basic.get ...")
def get_from_a_quorum_queue_for_one(ground: Ground) -> Seen:
    """A quorum queue with a single active consumer cannot be got from."""
    name = _of_type(ground, "quorum", **{"x-single-active-consumer": True})
    text = (
        f"cannot obtain access to locked {the_queue(ground, name)}. basic.get operations are "
        "not supported by quorum queues with single active consumer"
    )
    return _refused(ground, 405, text, Basic.Get(queue=name))
