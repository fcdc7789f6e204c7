"""PublishShape: recognises publishes that differ only in what differs from message to message.

A publisher repeats itself: the same exchange, the same properties, messages of the same size; new
are the body, and perhaps the routing key, message_id, correlation_id, timestamp, priority,
expiration and delay. A shape is such a publish with everything that repeats taken literally.
Whether the next bytes are of the shape is then one match of a regular expression for any number of
messages, and cutting them one `struct`, instead of some sixty steps for each message.

Everything the general path would check is in the literal part, so it holds for each match. The
variable strings are matched as ASCII: that their UTF-8 is valid needs no further look; publishes
with other strings go the general path.
"""

import re
import struct

from leveret.amqp.delay_header import find_delay
from leveret.amqp.properties import Facts, property_extents

METHOD_ARGUMENTS = 11
"""Where the arguments of basic.publish begin: frame header, class and method id."""
_KEY_BEFORE = 3
"""Bytes in front of the exchange name in the arguments: reserved u16 and its length."""
VARIABLE_STRINGS = ("correlation_id", "message_id")
_SAFE_DIGITS = 11
"""Any expiration of so many digits is valid."""


class PublishShape:
    """Publishes alike: same lengths, same facts, same channel.

    `content_length` is the length in bytes of each message's content frames.
    """

    __slots__ = ("_fields", "_match", "_stride", "channel", "content_length", "facts")

    def __init__(self, publish: bytes, header_start: int, body_start: int, facts: Facts) -> None:
        """The shape of the frames *publish*: method, header and one body frame.

        *header_start* and *body_start* are the positions of the header and the body frame.
        """
        self.channel = int.from_bytes(publish[1:3], "big")
        self.facts = facts
        self._stride = len(publish)
        self.content_length = len(publish) - header_start
        arguments = header_start - 1 - METHOD_ARGUMENTS
        self._fields = struct.Struct(
            f"{METHOD_ARGUMENTS}x{arguments}sx{self.content_length}s"
        ).iter_unpack
        pattern = _pattern(publish, header_start, body_start)
        # Not possessive: Python 3.11.2 was seen to end such a match within an iteration.
        self._match = re.compile(b"(?:" + pattern + b")+", re.DOTALL).match

    def take(self, data: bytes, position: int) -> tuple[int, list[bytes], list[bytes]] | None:
        """Take the run of this shape at *position*.

        Answers the position behind it, the method arguments and the contents of the messages.
        """
        match = self._match(data, position)
        if match is None:
            return None
        run = memoryview(data)[position : match.end()]
        if len(run) == self._stride:
            method, content = next(self._fields(run))
            return match.end(), [method], [content]
        methods, contents = zip(*self._fields(run), strict=True)
        return match.end(), list(methods), list(contents)


def _pattern(publish: bytes, header_start: int, body_start: int) -> bytes:
    """The regular expression for one publish of the shape."""
    exchange_end = METHOD_ARGUMENTS + _KEY_BEFORE + publish[METHOD_ARGUMENTS + 2]
    variable = [(exchange_end + 1, exchange_end + 1 + publish[exchange_end], rb"[\x00-\x7f]")]
    properties = header_start + 7
    payload = publish[properties : body_start - 1]
    for name, (start, stop) in property_extents(payload).items():
        if name in VARIABLE_STRINGS:
            variable.append((properties + start + 1, properties + stop, rb"[\x00-\x7f]"))
        elif name in ("timestamp", "priority"):
            variable.append((properties + start, properties + stop, rb"."))
        elif name == "expiration" and 0 < stop - start - 1 <= _SAFE_DIGITS:
            digits = publish[properties + start + 1 : properties + stop]
            if digits.isdigit():
                variable.append((properties + start + 1, properties + stop, rb"[0-9]"))
        elif name == "headers" and (delay := find_delay(payload)) is not None:
            position, number = delay
            variable.append((properties + position, properties + position + number.size, rb"."))
    variable.append((body_start + 7, len(publish) - 1, rb"."))
    parts = []
    position = 0
    for start, stop, kind in variable:
        parts.append(re.escape(publish[position:start]))
        parts.append(b"%b{%d}" % (kind, stop - start))
        position = stop
    parts.append(re.escape(publish[position:]))
    return b"".join(parts)


class ShapeBook:
    """The shapes that publishers have shown, shared by all connections.

    A shape is made at its `SIGHTINGS`-th sight: compiling it costs as much as some hundred
    messages. When *capacity* of them are known all are forgotten; those in use are soon back.
    """

    SIGHTINGS = 4

    __slots__ = ("_capacity", "_seen", "_shapes")

    def __init__(self, capacity: int = 128) -> None:
        self._capacity = capacity
        self._shapes: dict[tuple[object, ...], PublishShape] = {}
        self._seen: dict[tuple[object, ...], int] = {}

    def saw(
        self, publish: bytes, header_start: int, body_start: int, facts: Facts
    ) -> PublishShape | None:
        """A publish came the general path; answers its shape once there is one."""
        exchange_end = METHOD_ARGUMENTS + _KEY_BEFORE + publish[METHOD_ARGUMENTS + 2]
        header = publish[header_start + 15 : header_start + 23]
        key = (publish[: exchange_end + 1], header_start, body_start, header, facts)
        shape = self._shapes.get(key)
        if shape is not None:
            return shape
        sightings = self._seen.get(key, 0) + 1
        if sightings < self.SIGHTINGS:
            if len(self._seen) >= self._capacity:
                self._seen.clear()
            self._seen[key] = sightings
            return None
        if len(self._shapes) >= self._capacity:
            self._shapes.clear()
        shape = PublishShape(publish, header_start, body_start, facts)
        self._shapes[key] = shape
        return shape
