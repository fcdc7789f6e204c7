"""Rules of the class queue: purge and delete (85 to 93)."""

from pamqp import commands

from leveret.conformance.case import Chapter, Met, Seen, judge
from leveret.conformance.cases.steps import (
    NONE_DECLARED,
    cancel,
    consume,
    counts,
    drain,
    enqueue,
    get,
    no_queue,
    publish_all,
    reply,
    the_queue,
)
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import channel_closed, method

chapter = Chapter("queue-removal")

Declare = commands.Queue.Declare
Delete = commands.Queue.Delete
Purge = commands.Queue.Purge


# ---- purge


@chapter.case(85, spec="what is unacknowledged stays")
def purge_leaves_what_is_unacknowledged(ground: Ground) -> Seen:
    """A purge removes what is ready, not what waits for an acknowledgement."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    enqueue(wire, queue, b"1", b"2", b"3")
    taken = get(wire, queue, no_ack=False)
    purged = wire.call(1, Purge(queue=queue), commands.Queue.PurgeOk).message_count
    judge((taken is not None, purged), spec=(True, 2))
    wire.send(method(1, commands.Basic.Reject(delivery_tag=1, requeue=True)))
    return judge(drain(wire, queue), spec=[b"1"])


@chapter.case(87, spec="404 not-found")
def purge_without_a_name(ground: Ground) -> Seen:
    """A queue.purge without a name needs a queue declared on the channel."""
    return judge(ground.wire(1).refused(1, Purge()), spec=NONE_DECLARED)


@chapter.case(87, spec="the queue declared last")
def purge_the_queue_declared_last(ground: Ground) -> Seen:
    """A queue.purge without a name is about the queue declared last on the channel."""
    wire = ground.wire(1)
    queues = [ground.queue(wire) for _ in range(2)]
    for queue in queues:
        enqueue(wire, queue, b"1")
    wire.call(1, Purge(), commands.Queue.PurgeOk)
    return judge([drain(wire, queue) for queue in queues], spec=[[b"1"], []])


@chapter.case(88, spec="404 not-found")
def purge_a_missing_queue(ground: Ground) -> Seen:
    """A queue that does not exist cannot be purged."""
    name = ground.queue_name()
    return judge(ground.wire(1).refused(1, Purge(queue=name)), spec=no_queue(ground, name))


# ---- delete


@chapter.case(89, spec="dead-lettered", rabbitmq="dropped")
def the_messages_of_a_deleted_queue(ground: Ground) -> Seen:
    """The messages of a deleted queue go to its dead-letter exchange."""
    wire = ground.wire(1)
    dead = ground.queue(wire)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    queue = ground.queue(wire, arguments=arguments)
    enqueue(wire, queue, b"1", b"2")
    judge(wire.call(1, Delete(queue=queue), commands.Queue.DeleteOk).message_count, spec=2)
    return judge(drain(wire, dead), spec=[b"1", b"2"], rabbitmq=[])


@chapter.case(90, spec="404 not-found")
def delete_without_a_name(ground: Ground) -> Seen:
    """A queue.delete without a name needs a queue declared on the channel."""
    return judge(ground.wire(1).refused(1, Delete()), spec=NONE_DECLARED)


@chapter.case(90, spec="the queue declared last")
def delete_the_queue_declared_last(ground: Ground) -> Seen:
    """A queue.delete without a name is about the queue declared last on the channel."""
    wire = ground.wire(1)
    first, last = ground.queue(wire), ground.queue(wire)
    wire.call(1, Delete(), commands.Queue.DeleteOk)
    counts(wire, first)
    return judge(wire.refused(1, Declare(queue=last, passive=True)), spec=no_queue(ground, last))


@chapter.case(91, spec="404 not-found", rabbitmq="delete-ok")
def delete_a_missing_queue(ground: Ground) -> Seen:
    """A queue that does not exist cannot be deleted."""
    answer = ground.wire(1).answer(1, Delete(queue=ground.queue_name()))
    if isinstance(answer, commands.Queue.DeleteOk):
        judge(answer.message_count, spec=0)
        return Seen(Met.RABBITMQ, "delete-ok")
    return judge(answer, spec=channel_closed(404))


@chapter.case(92, spec="406 precondition-failed")
def delete_a_queue_in_use(ground: Ground) -> Seen:
    """A queue with consumers is not deleted if unused is asked for."""
    wire = ground.wire(1, 2)
    queue = ground.queue(wire)
    tag = consume(wire, queue, no_ack=True)
    refusal = wire.refused(2, Delete(queue=queue, if_unused=True))
    text = f"PRECONDITION_FAILED - {the_queue(ground, queue)} in use"
    seen = judge(refusal, spec=channel_closed(406, text))
    publish_all(wire, queue, b"1")
    judge(wire.expect_delivery(1)[1], spec=b"1")
    cancel(wire, tag)
    wire.call(1, Delete(queue=queue, if_unused=True), commands.Queue.DeleteOk)
    return seen


@chapter.case(92, spec="deleted, and the consumers are told")
def delete_a_queue_with_consumers_and_messages(ground: Ground) -> Seen:
    """A queue with consumers and messages is deleted if neither is asked about."""
    wire = ground.wire(1, 2)
    queue = ground.queue(wire)
    enqueue(wire, queue, b"1", b"2")
    wire.call(2, commands.Basic.Qos(prefetch_count=1), commands.Basic.QosOk)
    consume(wire, queue, 2)
    wire.expect_delivery(2)
    wire.send(method(1, Delete(queue=queue)))
    answers = {wire.receive().method.name for _ in range(2)}
    judge(answers, spec={"Basic.Cancel", "Queue.DeleteOk"})
    refusal = wire.refused(1, Declare(queue=queue, passive=True))
    return judge(refusal, spec=no_queue(ground, queue))


@chapter.case(93, spec="406 precondition-failed")
def delete_a_queue_with_messages(ground: Ground) -> Seen:
    """A queue with messages is not deleted if empty is asked for."""
    wire = ground.wire(1, 2)
    queue = ground.queue(wire)
    enqueue(wire, queue, b"1")
    judge(counts(wire, queue), spec=(1, 0))
    refusal = wire.refused(2, Delete(queue=queue, if_empty=True))
    text = f"PRECONDITION_FAILED - {the_queue(ground, queue)} not empty"
    seen = judge(refusal, spec=channel_closed(406, text))
    judge(drain(wire, queue), spec=[b"1"])
    wire.call(1, Delete(queue=queue, if_empty=True), commands.Queue.DeleteOk)
    return seen


@chapter.case(93, spec="406 precondition-failed", rabbitmq="they do not count")
def delete_a_queue_with_unacknowledged_messages(ground: Ground) -> Seen:
    """Messages that wait for an acknowledgement are messages of their queue."""
    wire = ground.wire(1, 2)
    queue = ground.queue(wire)
    enqueue(wire, queue, b"1")
    judge(get(wire, queue, no_ack=False) is not None, spec=True)
    answer = reply(wire, Delete(queue=queue, if_empty=True), 2)
    return judge(answer, spec=channel_closed(406), rabbitmq="Queue.DeleteOk")
