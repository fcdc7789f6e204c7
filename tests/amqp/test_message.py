"""Message: made, taken apart, and addressed to another channel or cut into smaller frames."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.amqp.message import (
    TRANSIENT,
    MessageParts,
    address_content,
    body_size,
    channel_number,
    encode_attributes,
    encode_content,
    encode_head,
    encode_message,
    head_length,
    split_content,
    split_message,
    with_header,
)
from leveret.amqp.message import header_payload as payload_of_header
from tests.amqp.recorder import body_frames, cut, header_frame

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=63)
channels = st.integers(0, 0xFFFF)
properties = st.binary(max_size=60)
# Bodies are given by their size: their octets do not matter, their cuts do.
bodies = st.integers(0, 20_000).map(lambda size: bytes(i % 251 for i in range(size)))
rooms = st.integers(1, 5000)


def header_payload(body, listed=b"\0\0"):
    return b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + listed


@given(st.integers(0, 0xFFFF), channels, st.booleans())
def test_attributes_keep_their_parts(length, channel, transient):
    attributes = encode_attributes(length, channel, TRANSIENT if transient else 0)
    assert head_length(attributes) == length
    assert channel_number(attributes) == channel
    assert bool(attributes & TRANSIENT) == transient
    assert attributes < 2**64


@given(names, names, properties, bodies, st.integers(4096, 8192) | st.just(0))
def test_a_message_of_the_broker_is_taken_apart_again(exchange, key, listed, body, frame_max):
    header = header_payload(body, listed)
    attributes, message = encode_message(exchange, key, header, body, frame_max)
    assert split_message(attributes, message) == MessageParts(exchange, key, header, body)
    head = encode_head(exchange.encode(), key.encode())
    assert message.startswith(head)
    assert head_length(attributes) == len(head)


@given(names, names, properties, bodies)
def test_the_header_of_a_message_is_replaced_in_place(exchange, key, listed, body):
    attributes, message = encode_message(exchange, key, header_payload(body), body, 4096)
    changed = with_header(message, attributes, header_payload(body, listed))
    expected = encode_message(exchange, key, header_payload(body, listed), body, 4096)
    assert (attributes, changed) == expected
    assert payload_of_header(changed, attributes) == header_payload(body, listed)
    assert body_size(changed, attributes) == len(body)


def test_a_head_of_the_longest_names_fits_its_attributes():
    head = encode_head(b"e" * 255, b"k" * 255)
    attributes = encode_attributes(len(head), 0xFFFF, TRANSIENT)
    message = head + encode_content(header_payload(b"b"), b"b", 0xFFFF, 0)
    assert split_message(attributes, message)[:2] == ("e" * 255, "k" * 255)


@given(bodies, properties, rooms)
def test_a_content_is_split_however_it_was_cut(body, listed, room):
    content = header_frame(7, len(body), properties=listed) + body_frames(7, body, room)
    header = header_payload(body, listed)
    assert split_content(content) == (header, body)
    assert split_content(b"head" + content, 4) == (header, body)


@given(bodies, properties, rooms, channels, st.integers(4096, 8192) | st.just(0))
def test_an_addressed_content_is_the_same_message(body, listed, room, channel, frame_max):
    head = encode_head(b"e", b"key")
    content = header_frame(3, len(body), properties=listed) + body_frames(3, body, room)
    addressed = address_content(head + content, len(head), channel, frame_max)
    assert addressed.startswith(head)
    assert split_content(addressed, len(head)) == (header_payload(body, listed), body)
    frames = cut(addressed[len(head) :])
    assert {number for _, number, _ in frames} == {channel}
    assert [kind for kind, _, _ in frames] == [2] + [3] * (len(frames) - 1)
    assert all(payload for _, _, payload in frames)
    if frame_max:
        assert all(len(payload) + 8 <= frame_max for _, _, payload in frames)


@given(bodies, rooms)
def test_frames_that_fit_are_left_as_they_are(body, room):
    content = header_frame(3, len(body)) + body_frames(3, body, room)
    assert address_content(content, 0, 3, 0) == content
    assert address_content(content, 0, 3, 131072) == content


@pytest.mark.parametrize("size", [4088, 4089, 2 * 4088, 2 * 4088 + 1])
def test_a_body_is_cut_into_the_largest_frames_allowed(size):
    content = header_frame(1, size) + body_frames(1, bytes(size))
    frames = cut(address_content(content, 0, 2, 4096))
    assert len(frames) == 1 + -(-size // 4088)
    assert all(len(payload) == 4088 for _, _, payload in frames[1:-1])
