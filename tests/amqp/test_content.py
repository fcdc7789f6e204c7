"""Content: every state of the assembler and every kind of frame."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.amqp.content import BODY_SIZE_LIMIT, ContentAssembler, ContentState
from leveret.amqp.errors import FrameError, PreconditionFailed, UnexpectedFrame
from tests.amqp.recorder import body_frames, cut, header_frame

NO_HEADER = "expected content header for class 60, got non content header frame instead"
NO_BODY = "expected content body, got non content body frame instead"


def header(size, class_id=60, weight=0):
    return cut(header_frame(1, size, class_id=class_id, weight=weight))[0][2]


def assembler_in(state, max_body=1000, size=10):
    assembler = ContentAssembler(max_body)
    if state is not ContentState.IDLE:
        assembler.start()
    if state is ContentState.BODY:
        assert assembler.feed(2, 1, header(size)) is None
    assert assembler.state is state
    return assembler


FAULTS = [
    (ContentState.HEADER, 1, b"\x00\x3c\x00\x28", UnexpectedFrame, NO_HEADER),
    (ContentState.HEADER, 3, b"body", UnexpectedFrame, NO_HEADER),
    (ContentState.HEADER, 2, header(1)[:13], UnexpectedFrame, NO_HEADER),
    (ContentState.HEADER, 2, header(1, weight=1), UnexpectedFrame, NO_HEADER),
    (
        ContentState.HEADER,
        2,
        header(1, class_id=15),
        UnexpectedFrame,
        "expected content header for class 60, got one for class 15 instead",
    ),
    (
        ContentState.HEADER,
        2,
        header(BODY_SIZE_LIMIT + 1),
        FrameError,
        "content body size 536870913 exceeds maximum allowed size 536870912",
    ),
    (
        ContentState.HEADER,
        2,
        header(2**63),
        FrameError,
        "content body size 9223372036854775808 exceeds maximum allowed size 536870912",
    ),
    (ContentState.BODY, 1, b"\x00\x3c\x00\x28", UnexpectedFrame, NO_BODY),
    (ContentState.BODY, 2, header(1), UnexpectedFrame, NO_BODY),
    (
        ContentState.BODY,
        3,
        bytes(11),
        FrameError,
        "content body frame exceeds remaining content size",
    ),
]


@pytest.mark.parametrize(("state", "kind", "payload", "error", "text"), FAULTS)
def test_the_wrong_frame_is_refused(state, kind, payload, error, text):
    with pytest.raises(error) as refusal:
        assembler_in(state).feed(kind, 1, payload)
    assert refusal.value.explanation == text


@pytest.mark.parametrize(
    ("state", "kind", "payload", "follows"),
    [
        (ContentState.HEADER, 2, header(0), ContentState.IDLE),
        (ContentState.HEADER, 2, header(1), ContentState.BODY),
        (ContentState.BODY, 3, b"", ContentState.BODY),
        (ContentState.BODY, 3, bytes(9), ContentState.BODY),
        (ContentState.BODY, 3, bytes(10), ContentState.IDLE),
    ],
)
def test_the_right_frame_leads_on(state, kind, payload, follows):
    assembler = assembler_in(state)
    content = assembler.feed(kind, 1, payload)
    assert assembler.state is follows
    assert (content is not None) == (follows is ContentState.IDLE)


@given(st.binary(max_size=300), st.integers(1, 50), st.integers(0, 0xFFFF))
def test_a_content_is_joined_as_it_came(body, room, channel):
    assembler = ContentAssembler(1000)
    sent = header_frame(channel, len(body)) + body_frames(channel, body, room)
    for _ in range(2):  # nothing of the first is left in the second
        assembler.start()
        joined = [assembler.feed(*frame) for frame in cut(sent)]
        assert joined[:-1] == [None] * (len(joined) - 1)
        assert joined[-1] == sent
        assert assembler.state is ContentState.IDLE


def test_empty_body_frames_are_dropped():
    assembler = assembler_in(ContentState.BODY)
    for _ in range(3):
        assert assembler.feed(3, 1, b"") is None
    assert assembler.feed(3, 1, b"x" * 10) == header_frame(1, 10) + body_frames(1, b"x" * 10)


def test_a_body_over_the_maximum_is_read_to_its_end_but_not_kept():
    assembler = assembler_in(ContentState.BODY, max_body=99, size=100)
    assert assembler.feed(3, 1, bytes(50)) is None
    assert not assembler._frames
    with pytest.raises(
        PreconditionFailed, match=r"^message size 100 is larger than configured max size 99$"
    ):
        assembler.feed(3, 1, bytes(50))
    assert assembler.state is ContentState.IDLE
    assembler.start()
    assert assembler.feed(2, 1, header(0))
