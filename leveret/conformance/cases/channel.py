"""Rules of the class channel (21 to 27)."""

from pamqp import commands

from leveret.conformance.case import Chapter, Seen, judge
from leveret.conformance.cases.refusals import refused_for
from leveret.conformance.cases.steps import consume, drain, get, open_channel, publish_all
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import (
    HEARTBEAT,
    channel_closed,
    connection_closed,
    frame,
    header,
    method,
    publish,
)

chapter = Chapter("channel")
Channel = commands.Channel
CLOSE = method(1, Channel.Close(200, "", 0, 0))
MISSING = commands.Exchange.Declare(exchange="conformance-missing", passive=True)


@chapter.case(21, spec="504 channel-error", rabbitmq="504 second 'channel.open' seen")
def open_twice(ground: Ground) -> Seen:
    """A channel that is open cannot be opened."""
    refusal = ground.wire(1).refused(1, Channel.Open())
    expected = refused_for(Channel.Open(), 504, "second 'channel.open' seen")
    return judge(refusal, spec=connection_closed(504), rabbitmq=expected)


@chapter.case(22, spec="a new channel delivers")
def new_channel_is_active(ground: Ground) -> None:
    """A channel delivers without having been asked to."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    consume(wire, queue)
    publish_all(wire, queue, b"body")
    wire.expect_delivery(1)


@chapter.case(23, spec="deliveries pause", rabbitmq="540 active=false")
def flow_pauses_deliveries(ground: Ground) -> Seen:
    """Nothing is delivered between channel.flow with active=false and with active=true."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    answer = wire.answer(1, Channel.Flow(active=False))
    if not isinstance(answer, Channel.FlowOk):
        expected = refused_for(Channel.Flow(active=False), 540, "active=false")
        return judge(answer, spec="deliveries pause", rabbitmq=expected)
    consume(wire, queue)
    publish_all(wire, queue, b"1", b"2")
    wire.expect_silence(1)
    wire.call(1, Channel.Flow(active=True), Channel.FlowOk)
    bodies = [wire.expect_delivery(1)[1] for _ in range(2)]
    paused = "deliveries pause" if bodies == [b"1", b"2"] else f"afterwards {bodies} is delivered"
    return judge(paused, spec="deliveries pause", rabbitmq=None)


@chapter.case(23, spec="flow-ok with active=true")
def flow_is_on(ground: Ground) -> Seen:
    """A channel.flow with active=true is confirmed."""
    wire = ground.wire(1)
    return judge(wire.call(1, Channel.Flow(active=True), Channel.FlowOk).active, spec=True)


@chapter.case(26, spec="ignored until close-ok")
def methods_behind_an_error(ground: Ground) -> Seen:
    """What follows an error on its channel is ignored, until close-ok frees the number."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    wire.send(
        publish(1, queue, b"before"),
        publish(1, "k", b"lost", exchange="conformance-missing"),
        publish(1, queue, b"ignored") * 5,
        method(1, commands.Queue.Delete(queue=queue)),
    )
    judge(wire.refusal(), spec=channel_closed(404))
    open_channel(wire, 1)
    return judge(drain(wire, queue), spec=[b"before"])


@chapter.case(26, spec="close-ok to a close that crosses")
def closes_that_cross(ground: Ground) -> None:
    """A close of the client that crosses the broker's own is answered, and the number is free."""
    wire = ground.wire(1)
    wire.send(method(1, MISSING), CLOSE)
    wire.expect(Channel.Close, 1)
    wire.expect(Channel.CloseOk, 1)
    wire.send(method(1, Channel.CloseOk()))
    open_channel(wire, 1)
    wire.check()


@chapter.case(26, spec="the number can be opened again")
def number_is_used_again(ground: Ground) -> None:
    """The number of a closed channel can be opened again, whoever closed it."""
    wire = ground.wire(1)
    for _ in range(3):
        wire.call(1, Channel.Close(200, "", 0, 0), Channel.CloseOk)
        open_channel(wire, 1)
        judge(wire.refused(1, MISSING), spec=channel_closed(404))
        open_channel(wire, 1)


@chapter.case(26, spec="other channels go on")
def other_channels_go_on(ground: Ground) -> None:
    """While one channel waits for its close-ok, the others of its connection work."""
    wire = ground.wire(1, 2)
    wire.send(method(1, MISSING))
    wire.expect(Channel.Close, 1)
    queue = ground.queue(wire, 2)
    publish_all(wire, queue, b"body", channel=2)
    judge(get(wire, queue, 2) is not None, spec=True)


@chapter.case("2.3-new-channel", rabbitmq="nothing is kept of the channel before")
def new_channel_knows_nothing(ground: Ground) -> Seen:
    """A channel that is opened anew knows neither mode nor queue of the one before."""
    wire = ground.wire(1)
    ground.queue(wire)
    wire.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    wire.call(1, Channel.Close(200, "", 0, 0), Channel.CloseOk)
    open_channel(wire, 1)
    wire.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
    refusal = wire.refused(1, commands.Basic.Get(queue=""))
    return judge(refusal, rabbitmq=channel_closed(404, "NOT_FOUND - no previously declared queue"))


@chapter.case("2.3-interleaved-contents", spec="each channel has its own content")
def contents_interleave(ground: Ground) -> Seen:
    """The frames of contents on several channels may be mixed."""
    wire = ground.wire(1, 2)
    queue = ground.queue(wire)
    one, two = (method(n, commands.Basic.Publish(routing_key=queue)) for n in (1, 2))
    wire.send(one, two, header(2, 2), header(1, 2), frame(3, 1, b"a"), frame(3, 2, b"c"))
    wire.send(HEARTBEAT, frame(3, 2, b"d"), frame(3, 1, b"b"))
    wire.check()
    bodies = {body for got in (get(wire, queue), get(wire, queue)) if got for body in got[1:]}
    return judge(bodies, spec={b"cd", b"ab"})
