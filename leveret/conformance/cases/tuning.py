"""Rules of the tuning (13 to 16): how large frames and how many channels may be."""

from pamqp import commands

from leveret.conformance.case import Chapter, Seen, judge
from leveret.conformance.cases.connection import NO_WORD, close_or_end, greeted, logged_in, login
from leveret.conformance.cases.refusals import refusal
from leveret.conformance.cases.steps import enqueue
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Refusal, connection_closed, method

chapter = Chapter("tuning")
Connection = commands.Connection


@chapter.case(13, spec="it is taken")
def start_ok_of_the_minimum(ground: Ground) -> None:
    """A frame of 4096 octets is taken before anything is negotiated."""
    wire = greeted(ground)
    answer = login(wire)
    properties = dict(answer.client_properties or {})
    answer.client_properties = properties | {"filling": ""}
    missing = 4096 - len(method(0, answer))
    answer.client_properties = properties | {"filling": "x" * missing}
    wire.call(0, answer, Connection.Tune)


@chapter.case(13, spec="nothing less is proposed")
def proposal_of_the_broker(ground: Ground) -> Seen:
    """The broker proposes frames of 4096 octets at least."""
    _, tune = logged_in(ground)
    proposed = tune.frame_max or 0
    return judge(proposed == 0 or proposed >= 4096, spec=True)


@chapter.case(13, spec="it is taken", rabbitmq="it is taken; 530 since 4.1")
def smallest_frame_max(ground: Ground) -> Seen:
    """A frame-max of 4096 can be negotiated."""
    wire, tune = logged_in(ground)
    wire.send(method(0, Connection.TuneOk(tune.channel_max, 4096, 0)))
    answer = wire.answer(0, Connection.Open(wire.address.vhost))
    if isinstance(answer, Refusal):
        text = "negotiated frame_max = 4096 is lower than the minimum allowed value (8192)"
        return judge(answer, spec="taken", rabbitmq=refusal(530, text))
    return judge(answer.name, spec="Connection.OpenOk")


def _tuning_refused(ground: Ground, channel_max: int, frame_max: int, text: str) -> Seen:
    """Send a tune-ok: the specification has the connection end, RabbitMQ says why before."""
    wire, _ = logged_in(ground)
    answer = Connection.TuneOk(channel_max, frame_max, 0)
    wire.send(method(0, answer))
    seen = close_or_end(wire)
    if seen == NO_WORD:
        return Seen(text=NO_WORD)
    return judge(seen, spec=NO_WORD, rabbitmq=refusal(530, f"negotiated {text}", (10, 30)))


@chapter.case(15, spec="the connection ends", rabbitmq="530; 3.x: no word")
def frame_max_below_the_minimum(ground: Ground) -> Seen:
    """A frame-max below 4096 is refused."""
    wire, tune = logged_in(ground)
    wire.send(method(0, Connection.TuneOk(tune.channel_max, 4095, 0)))
    seen = close_or_end(wire)
    if seen == NO_WORD:
        return Seen(text=NO_WORD)
    return judge(seen, spec=connection_closed(530))


@chapter.case(
    14, spec=NO_WORD, rabbitmq="530 negotiated channel_max = X is higher than ...; 3.x: no word"
)
def channel_max_above_the_proposal(ground: Ground) -> Seen:
    """More channels than the broker proposes are refused."""
    _, tune = logged_in(ground)
    offered, frames = tune.channel_max or 0, tune.frame_max or 0
    above = f"is higher than the maximum allowed value ({offered})"
    text = f"channel_max = {offered + 1} {above}"
    return _tuning_refused(ground, offered + 1, frames, text)


@chapter.case(
    16, spec=NO_WORD, rabbitmq="530 negotiated frame_max = X is higher than ...; 3.x: no word"
)
def frame_max_above_the_proposal(ground: Ground) -> Seen:
    """Larger frames than the broker proposes are refused, and so is no limit."""
    _, tune = logged_in(ground)
    channels, offered = tune.channel_max or 0, tune.frame_max or 0
    above = f"is higher than the maximum allowed value ({offered})"
    _tuning_refused(ground, channels, 0, f"frame_max = 0 (no limit) {above}")
    return _tuning_refused(ground, channels, offered + 1, f"frame_max = {offered + 1} {above}")


@chapter.case("2.3-frame-max", spec="no frame to a client is larger than it takes")
def frames_are_cut_for_the_client(ground: Ground) -> Seen:
    """The body for a client is cut into frames of the size that it has negotiated."""
    publisher, consumer = ground.wire(1), ground.wire(1, frame_max=8192)
    queue = ground.queue(publisher, durable=True)
    body = bytes(range(256)) * 200
    enqueue(publisher, queue, body)
    consumer.call(1, commands.Basic.Get(queue=queue, no_ack=True), commands.Basic.GetOk)
    consumer.receive()
    received, largest = b"", 0
    while len(received) < len(body):
        piece = consumer.receive().payload
        received, largest = received + piece, max(largest, len(piece) + 8)
    return judge((received == body, largest <= 8192), spec=(True, True))
