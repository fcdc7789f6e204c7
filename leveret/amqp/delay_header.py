"""The header x-delay: how long a message is to wait; negative once it has, so that it waits once.

Publishers repeat themselves: where the number stands in one message it stands in the next, as long
as all of the properties in front of it is equal.
"""

from collections.abc import Sequence
from struct import Struct
from typing import cast

from leveret.amqp.frames import FRAME_HEADER_SIZE
from leveret.amqp.message import header_payload, with_header
from leveret.amqp.properties import LIST_POSITION, PropertyView
from leveret.amqp.tables import INTEGER_TAGS, Field, Table, find_field

DELAY_HEADER = "x-delay"
MAX_DELAY_MS = 10 * 366 * 24 * 60 * 60 * 1000

_FLAGS_AT = FRAME_HEADER_SIZE + LIST_POSITION - 2
_NUMBERS = {ord("I"): Struct(">i"), ord("l"): Struct(">q"), ord("L"): Struct(">q")}


def asked_delay_ms(headers: Table) -> int:
    """The delay that header x-delay asks for; 0 if it does not, or not for a time to come."""
    field = headers.get(DELAY_HEADER)
    if field is None or field.tag not in INTEGER_TAGS:
        return 0
    return min(max(cast("int", field.value), 0), MAX_DELAY_MS)


def with_delay_over(message: bytes, attributes: int) -> bytes:
    """The message with a negative x-delay, as RabbitMQ's plugin delivers it."""
    properties = PropertyView(header_payload(message, attributes), is_checked=True)
    headers = dict(properties.headers or {})
    delay = headers[DELAY_HEADER]
    headers[DELAY_HEADER] = Field("l", -abs(cast("int", delay.value)))
    return with_header(message, attributes, properties.with_changes(headers=headers))


def find_delay(payload: bytes) -> tuple[int, Struct] | None:
    """Return where in the *payload* of a content header the number of x-delay stands, and its form.

    None if it has no such header, or one that is no signed number of 32 or 64 bits. The payload
    has been checked.
    """
    extent = PropertyView(payload, is_checked=True).extent("headers")
    if extent is None:
        return None
    start, stop = extent
    field = find_field(payload[start:stop], DELAY_HEADER)
    if field is None:
        return None
    position = start + field[0]
    number = _NUMBERS.get(payload[position])
    return None if number is None else (position + 1, number)


def begin_delays(contents: Sequence[bytes]) -> tuple[list[int], list[bytes]] | None:
    """Return the delays of all of *contents*, in milliseconds, and these with their delays over.

    None unless each has a delay to come, in the usual form.
    """
    delays_ms: list[int] = []
    over: list[bytes] = []
    common = b""
    position = stop = 0
    number = _NUMBERS[ord("I")]
    for content in contents:
        if not common or not content.startswith(common, _FLAGS_AT):
            found = find_delay(header_payload(content, 0))
            if found is None:
                return None
            position = FRAME_HEADER_SIZE + found[0]
            number = found[1]
            stop = position + number.size
            common = content[_FLAGS_AT:position]
        delay_ms = number.unpack_from(content, position)[0]
        if delay_ms <= 0:
            return None
        delays_ms.append(min(delay_ms, MAX_DELAY_MS))
        over.append(b"%b%b%b" % (content[:position], number.pack(-delay_ms), content[stop:]))
    return delays_ms, over
