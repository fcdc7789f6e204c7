"""Errors of frames (rows 16 to 31 of the catalogue).

Where the specification has a code for them it is in the part on frames and contents (4.2).
"""

import struct
from collections.abc import Iterable

from pamqp import commands

from leveret.conformance.case import Chapter, Met, Seen, judge
from leveret.conformance.cases.connection import NO_WORD, close_or_end
from leveret.conformance.cases.refusals import (
    judge_versions,
    judge_words,
    refusal,
    refused_bytes,
)
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import (
    Refusal,
    connection_closed,
    content,
    frame,
    header,
    method,
    publish,
)

chapter = Chapter("errors-frames")
PUBLISH = method(1, commands.Basic.Publish(routing_key="conformance-nowhere"))
PUBLISH_IDS = (60, 40)
DECLARE_IDS = (50, 10)
DECLARE = b"\x00\x32\x00\x0a\x00\x00"
NO_METHOD = refusal(505, "expected method frame, got non method frame instead")
NO_HEADER = refusal(
    505,
    "expected content header for class 60, got non content header frame instead",
    PUBLISH_IDS,
)
NO_BODY = refusal(505, "expected content body, got non content body frame instead", PUBLISH_IDS)


def _judge_each(ground: Ground, expected: Refusal, *sent: bytes) -> Seen:
    """Send each on a connection of its own: all are refused as *expected*."""
    return judge_words([(refused_bytes(ground, data), expected) for data in sent])


def _judge_both(ground: Ground, spec: int, asked: Iterable[tuple[bytes, Refusal]]) -> Seen:
    """Send each on a connection of its own; the specification's code is not RabbitMQ's."""
    seen = [
        judge(refused_bytes(ground, data), spec=connection_closed(spec), rabbitmq=expected)
        for data, expected in asked
    ]
    return seen[-1]


@chapter.case("error-16", spec="501 frame-error", rabbitmq="501 {invalid_frame_end_marker,0}")
def end_of_a_frame(ground: Ground) -> Seen:
    """A frame ends in the octet 206; behind another nothing is read."""
    expected = refusal(501, 'type 1, all octets = <<"x">>: {invalid_frame_end_marker,0}')
    broken = b"\x01\x00\x01\x00\x00\x00\x01x\x00"
    return _judge_each(ground, expected, broken + method(1, commands.Basic.Qos()))


@chapter.case("error-17", spec="501 frame-error", rabbitmq="501 {frame_too_large,SIZE,MAX}")
def frame_above_the_maximum(ground: Ground) -> Seen:
    """A frame larger than was negotiated is refused at its head."""
    seen = []
    for kind, size in ((1, 8193), (3, 2**32 - 1)):
        wire = ground.wire(1, frame_max=8192)
        wire.send(struct.pack(">BHL", kind, 1, size))
        text = f"type {kind}, all octets = <<>>: {{frame_too_large,{size},%d}}"
        # Some versions of RabbitMQ name the payload that is left of such a frame.
        versions = (refusal(501, text % limit) for limit in (8192, 8184))
        seen.append(judge_versions(wire.refusal(), *versions))
    return seen[-1]


@chapter.case("error-17", rabbitmq="it is taken")
def eight_octets_of_grace(ground: Ground) -> None:
    """A payload of exactly frame-max is taken, though its frame is larger."""
    wire = ground.wire(1, frame_max=8192)
    wire.send(PUBLISH, header(1, 8192), frame(3, 1, bytes(8192)))
    wire.check()


@chapter.case("error-18", spec="501 frame-error", rabbitmq="501 ...: unknown_frame")
def unknown_type_of_frame(ground: Ground) -> Seen:
    """There are frames of types 1, 2, 3 and 8."""
    observed = refused_bytes(ground, frame(0, 0, b"abcdefghijklmnop"))
    text = 'type 0, %s octets = <<"abcdefghijklmnop">>: unknown_frame'
    versions = (refusal(501, text % words) for words in ("first 16", "all"))
    return judge_versions(observed, *versions)


@chapter.case("error-19", spec="501 frame-error", rabbitmq="505 type 8, all octets = <<>>")
def heartbeat_on_a_channel(ground: Ground) -> Seen:
    """A heartbeat belongs to channel 0."""
    expected = refusal(505, "type 8, all octets = <<>>")
    return _judge_both(ground, 501, [(frame(8, 1, b""), expected)])


@chapter.case("error-20", spec="504 channel-error", rabbitmq="505 type T, all octets = <<...>>")
def content_on_channel_zero(ground: Ground) -> Seen:
    """Content does not belong to channel 0."""
    zeros = "0,60" + ",0" * 12
    asked = [
        (header(0, 0), refusal(505, f"type 2, all octets = <<{zeros}>>")),
        (frame(3, 0, b"abc"), refusal(505, 'type 3, all octets = <<"abc">>')),
    ]
    return _judge_both(ground, 504, asked)


@chapter.case("error-20", rabbitmq="505 type 1, all octets = <<...>>")
def channel_before_the_connection_is_open(ground: Ground) -> Seen:
    """Before open-ok there are no channels."""
    wire = ground.raw()
    wire.shake_hands()
    seen = wire.refused(1, commands.Channel.Open())
    judge(seen, rabbitmq=connection_closed(505))
    begin = "UNEXPECTED_FRAME - type 1, all octets = <<"
    return judge(seen.text[: len(begin)], rabbitmq=begin)


@chapter.case("error-21", spec="505 unexpected-frame", rabbitmq="505 expected method frame")
def content_without_a_method(ground: Ground) -> Seen:
    """A header or a body needs a method before it."""
    return _judge_each(ground, NO_METHOD, content(1, b""), frame(3, 1, b"body"))


@chapter.case("error-22", spec="505 unexpected-frame", rabbitmq="505 expected content header")
def no_header_behind_a_publish(ground: Ground) -> Seen:
    """Behind basic.publish its header has to come."""
    return _judge_each(ground, NO_HEADER, PUBLISH * 2, PUBLISH + frame(3, 1, b"body"))


@chapter.case(
    "error-23", spec="505 unexpected-frame", rabbitmq="505 ... got one for class 15 instead"
)
def header_of_another_class(ground: Ground) -> Seen:
    """The header has the class of its method."""
    text = "expected content header for class 60, got one for class 15 instead"
    sent = PUBLISH + header(1, 4, class_id=15)
    return _judge_each(ground, refusal(505, text, PUBLISH_IDS), sent)


@chapter.case("error-24", spec="505 unexpected-frame", rabbitmq="505 expected content body")
def no_body_behind_a_header(ground: Ground) -> Seen:
    """Behind a header its body has to come, be it a close that comes."""
    begun = PUBLISH + header(1, 4)
    close = method(1, commands.Channel.Close(200, "", 0, 0))
    return _judge_each(ground, NO_BODY, begun + PUBLISH, begun + header(1, 4), begun + close)


@chapter.case(
    "error-25",
    spec="505 unexpected-frame",
    rabbitmq="501 content body frame exceeds ...; 3.x: 505 for the frame behind it",
)
def more_body_than_announced(ground: Ground) -> Seen:
    """A body may not be longer than its header says."""
    text = "content body frame exceeds remaining content size"
    begun = PUBLISH + header(1, 4)
    seen = []
    for body in (frame(3, 1, b"12345"), frame(3, 1, b"123") + frame(3, 1, b"45")):
        observed = refused_bytes(ground, begun + body + PUBLISH)
        expected = NO_BODY if observed.fits(NO_BODY) else refusal(501, text, PUBLISH_IDS)
        seen.append(judge(observed, spec=connection_closed(505), rabbitmq=expected))
    return seen[-1]


@chapter.case(
    "error-26", rabbitmq="501 content body size N exceeds maximum ... 536870912; 3.x: taken"
)
def endless_body(ground: Ground) -> Seen:
    """A body of more than 512 MiB is refused when it is announced."""
    seen = []
    for size in (2**29 + 1, 2**63, 2**64 - 1):
        text = f"content body size {size} exceeds maximum allowed size 536870912"
        # The publish behind it has a broker speak that waits for the body.
        observed = refused_bytes(ground, PUBLISH + header(1, size) + PUBLISH)
        seen.append(judge_versions(observed, refusal(501, text, PUBLISH_IDS), NO_BODY))
    return seen[-1]


@chapter.case("error-27", spec="502 syntax-error", rabbitmq="501 cannot decode <<...>>")
def undecodable_arguments(ground: Ground) -> Seen:
    """Arguments that end too early are refused."""
    publish_arguments = b"\x00\x3c\x00\x28\x00\x00"
    asked = [
        (frame(1, 1, DECLARE), refusal(501, "cannot decode <<0,0>>", DECLARE_IDS)),
        (frame(1, 1, DECLARE + b"\x05q"), refusal(501, "cannot decode <<0,0,5,113>>", DECLARE_IDS)),
        (
            frame(1, 1, publish_arguments + b"\x05q") + content(1, b"x"),
            refusal(501, "cannot decode <<0,0,5,113>>", PUBLISH_IDS),
        ),
    ]
    return _judge_both(ground, 502, asked)


@chapter.case("error-27", spec="502 syntax-error", rabbitmq="501 Malformed UTF-8 in shortstr")
def malformed_utf_8(ground: Ground) -> Seen:
    """A short string that is no UTF-8 is refused."""
    expected = refusal(501, "Malformed UTF-8 in shortstr")
    return _judge_both(
        ground, 502, [(frame(1, 1, DECLARE + b"\x01\xff\x00\x00\x00\x00\x00"), expected)]
    )


@chapter.case("error-28", spec="503 command-invalid", rabbitmq=f"503; up to 4.x {NO_WORD}")
def unknown_method(ground: Ground) -> Seen:
    """A method that does not exist ends the connection."""
    seen = []
    for ids in (b"\x00\x32\x00\x63", b"\x00\x63\x00\x0a"):
        wire = ground.wire(1)
        wire.send(frame(1, 1, ids))
        end = close_or_end(wire)
        seen.append(
            Seen(Met.RABBITMQ, NO_WORD)
            if end == NO_WORD
            else judge(end, spec=connection_closed(503))
        )
    return seen[-1]


@chapter.case("error-29", spec="the connection is closed", rabbitmq="541 internal-error")
def undecodable_properties(ground: Ground) -> Seen:
    """Properties of a message that do not decode close the connection."""
    seen = []
    for properties in (b"\x80\x00\x05a", b"\x20\x00\xff\xff\xff\xff", b"\x20\x00\0\0\0\x03\x01a?"):
        sent = PUBLISH + content(1, b"x", properties)
        seen.append(judge(refused_bytes(ground, sent), spec=connection_closed(541)))
    return seen[-1]


@chapter.case("error-29", spec="messages before it are kept", rabbitmq="541 internal-error")
def messages_before_undecodable_properties(ground: Ground) -> Seen:
    """What comes before such a message in the same piece is published."""
    wire, other = ground.wire(1), ground.wire(1)
    queue = ground.queue(other)
    good = publish(1, queue, b"x")
    wire.send(good * 3, PUBLISH, content(1, b"x", b"\x80\x00\x05a"), good)
    judge(wire.refusal(), spec=connection_closed(541))
    purged = other.call(1, commands.Queue.Purge(queue=queue), commands.Queue.PurgeOk)
    return judge(purged.message_count, spec=3)


@chapter.case("error-30", spec="505 unexpected-frame", rabbitmq="505 expected content header")
def weight_of_a_header(ground: Ground) -> Seen:
    """The weight in a header is 0."""
    return _judge_each(ground, NO_HEADER, PUBLISH + header(1, 4, weight=1))


@chapter.case("error-31", spec="505 unexpected-frame", rabbitmq="505 expected method frame")
def body_of_an_empty_message(ground: Ground) -> Seen:
    """A message of no octets has no body frame, not even an empty one."""
    return _judge_each(ground, NO_METHOD, PUBLISH + header(1, 0) + frame(3, 1, b""))


@chapter.case("error-31", spec="the message is complete with its header")
def message_without_a_body(ground: Ground) -> Seen:
    """A message of no octets is complete with its header."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    wire.send(publish(1, queue, b""))
    wire.call(1, commands.Basic.Get(queue=queue, no_ack=True), commands.Basic.GetOk)
    return judge(wire.expect_content(), spec=(b"\0\0", b""))
