"""Reply codes (section 2.1): which close a channel, and which the whole connection."""

from pamqp import commands

from leveret.conformance.case import Chapter, Seen, judge
from leveret.conformance.cases.steps import consume, named
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import (
    channel_closed,
    connection_closed,
    frame,
    method,
    publish,
)

chapter = Chapter("codes")
Basic = commands.Basic
Declare = commands.Queue.Declare


@chapter.case("2.1-soft-errors", spec="403 to 406 close the channel, the connection goes on")
def soft_errors(ground: Ground) -> Seen:
    """An error of the codes 403 to 406 closes its channel, and nothing else."""
    owner = ground.wire(1)
    theirs = ground.queue(owner)
    wire = ground.wire(1, 2)
    ours = ground.queue(wire, 2)
    tag = consume(wire, ours, 2)
    errors = {
        403: method(1, Declare(queue="amq.mine")),
        404: method(1, Declare(queue="conformance-missing", passive=True)),
        405: method(1, Declare(queue=theirs, passive=True)),
        406: method(1, Basic.Ack(1)),
    }
    for code, data in errors.items():
        wire.send(data)
        judge(wire.refusal(), spec=channel_closed(code))
        wire.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    wire.send(publish(2, ours, b"body"))
    deliver, _ = wire.expect_delivery(2)
    return judge(deliver.consumer_tag, spec=tag)


@chapter.case("2.1-hard-errors", spec="500 to 540 close the connection with all of its channels")
def hard_errors(ground: Ground) -> Seen:
    """An error of the codes above 500 closes the connection, consumers and exclusive queues."""
    errors = {
        501: b"\x01\x00\x01\x00\x00\x00\x01x\x00",
        503: method(1, commands.Queue.DeclareOk("q", 0, 0)),
        504: method(1, commands.Channel.Open()),
        505: frame(3, 1, b"body"),
        540: method(1, Basic.Qos(prefetch_size=7)),
    }
    other = ground.wire(1)
    for code, data in errors.items():
        wire = ground.wire(1, 2)
        queue = ground.queue(wire, 2)
        consume(wire, queue, 2)
        wire.send(data)
        judge(wire.refusal(), spec=connection_closed(code))
        seen = judge(other.refused(1, Declare(queue=queue, passive=True)), spec=channel_closed(404))
        other.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    return seen


@chapter.case("2.1-length-of-texts", spec="255 octets at most", rabbitmq="252 and three points")
def length_of_texts(ground: Ground) -> Seen:
    """A reply text has 255 octets at most; a longer one is cut."""
    name = "n" * 255
    refusal = ground.wire(1).refused(1, Declare(queue=name, passive=True))
    judge(refusal, spec=channel_closed(404))
    text = f"NOT_FOUND - no queue '{name}'"
    return judge(refusal.text, spec=text[:252] + "...")


@chapter.case("2.1-texts-of-unicode", spec="valid UTF-8 of 255 octets at most")
def cut_inside_of_a_letter(ground: Ground) -> Seen:
    """A text that is cut is still valid UTF-8."""
    wire = ground.wire(1)
    wire.send(named(1, Declare(queue="NAME", passive=True), "ß" * 127))
    refusal = wire.refusal()
    judge(refusal, spec=channel_closed(404))
    return judge(len(refusal.text.encode()) <= 255, spec=True)


@chapter.case("2.1-ids-of-the-method", spec="class and method of what failed")
def ids_of_the_method(ground: Ground) -> Seen:
    """A close names the method that failed."""
    refusals = [
        ground.wire(1).refused(1, Declare(queue="conformance-missing", passive=True)),
        ground.wire(1).refused(1, Basic.Qos(prefetch_size=7)),
        ground.wire(1).refused(1, commands.Tx.Commit()),
    ]
    return judge([refusal.ids for refusal in refusals], spec=[(50, 10), (60, 10), (90, 20)])


@chapter.case("2.1-nowait", spec="refused all the same")
def error_of_a_method_without_an_answer(ground: Ground) -> Seen:
    """A method with nowait is not answered, but refused if it fails."""
    wire = ground.wire(1)
    queue = ground.queue_name()
    wire.send(method(1, Declare(queue=queue, exclusive=True, nowait=True)))
    wire.expect_silence(1)
    wire.send(method(1, Declare(queue="conformance-missing", passive=True, nowait=True)))
    return judge(wire.refusal(), spec=channel_closed(404))
