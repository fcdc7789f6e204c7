"""Errors of channels (rows 32 to 39 of the catalogue)."""

from pamqp import commands

from leveret.conformance.case import Chapter, Met, Seen, Unmet, judge
from leveret.conformance.cases.connection import MANAGED
from leveret.conformance.cases.refusals import (
    judge_words,
    refusal,
    refused_bytes,
    refused_for,
)
from leveret.conformance.cases.tenants import enter, new_user, new_vhost, permit
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import (
    PERSISTENT,
    Refusal,
    frame,
    method,
    publish,
)
from leveret.conformance.rules import Level

chapter = Chapter("errors-channels")
Channel = commands.Channel


@chapter.case("error-32", spec="504 channel-error", rabbitmq="504 expected 'channel.open'")
def channel_that_is_not_open(ground: Ground) -> Seen:
    """Methods need a channel that is open."""
    asked = {
        method(2, commands.Basic.Qos()): (60, 10),
        method(2, Channel.Close(200, "", 0, 0)): (20, 40),
        publish(2, "q", b"x"): (60, 40),
        method(2, commands.Basic.Ack(1)): (60, 80),
    }
    text = "expected 'channel.open'"
    return judge_words(
        [(refused_bytes(ground, data), refusal(504, text, ids)) for data, ids in asked.items()]
    )


@chapter.case("error-33", spec="504 channel-error", rabbitmq="504 second 'channel.open' seen")
def channel_that_is_open(ground: Ground) -> Seen:
    """A channel is opened once."""
    expected = refused_for(Channel.Open(), 504, "second 'channel.open' seen")
    return judge_words([(ground.wire(1).refused(1, Channel.Open()), expected)])


@chapter.case(
    "error-34", spec="504 channel-error", rabbitmq="530 number of channels opened (N) ..."
)
def more_channels_than_negotiated(ground: Ground) -> Seen:
    """No more channels are open than the client has agreed to."""
    wire = ground.wire(1, 2, 3, channel_max=3)
    text = "number of channels opened (3) has reached the negotiated channel_max (3)"
    expected = refusal(530, text)
    seen = wire.refused(4, Channel.Open())
    return judge(seen, spec=Refusal("connection", 504, ""), rabbitmq=expected)


@chapter.case("error-34", spec="each is opened")
def all_channels_that_are_offered(ground: Ground) -> None:
    """As many channels as the broker offers can be open at once."""
    wire = ground.wire()
    offered = range(1, 2048)
    wire.send(*(method(number, Channel.Open()) for number in offered))
    for _ in offered:
        wire.expect(Channel.OpenOk)


@chapter.case("error-35", rabbitmq="530 ... maximum allowed user limit of (N)", needs=MANAGED)
def channels_of_a_user(ground: Ground) -> Seen:
    """A user has no more channels than the limit of this user."""
    vhost, user = new_vhost(ground), new_user(ground)
    permit(ground, user, vhost)
    ground.manage("PUT", "user-limits", user, "max-channels", body={"value": 1})
    wire = enter(ground, vhost, user, 1)
    limit = "has reached the maximum allowed user limit of (1)"
    expected = refusal(530, f"number of channels opened for user '{user}' {limit}")
    return judge(wire.refused(2, Channel.Open()), rabbitmq=expected)


@chapter.case("error-36", level=Level.MAY, spec="flow-ok", rabbitmq="540 active=false")
def flow_off(ground: Ground) -> Seen:
    """A client cannot have RabbitMQ stop its deliveries."""
    answer = ground.wire(1).answer(1, Channel.Flow(active=False))
    seen = answer if isinstance(answer, Refusal) else answer.name
    expected = refused_for(Channel.Flow(), 540, "active=false")
    return judge(seen, spec="Channel.FlowOk", rabbitmq=expected)


@chapter.case(
    "error-37",
    level=Level.MAY,
    spec="methods are carried out in their order",
    rabbitmq="504 unexpected command while processing 'tx.commit'",
)
def method_behind_a_commit(ground: Ground) -> Seen:
    """A method may come while tx.commit waits for the disk."""
    wire = ground.wire(1)
    queue = ground.queue(wire, durable=True)
    wire.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
    wire.send(publish(1, queue, b"body", properties=PERSISTENT) * 100)
    qos = commands.Basic.Qos(prefetch_count=1)
    wire.send(method(1, commands.Tx.Commit()), method(1, qos))
    first = wire.receive().method
    if isinstance(first, commands.Connection.Close):
        text = f"{first.reply_code} {first.reply_text}"
        if first.reply_code != 504:
            raise Unmet(text)
        return Seen(Met.RABBITMQ, text)
    if not isinstance(first, commands.Tx.CommitOk):
        raise Unmet(f"expected commit-ok, saw {first.name}")
    wire.expect(commands.Basic.QosOk, 1)
    return Seen(Met.SPEC, "methods are carried out in their order")


@chapter.case("error-38", spec="503 command-invalid", rabbitmq="503 unimplemented method")
def method_of_the_server(ground: Ground) -> Seen:
    """A method that only brokers send is refused."""
    value = commands.Queue.DeclareOk("q", 0, 0)
    expected = refused_for(value, 503, "unimplemented method")
    return judge_words([(ground.wire(1).refused(1, value), expected)])


@chapter.case("error-38", spec="503 command-invalid", rabbitmq="503 unimplemented method")
def method_of_the_connection_on_a_channel(ground: Ground) -> Seen:
    """Methods of the class connection belong to channel 0."""
    value = commands.Connection.Open("/")
    expected = refused_for(value, 503, "unimplemented method")
    return judge_words([(ground.wire(1).refused(1, value), expected)])


@chapter.case("error-39", rabbitmq="access.request-ok with ticket 1")
def access_of_older_clients(ground: Ground) -> Seen:
    """The access.request of AMQP 0-8 is granted."""
    wire = ground.wire(1)
    wire.send(frame(1, 1, b"\x00\x1e\x00\x0a\x05/data\x1d"))
    return judge(wire.receive().payload, rabbitmq=b"\x00\x1e\x00\x0b\x00\x01")
