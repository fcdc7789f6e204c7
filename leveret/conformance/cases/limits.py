"""Queues that are full: who gives way, and who is refused (behaviours)."""

from pamqp import commands

from leveret.conformance.case import Chapter, Seen, judge
from leveret.conformance.cases.messages import (
    bodies,
    deliveries,
    delivery,
    fill,
    have_dead,
    hold,
    stay_quiet,
    tell,
    until,
    x,
)
from leveret.conformance.cases.steps import (
    await_confirms,
    confirm,
    consume,
    counts,
    drain,
    properties,
    publish_all,
)
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Wire, channel_closed, publish

chapter = Chapter("limits")

FOUR = (b"1", b"2", b"3", b"4")


def _limited(ground: Ground, wire: Wire, **arguments: object) -> str:
    return ground.queue(wire, arguments=x(**arguments))


# ---- drop-head


@chapter.case("2.8-drop-head", rabbitmq="the oldest go")
def the_oldest_give_way(ground: Ground) -> Seen:
    """A queue with more than x-max-length messages drops the oldest; x-overflow may say so."""
    wire = ground.wire(1)
    queues = (
        _limited(ground, wire, max_length=2),
        _limited(ground, wire, max_length=2, overflow="drop-head"),
    )
    for queue in queues:
        fill(wire, queue, *FOUR)
    return judge([drain(wire, queue) for queue in queues], rabbitmq=[[b"3", b"4"]] * 2)


@chapter.case("2.8-drop-head-confirmed", rabbitmq="confirmed, also those that go")
def what_gives_way_was_confirmed(ground: Ground) -> Seen:
    """A queue that drops the oldest confirms every publish."""
    wire = ground.wire(1)
    queue = _limited(ground, wire, max_length=1)
    confirm(wire)
    publish_all(wire, queue, *FOUR)
    return judge(await_confirms(wire, 4), rabbitmq=[])


@chapter.case("2.8-max-length-bytes", rabbitmq="bodies alone")
def bytes_of_bodies_count(ground: Ground) -> Seen:
    """x-max-length-bytes counts bodies, not properties; one that is too large does not stay."""
    wire = ground.wire(1)
    queue = _limited(ground, wire, max_length_bytes=10)
    long_headers = properties(headers={"long": "x" * 100})
    fill(wire, queue, b"aaaa", b"bbbb", b"cc", properties=long_headers)
    before = counts(wire, queue)[0]
    fill(wire, queue, b"d")
    judge(drain(wire, queue), rabbitmq=[b"bbbb", b"cc", b"d"])
    fill(wire, queue, b"e" * 11)
    judge(counts(wire, queue)[0], rabbitmq=0)
    return judge(before, rabbitmq=3)


@chapter.case("2.8-both-limits", rabbitmq="the first that is reached")
def the_first_limit_reached_counts(ground: Ground) -> Seen:
    """Of both limits the one counts that is reached first."""
    wire = ground.wire(1)
    queue = _limited(ground, wire, max_length=3, max_length_bytes=4)
    fill(wire, queue, *FOUR)
    judge(drain(wire, queue), rabbitmq=[b"2", b"3", b"4"])
    fill(wire, queue, b"aaa", b"b", b"c")
    return judge(drain(wire, queue), rabbitmq=[b"b", b"c"])


@chapter.case("2.8-limit-of-ready", rabbitmq="do not count; returned, they do")
def what_is_held_does_not_count(ground: Ground) -> Seen:
    """Unacknowledged messages do not count; what is returned may have to give way at once."""
    wire = ground.wire(1)
    queue = _limited(ground, wire, max_length=2)
    fill(wire, queue, b"1", b"2")
    held = hold(wire, queue), hold(wire, queue)
    fill(wire, queue, b"3", b"4")
    judge(counts(wire, queue)[0], rabbitmq=2)
    tell(wire, *(commands.Basic.Nack(each.tag, False, True) for each in held))
    stay_quiet(wire, queue)
    return judge(drain(wire, queue), rabbitmq=[b"3", b"4"])


@chapter.case("2.8-limit-and-priorities", rabbitmq="the highest priority")
def the_highest_priority_gives_way_first(ground: Ground) -> Seen:
    """What gives way in a queue with priorities is what would be delivered next."""
    wire = ground.wire(1)
    queue = _limited(ground, wire, max_length=2, max_priority=5)
    for priority, body in ((1, b"low"), (5, b"high"), (3, b"middle")):
        fill(wire, queue, body, properties=properties(priority=priority))
    return judge(drain(wire, queue), rabbitmq=[b"middle", b"low"])


@chapter.case("2.8-length-of-zero", rabbitmq="to a consumer that waits, and else to nobody")
def nothing_may_wait(ground: Ground) -> Seen:
    """A queue of length 0 hands messages to consumers with room, and keeps none."""
    wire = ground.wire(1, 2)
    queue, _ = have_dead(ground, wire, max_length=0)
    publish_all(wire, queue, b"1")
    lost = delivery(wire, 2).body
    wire.call(1, commands.Basic.Qos(prefetch_count=1), commands.Basic.QosOk)
    consume(wire, queue)
    publish_all(wire, queue, b"2")
    taken = delivery(wire).body
    publish_all(wire, queue, b"3")
    return judge([lost, taken, delivery(wire, 2).body], rabbitmq=[b"1", b"2", b"3"])


@chapter.case("2.8-maxlen-letters", rabbitmq="maxlen, in their order")
def what_gives_way_is_a_dead_letter(ground: Ground) -> Seen:
    """What is dropped for want of room becomes a dead letter of the reason maxlen."""
    wire = ground.wire(1, 2)
    queue, _ = have_dead(ground, wire, max_length=1)
    publish_all(wire, queue, *FOUR)
    letters = deliveries(wire, 3, 2)
    judge([letter.body for letter in letters], rabbitmq=[b"1", b"2", b"3"])
    return judge({letter.deaths[0]["reason"] for letter in letters}, rabbitmq={"maxlen"})


# ---- reject-publish


@chapter.case("2.8-reject-publish", rabbitmq="nacked until there is room")
def a_full_queue_refuses(ground: Ground) -> Seen:
    """A full queue with reject-publish nacks, and takes again what comes when there is room."""
    wire = ground.wire(1)
    queue = _limited(ground, wire, max_length=2, overflow="reject-publish")
    confirm(wire)
    publish_all(wire, queue, *FOUR)
    refused = await_confirms(wire, 4)
    judge(hold(wire, queue).body, rabbitmq=b"1")
    fill_again = (b"5", b"6")
    for number, body in enumerate(fill_again, start=5):
        publish_all(wire, queue, body)
        told = wire.receive().method
        expected = commands.Basic.Ack if number == 5 else commands.Basic.Nack
        judge(type(told).__name__, rabbitmq=expected.__name__)
    judge(drain(wire, queue), rabbitmq=[b"2", b"5"])
    return judge(refused, rabbitmq=[3, 4])


@chapter.case("2.8-reject-publish-bytes", rabbitmq="by what is there before it")
def bytes_refuse_too(ground: Ground) -> Seen:
    """A queue full by its bytes refuses, and takes again after a get."""
    wire = ground.wire(1)
    queue = _limited(ground, wire, max_length_bytes=4, overflow="reject-publish")
    confirm(wire)
    publish_all(wire, queue, b"aa", b"bb", b"cc")
    return judge(await_confirms(wire, 3), rabbitmq=[3])


@chapter.case("2.8-reject-publish-silent", rabbitmq="dropped without a word")
def without_confirms_it_is_dropped(ground: Ground) -> Seen:
    """On a channel without confirms what is refused is lost, mandatory or not."""
    wire = ground.wire(1)
    queue = _limited(ground, wire, max_length=1, overflow="reject-publish")
    wire.send(*(publish(1, queue, body, mandatory=True) for body in FOUR))
    stay_quiet(wire, queue)
    return judge(drain(wire, queue), rabbitmq=[b"1"])


@chapter.case("2.8-reject-publish-consumer", rabbitmq="nacked")
def a_waiting_consumer_does_not_help(ground: Ground) -> Seen:
    """A queue of length 0 with reject-publish refuses though a consumer waits."""
    wire = ground.wire(1)
    queue = _limited(ground, wire, max_length=0, overflow="reject-publish")
    consume(wire, queue)
    confirm(wire)
    publish_all(wire, queue, b"1")
    return judge(await_confirms(wire, 1), rabbitmq=[1])


@chapter.case("2.8-reject-publish-dlx", rabbitmq="nacked, and a dead letter of maxlen")
def what_is_refused_may_be_a_dead_letter(ground: Ground) -> Seen:
    """With reject-publish-dlx what is nacked becomes a dead letter; with reject-publish not."""
    wire = ground.wire(1, 2)
    silent, _ = have_dead(ground, wire, max_length=1, overflow="reject-publish")
    queue, _ = have_dead(ground, wire, max_length=1, overflow="reject-publish-dlx")
    publish_all(wire, silent, *FOUR)
    confirm(wire)
    publish_all(wire, queue, b"a", b"b", b"c")
    channels: list[int] = []
    letters: list[bytes] = []
    refused: list[int] = []
    while len(letters) < 2 or len(channels) < 3:
        received = wire.receive()
        told = received.method
        if isinstance(told, commands.Basic.Deliver):
            letters.append(wire.expect_body())
        else:
            settled = [told.delivery_tag or 0]  # type: ignore[attr-defined]
            if told.multiple:  # type: ignore[attr-defined]
                settled = [tag for tag in (1, 2, 3) if tag <= settled[0] and tag not in channels]
            channels += settled
            refused += settled if isinstance(told, commands.Basic.Nack) else []
    judge(sorted(refused), rabbitmq=[2, 3])
    return judge(letters, rabbitmq=[b"b", b"c"])


@chapter.case("2.8-limit-values", rabbitmq="refused")
def a_limit_is_a_number(ground: Ground) -> Seen:
    """A queue with a negative limit, or with an overflow of no known name, is refused."""
    wire = ground.wire(1)
    bad: tuple[dict[str, object], ...] = (
        {"max_length": -1},
        {"max_length": "10"},
        {"max_length_bytes": -5},
        {"overflow": "drop-tail"},
        {"overflow": 1},
    )
    for arguments in bad:
        declare = commands.Queue.Declare(
            queue=ground.queue_name(), exclusive=True, arguments=x(**arguments)
        )
        judge(wire.refused(1, declare), rabbitmq=channel_closed(406))
        wire.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    return Seen(text=f"{len(bad)} of {len(bad)}")


@chapter.case("2.8-purge-makes-room", rabbitmq="room again")
def a_purge_makes_room(ground: Ground) -> Seen:
    """A purge makes room in a queue that refuses."""
    wire = ground.wire(1)
    queue = _limited(ground, wire, max_length=1, overflow="reject-publish")
    fill(wire, queue, b"1", b"2")
    wire.call(1, commands.Queue.Purge(queue=queue), commands.Queue.PurgeOk)
    publish_all(wire, queue, b"3")
    until(lambda: counts(wire, queue)[0] == 1)
    consume(wire, queue)
    return judge(bodies(wire, 1), rabbitmq=[b"3"])
