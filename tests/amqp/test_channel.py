"""Channel: every state of a channel and of its content, and every frame (§2.2.4, §4.2.6)."""

from enum import Enum

import pytest
from pamqp import commands

from leveret.amqp.channel import Channel
from leveret.amqp.connection import ConnectionState
from leveret.amqp.errors import UnexpectedFrame
from leveret.amqp.fastpath import PUBLISH
from leveret.amqp.frames import HEARTBEAT_FRAME, encode_frame
from leveret.amqp.methods import build_method, decode_method
from leveret.amqp.properties import FactsReader
from tests.amqp.recorder import (
    ALL_METHODS,
    ChannelRecorder,
    Recorder,
    body_frames,
    channel_frame,
    cut,
    header_frame,
    method_frame,
    opened,
    publish_frames,
)


class At(Enum):
    """Where channel 1 is."""

    ABSENT = "absent"
    IDLE = "open, between methods"
    HEADER = "open, a content header must follow"
    BODY = "open, a body of 10 bytes must follow"
    CLOSING = "closing"


PUBLISHING = channel_frame(1, commands.Basic.Publish)


def channel_at(place: At) -> Recorder:
    recorder = opened(channels=0 if place is At.ABSENT else 1)
    if place in (At.HEADER, At.BODY):
        recorder.connection.receive_data(PUBLISHING)
    if place is At.BODY:
        recorder.connection.receive_data(header_frame(1, 10))
    if place is At.CLOSING:
        recorder.connection.receive_data(queue_declare("missing"))
        assert recorder.sent() == ["channel.close 404"]
        recorder.calls.clear()
    return recorder


def queue_declare(name):
    return method_frame(1, build_method(commands.Queue.Declare, **_declare(name)))


def _declare(name):
    bits = ("passive", "durable", "exclusive", "auto_delete", "nowait")
    return {"ticket": 0, "queue": name, "arguments": {}} | dict.fromkeys(bits, False)


def expected_of(place, cls):
    """What is sent for a method without particular arguments, and what the broker is told."""
    name = cls.name
    if place is At.ABSENT:
        if name == "Channel.Open":
            return ["channel.openok"], ["channel opened"]
        return ([], []) if name == "Channel.CloseOk" else (["close 504"], ["closed"])
    if place is At.IDLE:
        if name == "Channel.Open":
            return ["close 504"], ["channel closed", "closed"]
        if name == "Channel.Close":
            return ["channel.closeok"], ["channel closed"]
        if name == "Basic.Publish":
            return [], []
        return [], ["ack" if name == "Basic.Ack" else name]
    if place is At.CLOSING:
        return (["channel.closeok"], []) if name == "Channel.Close" else ([], [])
    return ["close 505"], ["channel closed", "closed"]


@pytest.mark.parametrize("place", At)
def test_every_method(place):
    for cls in ALL_METHODS:
        recorder = channel_at(place)
        recorder.connection.receive_data(channel_frame(1, cls))
        seen = recorder.sent(), [call[0] for call in recorder.calls]
        assert seen == expected_of(place, cls), cls.name


FRAMES = {
    "heartbeat on the channel": encode_frame(8, 1, b""),
    "heartbeat": HEARTBEAT_FRAME,
    "header": header_frame(1, 10),
    "header of an empty body": header_frame(1, 0),
    "header of another class": header_frame(1, 10, class_id=50),
    "header with a weight": header_frame(1, 10, weight=1),
    "short header": encode_frame(2, 1, b"\x00\x3c"),
    "header of half a gigabyte and one": header_frame(1, 2**29 + 1),
    "undecodable properties": header_frame(1, 10, properties=b"\x80\x00\x09"),
    "body": encode_frame(3, 1, b"0123456789"),
    "half a body": encode_frame(3, 1, b"01234"),
    "empty body": encode_frame(3, 1, b""),
    "body too long": encode_frame(3, 1, b"0123456789a"),
    "method too short": encode_frame(1, 1, b"\x00\x3c\x00"),
    "unknown method": encode_frame(1, 1, b"\x00\x3c\x00\xff"),
    "undecodable method": encode_frame(1, 1, b"\x00\x32\x00\x0a\x00"),
    "undecodable publish": encode_frame(1, 1, PUBLISH + b"\x00\x00\x05a"),
}
# In the order of `At`. A number is the code of a connection.close, "." is nothing at all.
OUTCOMES = {
    "heartbeat on the channel": "505 505 505 505 505",
    "heartbeat": ". . . . .",
    "header": "505 505 . 505 .",
    "header of an empty body": "505 505 publish 505 .",
    "header of another class": "505 505 505 505 .",
    "header with a weight": "505 505 505 505 .",
    "short header": "505 505 505 505 .",
    "header of half a gigabyte and one": "505 505 501 505 .",
    "undecodable properties": "505 505 . 505 .",
    "body": "505 505 505 publish .",
    "half a body": "505 505 505 . .",
    "empty body": "505 505 505 . .",
    "body too long": "505 505 505 501 .",
    "method too short": "504 501 505 505 .",
    "unknown method": "504 503 505 505 .",
    "undecodable method": "504 501 505 505 .",
    "undecodable publish": "504 501 505 505 .",
}


@pytest.mark.parametrize("name", FRAMES)
def test_every_other_frame(name):
    for place, outcome in zip(At, OUTCOMES[name].split(), strict=True):
        recorder = channel_at(place)
        recorder.connection.receive_data(FRAMES[name])
        told = [call[0] for call in recorder.calls]
        if outcome.isdigit():
            assert recorder.sent() == [f"close {outcome}"], place
            assert told == ["channel closed"] * (place not in (At.ABSENT, At.CLOSING)) + ["closed"]
        else:
            assert recorder.sent() == [], place
            assert told == ([] if outcome == "." else [outcome]), place


def test_undecodable_properties_are_found_once_the_body_is_there():
    recorder = channel_at(At.HEADER)
    recorder.connection.receive_data(FRAMES["undecodable properties"])
    recorder.connection.receive_data(FRAMES["body"])
    assert recorder.sent() == ["close 541"]


def test_a_closed_number_is_free_after_close_ok():
    recorder = channel_at(At.CLOSING)
    recorder.connection.receive_data(channel_frame(1, commands.Channel.Open))
    assert recorder.sent() == []
    recorder.connection.receive_data(channel_frame(1, commands.Channel.CloseOk))
    recorder.connection.receive_data(channel_frame(1, commands.Channel.Open))
    assert recorder.sent() == ["channel.openok"]
    recorder.connection.receive_data(publish_frames(1))
    assert recorder.calls[-1][0] == "publish"


def test_closes_that_cross_leave_the_number_free():
    recorder = channel_at(At.CLOSING)
    both = [channel_frame(1, cls) for cls in (commands.Channel.Close, commands.Channel.CloseOk)]
    recorder.connection.receive_data(b"".join(both))
    recorder.connection.receive_data(channel_frame(1, commands.Channel.Open))
    assert recorder.sent() == ["channel.closeok", "channel.openok"]


def test_a_closed_channel_is_told_so_once():
    recorder = channel_at(At.CLOSING)
    recorder.connection.receive_data(channel_frame(1, commands.Channel.Close))
    recorder.connection.lost()
    assert recorder.calls == [("closed",)]


@pytest.mark.parametrize("body", [b"", b"x" * 10, b"x" * 200_000])
def test_publishes_behind_a_failed_one_are_ignored(body):
    recorder = opened(channels=2)
    failing = publish_frames(1, exchange="missing", body=body)
    other = publish_frames(2, body=body)
    recorder.connection.receive_data((failing + publish_frames(1, body=body) + other) * 3)
    assert recorder.sent() == ["channel.close 404"]
    assert [call[:2] for call in recorder.calls] == [("channel closed", 1)] + [("publish", 2)] * 3
    assert recorder.connection.state is ConnectionState.OPEN


def closing_ids(recorder):
    method = decode_method(cut(recorder.output)[-1][2])
    return method.class_id, method.method_id


@pytest.mark.parametrize("cuts", ["whole", "by the frame"])
@pytest.mark.parametrize("body", [b"", b"body"])
def test_an_error_of_a_publish_names_it_however_it_was_received(body, cuts):
    recorder = opened()
    data = publish_frames(1, exchange="missing", body=body)
    for frame in [encode_frame(*f) for f in cut(data)] if cuts == "by the frame" else [data]:
        recorder.connection.receive_data(frame)
    assert closing_ids(recorder) == (60, 40)


@pytest.mark.parametrize("place", [At.HEADER, At.BODY])
@pytest.mark.parametrize("name", ["body too long", "unknown method", "header with a weight"])
def test_an_error_in_a_content_names_its_publish(place, name):
    recorder = channel_at(place)
    recorder.connection.receive_data(FRAMES[name])
    assert closing_ids(recorder) == (60, 40)


@pytest.mark.parametrize(("name", "ids"), [("header", (0, 0)), ("undecodable method", (50, 10))])
def test_an_error_between_contents_names_the_method_if_there_is_one(name, ids):
    recorder = channel_at(At.IDLE)
    recorder.connection.receive_data(FRAMES[name])
    assert closing_ids(recorder) == ids


def test_a_message_over_the_maximum_closes_the_channel_once_it_is_read():
    recorder = opened(max_message_size=100)
    recorder.connection.receive_data(publish_frames(1, body=bytes(101)))
    assert closing_ids(recorder) == (60, 40)
    assert recorder.sent() == ["channel.close 406"]


def test_a_channel_alone_takes_frames_and_tells_its_receiver():
    recorder = Recorder()
    channel = Channel(5, ChannelRecorder(5, recorder), FactsReader(), 1000)
    for kind, _, payload in cut(publish_frames(5, key="k", body=b"body")):
        assert channel.is_idle == (kind == 1)
        channel.receive(kind, payload)
    assert channel.is_idle
    [(call, number, method, _, content)] = recorder.calls
    assert (call, number, method[2:]) == ("publish", 5, b"\x00\x01k\x00")
    assert content == header_frame(5, 4) + body_frames(5, b"body")
    with pytest.raises(UnexpectedFrame):
        channel.receive(3, b"")
