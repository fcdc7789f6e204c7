"""Message: what lies in queues and logs is what leaves in a basic.deliver, byte for byte.

    u8 redelivered (0) | short string exchange | short string routing key | 0xCE      the head
    header frame | body frames, as the publisher sent them                            the content

The head is the end of a basic.deliver frame (§1.8.3.11, behind the delivery tag), so a delivery
is prefix + tag + message. Frames carry the publisher's channel number; it is replaced when the
consumer's differs. What the broker must know of a message without reading it travels beside it as
its attributes, a u64:

    bits  0-15  length of the head in bytes
    bits 16-31  channel number in the content's frames
    bit  32     transient: forgotten at a restart
    bit  33     expires: has an expiration of its own
    bit  34     dead-lettered: the history in its headers is ours, not a publisher's
    bit  35     has a header BCC, which no consumer may see
    bit  36     was delayed, and goes by more than one routing key
"""

from typing import NamedTuple

from leveret.amqp.constants import FRAME_OVERHEAD, FrameType
from leveret.amqp.frames import FRAME_HEADER, FRAME_HEADER_SIZE

TRANSIENT = 1 << 32
EXPIRES = 1 << 33
DEAD_LETTERED = 1 << 34
HAS_BCC = 1 << 35
HAS_COPIES = 1 << 36


class MessageParts(NamedTuple):
    """A message taken apart."""

    exchange: str
    routing_key: str
    header: bytes
    body: bytes


def encode_head(exchange: bytes, routing_key: bytes) -> bytes:
    """The head of a message: not yet redelivered; both names at most 255 bytes."""
    return b"\x00%c%b%c%b\xce" % (len(exchange), exchange, len(routing_key), routing_key)


def encode_attributes(head_length: int, channel: int, flags: int = 0) -> int:
    """The attributes of a message; *flags* are of those above."""
    return head_length | channel << 16 | flags


def head_length(attributes: int) -> int:
    """Bytes of the head."""
    return attributes & 0xFFFF


def channel_number(attributes: int) -> int:
    """Channel number in the content's frames."""
    return attributes >> 16 & 0xFFFF


def encode_message(
    exchange: str, routing_key: str, header: bytes, body: bytes, frame_max: int
) -> tuple[int, bytes]:
    """Attributes (persistent, channel 0) and bytes of a message made by the broker."""
    head = encode_head(exchange.encode(), routing_key.encode())
    content = encode_content(header, body, 0, frame_max)
    return encode_attributes(len(head), 0), head + content


def body_size(message: bytes, attributes: int) -> int:
    """Bytes of the body."""
    # Content header: u16 class, u16 weight, u64 body size.
    start = (attributes & 0xFFFF) + FRAME_HEADER_SIZE + 4
    return int.from_bytes(message[start : start + 8], "big")


def header_payload(message: bytes, attributes: int) -> bytes:
    """The payload of the content header."""
    start = attributes & 0xFFFF
    size = FRAME_HEADER.unpack_from(message, start)[2]
    return message[start + FRAME_HEADER_SIZE : start + FRAME_HEADER_SIZE + size]


def with_header(message: bytes, attributes: int, payload: bytes) -> bytes:
    """The message with another content header of *payload*; its attributes stay."""
    start = attributes & 0xFFFF
    _, channel, size = FRAME_HEADER.unpack_from(message, start)
    return b"%b%b%b%b" % (
        message[:start],
        FRAME_HEADER.pack(FrameType.HEADER, channel, len(payload)),
        payload,
        message[start + FRAME_HEADER_SIZE + size :],
    )


def encode_content(header: bytes, body: bytes, channel: int, frame_max: int) -> bytes:
    """Header frame and body frames of at most *frame_max* bytes (0: one frame)."""
    room = frame_max - FRAME_OVERHEAD if frame_max else max(len(body), 1)
    parts = [FRAME_HEADER.pack(FrameType.HEADER, channel, len(header)), header, b"\xce"]
    for start in range(0, len(body), room):
        piece = body[start : start + room]
        parts += (FRAME_HEADER.pack(FrameType.BODY, channel, len(piece)), piece, b"\xce")
    return b"".join(parts)


def split_content(content: bytes, position: int = 0) -> tuple[bytes, bytes]:
    """Header payload and body of the content that starts at *position*."""
    size = FRAME_HEADER.unpack_from(content, position)[2]
    header = content[position + FRAME_HEADER_SIZE : position + FRAME_HEADER_SIZE + size]
    position += size + FRAME_OVERHEAD
    pieces = []
    while position < len(content):
        size = FRAME_HEADER.unpack_from(content, position)[2]
        pieces.append(content[position + FRAME_HEADER_SIZE : position + FRAME_HEADER_SIZE + size])
        position += size + FRAME_OVERHEAD
    return header, b"".join(pieces)


def decode_head(message: bytes) -> tuple[str, str]:
    """The exchange and the routing key of a message."""
    exchange_end = 2 + message[1]
    key_end = exchange_end + 1 + message[exchange_end]
    return message[2:exchange_end].decode(), message[exchange_end + 1 : key_end].decode()


def split_message(attributes: int, message: bytes) -> MessageParts:
    """Take a message apart."""
    return MessageParts(*decode_head(message), *split_content(message, head_length(attributes)))


def address_content(message: bytes, start: int, channel: int, frame_max: int) -> bytes:
    """The message with its frames, from *start* on, sent on *channel* within *frame_max* bytes."""
    mark = channel.to_bytes(2, "big")
    parts = [message[:start]]
    position = start
    while position < len(message):
        size = FRAME_HEADER.unpack_from(message, position)[2]
        stop = position + size + FRAME_OVERHEAD
        if frame_max and stop - position > frame_max:
            header, body = split_content(message, start)
            return message[:start] + encode_content(header, body, channel, frame_max)
        parts += (message[position : position + 1], mark, message[position + 3 : stop])
        position = stop
    return b"".join(parts)
