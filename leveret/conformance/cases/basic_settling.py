"""Rules of the class basic: what becomes of what was delivered (118 to 130)."""

from pamqp import commands
from pamqp.base import Frame as Method

from leveret.conformance.case import Chapter, Met, Seen, Unmet, judge
from leveret.conformance.cases.steps import (
    close_channel,
    consume,
    drain,
    enqueue,
    get,
    open_channel,
    outcome,
    publish_all,
)
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Refusal, Wire, channel_closed, describe, method

chapter = Chapter("basic-settling")

Ack = commands.Basic.Ack
Nack = commands.Basic.Nack
Recover = commands.Basic.Recover
RecoverAsync = commands.Basic.RecoverAsync
Reject = commands.Basic.Reject

UNKNOWN = "406 unknown delivery tag"


def unknown(tag: int) -> Refusal:
    """The refusal of a tag that is not outstanding."""
    return channel_closed(406, f"PRECONDITION_FAILED - unknown delivery tag {tag}")


def taken(ground: Ground, count: int, channel: int = 1) -> tuple[Wire, str]:
    """A queue of that many messages, all got on *channel* and not acknowledged."""
    wire = ground.wire(channel)
    queue = ground.queue(wire, channel)
    enqueue(wire, queue, *(b"%d" % number for number in range(1, count + 1)))
    for _ in range(count):
        judge(get(wire, queue, channel, no_ack=False) is not None, spec=True)
    return wire, queue


def refused(wire: Wire, *requests: Method, channel: int = 1) -> Refusal | str:
    """Send all of *requests*, which have no replies; answers how they ended."""
    wire.send(*(method(channel, request) for request in requests))
    return outcome(wire, channel)


# ---- tags


@chapter.case(118, spec=UNKNOWN)
def acknowledge_twice(ground: Ground) -> Seen:
    """A delivery is acknowledged once."""
    wire, queue = taken(ground, 1)
    seen = judge(refused(wire, Ack(1), Ack(1)), spec=unknown(1))
    open_channel(wire, 1)
    judge(drain(wire, queue), spec=[])
    return seen


@chapter.case(118, spec=UNKNOWN)
def acknowledge_what_was_covered_before(ground: Ground) -> Seen:
    """A delivery that a multiple ack covered is not acknowledged again."""
    wire, _ = taken(ground, 3)
    return judge(refused(wire, Ack(2, multiple=True), Ack(1)), spec=unknown(1))


@chapter.case(118, spec=UNKNOWN)
def acknowledge_what_was_never_delivered(ground: Ground) -> Seen:
    """A tag that was never issued cannot be acknowledged, and takes no other along."""
    wire, queue = taken(ground, 1)
    seen = judge(refused(wire, Ack(2)), spec=unknown(2))
    open_channel(wire, 1)
    judge(drain(wire, queue), spec=[b"1"])
    return seen


@chapter.case(118, spec=UNKNOWN)
def acknowledge_multiple_up_to_what_was_never_delivered(ground: Ground) -> Seen:
    """A multiple ack of a tag that was never issued settles nothing."""
    wire, queue = taken(ground, 2)
    seen = judge(refused(wire, Ack(3, multiple=True)), spec=unknown(3))
    open_channel(wire, 1)
    judge(drain(wire, queue), spec=[b"1", b"2"])
    return seen


@chapter.case(118, spec=UNKNOWN)
def acknowledge_on_another_channel(ground: Ground) -> Seen:
    """A tag means a delivery of its own channel only."""
    wire, queue = taken(ground, 1)
    open_channel(wire, 2)
    seen = judge(refused(wire, Ack(1), channel=2), spec=unknown(1))
    wire.send(method(1, Ack(1)))
    judge(outcome(wire), spec="ok")
    judge(drain(wire, queue), spec=[])
    return seen


@chapter.case(118, spec=UNKNOWN)
def acknowledge_on_a_channel_opened_again(ground: Ground) -> Seen:
    """A tag goes with its channel, and tags of the next one begin with 1."""
    wire, queue = taken(ground, 2)
    close_channel(wire)
    open_channel(wire, 1)
    got = get(wire, queue, no_ack=False)
    judge(got and (got[0].delivery_tag, got[1]), spec=(1, b"1"))
    return judge(refused(wire, Ack(2)), spec=unknown(2))


@chapter.case(118, spec=UNKNOWN)
def acknowledge_tag_zero(ground: Ground) -> Seen:
    """Tag 0 stands for everything in a multiple ack, and for nothing in a single one."""
    wire, _ = taken(ground, 2)
    wire.send(method(1, Ack(0, multiple=True)), method(1, Ack(0, multiple=True)))
    judge(outcome(wire), spec="ok")
    return judge(refused(wire, Ack(0)), spec=unknown(0))


@chapter.case(118, spec=f"{UNKNOWN}, before the commit")
def acknowledge_an_unknown_tag_in_a_transaction(ground: Ground) -> Seen:
    """A tag is checked at once, even in a transaction."""
    wire, _ = taken(ground, 1)
    wire.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
    return judge(refused(wire, Ack(2)), spec=unknown(2))


@chapter.case(118, spec=f"{UNKNOWN}, before the commit")
def acknowledge_twice_in_a_transaction(ground: Ground) -> Seen:
    """A delivery is acknowledged once in a transaction."""
    wire, _ = taken(ground, 1)
    wire.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
    return judge(refused(wire, Ack(1), Ack(1)), spec=unknown(1))


@chapter.case(118, spec=UNKNOWN)
def reject_twice(ground: Ground) -> Seen:
    """A delivery is rejected once, and not after it was acknowledged."""
    wire, _ = taken(ground, 2)
    judge(refused(wire, Reject(1, requeue=False), Reject(1, requeue=False)), spec=unknown(1))
    other, _ = taken(ground, 1)
    return judge(refused(other, Ack(1), Reject(1, requeue=True)), spec=unknown(1))


@chapter.case(129, spec=UNKNOWN)
def nack_twice(ground: Ground) -> Seen:
    """A delivery is nacked once, and not after it was acknowledged."""
    wire, _ = taken(ground, 1)
    judge(refused(wire, Nack(1, requeue=False), Nack(1, requeue=False)), spec=unknown(1))
    other, _ = taken(ground, 1)
    return judge(refused(other, Ack(1), Nack(1)), spec=unknown(1))


@chapter.case(129, spec=UNKNOWN)
def nack_what_was_never_delivered(ground: Ground) -> None:
    """A tag that was never issued cannot be nacked, alone or with those before it."""
    for multiple in (False, True):
        wire, queue = taken(ground, 2)
        judge(refused(wire, Nack(3, multiple=multiple, requeue=False)), spec=unknown(3))
        open_channel(wire, 1)
        judge(drain(wire, queue), spec=[b"1", b"2"])


@chapter.case(129, spec=f"{UNKNOWN}, before the commit")
def nack_an_unknown_tag_in_a_transaction(ground: Ground) -> Seen:
    """The tag of a nack is checked at once, even in a transaction."""
    wire, _ = taken(ground, 1)
    wire.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
    return judge(refused(wire, Nack(2)), spec=unknown(2))


@chapter.case(129, spec="everything outstanding")
def nack_tag_zero(ground: Ground) -> Seen:
    """Tag 0 stands for everything in a multiple nack, even if that is nothing."""
    wire, queue = taken(ground, 2)
    for _ in range(2):
        wire.send(method(1, Nack(0, multiple=True, requeue=False)))
    judge(outcome(wire), spec="ok")
    judge(drain(wire, queue), spec=[])
    return judge(refused(wire, Nack(0, requeue=False)), spec=unknown(0))


# ---- to whom it goes


def given_back(ground: Ground, request: Method) -> Seen:
    """Who gets the message of a queue's only consumer that *request* puts back."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    consume(wire, queue)
    publish_all(wire, queue, b"1")
    judge(wire.expect_delivery(1)[1], spec=b"1")
    wire.send(method(1, request), method(1, commands.Basic.Get(queue=queue, no_ack=True)))
    answer = wire.receive().method
    if isinstance(answer, commands.Basic.GetOk):
        judge((answer.redelivered, wire.expect_body()), spec=(True, b"1"))
        return Seen(Met.SPEC, "nobody, it waits")
    if isinstance(answer, commands.Basic.GetEmpty):
        answer = wire.expect(commands.Basic.Deliver, 1)
    if not isinstance(answer, commands.Basic.Deliver):
        raise Unmet(f"expected a message, saw {describe(answer)}")
    judge((answer.redelivered, wire.expect_body()), spec=(True, b"1"))
    return Seen(Met.RABBITMQ, "the same consumer")


@chapter.case(122, spec="not to the same consumer", rabbitmq="to whoever is next")
def a_rejected_message_of_the_only_consumer(ground: Ground) -> Seen:
    """A message that a consumer rejected and put back does not come to it again."""
    return given_back(ground, Reject(1, requeue=True))


@chapter.case(130, spec="not to the same consumer", rabbitmq="to whoever is next")
def a_nacked_message_of_the_only_consumer(ground: Ground) -> Seen:
    """A message that a consumer nacked and put back does not come to it again."""
    return given_back(ground, Nack(1, requeue=True))


def passed_on(ground: Ground, request: Method) -> Seen:
    """Who gets what one of two consumers puts back by *request*."""
    wire = ground.wire(1, 2)
    queue = ground.queue(wire)
    for channel in (1, 2):
        consume(wire, queue, channel)
    publish_all(wire, queue, b"1")
    first = wire.receive()
    judge(wire.expect_body(), spec=b"1")
    wire.send(method(first.channel, request))
    deliver, body = wire.expect_delivery(3 - first.channel)
    return judge((deliver.redelivered, body), spec=(True, b"1"))


@chapter.case(122, spec="to another consumer")
def a_rejected_message_of_one_of_two_consumers(ground: Ground) -> Seen:
    """A message that a consumer rejected and put back comes to another."""
    return passed_on(ground, Reject(1, requeue=True))


@chapter.case(130, spec="to another consumer")
def a_nacked_message_of_one_of_two_consumers(ground: Ground) -> Seen:
    """A message that a consumer nacked and put back comes to another."""
    return passed_on(ground, Nack(1, requeue=True))


# ---- recover


def marks(wire: Wire, queue: str, count: int) -> list[tuple[bool, bytes]]:
    """The next messages of a queue: whether they are marked as redelivered, and their bodies."""
    got = [get(wire, queue) for _ in range(count)]
    return [(bool(message[0].redelivered), message[1]) for message in got if message]


THREE_AGAIN = [(True, b"1"), (True, b"2"), (True, b"3")]


@chapter.case(123, spec="marked as redelivered")
def recover_async_of_what_was_got(ground: Ground) -> Seen:
    """What basic.recover-async puts back is marked as redelivered, and has no reply."""
    wire, queue = taken(ground, 3)
    wire.send(method(1, RecoverAsync(requeue=True)))
    return judge(marks(wire, queue, 3), spec=THREE_AGAIN)


@chapter.case(123, spec="marked as redelivered")
def recover_async_of_what_was_delivered(ground: Ground) -> Seen:
    """What basic.recover-async has delivered again is marked as redelivered."""
    return delivered_again(ground, RecoverAsync(requeue=True))


@chapter.case(124, spec="marked as redelivered")
def recover_of_what_was_got(ground: Ground) -> Seen:
    """What basic.recover puts back is marked as redelivered."""
    wire, queue = taken(ground, 3)
    wire.call(1, Recover(requeue=True), commands.Basic.RecoverOk)
    return judge(marks(wire, queue, 3), spec=THREE_AGAIN)


@chapter.case(124, spec="marked as redelivered")
def recover_of_what_was_delivered(ground: Ground) -> Seen:
    """What basic.recover has delivered again is marked as redelivered."""
    return delivered_again(ground, Recover(requeue=True))


@chapter.case(124, spec="recover-ok")
def recover_of_nothing(ground: Ground) -> None:
    """A channel without deliveries may recover."""
    wire, queue = taken(ground, 1)
    wire.send(method(1, Ack(1)))
    wire.call(1, Recover(requeue=True), commands.Basic.RecoverOk)
    judge(drain(wire, queue), spec=[])


def delivered_again(ground: Ground, request: Method) -> Seen:
    """What a consumer is sent after *request*, which recovers."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    consume(wire, queue)
    publish_all(wire, queue, b"1", b"2", b"3")
    for _ in range(3):
        judge(wire.expect_delivery(1)[0].redelivered, spec=False)
    wire.send(method(1, request))
    again: list[tuple[bool, bytes]] = []
    is_answered = isinstance(request, RecoverAsync)
    while len(again) < 3 or not is_answered:
        answer = wire.receive().method
        if isinstance(answer, commands.Basic.RecoverOk) and not is_answered:
            is_answered = True
        elif isinstance(answer, commands.Basic.Deliver):
            again.append((bool(answer.redelivered), wire.expect_body()))
        else:
            raise Unmet(f"expected a delivery, saw {describe(answer)}")
    return judge(again, spec=THREE_AGAIN)


def recovered_in_place(ground: Ground, request: Method) -> Seen:
    """Whether *request* has what is outstanding sent once more to the one who has it."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    consume(wire, queue)
    publish_all(wire, queue, b"1")
    judge(wire.expect_delivery(1)[1], spec=b"1")
    wire.send(method(1, request))
    answer = wire.receive()
    if isinstance(answer.method, commands.Connection.Close):
        saw = answer.method.reply_code, answer.method.reply_text
        judge(saw, spec=(540, "NOT_IMPLEMENTED - requeue=false"))
        return Seen(Met.RABBITMQ, "refused")
    if isinstance(answer.method, commands.Basic.RecoverOk):
        answer = wire.receive()
    if not isinstance(answer.method, commands.Basic.Deliver):
        raise Unmet(f"expected a delivery, saw {answer}")
    judge((answer.method.redelivered, wire.expect_body()), spec=(True, b"1"))
    return Seen(Met.SPEC, "delivered again")


@chapter.case(123, spec="delivered again", rabbitmq="540 not-implemented")
def recover_async_to_the_same_consumer(ground: Ground) -> Seen:
    """A basic.recover-async that puts nothing back has it sent again to the same consumer."""
    return recovered_in_place(ground, RecoverAsync(requeue=False))


@chapter.case(124, spec="delivered again", rabbitmq="540 not-implemented")
def recover_to_the_same_consumer(ground: Ground) -> Seen:
    """A basic.recover that puts nothing back has it sent again to the same consumer."""
    return recovered_in_place(ground, Recover(requeue=False))
