"""The hot methods by the run: publishes and acks in, deliveries and confirms out.

Clients repeat themselves, and a chunk from a busy socket holds many frames alike. The functions
here take or make a whole run of them at once. They answer nothing for whatever is not a complete,
well-formed run; the general path (`frames`, `content`, `methods`) then looks at it and is also
what tests compare this module with, byte for byte and however the bytes are cut.
"""

import re
import struct
from collections.abc import Sequence
from typing import NamedTuple

from leveret.amqp.constants import FRAME_END
from leveret.amqp.errors import InternalError
from leveret.amqp.frames import FRAME_HEADER
from leveret.amqp.properties import Facts, FactsReader
from leveret.amqp.publish_shape import PublishShape, ShapeBook

PUBLISH = b"\x00\x3c\x00\x28"
ACK = b"\x00\x3c\x00\x50"

_CONTENT_HEADER = struct.Struct(">BBHIHHQ")
"""End octet of the method frame, frame header of the content header, class, weight, body size."""
_SHORTEST_PUBLISH = 7 + 9 + 1
_BODY_START = struct.Struct(">BBHI")
"""End octet of the header frame, then the frame header of the first body frame."""
_BODY_HEADER_SIZE = 8
_ACK_SIZE = 21
_ACK_TAGS = struct.Struct(">11xQ2x")
_ACK_RUN = re.compile(
    rb"\x01(..)\x00\x00\x00\x0d\x00\x3c\x00\x50.{8}[\x00\x01]\xce"
    rb"(?:\x01\1\x00\x00\x00\x0d\x00\x3c\x00\x50.{8}[\x00\x01]\xce)*",
    re.DOTALL,
)
_ACK_OUT = struct.Struct(">BHIIQBB")
_TAG = struct.Struct(">Q")
_FEW = 4
"""Below this many messages the set-up of the vectorised paths costs more than it saves."""


class PublishRun(NamedTuple):
    """Publishes of one channel that share their facts.

    `methods` are the argument bytes of each basic.publish, `contents` the frames behind it, each
    of `content_length` bytes, or 0 if they differ.
    """

    position: int
    channel: int
    methods: list[bytes]
    facts: Facts
    contents: list[bytes]
    content_length: int


class PublishReader:
    """Takes runs of publishes out of one connection's chunks.

    While publishes are of the shape that was seen last, a run is one match. Others are taken
    apart one by one, and their shapes remembered. Publishes of more than `max_payload` bytes in
    all (0: no limit), of which a frame may be too large, are left to the general path.
    """

    __slots__ = ("_facts_reader", "_max_body", "_shape", "_shapes", "max_payload")

    def __init__(self, facts_reader: FactsReader, shapes: ShapeBook, max_body: int) -> None:
        self._facts_reader = facts_reader
        self._shapes = shapes
        self._max_body = max_body
        self._shape: PublishShape | None = None
        self.max_payload = 0

    def take_alike(self, data: bytes, position: int) -> PublishRun | None:
        """Take the run at *position* that is of the same shape as the publish before it."""
        shape = self._shape
        if shape is None:
            return None
        run = shape.take(data, position)
        if run is None:
            return None
        stop, methods, contents = run
        return PublishRun(stop, shape.channel, methods, shape.facts, contents, shape.content_length)

    def take(self, data: bytes, position: int, end: int, channel: int) -> PublishRun | None:
        """Take the run of publishes on *channel* that starts at *position*, message by message.

        A run ends before a message with other facts or at fault, and behind one whose shape is
        known.
        """
        methods: list[bytes] = []
        contents: list[bytes] = []
        run_facts: Facts | None = None
        content_length = -1
        frame_start = data[position : position + 3]
        max_size = self.max_payload or end
        while end - position > _SHORTEST_PUBLISH:
            start = position + int.from_bytes(data[position + 3 : position + 7], "big") + 8
            if start + _CONTENT_HEADER.size >= end:
                break
            mark, kind, number, size, class_id, weight, body_size = _CONTENT_HEADER.unpack_from(
                data, start - 1
            )
            body_start = start + size + 8
            if (
                mark != FRAME_END
                or kind != 2
                or number != channel
                or class_id != 60
                or weight
                or size < 14
                or body_start + _BODY_HEADER_SIZE > end
            ):
                break
            mark, kind, number, piece = _BODY_START.unpack_from(data, body_start - 1)
            stop = body_start + piece + 8
            if (
                mark != FRAME_END
                or kind != 3
                or number != channel
                or piece != body_size
                or not piece
                or piece > self._max_body
                or stop > end
                or stop - position > max_size
                or data[stop - 1] != FRAME_END
            ):
                break
            try:
                facts = self._facts_reader.read_facts(data[start + 7 : body_start - 1])
            except InternalError:
                break
            if facts is not run_facts:
                if run_facts is not None:
                    break
                run_facts = facts
            method = data[position + 11 : start - 1]
            if not is_publish(method):
                break
            methods.append(method)
            contents.append(data[start:stop])
            length = stop - start
            if length != content_length:
                content_length = length if content_length < 0 else 0
            begin, position = position, stop
            shape = self._shapes.saw(data[begin:stop], start - begin, body_start - begin, facts)
            if shape is not None and shape is not self._shape:
                self._shape = shape
                break
            if data[stop + 7 : stop + 11] != PUBLISH or data[stop : stop + 3] != frame_start:
                break
        if run_facts is None or not methods:
            return None
        return PublishRun(position, channel, methods, run_facts, contents, max(content_length, 0))


def is_publish(method: bytes) -> bool:
    """Are these the arguments of a basic.publish, whole and in UTF-8?

    u16 reserved | short string exchange | short string routing key | bits
    """
    try:
        exchange_end = 3 + method[2]
        key_end = exchange_end + 1 + method[exchange_end]
        if key_end + 1 != len(method):
            return False
        if not method.isascii():
            method[3:exchange_end].decode()
            method[exchange_end + 1 : key_end].decode()
    except (IndexError, UnicodeDecodeError):
        return False
    return True


def take_acks(data: bytes, position: int) -> tuple[int, list[tuple[int, bool]] | list[int]] | None:
    """Take the run of basic.ack frames of one channel at *position*.

    Answers the position behind it and the tags, or (tag, multiple) pairs if any ack is multiple.
    """
    match = _ACK_RUN.match(data, position)
    if match is None:
        return None
    run = match.group()
    tags = [tag for (tag,) in _ACK_TAGS.iter_unpack(run)]
    multiple = run[19::_ACK_SIZE]
    if any(multiple):
        return match.end(), list(zip(tags, map(bool, multiple), strict=True))
    return match.end(), tags


def encode_ack(channel: int, tag: int, *, multiple: bool) -> bytes:
    """A basic.ack frame: the broker confirms *tag*, and with *multiple* all before it."""
    return _ACK_OUT.pack(1, channel, 13, 0x003C0050, tag, multiple, FRAME_END)


def encode_nack(channel: int, tag: int, *, multiple: bool) -> bytes:
    """A basic.nack frame: the broker refuses *tag*, and with *multiple* all before it."""
    return _ACK_OUT.pack(1, channel, 13, 0x003C0078, tag, multiple, FRAME_END)


def encode_deliver_prefix(channel: int, consumer_tag: bytes, head_length: int) -> bytes:
    """What stands before the delivery tag in a basic.deliver of a message with such a head."""
    size = 4 + 1 + len(consumer_tag) + 8 + head_length - 1
    return b"%b\x00\x3c\x00\x3c%c%b" % (
        FRAME_HEADER.pack(1, channel, size),
        len(consumer_tag),
        consumer_tag,
    )


def encode_deliveries(
    prefix: bytes, first_tag: int, messages: Sequence[bytes], message_length: int
) -> bytes | bytearray:
    """Deliveries of *messages* with consecutive tags, ready for the socket.

    *message_length* is the length of each message, or 0 if they differ.
    """
    count = len(messages)
    if count < _FEW or not message_length:
        pack = _TAG.pack
        parts: list[bytes] = []
        for tag, message in enumerate(messages, first_tag):
            parts += (prefix, pack(tag), message)
        return b"".join(parts)
    # All deliveries are equally long: join them with the first tag in every gap, then write the
    # octets in which the tags differ column by column.
    gap = bytearray(prefix) + _TAG.pack(first_tag)
    out = gap.join([b"", *messages])
    stride = len(gap) + message_length
    last_tag = first_tag + count - 1
    tags = struct.pack(f">{count}Q", *range(first_tag, last_tag + 1))
    for octet in range(8 - ((first_tag ^ last_tag).bit_length() + 7) // 8, 8):
        out[len(prefix) + octet :: stride] = tags[octet::8]
    return out


def encode_get_ok(
    channel: int, tag: int, message: bytes, head_length: int, remaining: int
) -> bytes:
    """A basic.get-ok with its content; *remaining* messages are left ready (§1.8.3.10)."""
    size = 4 + 8 + head_length - 1 + 4
    return b"%b\x00\x3c\x00\x47%b%b%b\xce%b" % (
        FRAME_HEADER.pack(1, channel, size),
        _TAG.pack(tag),
        message[: head_length - 1],
        remaining.to_bytes(4, "big"),
        message[head_length:],
    )


def encode_return(channel: int, code: int, text: str, message: bytes, head_length: int) -> bytes:
    """A basic.return with the content of *message*, whose frames are on *channel* (§1.8.3.8)."""
    reply = text.encode()
    size = 4 + 2 + 1 + len(reply) + head_length - 2
    return b"%b\x00\x3c\x00\x32%b%c%b%b" % (
        FRAME_HEADER.pack(1, channel, size),
        code.to_bytes(2, "big"),
        len(reply),
        reply,
        message[1:],
    )
