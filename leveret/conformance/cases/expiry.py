"""Messages that live for a time only (behaviours)."""

from collections.abc import Sequence

from pamqp import commands

from leveret.conformance.case import Chapter, Need, Seen, judge
from leveret.conformance.cases.messages import (
    bodies,
    delivery,
    fill,
    have_dead,
    hold,
    is_empty,
    stay_quiet,
    tell,
    until,
    x,
)
from leveret.conformance.cases.steps import (
    OK,
    await_confirms,
    confirm,
    consume,
    counts,
    open_channel,
    outcome,
    properties,
    publish_all,
)
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Wire, channel_closed

chapter = Chapter("expiry")

LONG = "60000"
SHORT_MS = 40
EXPIRATION_FLAG = b"\x01\x00"


def _outlive(ground: Ground, wire: Wire, ms: int) -> None:
    """Return when a message that lives so long from now is dead."""
    queue = ground.queue(wire)
    fill(wire, queue, b"witness", properties=properties(expiration=str(ms)))
    until(lambda: counts(wire, queue)[0] == 0)


@chapter.case("2.8-queue-ttl", rabbitmq="after the x-message-ttl, in order")
def messages_die_after_the_ttl_of_their_queue(ground: Ground) -> Seen:
    """Messages are gone after their queue's x-message-ttl, the oldest first."""
    wire = ground.wire(1, 2)
    queue, _ = have_dead(ground, wire, message_ttl=SHORT_MS)
    publish_all(wire, queue, b"1", b"2", b"3")
    received = bodies(wire, 3, 2)
    judge(counts(wire, queue)[0], rabbitmq=0)
    return judge(received, rabbitmq=[b"1", b"2", b"3"])


@chapter.case("2.8-expiration", rabbitmq="after its expiration; without it, never")
def a_message_dies_after_its_expiration(ground: Ground) -> Seen:
    """A message with an expiration is gone after it; one without it stays."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    fill(wire, queue, b"1", properties=properties(expiration=str(SHORT_MS)))
    fill(wire, queue, b"2")
    until(lambda: counts(wire, queue)[0] == 1)
    return judge(hold(wire, queue).body, rabbitmq=b"2")


@chapter.case("2.8-least-ttl", rabbitmq="the least counts")
def the_lower_of_both_counts(ground: Ground) -> Seen:
    """Of a queue's x-message-ttl and a message's expiration the lower one counts."""
    wire = ground.wire(1)
    short, long = (ground.queue(wire, arguments=x(message_ttl=ms)) for ms in (SHORT_MS, 60000))
    fill(wire, short, b"1", properties=properties(expiration=LONG))
    fill(wire, long, b"1", properties=properties(expiration=str(SHORT_MS)))
    fill(wire, long, b"2", properties=properties(expiration=LONG))
    until(lambda: counts(wire, short)[0] == 0)
    until(lambda: counts(wire, long)[0] == 1)
    return judge(hold(wire, long).body, rabbitmq=b"2")


@chapter.case("2.8-head-only", rabbitmq="stays, and is never delivered")
def only_the_head_is_looked_at(ground: Ground) -> Seen:
    """What is over its time behind one that is not stays and counts, but is never given out."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    fill(wire, queue, b"1", properties=properties(expiration=LONG))
    fill(wire, queue, b"2", properties=properties(expiration=str(SHORT_MS)))
    _outlive(ground, wire, 2 * SHORT_MS)
    before = counts(wire, queue)[0]
    judge(hold(wire, queue).body, rabbitmq=b"1")
    judge(is_empty(wire, queue), rabbitmq=True)
    return judge(before, rabbitmq=2)


@chapter.case("2.8-not-to-consumers", rabbitmq="never delivered")
def consumers_are_not_sent_what_is_over(ground: Ground) -> Seen:
    """A consumer that makes room late is not sent what is over its time meanwhile."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    wire.call(1, commands.Basic.Qos(prefetch_count=1), commands.Basic.QosOk)
    consume(wire, queue)
    publish_all(wire, queue, b"1", properties=properties(expiration=LONG))
    first = delivery(wire)
    fill(wire, queue, b"2", properties=properties(expiration=str(SHORT_MS)))
    fill(wire, queue, b"3")
    _outlive(ground, wire, 2 * SHORT_MS)
    tell(wire, commands.Basic.Ack(first.tag))
    return judge([first.body, delivery(wire).body], rabbitmq=[b"1", b"3"])


@chapter.case("2.8-ttl-of-zero", rabbitmq="delivered at once, or dead")
def no_time_at_all(ground: Ground) -> Seen:
    """With a TTL of 0 a message goes to a consumer that waits for it, or dies at once."""
    wire = ground.wire(1, 2)
    queue, _ = have_dead(ground, wire, message_ttl=0)
    publish_all(wire, queue, b"1")
    dead = delivery(wire, 2).body
    consume(wire, queue)
    publish_all(wire, queue, b"2")
    publish_all(wire, queue, b"3", properties=properties(expiration="0"))
    return judge([dead, *bodies(wire, 2)], rabbitmq=[b"1", b"2", b"3"])


@chapter.case("2.8-ttl-unacked", rabbitmq="not while it is held, and then at once")
def what_is_held_does_not_die(ground: Ground) -> Seen:
    """A message does not die while a client holds it; given back late it does, without new time."""
    wire = ground.wire(1, 2)
    queue, dead = have_dead(ground, wire, message_ttl=15 * SHORT_MS)
    fill(wire, queue, b"1")
    held = hold(wire, queue)
    _outlive(ground, wire, 15 * SHORT_MS)
    stay_quiet(wire, dead)
    tell(wire, commands.Basic.Nack(held.tag, False, True))
    letter = delivery(wire, 2)
    return judge((letter.body, letter.deaths[0]["reason"]), rabbitmq=(b"1", "expired"))


@chapter.case("2.8-expiration-removed", rabbitmq="without expiration, and so for good")
def a_dead_letter_lives_on(ground: Ground) -> Seen:
    """A dead letter has no expiration any more, but that of its queue if that has one."""
    wire = ground.wire(1, 2)
    queue, _ = have_dead(ground, wire)
    publish_all(wire, queue, b"1", properties=properties(expiration=str(SHORT_MS), priority=3))
    letter = delivery(wire, 2)
    told = (letter.properties.expiration, letter.properties.priority)
    judge(letter.deaths[0].get("original-expiration"), rabbitmq=str(SHORT_MS))
    return judge(told, rabbitmq=(None, 3))


def _refused(wire: Wire, queue: str, texts: Sequence[str]) -> list[str]:
    """Those of *texts* that are refused as an expiration."""
    refused = []
    for channel, text in enumerate(texts, start=10):
        open_channel(wire, channel)
        value = EXPIRATION_FLAG + bytes([len(text)]) + text.encode()
        publish_all(wire, queue, b"", channel=channel, properties=value)
        end = outcome(wire, channel)
        if end != OK:
            judge(end, rabbitmq=channel_closed(406))
            refused.append(text)
    return refused


@chapter.case("2.8-expiration-values", rabbitmq="an integer from 0 to 315360000000 in decimals")
def an_expiration_is_a_decimal_number(ground: Ground) -> Seen:
    """An expiration that is no decimal number, or beyond ten years, closes the channel."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    good = ["0", "+5", "00010", "315360000000"]
    bad = ["", " 5", "5 ", "5s", "1.5", "-1", "0x10", "ten", "315360000001"]
    return judge(_refused(wire, queue, [*good, *bad]), rabbitmq=bad)


@chapter.case("2.8-queue-ttl-values", rabbitmq="an integer from 0 to 315360000000")
def a_ttl_is_a_number(ground: Ground) -> Seen:
    """A queue with an x-message-ttl that is no such number is refused."""
    wire = ground.wire(1)
    bad = (-1, 315360000001, "10", 1.5, True)
    for channel, value in enumerate(bad, start=10):
        open_channel(wire, channel)
        name = ground.queue_name()
        declare = commands.Queue.Declare(queue=name, exclusive=True, arguments=x(message_ttl=value))
        judge(wire.refused(channel, declare), rabbitmq=channel_closed(406))
    ground.queue(wire, arguments=x(message_ttl=315360000000))
    return Seen(text=f"{len(bad)} of {len(bad)}")


@chapter.case("2.8-queue-expiry", rabbitmq="gone, and its messages are no dead letters")
def a_queue_expires_with_what_is_in_it(ground: Ground) -> Seen:
    """An unused queue is gone after its x-expires, and its messages are no dead letters."""
    wire = ground.wire(1, 2)
    queue, dead = have_dead(ground, wire, expires=2 * SHORT_MS)
    publish_all(wire, queue, b"1")
    _outlive(ground, wire, 4 * SHORT_MS)
    stay_quiet(wire, dead)
    request = commands.Queue.Declare(queue=queue, passive=True)
    return judge(wire.refused(1, request), rabbitmq=channel_closed(404))


@chapter.case(
    "2.8-ttl-over-restart", rabbitmq="time goes on", needs=frozenset([Need.RESTART]), limit_s=90
)
def a_restart_gives_no_new_time(ground: Ground) -> Seen:
    """What is over its time when the broker is back is not delivered."""
    wire = ground.wire(1)
    queue = ground.queue(wire, durable=True)
    confirm(wire)
    for text, body in (("1000", b"1"), (LONG, b"2")):
        publish_all(wire, queue, body, properties=properties(expiration=text, delivery_mode=2))
    await_confirms(wire, 2)
    ground.restart()
    after = ground.wire(1)
    _outlive(ground, after, 1000)
    return judge((counts(after, queue)[0], hold(after, queue).body), rabbitmq=(1, b"2"))
