"""Rules of the class basic: consumers (102 to 110, 117)."""

from pamqp import commands
from pamqp.common import FieldTable

from leveret.conformance.case import Chapter, Met, Seen, judge
from leveret.conformance.cases.steps import (
    cancel,
    close_channel,
    consume,
    counts,
    drain,
    enqueue,
    outcome,
    publish_all,
    reply,
    the_queue,
)
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Wire, channel_closed, connection_closed, method

chapter = Chapter("basic-consuming")

Ack = commands.Basic.Ack
Cancel = commands.Basic.Cancel
Consume = commands.Basic.Consume
Qos = commands.Basic.Qos


def deliveries(wire: Wire, count: int, channel: int = 1) -> list[bytes]:
    """The bodies of the next deliveries."""
    return [wire.expect_delivery(channel)[1] for _ in range(count)]


@chapter.case(102, spec="delivered is done with")
def a_consumer_without_acknowledgements(ground: Ground) -> Seen:
    """What a no-ack consumer got does not come back."""
    wire = ground.wire(1)
    queue = ground.queue(wire, durable=True)
    consume(wire, queue, no_ack=True)
    publish_all(wire, queue, b"1", b"2", b"3")
    judge(deliveries(wire, 3), spec=[b"1", b"2", b"3"])
    close_channel(wire)
    return judge(drain(ground.wire(1), queue), spec=[])


@chapter.case(102, spec="406 precondition-failed")
def an_acknowledgement_of_a_consumer_without(ground: Ground) -> Seen:
    """What a no-ack consumer got cannot be acknowledged."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    consume(wire, queue, no_ack=True)
    publish_all(wire, queue, b"1")
    tag = wire.expect_delivery(1)[0].delivery_tag
    wire.send(method(1, Ack(tag or 0)))
    text = f"PRECONDITION_FAILED - unknown delivery tag {tag}"
    return judge(outcome(wire), spec=channel_closed(406, text))


@chapter.case(103, spec="redelivered")
def what_was_not_acknowledged(ground: Ground) -> Seen:
    """What a consumer did not acknowledge is delivered again when its connection is gone."""
    wire = ground.wire(1)
    queue = ground.queue(wire, durable=True)
    consume(wire, queue)
    publish_all(wire, queue, b"1", b"2", b"3", b"4")
    judge(deliveries(wire, 4), spec=[b"1", b"2", b"3", b"4"])
    wire.send(method(1, Ack(2, multiple=True)))
    wire.call(0, commands.Connection.Close(200, "", 0, 0), commands.Connection.CloseOk)
    other = ground.wire(1)
    consume(other, queue)
    again = [other.expect_delivery(1) for _ in range(2)]
    judge([deliver.redelivered for deliver, _ in again], spec=[True, True])
    return judge([body for _, body in again], spec=[b"3", b"4"])


@chapter.case(104, spec="the message is delivered", rabbitmq="540 not-implemented")
def a_prefetch_size(ground: Ground) -> Seen:
    """A prefetch size holds up no message that comes alone."""
    wire = ground.wire(1)
    answer = reply(wire, Qos(prefetch_size=1))
    if answer != "Basic.QosOk":
        text = "NOT_IMPLEMENTED - prefetch_size!=0 (1)"
        judge(answer, spec=connection_closed(540, text))
        return Seen(Met.RABBITMQ, str(answer))
    queue = ground.queue(wire)
    consume(wire, queue)
    publish_all(wire, queue, b"12345")
    judge(deliveries(wire, 1), spec=[b"12345"])
    return Seen(Met.SPEC, "delivered")


def held(ground: Ground, prefetch: int, *, no_ack: bool = False) -> tuple[Wire, str]:
    """A consumer with that prefetch count of a queue that ten messages are in."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    enqueue(wire, queue, *(b"%d" % number for number in range(10)))
    wire.call(1, Qos(prefetch_count=prefetch), commands.Basic.QosOk)
    consume(wire, queue, no_ack=no_ack)
    return wire, queue


@chapter.case(105, spec="no more than that")
def a_prefetch_count(ground: Ground) -> None:
    """A consumer has no more unacknowledged messages than its prefetch count."""
    wire, queue = held(ground, 3)
    judge(deliveries(wire, 3), spec=[b"0", b"1", b"2"])
    judge(counts(wire, queue), spec=(7, 1))
    wire.send(method(1, Ack(1)))
    judge(deliveries(wire, 1), spec=[b"3"])
    judge(counts(wire, queue), spec=(6, 1))
    wire.send(method(1, Ack(4, multiple=True)))
    judge(deliveries(wire, 3), spec=[b"4", b"5", b"6"])
    judge(counts(wire, queue), spec=(3, 1))


@chapter.case(105, spec="no limit")
def a_prefetch_count_of_zero(ground: Ground) -> None:
    """A prefetch count of 0 is no limit."""
    wire, queue = held(ground, 0)
    judge(len(deliveries(wire, 10)), spec=10)
    judge(counts(wire, queue), spec=(0, 1))


@chapter.case(105, spec="no limit")
def a_prefetch_count_without_acknowledgements(ground: Ground) -> None:
    """A no-ack consumer has no limit."""
    wire, _ = held(ground, 1, no_ack=True)
    judge(len(deliveries(wire, 10)), spec=10)


@chapter.case(106, spec="17 consumers are no problem")
def many_consumers(ground: Ground) -> None:
    """A queue may have more than 16 consumers, and each gets its share."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    tags = {consume(wire, queue, no_ack=True) for _ in range(17)}
    judge(counts(wire, queue), spec=(0, 17))
    publish_all(wire, queue, *(b"%d" % number for number in range(17)))
    judge({wire.expect_delivery(1)[0].consumer_tag for _ in range(17)}, spec=tags)


@chapter.case(107, spec="530 not-allowed")
def a_consumer_tag_in_use(ground: Ground) -> Seen:
    """A channel has no two consumers of one tag."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    consume(wire, queue, consumer_tag="t")
    refusal = wire.refused(1, Consume(queue=queue, consumer_tag="t"))
    text = "NOT_ALLOWED - attempt to reuse consumer tag 't'"
    return judge(refusal, spec=connection_closed(530, text))


@chapter.case(107, spec="consume-ok")
def a_consumer_tag_used_before(ground: Ground) -> None:
    """The tag of a consumer that was cancelled may be used again."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    for _ in range(2):
        judge(consume(wire, queue, consumer_tag="t"), spec="t")
        cancel(wire, "t")


@chapter.case(107, spec="a tag of its own each")
def generated_consumer_tags(ground: Ground) -> Seen:
    """A consumer without a tag gets one that no other of the channel has."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    tags = {consume(wire, queue) for _ in range(3)}
    return judge((len(tags), "" in tags), spec=(3, False))


@chapter.case(108, spec="both consume")
def a_consumer_tag_on_two_channels(ground: Ground) -> None:
    """Two channels may have consumers of one tag, and cancel them one by one."""
    wire = ground.wire(1, 2)
    queues = [ground.queue(wire, channel) for channel in (1, 2)]
    for channel, queue in enumerate(queues, start=1):
        consume(wire, queue, channel, consumer_tag="t", no_ack=True)
    cancel(wire, "t", 1)
    publish_all(wire, queues[1], b"2")
    judge(deliveries(wire, 1, 2), spec=[b"2"])
    judge([counts(wire, queue) for queue in queues], spec=[(0, 0), (0, 1)])


@chapter.case(108, spec="the consumer stays")
def cancel_on_another_channel(ground: Ground) -> None:
    """A consumer is not cancelled on another channel."""
    wire = ground.wire(1, 2)
    queue = ground.queue(wire)
    consume(wire, queue, consumer_tag="t", no_ack=True)
    judge(wire.call(2, Cancel("t"), commands.Basic.CancelOk).consumer_tag, spec="t")
    publish_all(wire, queue, b"1")
    judge(deliveries(wire, 1), spec=[b"1"])


@chapter.case(109, spec="403 access-refused")
def an_exclusive_consumer_beside_others(ground: Ground) -> Seen:
    """A queue that has a consumer gets no exclusive one."""
    wire = ground.wire(1, 2)
    queue = ground.queue(wire)
    consume(wire, queue)
    refusal = wire.refused(2, Consume(queue=queue, exclusive=True))
    text = f"ACCESS_REFUSED - {the_queue(ground, queue)} in exclusive use"
    return judge(refusal, spec=channel_closed(403, text))


@chapter.case(109, spec="403 access-refused")
def another_consumer_beside_an_exclusive_one(ground: Ground) -> None:
    """A queue that has an exclusive consumer gets no other until that one is gone."""
    wire = ground.wire(1, 2)
    queue = ground.queue(wire, durable=True)
    tag = consume(wire, queue, exclusive=True)
    refusal = wire.refused(2, Consume(queue=queue))
    text = f"ACCESS_REFUSED - {the_queue(ground, queue)} in exclusive use"
    judge(refusal, spec=channel_closed(403, text))
    judge(ground.wire(1).refused(1, Consume(queue=queue)), spec=channel_closed(403, text))
    cancel(wire, tag)
    consume(wire, queue)


@chapter.case(110, spec="cancel-ok")
def cancel_after_the_queue_is_gone(ground: Ground) -> None:
    """A consumer whose queue was deleted may be cancelled."""
    wire = ground.wire(1, 2)
    queue = ground.queue(wire)
    tag = consume(wire, queue)
    wire.send(method(2, commands.Queue.Delete(queue=queue)))
    ends = {wire.receive().method.name for _ in range(2)}
    judge(ends, spec={"Basic.Cancel", "Queue.DeleteOk"})
    judge(wire.call(1, Cancel(tag), commands.Basic.CancelOk).consumer_tag, spec=tag)


@chapter.case(110, spec="cancel-ok")
def cancel_an_unknown_consumer(ground: Ground) -> None:
    """A consumer that does not exist may be cancelled."""
    answer = ground.wire(1).call(1, Cancel("nobody"), commands.Basic.CancelOk)
    judge(answer.consumer_tag, spec="nobody")


@chapter.case(117, spec="dead-lettered after some deliveries", rabbitmq="so in quorum queues")
def a_message_that_comes_back_again_and_again(ground: Ground) -> Seen:
    """A message that is delivered too often goes to the dead-letter exchange."""
    wire = ground.wire(1)
    dead = ground.queue(wire)
    arguments: FieldTable = {
        "x-queue-type": "quorum",
        "x-delivery-limit": 2,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead,
    }
    queue = ground.queue(wire, durable=True, arguments=arguments)
    consume(wire, dead, no_ack=True, consumer_tag="dead")
    enqueue(wire, queue, b"1", delivery_mode=2)
    consume(wire, queue, consumer_tag="live")
    tags: list[str] = []
    while not tags or tags[-1] == "live":
        deliver, _ = wire.expect_delivery(1)
        tags.append(deliver.consumer_tag or "")
        if deliver.consumer_tag == "live":
            wire.send(method(1, commands.Basic.Reject(deliver.delivery_tag or 0, requeue=True)))
    return judge(tags, spec=["live", "live", "live", "dead"])
