"""Errors of messages (rows 79 and 81 to 85 of the catalogue), and of channels' modes (92 to 94)."""

from collections.abc import Iterable

from pamqp import commands

from leveret.conformance.case import Chapter, Seen, judge
from leveret.conformance.cases.refusals import judge_words, refusal, refused_bytes, refused_for
from leveret.conformance.cases.steps import get, publish_all
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import (
    PERSISTENT,
    Ended,
    channel_closed,
    connection_closed,
    frame,
    header,
    method,
    publish,
)
from leveret.conformance.rules import Level

chapter = Chapter("errors-messages")
Basic = commands.Basic
Tx = commands.Tx
PUBLISH = Basic.Publish(routing_key="conformance-nowhere")
REPLY_TO = b"amq.rabbitmq.reply-to"
BODY_ROOM = 131_064
LARGEST_DEFAULT = 128 * 1024 * 1024


def _refused(ground: Ground, asked: Iterable[tuple[bytes, str]]) -> Seen:
    """Publish with these properties: each closes its channel with 406 and a text."""
    observed = []
    for properties, text in asked:
        sent = publish(1, "conformance-nowhere", b"x", properties=properties)
        observed.append((refused_bytes(ground, sent), refused_for(PUBLISH, 406, text)))
    return judge_words(observed)


@chapter.case(
    "error-79", level=Level.MAY, spec="313 no-consumers comes back", rabbitmq="540 immediate=true"
)
def immediate(ground: Ground) -> Seen:
    """An immediate message that nobody can take at once comes back."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    wire.send(publish(1, queue, b"x", immediate=True))
    first = wire.receive().method
    if isinstance(first, Basic.Return):
        comes_back = f"{first.reply_code} {first.reply_text}, with {wire.expect_body()!r}"
        return judge(comes_back, spec="313 NO_CONSUMERS, with b'x'", rabbitmq=None)
    expected = refusal(540, "immediate=true")
    if not isinstance(first, commands.Connection.Close):
        return judge(first.name, spec="Basic.Return", rabbitmq=expected)
    seen = connection_closed(first.reply_code or 0, first.reply_text)
    return judge(seen, spec="Basic.Return", rabbitmq=expected)


@chapter.case("error-81", rabbitmq="406 message size N is larger than ... max size M")
def message_above_the_maximum(ground: Ground) -> Seen:
    """A message of more than 128 MiB, or what a broker is set to, is refused once it is read."""
    wire = ground.wire(1)
    size = LARGEST_DEFAULT + BODY_ROOM
    try:
        wire.send(method(1, PUBLISH), header(1, size))
        for _ in range(size // BODY_ROOM):
            wire.send(frame(3, 1, bytes(BODY_ROOM)))
        wire.send(frame(3, 1, bytes(size % BODY_ROOM)))
    except Ended:
        return judge("the connection ended", rabbitmq=channel_closed(406))
    observed = wire.refusal()
    judge(observed, rabbitmq=channel_closed(406))
    begin = f"PRECONDITION_FAILED - message size {size} is larger than "
    return judge(observed.text[: len(begin)], rabbitmq=begin)


@chapter.case("error-82", rabbitmq="406 invalid expiration '10s': {leftover_string,\"s\"}")
def bad_expiration(ground: Ground) -> Seen:
    """The expiration of a message is a number of milliseconds."""
    reasons = {
        b"10s": '{leftover_string,"s"}',
        b"abc": "no_integer",
        b"-1": "{value_negative,-1}",
        b"": "no_integer",
        b"315360000001": "{value_too_large,315360000001}",
    }
    return _refused(
        ground,
        [
            (b"\x01\x00%c%b" % (len(text), text), f"invalid expiration '{text.decode()}': {reason}")
            for text, reason in reasons.items()
        ],
    )


@chapter.case("error-83", rabbitmq="406 user_id property set to 'x' but ... was 'guest'")
def user_id_of_somebody_else(ground: Ground) -> Seen:
    """A message has the name of the user who publishes it, or none."""
    user = ground.facilities.address.user
    text = f"user_id property set to 'other' but authenticated user was '{user}'"
    return _refused(ground, [(b"\x00\x10\x05other", text)])


@chapter.case("error-83", rabbitmq="it is delivered")
def user_id_of_ourselves(ground: Ground) -> Seen:
    """A message may have the name of the user who publishes it."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    user = ground.facilities.address.user.encode()
    properties = b"\x00\x10%c%b" % (len(user), user)
    publish_all(wire, queue, b"x", properties=properties)
    wire.call(1, Basic.Get(queue=queue, no_ack=True), Basic.GetOk)
    return judge(wire.expect_content(), rabbitmq=(properties, b"x"))


@chapter.case("error-84", rabbitmq="406 invalid message: {unacceptable_type_in_header,...}")
def further_keys_that_are_no_array(ground: Ground) -> Seen:
    """The headers CC and BCC are arrays."""
    entries = {
        b"\x02CCS\x00\x00\x00\x01a": '"CC",longstr',
        b"\x03BCCt\x01": '"BCC",bool',
    }
    return _refused(
        ground,
        [
            (
                b"\x20\x00%b%b" % (len(entry).to_bytes(4, "big"), entry),
                f"invalid message: {{unacceptable_type_in_header,{what}}}",
            )
            for entry, what in entries.items()
        ],
    )


@chapter.case("error-85", rabbitmq="406 fast reply consumer does not exist")
def direct_reply_without_a_consumer(ground: Ground) -> Seen:
    """Who asks for a direct reply consumes them, on the same channel."""
    wire = ground.wire(1, 2)
    wire.call(2, Basic.Consume(queue=REPLY_TO.decode(), no_ack=True), Basic.ConsumeOk)
    wire.send(publish(1, "q", b"x", properties=b"\x02\x00%c%b" % (len(REPLY_TO), REPLY_TO)))
    expected = refused_for(PUBLISH, 406, "fast reply consumer does not exist")
    return judge(wire.refusal(), rabbitmq=expected)


@chapter.case("error-92", rabbitmq="406 cannot switch from confirm to tx mode, ...")
def confirms_and_transactions(ground: Ground) -> Seen:
    """A channel has confirms or transactions."""
    confirm, tx = commands.Confirm.Select(), Tx.Select()
    observed = []
    for first, second, text in (
        (confirm, tx, "from confirm to tx"),
        (tx, confirm, "from tx to confirm"),
    ):
        wire = ground.wire(1)
        wire.send(method(1, first))
        wire.receive()
        expected = refused_for(second, 406, f"cannot switch {text} mode")
        observed.append((wire.refused(1, second), expected))
    return judge_words(observed)


@chapter.case(
    "error-93", spec="406 precondition-failed", rabbitmq="406 channel is not transactional"
)
def no_transaction(ground: Ground) -> Seen:
    """A commit or a rollback needs a transaction."""
    text = "channel is not transactional"
    return judge_words(
        [
            (ground.wire(1).refused(1, value), refused_for(value, 406, text))
            for value in (Tx.Commit(), Tx.Rollback())
        ]
    )


@chapter.case("error-94", rabbitmq="406 partial tx completion")
def queue_that_refuses_in_a_transaction(ground: Ground) -> Seen:
    """A commit fails if a queue has refused one of its messages, and the others are published."""
    observed = []
    for properties in (b"\0\0", PERSISTENT):
        wire, other = ground.wire(1), ground.wire(1)
        arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
        queue = ground.queue(other, arguments=arguments)
        wire.call(1, Tx.Select(), Tx.SelectOk)
        publish_all(wire, queue, b"1", b"2", b"3", properties=properties)
        expected = refused_for(Tx.Commit(), 406, "partial tx completion")
        observed.append((wire.refused(1, Tx.Commit()), expected))
        got = get(other, queue)
        judge(got[1] if got else None, rabbitmq=b"1")
    return judge_words(observed)
