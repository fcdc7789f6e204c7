"""Frames: what is cut, what is not yet complete, what is refused and with which text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, frame

from leveret.amqp.errors import FrameError
from leveret.amqp.frames import HEARTBEAT_FRAME, encode_frame, erlang_binary, read_frame

kinds = st.sampled_from([1, 2, 3, 8])
channels = st.integers(0, 0xFFFF)
payloads = st.binary(max_size=100)


@given(kinds, channels, payloads, payloads, payloads)
def test_a_frame_is_cut_out_of_what_surrounds_it(kind, channel, payload, before, behind):
    data = before + encode_frame(kind, channel, payload) + behind
    stop = len(data) - len(behind)
    assert read_frame(data, len(before), len(data), 0) == (kind, channel, payload, stop)


@given(kinds, channels, payloads)
def test_a_frame_is_nothing_before_its_last_octet(kind, channel, payload):
    data = encode_frame(kind, channel, payload)
    for end in range(len(data)):
        assert read_frame(data[:end], 0, end, 100) is None
        assert read_frame(data, 0, end, 100) is None


@given(st.binary(min_size=1, max_size=100), channels)
def test_pamqp_makes_the_same_frame(payload, channel):
    assert frame.marshal(body.ContentBody(payload), channel) == encode_frame(3, channel, payload)


def test_the_heartbeat_is_a_frame_without_payload():
    assert encode_frame(8, 0, b"") == HEARTBEAT_FRAME


def test_an_unknown_type_is_refused_before_the_frame_is_complete():
    for kind in set(range(256)) - {1, 2, 3, 8}:
        text = rf"^type {kind}, first 16 octets = <<1,2>>: unknown_frame$"
        with pytest.raises(FrameError, match=text):
            read_frame(bytes([kind, 0, 0, 0, 0, 1, 0, 1, 2]), 0, 9, 100)


def test_no_more_than_16_octets_of_an_unknown_type_are_shown():
    with pytest.raises(FrameError, match=r'^type 0, first 16 octets = <<"aaaaaaaaaaaaaaaa">>: '):
        read_frame(bytes(7) + b"a" * 17, 0, 24, 100)


def test_a_payload_may_be_as_long_as_the_limit():
    data = encode_frame(3, 1, b"x" * 100)
    assert read_frame(data, 0, len(data), 100)


def test_a_longer_payload_is_refused_before_it_is_there():
    head = encode_frame(3, 1, b"x" * 101)[:7]
    with pytest.raises(FrameError, match=r"= <<>>: {frame_too_large,101,100}$"):
        read_frame(head, 0, 7, 100)
    assert read_frame(head, 0, 7, 0) is None


def test_another_end_octet_is_refused_and_named():
    data = encode_frame(1, 0, b"\x00\x0a")[:-1] + b"\x00"
    with pytest.raises(
        FrameError, match=r"^type 1, all octets = <<0,10>>: {invalid_frame_end_marker,0}$"
    ):
        read_frame(data, 0, len(data), 100)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "<<>>"),
        (b"abc de", '<<"abc de">>'),
        (b"a\n", "<<97,10>>"),
        (b'a"', "<<97,34>>"),
        (b"a\\", "<<97,92>>"),
        (b"\x7f", "<<127>>"),
        (b"\xff", "<<255>>"),
    ],
)
def test_octets_are_shown_as_erlang_shows_them(data, text):
    assert erlang_binary(data) == text
