"""Content of a publish, frame by frame: the reference path beside `fastpath`.

    IDLE --basic.publish--> HEADER --header frame--> BODY --body frames--> IDLE
    (a header that announces an empty body leads straight back to IDLE)

Error texts are RabbitMQ's (rabbit_command_assembler).
"""

import struct
from enum import Enum

from leveret.amqp.constants import FrameType
from leveret.amqp.errors import FrameError, PreconditionFailed, UnexpectedFrame
from leveret.amqp.frames import encode_frame

CLASS_BASIC = 60
CONTENT_HEADER = struct.Struct(">HHQH")
"""Class, weight, body size and property flags."""

BODY_SIZE_LIMIT = 512 * 1024 * 1024
"""Larger bodies are refused when they are announced, whatever the configured maximum."""


class ContentState(Enum):
    """What the channel expects next."""

    IDLE = "method"
    HEADER = "content header"
    BODY = "content body"


class ContentAssembler:
    """Joins the header and body frames that follow a basic.publish."""

    __slots__ = ("_frames", "_max_body", "_missing", "_size", "state")

    def __init__(self, max_body: int) -> None:
        self._max_body = max_body
        self._missing = 0
        self._frames = bytearray()
        self._size = 0
        self.state = ContentState.IDLE

    @property
    def size(self) -> int:
        """Bytes received of a content that is not complete."""
        return len(self._frames)

    def start(self) -> None:
        """A basic.publish was received: a content header must follow."""
        self.state = ContentState.HEADER

    def feed(self, kind: int, channel: int, payload: bytes) -> bytes | None:
        """Take the next frame; answer the whole content once it is complete.

        Raises UnexpectedFrame for the wrong frame, FrameError for sizes that do not add up, and
        PreconditionFailed once a body over the configured maximum has been read to its end.
        """
        if self.state is ContentState.HEADER:
            self._header(kind, payload)
        else:
            self._body(kind, payload)
        if payload and self._size <= self._max_body:
            self._frames += encode_frame(kind, channel, payload)
        if self._missing:
            self.state = ContentState.BODY
            return None
        self.state = ContentState.IDLE
        content, self._frames = bytes(self._frames), bytearray()
        if self._size > self._max_body:
            raise PreconditionFailed(
                f"message size {self._size} is larger than configured max size {self._max_body}"
            )
        return content

    def _header(self, kind: int, payload: bytes) -> None:
        wrong = f"expected content header for class {CLASS_BASIC}, got "
        if kind != FrameType.HEADER or len(payload) < CONTENT_HEADER.size:
            raise UnexpectedFrame(wrong + "non content header frame instead")
        class_id, weight, size, _flags = CONTENT_HEADER.unpack_from(payload)
        if weight:
            raise UnexpectedFrame(wrong + "non content header frame instead")
        if class_id != CLASS_BASIC:
            raise UnexpectedFrame(wrong + f"one for class {class_id} instead")
        if size > BODY_SIZE_LIMIT:
            raise FrameError(
                f"content body size {size} exceeds maximum allowed size {BODY_SIZE_LIMIT}"
            )
        self._size = self._missing = size

    def _body(self, kind: int, payload: bytes) -> None:
        if kind != FrameType.BODY:
            raise UnexpectedFrame("expected content body, got non content body frame instead")
        if len(payload) > self._missing:
            raise FrameError("content body frame exceeds remaining content size")
        self._missing -= len(payload)
