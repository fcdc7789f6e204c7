"""Stamping: the messages of a stream carry their offset as the header x-stream-offset.

It becomes the first of a message's headers, when the message is appended: a delivery is then the
same bytes for every consumer. A publisher's own header of that name is replaced.
"""

from operator import methodcaller
from struct import Struct

from leveret.amqp.frames import FRAME_HEADER, FRAME_HEADER_SIZE
from leveret.amqp.message import head_length, header_payload, with_header
from leveret.amqp.properties import LIST_POSITION, PropertyView
from leveret.amqp.tables import Field

HEADER = "x-stream-offset"

_NAME = bytes([len(HEADER)]) + HEADER.encode()
_ENTRY = Struct(f">{len(_NAME)}scq")
_NUMBER = Struct(">q")
_SIZE = Struct(">I")
_SIZE_POSITION = FRAME_HEADER_SIZE - _SIZE.size
_FLAGS_POSITION = LIST_POSITION - 2
# Of the flags' first byte: content_type, content_encoding, which are texts, and headers.
_TEXTS_BEFORE = (0x80, 0x40)
_HEADERS_FLAG = 0x20


def stamp(payloads: list[bytes], attributes: int, first_offset: int) -> tuple[list[bytes], int]:
    """Return the messages with their offsets, and their common length or 0."""
    start = head_length(attributes)
    stamped = _stamp_alike(payloads, start, first_offset) or _stamp_each(
        payloads, attributes, start, first_offset
    )
    lengths = set(map(len, stamped))
    return stamped, lengths.pop() if len(lengths) == 1 else 0


def _stamp_alike(payloads: list[bytes], start: int, first_offset: int) -> list[bytes]:
    """The messages with their offsets if all begin alike and no header can be ours; else none."""
    first = payloads[0]
    beginning, replacement = _beginnings(first, start)
    place = len(beginning)
    header_end = start + FRAME_HEADER_SIZE + FRAME_HEADER.unpack_from(first, start)[2]
    if header_end - place >= len(_NAME):
        return []
    if not all(map(methodcaller("startswith", beginning), payloads)):
        return []
    front = replacement + _NAME + b"l"
    numbers = map(_NUMBER.pack, range(first_offset, first_offset + len(payloads)))
    return [
        front + number + message[place:] for number, message in zip(numbers, payloads, strict=True)
    ]


def _stamp_each(
    payloads: list[bytes], attributes: int, start: int, first_offset: int
) -> list[bytes]:
    stamped: list[bytes] = []
    # Messages of a publisher begin alike: what replaces the beginning is made once for a run.
    beginning = replacement = b""
    place = header_end = 0
    for offset, message in enumerate(payloads, first_offset):
        if not beginning or not message.startswith(beginning):
            beginning, replacement = _beginnings(message, start)
            place = len(beginning)
            header_end = start + FRAME_HEADER_SIZE + FRAME_HEADER.unpack_from(message, start)[2]
        if message.find(_NAME, place, header_end) < 0:
            stamped.append(replacement + _ENTRY.pack(_NAME, b"l", offset) + message[place:])
        else:
            stamped.append(_stamp_anew(message, attributes, offset))
    return stamped


def _beginnings(message: bytes, start: int) -> tuple[bytes, bytes]:
    """The bytes of *message* in front of its first header, and those that an entry comes behind."""
    body = start + FRAME_HEADER_SIZE
    flags_at = body + _FLAGS_POSITION
    flags = message[flags_at : flags_at + 2]
    position = flags_at + 2
    for flag in _TEXTS_BEFORE:
        if flags[0] & flag:
            position += message[position] + 1
    table_size = 0
    stop = position
    growth = _ENTRY.size
    if flags[0] & _HEADERS_FLAG:
        table_size = _SIZE.unpack_from(message, position)[0]
        stop += _SIZE.size
    else:
        flags = bytes((flags[0] | _HEADERS_FLAG, flags[1]))
        growth += _SIZE.size
    size = FRAME_HEADER.unpack_from(message, start)[2]
    replacement = b"".join(
        (
            message[: start + _SIZE_POSITION],
            _SIZE.pack(size + growth),
            message[body:flags_at],
            flags,
            message[flags_at + 2 : position],
            _SIZE.pack(table_size + _ENTRY.size),
        )
    )
    return message[:stop], replacement


def _stamp_anew(message: bytes, attributes: int, offset: int) -> bytes:
    properties = PropertyView(header_payload(message, attributes), is_checked=True)
    headers = dict(properties.headers or {})
    headers.pop(HEADER, None)
    headers = {HEADER: Field("l", offset), **headers}
    return with_header(message, attributes, properties.with_changes(headers=headers))
