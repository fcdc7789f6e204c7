"""Rules of the domains (1 to 4): delivery tags and the mark of a redelivery."""

from pamqp import commands

from leveret.conformance.case import Chapter, Seen, Unmet, judge
from leveret.conformance.cases.steps import consume, counts, publish_all
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import channel_closed, method

chapter = Chapter("domains")
Basic = commands.Basic


@chapter.case(1, spec="406 precondition-failed", rabbitmq="406 unknown delivery tag 1")
def tag_of_another_channel(ground: Ground) -> Seen:
    """A delivery cannot be acknowledged on another channel than its own."""
    wire = ground.wire(1, 2)
    queue = ground.queue(wire)
    consume(wire, queue)
    publish_all(wire, queue, b"body")
    wire.expect_delivery(1)
    refusal = wire.refused(2, Basic.Ack(1))
    wire.send(method(1, Basic.Ack(1)))  # on its own channel it is still to be acknowledged
    wire.expect_silence(1)
    return judge(
        refusal,
        spec=channel_closed(406),
        rabbitmq=channel_closed(406, "PRECONDITION_FAILED - unknown delivery tag 1"),
    )


@chapter.case(2, spec="tags count from 1 on each channel")
def tags_begin_at_one(ground: Ground) -> Seen:
    """The tags of each channel begin at 1."""
    wire = ground.wire(1, 2)
    queue = ground.queue(wire)
    publish_all(wire, queue, *[b"body"] * 4)
    seen = []
    for channel in (1, 2, 1, 2):
        wire.send(method(channel, Basic.Get(queue=queue)))
        seen.append((channel, wire.expect(Basic.GetOk, channel).delivery_tag))
        wire.expect_body()
    return judge(seen, spec=[(1, 1), (2, 1), (1, 2), (2, 2)])


@chapter.case(2, spec="all so far is acknowledged")
def tag_zero_is_all_so_far(ground: Ground) -> Seen:
    """An acknowledgement of tag 0 with multiple takes everything that is outstanding."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    publish_all(wire, queue, *[b"body"] * 3)
    consume(wire, queue)
    for _ in range(3):
        wire.expect_delivery(1)
    wire.send(method(1, Basic.Ack(0, multiple=True)))
    wire.call(1, Basic.Recover(requeue=True), Basic.RecoverOk)
    wire.expect_silence(1)
    return judge(counts(wire, queue), spec=(0, 1))


@chapter.case(2, spec="nothing happens")
def tag_zero_with_nothing_outstanding(ground: Ground) -> None:
    """An acknowledgement of tag 0 with multiple is fine with nothing outstanding."""
    wire = ground.wire(1)
    wire.send(method(1, Basic.Ack(0, multiple=True)), method(1, Basic.Nack(0, multiple=True)))
    wire.expect_silence(1)


@chapter.case(3, spec="redelivered is set")
def redelivered_after_a_lost_connection(ground: Ground) -> Seen:
    """What a connection had and did not acknowledge is delivered again, and marked."""
    wire, lost = ground.wire(1), ground.wire(1)
    queue = ground.queue(wire, durable=True)
    publish_all(wire, queue, b"body")
    wire.expect_silence(1)
    consume(lost, queue)
    first, _ = lost.expect_delivery(1)
    if first.redelivered:
        raise Unmet("the first delivery is marked as redelivered")
    lost.abort()
    consume(wire, queue)
    second, _ = wire.expect_delivery(1)
    return judge(second.redelivered, spec=True)
