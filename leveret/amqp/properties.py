"""Properties of a message, read out of the raw payload of its content header (§4.2.6.1).

    u16 class id, u16 weight, u64 body size, u16 flags, then the properties whose flag is set,
    in the order of `_TYPES`, the first with the highest flag
    shortstr   u8 length, UTF-8      octet       u8
    table      see tables.py         timestamp   u64, seconds since 1970

The two lowest flags belong to no property. The lowest announces a second word of flags, which no
class of AMQP 0-9-1 needs and RabbitMQ refuses; so do we.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from struct import Struct
from struct import error as StructError
from typing import Generic, NamedTuple, TypedDict, TypeVar, Unpack, cast

from leveret.amqp.constants import SHORT_STRING_MAX
from leveret.amqp.errors import InternalError
from leveret.amqp.tables import Table, encode_table, read_table, validate_table

DIRECT_REPLY_TO = "amq.rabbitmq.reply-to"
INSTRUCTIONS = frozenset(("CC", "BCC", "x-delay"))
"""Headers that say where else a message goes, or when."""
_COPIES = INSTRUCTIONS - {"x-delay"}
_RAW_INSTRUCTIONS = tuple(bytes([len(name)]) + name.encode() for name in INSTRUCTIONS)
MAX_EXPIRATION_MS = 315_360_000_000
"""Ten years, the longest expiration that RabbitMQ takes."""

_TYPES: Mapping[str, str] = {
    "content_type": "shortstr",
    "content_encoding": "shortstr",
    "headers": "table",
    "delivery_mode": "octet",
    "priority": "octet",
    "correlation_id": "shortstr",
    "reply_to": "shortstr",
    "expiration": "shortstr",
    "message_id": "shortstr",
    "timestamp": "timestamp",
    "type": "shortstr",
    "user_id": "shortstr",
    "app_id": "shortstr",
    "cluster_id": "shortstr",
}
_FLAGS: Mapping[str, int] = {name: 0x8000 >> rank for rank, name in enumerate(_TYPES)}
_PRIORITY_FLAG = _FLAGS["priority"]
_EXPIRATION_FLAG = _FLAGS["expiration"]
_MESSAGE_ID_FLAG = _FLAGS["message_id"]
_RESERVED_FLAGS = 0x0003
_FLAGS_POSITION = 12
LIST_POSITION = 14
"""Where the properties begin, behind their flags."""
_PERSISTENT = 2

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Facts(NamedTuple):
    """What the broker must know of a message's properties to route and to queue it.

    What differs from message to message of a publisher, its priority and its expiration, is read
    by the queue that goes by it. `invalid_expiration` is an expiration that is none.
    `has_copies`: there is a header CC or BCC. `has_delay`: there is a header x-delay.
    """

    persistent: bool
    has_priority: bool
    expires: bool
    invalid_expiration: str | None
    user_id: str | None
    wants_direct_reply: bool
    has_copies: bool
    has_delay: bool


class FactsReader:
    """Reads the facts out of content headers, and remembers what publishers repeat.

    One reader serves all connections: what it remembers is at most twice *capacity* lists of
    *max_remembered_bytes* each.

    Equal facts are the same object, until *capacity* different ones made the reader forget.
    """

    def __init__(self, *, capacity: int = 1024, max_remembered_bytes: int = 512) -> None:
        self._capacity = capacity
        self._max_remembered_bytes = max_remembered_bytes
        self._by_list: dict[bytes, Facts] = {}
        self._interned: dict[tuple[object, ...], Facts] = {}
        # Well-formed header tables, with the facts they hold.
        self._tables: dict[bytes, tuple[bool, bool]] = {}

    def read_facts(self, payload: bytes) -> Facts:
        """Check the whole property list of a content header's *payload*, return the facts.

        Raises InternalError for a list that does not decode.
        """
        try:
            steps, comes_once = _plan(payload[_FLAGS_POSITION:LIST_POSITION])
            if comes_once:
                return self._walk(payload, steps)
            raw = payload[_FLAGS_POSITION:]
            facts = self._by_list.get(raw)
            if facts is None:
                facts = self._walk(payload, steps)
                if len(raw) <= self._max_remembered_bytes:
                    _remember(self._by_list, raw, facts, self._capacity)
            return facts
        except _UNDECODABLE as error:
            raise _undecodable(error) from error

    def _walk(self, payload: bytes, steps: tuple[int, ...]) -> Facts:
        """Step over the list and stop only at what counts: the path of every message_id."""
        persistent = has_priority = expires = wants_direct_reply = False
        instructions = False, False
        invalid_expiration = user_id = None
        position = LIST_POSITION
        end = len(payload)
        for step in steps:
            start = position
            if step >= _TEXT:
                position += payload[position] + 1
                text = payload[start + 1 : position].decode()
                if step == _TEXT:
                    continue
                if step == _EXPIRATION:
                    expires = is_expiration(text)
                    if not expires:
                        invalid_expiration = text
                elif step == _USER_ID:
                    user_id = text
                else:
                    wants_direct_reply = text == DIRECT_REPLY_TO
            elif step == _DELIVERY_MODE:
                persistent = payload[position] == _PERSISTENT
                position += 1
            elif step == _TIMESTAMP:
                position += 8
            elif step == _HEADERS:
                position += 4 + _unpack_size(payload, position)[0]
                raw = payload[start:position]
                known = self._tables.get(raw)
                instructions = self._learn_table(raw) if known is None else known
            else:
                has_priority = True
                position += 1
        if position != end:
            raise IndexError
        key = (
            persistent,
            has_priority,
            expires,
            invalid_expiration,
            user_id,
            wants_direct_reply,
            *instructions,
        )
        return self._interned.get(key) or self._intern(Facts(*key))

    def _learn_table(self, raw: bytes) -> tuple[bool, bool]:
        validate_table(raw, 0, len(raw))
        has_copies = has_delay = False
        if may_instruct(raw):
            # The bytes may also stand in a value or a nested table.
            table, _ = read_table(raw, 0, len(raw))
            has_copies = not _COPIES.isdisjoint(table)
            has_delay = "x-delay" in table
        if len(raw) <= self._max_remembered_bytes:
            _remember(self._tables, raw, (has_copies, has_delay), self._capacity)
        return has_copies, has_delay

    def _intern(self, facts: Facts) -> Facts:
        _remember(self._interned, facts, facts, self._capacity)
        return facts


def may_instruct(raw: bytes) -> bool:
    """Can one of `INSTRUCTIONS` be among the headers in *raw*? Its bytes may also mean others."""
    return any(name in raw for name in _RAW_INSTRUCTIONS)


def is_expiration(text: str) -> bool:
    """Is *text* an expiration as RabbitMQ takes it: a number of milliseconds, up to ten years?"""
    digits = text.removeprefix("+")
    return digits.isdecimal() and digits.isascii() and int(digits) <= MAX_EXPIRATION_MS


def explain_expiration(text: str) -> str:
    """Why *text* is no expiration, in RabbitMQ's words."""
    number = re.match(r"[+-]?[0-9]+", text)
    if number is None:
        return "no_integer"
    if number.end() < len(text):
        return f'{{leftover_string,"{text[number.end() :]}"}}'
    value = int(text)
    return f"{{value_negative,{value}}}" if value < 0 else f"{{value_too_large,{value}}}"


def read_priorities(messages: Sequence[bytes], start: int) -> bytes:
    """The priority of each message, 0 if it has none.

    *start* is where the well-formed header payload of each begins.
    """
    # Most messages of a publisher begin alike: a look at each byte in front of the priority, in
    # all of them at once, tells whether these do.
    flags_at = start + _FLAGS_POSITION
    position = _priority_at(messages[0], start)
    stop = flags_at + 2 if position is None else position
    width = stop + 1 - flags_at
    beginnings = b"".join([message[flags_at : stop + 1] for message in messages])
    count = len(messages)
    if len(beginnings) == count * width and all(
        beginnings[at::width].count(byte) == count
        for at, byte in enumerate(beginnings[: width - 1])
    ):
        return bytes(count) if position is None else beginnings[width - 1 :: width]
    priorities = bytearray()
    for message in messages:
        position = _priority_at(message, start)
        priorities.append(0 if position is None else message[position])
    return bytes(priorities)


def _priority_at(message: bytes, start: int) -> int | None:
    flags_at = start + _FLAGS_POSITION
    flags = message[flags_at] << 8 | message[flags_at + 1]
    if not flags & _PRIORITY_FLAG:
        return None
    return _skip_to_priority(message, start + LIST_POSITION, flags)


def read_expirations_ms(messages: Sequence[bytes], start: int) -> list[int | None]:
    """The expiration of each message in milliseconds, None if it has none.

    *start* is where the well-formed header payload of each begins; expirations are such as
    `is_expiration` takes.
    """
    expirations: list[int | None] = []
    flags_at = start + _FLAGS_POSITION
    common = b""
    position = stop = 0
    for message in messages:
        if common and message.startswith(common, flags_at):
            expirations.append(int(message[position:stop]))
            continue
        flags = message[flags_at] << 8 | message[flags_at + 1]
        if flags & _EXPIRATION_FLAG:
            position = _skip_to_expiration(message, start + LIST_POSITION, flags) + 1
            stop = position + message[position - 1]
            common = message[flags_at:position]
            expirations.append(int(message[position:stop]))
        else:
            expirations.append(None)
    return expirations


def read_message_ids(messages: Sequence[bytes], start: int) -> list[bytes | None]:
    """The message_id of each message as it stands there, None if it has none.

    *start* is where the well-formed header payload of each begins.
    """
    ids: list[bytes | None] = []
    flags_at = start + _FLAGS_POSITION
    for message in messages:
        flags = message[flags_at] << 8 | message[flags_at + 1]
        if not flags & _MESSAGE_ID_FLAG:
            ids.append(None)
            continue
        position = _skip_to_expiration(message, start + LIST_POSITION, flags)
        if flags & _EXPIRATION_FLAG:
            position += message[position] + 1
        ids.append(message[position + 1 : position + 1 + message[position]])
    return ids


def _skip_to_expiration(data: bytes, position: int, flags: int) -> int:
    position = _skip_to_priority(data, position, flags)
    if flags & _PRIORITY_FLAG:
        position += 1
    if flags & _FLAGS["correlation_id"]:
        position += data[position] + 1
    if flags & _FLAGS["reply_to"]:
        position += data[position] + 1
    return position


def _skip_to_priority(data: bytes, position: int, flags: int) -> int:
    # Flat, as it is done for each message: the four properties in front of the priority.
    if flags & 0x8000:
        position += data[position] + 1
    if flags & 0x4000:
        position += data[position] + 1
    if flags & 0x2000:
        position += _unpack_size(data, position)[0] + 4
    if flags & 0x1000:
        position += 1
    return position


class _Property(Generic[_Value]):
    """One property of a view: read when asked for, None when absent."""

    def __init__(self, read: Callable[[bytes], _Value]) -> None:
        self._read = read

    def __set_name__(self, owner: object, name: str) -> None:
        self._name = name

    def __get__(self, view: "PropertyView", owner: object) -> _Value | None:
        raw = view.raw(self._name)
        return None if raw is None else self._read(raw)


def _read_text(raw: bytes) -> str:
    return raw[1:].decode()


def _read_number(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def _read_headers(raw: bytes) -> Table:
    return read_table(raw, 0, len(raw))[0]


class PropertyChanges(TypedDict, total=False):
    """Properties to set, or to remove with None."""

    content_type: str | None
    content_encoding: str | None
    headers: Table | None
    delivery_mode: int | None
    priority: int | None
    correlation_id: str | None
    reply_to: str | None
    expiration: str | None
    message_id: str | None
    timestamp: int | None
    type: str | None
    user_id: str | None
    app_id: str | None
    cluster_id: str | None


class PropertyView:
    """The properties in a content header's payload, each read when it is asked for.

    Construction raises InternalError for a list that does not decode.
    """

    content_type = _Property(_read_text)
    content_encoding = _Property(_read_text)
    headers = _Property(_read_headers)
    delivery_mode = _Property(_read_number)
    priority = _Property(_read_number)
    correlation_id = _Property(_read_text)
    reply_to = _Property(_read_text)
    expiration = _Property(_read_text)
    message_id = _Property(_read_text)
    timestamp = _Property(_read_number)
    type = _Property(_read_text)
    user_id = _Property(_read_text)
    app_id = _Property(_read_text)
    cluster_id = _Property(_read_text)

    def __init__(self, payload: bytes, *, is_checked: bool = False) -> None:
        """With *is_checked* a list that `FactsReader` has passed, as that of any stored message."""
        self._payload = payload
        if is_checked:
            self._extents = checked_extents(payload)
            return
        try:
            self._extents = property_extents(payload)
        except _UNDECODABLE as error:
            raise _undecodable(error) from error

    def extent(self, name: str) -> tuple[int, int] | None:
        """Return where the property *name* stands in the payload: start and stop."""
        return self._extents.get(name)

    def raw(self, name: str) -> bytes | None:
        """Return the bytes of the property *name* as they stand in the list."""
        extent = self._extents.get(name)
        return None if extent is None else self._payload[slice(*extent)]

    def with_changes(self, **changes: Unpack[PropertyChanges]) -> bytes:
        """Return the payload with *changes* made; all other properties keep their bytes.

        Raises ValueError for a value that its property cannot carry.
        """
        changed: dict[str, object] = dict(changes)
        flags = 0
        parts = []
        for name, flag in _FLAGS.items():
            if name in changed:
                value = changed.pop(name)
                raw = None if value is None else _encode(name, value)
            else:
                raw = self.raw(name)
            if raw is not None:
                flags |= flag
                parts.append(raw)
        if changed:
            raise ValueError(f"no such property: {', '.join(changed)}")
        return b"".join([self._payload[:_FLAGS_POSITION], flags.to_bytes(2, "big"), *parts])


# What `_walk` does for a property; from _TEXT on it is a short string.
_HEADERS, _DELIVERY_MODE, _PRIORITY, _TIMESTAMP, _TEXT, _REPLY_TO, _EXPIRATION, _USER_ID = range(8)
_STEPS: Mapping[str, int] = {
    "headers": _HEADERS,
    "delivery_mode": _DELIVERY_MODE,
    "priority": _PRIORITY,
    "timestamp": _TIMESTAMP,
    "reply_to": _REPLY_TO,
    "expiration": _EXPIRATION,
    "user_id": _USER_ID,
}
# A list with one of these hardly ever comes again; it would push out those that do.
_ONE_TIME = _FLAGS["correlation_id"] | _FLAGS["message_id"] | _FLAGS["timestamp"]
_unpack_size = Struct(">I").unpack_from
_FIXED_SIZES: Mapping[str, int] = {"octet": 1, "timestamp": 8}
# IndexError: the list ends before, or after, its last property does.
_UNDECODABLE = (IndexError, StructError, ValueError)


def _remember(memory: dict[_Key, _Value], key: _Key, value: _Value, capacity: int) -> None:
    """Forget all at once when full: the lasting keys are back with their next message."""
    if len(memory) >= capacity:
        memory.clear()
    memory[key] = value


def _names(flags: int) -> list[str]:
    if flags & _RESERVED_FLAGS:
        raise ValueError("reserved flag set")
    return [name for name, flag in _FLAGS.items() if flags & flag]


@cache
def _plan(raw_flags: bytes) -> tuple[tuple[int, ...], bool]:
    """Return the steps through a list with these flags, and whether it is unlikely to repeat."""
    flags = int.from_bytes(raw_flags, "big")
    steps = tuple(_STEPS.get(name, _TEXT) for name in _names(flags))
    return steps, flags & _ONE_TIME != 0


def property_extents(payload: bytes) -> dict[str, tuple[int, int]]:
    """Return start and stop of each property in a content header's *payload*, in their order.

    Raises IndexError, ValueError or struct.error for a list that does not decode.
    """
    extents = {}
    position = LIST_POSITION
    for name in _names(payload[_FLAGS_POSITION] << 8 | payload[_FLAGS_POSITION + 1]):
        stop = _stop(payload, position, _TYPES[name])
        extents[name] = position, stop
        position = stop
    if position != len(payload):
        raise IndexError
    return extents


def checked_extents(payload: bytes) -> dict[str, tuple[int, int]]:
    """The same for a list that decodes; nothing is looked into."""
    extents = {}
    position = LIST_POSITION
    for name in _names_of(payload[_FLAGS_POSITION:LIST_POSITION]):
        amqp_type = _TYPES[name]
        if amqp_type == "shortstr":
            stop = position + 1 + payload[position]
        elif amqp_type == "table":
            stop = position + 4 + _unpack_size(payload, position)[0]
        else:
            stop = position + _FIXED_SIZES[amqp_type]
        extents[name] = position, stop
        position = stop
    return extents


@cache
def _names_of(raw_flags: bytes) -> list[str]:
    return _names(int.from_bytes(raw_flags, "big"))


def _stop(payload: bytes, position: int, amqp_type: str) -> int:
    if amqp_type == "table":
        return validate_table(payload, position, len(payload))
    if amqp_type in _FIXED_SIZES:
        return position + _FIXED_SIZES[amqp_type]
    stop = position + 1 + payload[position]
    payload[position + 1 : stop].decode()
    return stop


def plain_properties(view: PropertyView) -> dict[str, str | int]:
    """The properties that a message has, without its headers."""
    found = {name: getattr(view, name) for name in _FLAGS if name != "headers"}
    return {name: value for name, value in found.items() if value is not None}


NO_PROPERTIES = PropertyView(b"\x00\x3c" + bytes(LIST_POSITION - 2))
"""The properties of a message that has none."""


def _undecodable(error: Exception) -> InternalError:
    reason = "list and flags differ in length" if isinstance(error, IndexError) else error
    return InternalError(f"cannot decode the message properties: {reason}")


def _encode(name: str, value: object) -> bytes:
    amqp_type = _TYPES[name]
    if amqp_type == "table":
        return encode_table(cast("Table", value))
    if amqp_type == "shortstr":
        raw = cast("str", value).encode()
        if len(raw) > SHORT_STRING_MAX:
            raise ValueError(f"{len(raw)} bytes in the property {name}")
        return bytes([len(raw)]) + raw
    try:
        return cast("int", value).to_bytes(_FIXED_SIZES[amqp_type], "big")
    except OverflowError:
        raise ValueError(f"{value} does not fit the property {name}") from None
