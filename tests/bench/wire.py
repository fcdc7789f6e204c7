"""Deliveries as a broker sends them, made by pamqp."""

import struct

from pamqp import commands
from pamqp.base import Frame
from pamqp.body import ContentBody
from pamqp.frame import marshal
from pamqp.header import ContentHeader

from leveret.bench.frames import SEQUENCE_BITS


def delivery(
    tag: int,
    sequence: int,
    *,
    stream: int = 0,
    size: int = 16,
    key: str = "q",
    frame_max: int = 131072,
    is_redelivered: bool = False,
    stamp_ns: int = 1000,
) -> bytes:
    body = struct.pack(">QQ", stamp_ns + sequence, (stream << SEQUENCE_BITS) + sequence).ljust(size)
    room = frame_max - 8
    frames: list[Frame | ContentHeader | ContentBody] = [
        commands.Basic.Deliver("c", tag, is_redelivered, "", key),
        ContentHeader(0, size, commands.Basic.Properties(delivery_mode=2)),
        *(ContentBody(body[at : at + room]) for at in range(0, size, room)),
    ]
    return b"".join(marshal(frame, 1) for frame in frames)
