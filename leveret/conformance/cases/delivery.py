"""Delivery, acknowledgement, and where messages go that come back (behaviours)."""

from pamqp import commands

from leveret.conformance.case import Chapter, Need, Seen, Unmet, judge
from leveret.conformance.cases.messages import (
    bodies,
    deliveries,
    delivery,
    fill,
    hold,
    hold_each,
    is_empty,
    stay_quiet,
    tell,
    until,
)
from leveret.conformance.cases.steps import (
    await_confirms,
    bind,
    cancel,
    confirm,
    consume,
    counts,
    drain,
    get,
    open_channel,
    properties,
    publish_all,
)
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Wire, header, method, publish

chapter = Chapter("delivery")

FIVE = (b"1", b"2", b"3", b"4", b"5")
Ack, Nack, Reject = commands.Basic.Ack, commands.Basic.Nack, commands.Basic.Reject


# ---- what is delivered


@chapter.case("2.6-tags", spec="1, 2, 3, ... in each channel", rabbitmq="so, with no-ack too")
def tags_count_deliveries_and_gets(ground: Ground) -> Seen:
    """Delivery tags of a channel count its deliveries and gets, acknowledged or not."""
    wire = ground.wire(1, 2)
    queue, other = ground.queue(wire), ground.queue(wire)
    publish_all(wire, queue, *FIVE)
    fill(wire, other, *FIVE)
    tag = consume(wire, queue, no_ack=True)
    tags = [each.tag for each in deliveries(wire, 5)]
    cancel(wire, tag)
    tags += [hold(wire, other).tag]
    got = get(wire, other)
    tags += [got[0].delivery_tag or 0 if got else 0, hold(wire, other).tag]
    return judge((tags, hold(wire, other, 2).tag), spec=([1, 2, 3, 4, 5, 6, 7, 8], 1))


@chapter.case("2.6-delivery-fields", spec="tag of the consumer, exchange and key of the publish")
def a_delivery_says_where_it_comes_from(ground: Ground) -> Seen:
    """A delivery names its consumer, the exchange and the key; it is not redelivered."""
    wire = ground.wire(1)
    queue, exchange = ground.queue(wire), ground.exchange(wire, "topic")
    bind(wire, queue, exchange, "#")
    consume(wire, queue, consumer_tag="mine")
    publish_all(wire, "a.key", b"body", exchange=exchange)
    told = wire.expect(commands.Basic.Deliver, 1)
    fields = (told.consumer_tag, told.exchange, told.routing_key, told.redelivered)
    judge(wire.expect_body(), spec=b"body")
    return judge(fields, spec=("mine", exchange, "a.key", False))


@chapter.case("2.6-frames-of-a-delivery", spec="body frames no larger than frame-max")
def a_large_body_is_cut(ground: Ground) -> Seen:
    """A delivery's body comes in frames of the size that its reader agreed to."""
    wire = ground.wire(1, frame_max=4096)
    queue, body = ground.queue(wire), bytes(range(256)) * 40
    pieces = [body[start : start + 4000] for start in range(0, len(body), 4000)]
    frames = [b"\x03\0\x01" + len(each).to_bytes(4, "big") + each + b"\xce" for each in pieces]
    request = method(1, commands.Basic.Publish(routing_key=queue))
    wire.send(request, header(1, len(body)), *frames)
    consume(wire, queue)
    wire.expect(commands.Basic.Deliver, 1)
    judge(wire.receive().kind, spec=2)
    received = b""
    while len(received) < len(body):
        piece = wire.receive().payload
        if len(piece) > 4088:
            raise Unmet(f"a body frame of {len(piece) + 8} bytes, though 4096 were agreed to")
        received += piece
    return judge(received == body, spec=True)


@chapter.case("2.6-empty-body", spec="no body frame")
def an_empty_body_has_no_frame(ground: Ground) -> Seen:
    """A message without a body is a header alone, when it is delivered and when it is got."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    publish_all(wire, queue, b"", b"")
    judge(hold(wire, queue).body, spec=b"")
    consume(wire, queue)
    wire.expect(commands.Basic.Deliver, 1)
    judge(wire.receive().payload[4:12], spec=bytes(8))
    stay_quiet(wire, queue)
    return Seen()


@chapter.case("2.6-properties", rabbitmq="as they were published")
def properties_arrive_as_they_were_sent(ground: Ground) -> Seen:
    """All properties arrive octet by octet as they were sent."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    sent = properties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers={"z": 1, "a": {"deep": [1, "two", 3.0, None, True]}, "": ""},
        delivery_mode=1,
        priority=200,
        correlation_id="c",
        reply_to="r",
        message_id="m",
        message_type="t",
        user_id=ground.facilities.address.user,
        app_id="a",
    )
    publish_all(wire, queue, b"", properties=sent)
    raw = hold(wire, queue).raw
    return judge(raw.hex(" "), rabbitmq=sent.hex(" "))


@chapter.case("2.6-get", spec="get-ok tells what is left, get-empty that nothing is")
def get_counts_what_is_left(ground: Ground) -> Seen:
    """get-ok counts the messages that are ready behind it; what others hold is not."""
    wire = ground.wire(1, 2)
    queue = ground.queue(wire)
    fill(wire, queue, *FIVE)
    hold(wire, queue, 2)
    left = []
    for _ in range(4):
        got = get(wire, queue, no_ack=False)
        left.append(got[0].message_count if got else None)
    judge(is_empty(wire, queue), spec=True)
    return judge(left, spec=[3, 2, 1, 0])


@chapter.case("2.6-order", spec="in the order they were published in")
def one_reader_gets_them_in_order(ground: Ground) -> Seen:
    """Messages of one channel through one queue arrive in their order, by consumer and by get."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    sent = [b"%d" % number for number in range(200)]
    publish_all(wire, queue, *sent)
    received = [hold(wire, queue).body for _ in range(20)]
    consume(wire, queue)
    return judge([*received, *bodies(wire, 180)] == sent, spec=True)


# ---- begin and end of consuming


@chapter.case("2.6-consume-ok-first", rabbitmq="consume-ok, then deliveries")
def consume_ok_comes_first(ground: Ground) -> Seen:
    """consume-ok comes before the first delivery of the consumer."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    publish_all(wire, queue, *FIVE)
    for round_ in range(10):
        tag = consume(wire, queue, consumer_tag=f"tag{round_}")
        judge(bodies(wire, 5), rabbitmq=list(FIVE))
        cancel(wire, tag)
        tell(wire, Nack(0, True, True))
    return Seen(text="10 times of 10")


def _read_until_cancel_ok(wire: Wire) -> int:
    """Read deliveries up to a cancel-ok; answers how many."""
    count = 0
    while not isinstance((received := wire.receive()).method, commands.Basic.CancelOk):
        if not isinstance(received.method, commands.Basic.Deliver):
            raise Unmet(f"expected a delivery or cancel-ok, saw {received}")
        wire.expect_content()
        count += 1
    return count


@chapter.case("2.6-cancel-ok-last", rabbitmq="nothing after cancel-ok")
def nothing_follows_cancel_ok(ground: Ground) -> Seen:
    """No delivery of a consumer follows its cancel-ok, and what it was sent can be acknowledged."""
    wire = ground.wire(1, 2)
    queue, total = ground.queue(wire), 100
    fill(wire, queue, *[bytes(100)] * total)
    consume(wire, queue, consumer_tag="tag")
    tell(wire, commands.Basic.Cancel("tag"))
    seen = _read_until_cancel_ok(wire)
    stay_quiet(wire, queue)
    if seen:
        tell(wire, Ack(seen, True))
    wire.call(1, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    until(lambda: counts(wire, queue, 2)[0] + seen == total)
    return Seen(text=f"{seen} deliveries before it")


@chapter.case("2.6-cancel-at-once", rabbitmq="consume-ok and cancel-ok")
def cancel_in_one_piece_with_consume(ground: Ground) -> Seen:
    """A consumer may be cancelled without waiting for its consume-ok."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    fill(wire, queue, *FIVE)
    request = commands.Basic.Consume(queue=queue, consumer_tag="tag")
    tell(wire, request, commands.Basic.Cancel("tag"))
    wire.expect(commands.Basic.ConsumeOk, 1)
    seen = _read_until_cancel_ok(wire)
    stay_quiet(wire, queue)
    until(lambda: counts(wire, queue)[0] + seen == len(FIVE))
    return Seen(text=f"{seen} deliveries before it")


@chapter.case("2.6-unacked-survive-cancel", spec="still to be acknowledged")
def cancel_gives_nothing_back(ground: Ground) -> Seen:
    """What a cancelled consumer holds is not given back; it can be acknowledged or rejected."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    publish_all(wire, queue, b"1", b"2")
    tag = consume(wire, queue)
    first, second = deliveries(wire, 2)
    cancel(wire, tag)
    judge(counts(wire, queue), spec=(0, 0))
    tell(wire, Ack(first.tag), Reject(second.tag, True))
    stay_quiet(wire, queue)
    return judge(drain(wire, queue), spec=[b"2"])


@chapter.case("2.9-nowait-consume", spec="deliveries and no consume-ok")
def consume_without_waiting(ground: Ground) -> Seen:
    """A consume with no-wait is answered by deliveries alone, with the tag that it named."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    publish_all(wire, queue, b"1")
    tell(wire, commands.Basic.Consume(queue=queue, consumer_tag="known", nowait=True))
    told = wire.expect(commands.Basic.Deliver, 1)
    return judge((told.consumer_tag, wire.expect_body()), spec=("known", b"1"))


# ---- settling


@chapter.case("2.6-multiple-ack", spec="everything up to the tag, of consumers and gets")
def multiple_covers_consumers_and_gets(ground: Ground) -> Seen:
    """A multiple ack covers all lower tags of the channel, of whichever queue and consumer."""
    wire = ground.wire(1)
    first, second, third = (ground.queue(wire) for _ in range(3))
    publish_all(wire, first, b"1")
    publish_all(wire, third, b"3", b"4")
    consume(wire, first)
    delivery(wire)
    consume(wire, second)
    publish_all(wire, second, b"2")
    delivery(wire)
    hold_each(wire, third, 2)
    tell(wire, Ack(3, True))
    wire.call(1, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    open_channel(wire, 1)
    queues = (first, second, third)
    return judge([drain(wire, queue) for queue in queues], spec=[[], [], [b"4"]])


@chapter.case("2.6-multiple-ack-of-zero", spec="everything there is, which may be nothing")
def zero_with_multiple_covers_all(ground: Ground) -> Seen:
    """A multiple ack of tag 0 covers all that is outstanding, and may be sent if nothing is."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    publish_all(wire, queue, *FIVE)
    tell(wire, Ack(0, True))
    hold_each(wire, queue, 4)
    tell(wire, Ack(0, True), Ack(0, True))
    stay_quiet(wire, queue)
    wire.call(1, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    open_channel(wire, 1)
    return judge(drain(wire, queue), spec=[b"5"])


@chapter.case("2.6-multiple-nack", rabbitmq="everything up to the tag; 0 is everything")
def multiple_nack(ground: Ground) -> Seen:
    """A multiple nack covers all lower tags, and with tag 0 everything."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    publish_all(wire, queue, *FIVE)
    hold_each(wire, queue, 5)
    tell(wire, Nack(2, True, True))
    until(lambda: counts(wire, queue)[0] == 2)
    tell(wire, Nack(0, True, False))
    stay_quiet(wire, queue)
    return judge(drain(wire, queue), rabbitmq=[b"1", b"2"])


# ---- what comes back


def _give_back(wire: Wire, queue: str, request: commands.Basic.Nack | None) -> list[bool]:
    """Hold a message, send *request* or recover; answers the flag redelivered before and after."""
    publish_all(wire, queue, b"message")
    held = hold(wire, queue)
    if request is None:
        wire.call(1, commands.Basic.Recover(True), commands.Basic.RecoverOk)
    else:
        request.delivery_tag = held.tag
        tell(wire, request)
    again = hold(wire, queue)
    tell(wire, Ack(again.tag))
    return [held.redelivered, again.redelivered]


@chapter.case("2.6-redelivered-given-back", spec="redelivered")
def what_is_given_back_is_redelivered(ground: Ground) -> Seen:
    """A message given back by nack, reject or recover is marked as redelivered."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    requests = (Nack(0, False, True), Reject(0, True), None)
    seen = [_give_back(wire, queue, request) for request in requests]  # type: ignore[arg-type]
    return judge(seen, spec=[[False, True]] * 3)


@chapter.case("2.6-redelivered-after-channel", spec="redelivered, in their old places")
def a_closed_channel_gives_back(ground: Ground) -> Seen:
    """What a channel holds when it closes comes back to its place, as redelivered."""
    wire = ground.wire(1, 2)
    queue = ground.queue(wire)
    fill(wire, queue, *FIVE)
    hold_each(wire, queue, 3, 2)
    wire.call(2, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    until(lambda: counts(wire, queue)[0] == 5)
    again = [hold(wire, queue) for _ in FIVE]
    judge([each.body for each in again], spec=list(FIVE))
    return judge([each.redelivered for each in again], spec=[True] * 3 + [False] * 2)


@chapter.case("2.6-redelivered-after-connection", spec="redelivered, in their old places")
def a_lost_connection_gives_back(ground: Ground) -> Seen:
    """What a lost connection was sent comes back, as redelivered, though nobody has read it."""
    wire, lost = ground.wire(1), ground.wire(1)
    queue = ground.queue(wire, durable=True)
    lost.call(1, commands.Basic.Qos(prefetch_count=3), commands.Basic.QosOk)
    fill(wire, queue, *FIVE)
    consume(lost, queue)
    until(lambda: counts(wire, queue)[0] == 2)
    lost.abort()
    until(lambda: counts(wire, queue)[0] == 5)
    again = [hold(wire, queue) for _ in FIVE]
    judge([each.body for each in again], spec=list(FIVE))
    return judge([each.redelivered for each in again], spec=[True] * 3 + [False] * 2)


@chapter.case(
    "2.6-redelivered-after-restart",
    spec="redelivered",
    needs=frozenset([Need.RESTART]),
    limit_s=90,
)
def a_restart_does_not_forget(ground: Ground) -> Seen:
    """What was delivered before a restart and not acknowledged is redelivered after it."""
    wire = ground.wire(1)
    queue = ground.queue(wire, durable=True)
    confirm(wire)
    publish_all(wire, queue, *FIVE, properties=properties(delivery_mode=2))
    await_confirms(wire, 5)
    held = hold_each(wire, queue, 3)
    tell(wire, Ack(held[1]))
    stay_quiet(wire, queue)
    ground.restart()
    after = ground.wire(1)
    again = [hold(after, queue) for _ in range(4)]
    judge([each.body for each in again], spec=[b"1", b"3", b"4", b"5"])
    return judge([each.redelivered for each in again], spec=[True, True, False, False])


@chapter.case("2.6-place-of-returned", rabbitmq="their old places")
def returned_messages_keep_their_places(ground: Ground) -> Seen:
    """Messages that are given back one by one, in any order, stand where they stood."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    publish_all(wire, queue, *FIVE)
    held = hold_each(wire, queue, 4)
    for place in (2, 0, 3, 1):
        tell(wire, Nack(held[place], False, True))
        stay_quiet(wire, queue)
    return judge(drain(wire, queue), rabbitmq=list(FIVE))


@chapter.case("2.6-place-of-returned", rabbitmq="their old places, with gaps where they are gone")
def acknowledged_messages_leave_gaps(ground: Ground) -> Seen:
    """A multiple nack puts back what is left, before what was not delivered."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    publish_all(wire, queue, *FIVE)
    held = hold_each(wire, queue, 4)
    tell(wire, Ack(held[1]), Nack(held[2], True, True))
    wire.send(publish(1, queue, b"6"))
    stay_quiet(wire, queue)
    return judge(drain(wire, queue), rabbitmq=[b"1", b"3", b"5", b"6"])
