"""Frames: the envelope of everything on the wire after the protocol header (§4.2.3).

    u8 type | u16 channel | u32 payload size | payload | 0xCE

Frames are cut out of a received chunk by position; nothing is kept here between chunks.
"""

import struct

from leveret.amqp.constants import FRAME_END, FRAME_OVERHEAD, FrameType
from leveret.amqp.errors import FrameError

FRAME_HEADER = struct.Struct(">BHI")
"""Type, channel and payload size."""

FRAME_HEADER_SIZE = FRAME_HEADER.size
KNOWN_TYPES = frozenset(FrameType)
HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"


def encode_frame(kind: int, channel: int, payload: bytes) -> bytes:
    """One whole frame around *payload*."""
    return b"%b%b\xce" % (FRAME_HEADER.pack(kind, channel, len(payload)), payload)


def read_frame(
    data: bytes, position: int, end: int, max_payload: int
) -> tuple[int, int, bytes, int] | None:
    """Cut the frame at *position* out of *data*: type, channel, payload, position behind it.

    Answers None if the frame is not complete before *end*. Raises FrameError for an unknown type,
    a payload larger than *max_payload* bytes (0: no limit) and a wrong end octet, with
    RabbitMQ's texts. The type and the size are judged before the payload is there.
    """
    if end - position < FRAME_HEADER_SIZE:
        return None
    kind, channel, size = FRAME_HEADER.unpack_from(data, position)
    if kind not in KNOWN_TYPES:
        first = erlang_binary(data[position + FRAME_HEADER_SIZE : position + 23])
        raise FrameError(f"type {kind}, first 16 octets = {first}: unknown_frame")
    if max_payload and size > max_payload:
        text = f"type {kind}, all octets = <<>>: {{frame_too_large,{size},{max_payload}}}"
        raise FrameError(text)
    stop = position + size + FRAME_OVERHEAD
    if stop > end:
        return None
    payload = data[position + FRAME_HEADER_SIZE : stop - 1]
    if data[stop - 1] != FRAME_END:
        octets = erlang_binary(payload[:48])
        marker = f"{{invalid_frame_end_marker,{data[stop - 1]}}}"
        raise FrameError(f"type {kind}, all octets = {octets}: {marker}")
    return kind, channel, payload, stop


def erlang_binary(data: bytes) -> str:
    """Bytes as RabbitMQ's error texts show them: `<<"printable">>` or `<<1,2,3>>`."""
    if data and all(32 <= octet < 127 and octet not in b'"\\' for octet in data):
        return f'<<"{data.decode("ascii")}">>'
    return f"<<{','.join(map(str, data))}>>"
