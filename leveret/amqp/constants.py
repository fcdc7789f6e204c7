"""Numbers of AMQP 0-9-1: frame types, reply codes, class and method ids (§4.2.3, the XML)."""

from enum import IntEnum

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
"""What a client sends first, and what we answer to anything else (§4.2.2)."""

FRAME_END = 0xCE
FRAME_END_BYTE = b"\xce"
FRAME_MIN_SIZE = 4096
FRAME_OVERHEAD = 8
"""Bytes of a frame beside its payload: type, channel, size, end octet."""

DEFAULT_FRAME_MAX = 131072
DEFAULT_CHANNEL_MAX = 2047
DEFAULT_HEARTBEAT_S = 60
SHORT_STRING_MAX = 255


class FrameType(IntEnum):
    """First octet of a frame (§4.2.3)."""

    METHOD = 1
    HEADER = 2
    BODY = 3
    HEARTBEAT = 8


class ReplyCode(IntEnum):
    """Reply codes; their names lead the reply text (`NOT_FOUND - no queue ...`)."""

    REPLY_SUCCESS = 200
    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    NO_CONSUMERS = 313
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541
