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
from leveret.amqp.frames import FRAME_HEADER
from leveret.amqp.properties import Facts, FactsReader

PUBLISH = b"\x00\x3c\x00\x28"
ACK = b"\x00\x3c\x00\x50"

_FRAME = FRAME_HEADER.unpack_from
_CONTENT_HEADER = struct.Struct(">BHIHHQ")
"""Frame header of a content header, then its class, weight and body size."""
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
    """Publishes of one channel that share their method bytes and their facts."""

    position: int
    channel: int
    method: bytes
    facts: Facts
    contents: list[bytes]
    content_length: int


class PublishReader:
    """Takes runs of publishes out of one connection's chunks.

    It remembers the bytes in front of the last body (method frame, header frame, start of the
    body frame). While they repeat, a message is one comparison and one slice.
    """

    __slots__ = (
        "_channel",
        "_facts",
        "_facts_reader",
        "_header",
        "_max_body",
        "_method_frame",
        "_prefix",
        "_skip",
        "_stride",
    )

    def __init__(self, facts_reader: FactsReader, max_body: int) -> None:
        self._facts_reader = facts_reader
        self._max_body = max_body
        self._prefix = b""
        self._header = b""
        self._method_frame = b""
        self._channel = 0
        self._skip = 0
        self._stride = 0
        self._facts: Facts | None = None

    def take_alike(self, data: bytes, position: int, end: int) -> PublishRun | None:
        """Take the run at *position* that repeats the last publish in all but the bodies."""
        prefix = self._prefix
        facts = self._facts
        if facts is None or not data.startswith(prefix, position):
            return None
        contents: list[bytes] = []
        take = contents.append
        starts_with = data.startswith
        skip = self._skip
        stride = self._stride
        stop = position + stride
        while stop <= end and data[stop - 1] == FRAME_END:
            take(data[position + skip : stop])
            position = stop
            stop += stride
            if not starts_with(prefix, position):
                break
        if not contents:
            return None
        method = self._method_frame[11:-1]
        return PublishRun(position, self._channel, method, facts, contents, stride - skip)

    def take(self, data: bytes, position: int, end: int, channel: int) -> PublishRun | None:
        """Take the run of publishes on *channel* that starts at *position*.

        A run goes on while method bytes and facts stay the same; the properties may differ.
        Raises InternalError for properties that do not decode.
        """
        method_end = position + _FRAME(data, position)[2] + 8
        if method_end >= end or data[method_end - 1] != FRAME_END:
            return None
        method_frame = data[position:method_end]
        contents: list[bytes] = []
        run_facts: Facts | None = None
        content_length = -1
        start = method_end
        done = position
        while end - start > _CONTENT_HEADER.size:
            kind, number, size, class_id, weight, body_size = _CONTENT_HEADER.unpack_from(
                data, start
            )
            body_start = start + size + 8
            if (
                kind != 2
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
                or data[stop - 1] != FRAME_END
            ):
                break
            header = data[start + 7 : body_start - 1]
            facts = self._facts_reader.read_facts(header)
            if facts is not run_facts:
                if run_facts is not None:
                    break
                run_facts = facts
            contents.append(data[start:stop])
            length = stop - start
            if length != content_length:
                content_length = length if content_length < 0 else 0
            done = stop
            if header == self._header and method_frame == self._method_frame:
                # Twice the same: from now on expect it to stay so.
                self._remember(data, channel, facts, start, body_start + 7, stop)
                break
            self._header = header
            self._method_frame = method_frame
            if not data.startswith(method_frame, stop):
                break
            start = stop + len(method_frame)
        if run_facts is None:
            return None
        return PublishRun(
            done, channel, method_frame[11:-1], run_facts, contents, max(content_length, 0)
        )

    def _remember(
        self,
        data: bytes,
        channel: int,
        facts: Facts,
        start: int,
        body: int,
        stop: int,
    ) -> None:
        self._prefix = self._method_frame + data[start:body]
        self._channel = channel
        self._facts = facts
        self._skip = len(self._method_frame)
        self._stride = self._skip + stop - start


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
