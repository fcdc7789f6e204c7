"""Methods: the payload of method frames to and from pamqp's classes (§4.2.4, §4.2.5).

    u16 class id, u16 method id, then the arguments in the order of the specification
    bit         adjacent bits share an octet, the first is the lowest
    octet short long longlong        8, 16, 32, 64 bits, unsigned, big endian
    shortstr    u8 length, UTF-8     longstr   u32 length, bytes     table   see tables.py

pamqp gives the vocabulary, not the codec: its own cuts short strings silently, re-encodes tables
lossily and refuses names that RabbitMQ accepts.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from struct import Struct
from struct import error as StructError
from typing import ClassVar, TypeAlias, TypeVar

from pamqp import base, commands

from leveret.amqp.constants import SHORT_STRING_MAX
from leveret.amqp.errors import CommandInvalid, FrameError
from leveret.amqp.tables import encode_table, read_table, table_of

Method: TypeAlias = base.Frame
AnyMethod = TypeVar("AnyMethod", bound=Method)


class Access:
    """The access class of AMQP 0-8; RabbitMQ still grants every request of old clients."""

    class Request(base.Frame):
        """Request an access ticket for a realm."""

        # The order is that of the arguments.
        __slots__: ClassVar[list[str]] = [  # noqa: RUF023
            "realm",
            "exclusive",
            "passive",
            "active",
            "write",
            "read",
        ]
        frame_id = 10
        index = 30 << 16 | 10
        name = "Access.Request"
        synchronous = True
        valid_responses: ClassVar[list[str]] = ["Access.RequestOk"]
        _realm = "shortstr"
        _exclusive = _passive = _active = _write = _read = "bit"

        def __init__(
            self,
            realm: str = "/data",
            exclusive: bool = False,
            passive: bool = True,
            active: bool = True,
            write: bool = True,
            read: bool = True,
        ) -> None:
            self.realm = realm
            self.exclusive = exclusive
            self.passive = passive
            self.active = active
            self.write = write
            self.read = read

    class RequestOk(base.Frame):
        """Grant access; the ticket means nothing."""

        __slots__: ClassVar[list[str]] = ["ticket"]
        frame_id = 11
        index = 30 << 16 | 11
        name = "Access.RequestOk"
        _ticket = "short"

        def __init__(self, ticket: int = 1) -> None:
            self.ticket = ticket


METHOD_CLASSES: Mapping[int, type[Method]] = commands.INDEX_MAPPING | {
    Access.Request.index: Access.Request,
    Access.RequestOk.index: Access.RequestOk,
}
"""Class id << 16 | method id -> class."""


def decode_method(payload: bytes) -> Method:
    """Return the method in the payload of a method frame.

    Names are not validated. A long string is `bytes`, a table a `Table` with its letters.
    Raises CommandInvalid for an unknown method and FrameError for arguments that do not decode.
    """
    index = _index(payload)
    cls = METHOD_CLASSES.get(index)
    if cls is None:
        raise CommandInvalid(f"unknown method ({index >> 16},{index & 0xFFFF})")
    method = cls.__new__(cls)
    position = 4
    try:
        for read in _plan(index).readers:
            position = read(method, payload, position)
    except UnicodeDecodeError:
        raise FrameError("Malformed UTF-8 in shortstr") from None
    except (IndexError, StructError, ValueError) as error:
        raise _undecodable(payload) from error
    if position != len(payload):
        raise _undecodable(payload)
    return method


def build_method(method_class: type[AnyMethod], **arguments: object) -> AnyMethod:
    """A method with exactly these arguments.

    For methods that carry names: pamqp's constructors refuse many that RabbitMQ takes.
    """
    method = method_class.__new__(method_class)
    for name, value in arguments.items():
        setattr(method, name, value)
    return method


def encode_method(method: Method) -> bytes:
    """Return the payload of a method frame: class id, method id and arguments.

    Names are not validated. A table argument may hold `Field`s or plain values.
    Raises ValueError for a value that its type cannot carry, as a short string above 255 bytes.
    """
    plan = _plan(method.index)
    try:
        return plan.prefix + b"".join([write(method) for write in plan.writers])
    except (TypeError, AttributeError, StructError) as error:
        raise ValueError(f"an argument of {_plain_name(type(method))} does not encode") from error


_Reader: TypeAlias = Callable[[Method, bytes, int], int]
_Writer: TypeAlias = Callable[[Method], bytes]

_INDEX = Struct(">I")
_LENGTH = Struct(">I")
_NUMBERS = {"octet": Struct(">B"), "short": Struct(">H"), "long": _LENGTH, "longlong": Struct(">Q")}
_SHOWN_BYTES = 128


class _Plan:
    """How to read and write the arguments of one class, a callable for each argument or octet."""

    __slots__ = ("prefix", "readers", "writers")

    def __init__(self, cls: type[Method]) -> None:
        self.prefix = _INDEX.pack(cls.index)
        self.readers: list[_Reader] = []
        self.writers: list[_Writer] = []
        for attributes, amqp_type in _arguments(cls):
            if amqp_type == "bit":
                self.readers.append(_bits_reader(attributes))
                self.writers.append(_bits_writer(attributes))
            else:
                self.readers.append(_reader(attributes[0], amqp_type))
                self.writers.append(_writer(attributes[0], amqp_type))


@cache
def _plan(index: int) -> _Plan:
    return _Plan(METHOD_CLASSES[index])


def _arguments(cls: type[Method]) -> list[tuple[list[str], str]]:
    """Return the attributes with their types, those that share an octet of bits as one entry."""
    arguments: list[tuple[list[str], str]] = []
    for attribute in cls.attributes():
        amqp_type = cls.amqp_type(attribute)
        if amqp_type == "bit" and arguments and arguments[-1][1] == "bit":
            arguments[-1][0].append(attribute)
        else:
            arguments.append(([attribute], amqp_type))
    return arguments


def _index(payload: bytes) -> int:
    if len(payload) < 4:
        raise FrameError(f"cannot decode {_erlang_binary(payload)}")
    index: int = _INDEX.unpack_from(payload)[0]
    return index


def _undecodable(payload: bytes) -> FrameError:
    return FrameError(f"cannot decode {_erlang_binary(payload[4:])}")


def _erlang_binary(data: bytes) -> str:
    """Return the bytes as RabbitMQ prints them, no more of them than fit a reply text."""
    return f"<<{','.join(map(str, data[:_SHOWN_BYTES]))}>>"


def _plain_name(cls: type[Method]) -> str:
    """`Queue.DeclareOk` -> `queue.declare-ok`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.name).lower()


def _reader(attribute: str, amqp_type: str) -> _Reader:
    if amqp_type == "shortstr":
        return _short_string_reader(attribute)
    if amqp_type == "longstr":
        return _long_string_reader(attribute)
    if amqp_type == "table":
        return _table_reader(attribute)
    return _number_reader(attribute, _NUMBERS[amqp_type])


def _writer(attribute: str, amqp_type: str) -> _Writer:
    if amqp_type == "shortstr":
        return lambda method: _short_string(getattr(method, attribute))
    if amqp_type == "longstr":
        return lambda method: _long_string(getattr(method, attribute))
    if amqp_type == "table":
        return lambda method: encode_table(table_of(getattr(method, attribute)))
    pack = _NUMBERS[amqp_type].pack
    return lambda method: pack(getattr(method, attribute))


def _number_reader(attribute: str, number: Struct) -> _Reader:
    size, unpack_from = number.size, number.unpack_from

    def read(method: Method, payload: bytes, position: int) -> int:
        setattr(method, attribute, unpack_from(payload, position)[0])
        return position + size

    return read


def _short_string_reader(attribute: str) -> _Reader:
    def read(method: Method, payload: bytes, position: int) -> int:
        stop = position + 1 + payload[position]
        if stop > len(payload):
            raise IndexError
        setattr(method, attribute, payload[position + 1 : stop].decode())
        return stop

    return read


def _long_string_reader(attribute: str) -> _Reader:
    def read(method: Method, payload: bytes, position: int) -> int:
        start = position + 4
        stop = start + _LENGTH.unpack_from(payload, position)[0]
        if stop > len(payload):
            raise IndexError
        setattr(method, attribute, payload[start:stop])
        return int(stop)

    return read


def _table_reader(attribute: str) -> _Reader:
    def read(method: Method, payload: bytes, position: int) -> int:
        table, position = read_table(payload, position, len(payload))
        setattr(method, attribute, table)
        return position

    return read


def _bits_reader(attributes: list[str]) -> _Reader:
    masks = [(attribute, 1 << bit) for bit, attribute in enumerate(attributes)]

    def read(method: Method, payload: bytes, position: int) -> int:
        octet = payload[position]
        for attribute, mask in masks:
            setattr(method, attribute, octet & mask != 0)
        return position + 1

    return read


def _bits_writer(attributes: list[str]) -> _Writer:
    masks = [(attribute, 1 << bit) for bit, attribute in enumerate(attributes)]

    def write(method: Method) -> bytes:
        octet = 0
        for attribute, mask in masks:
            if getattr(method, attribute):
                octet |= mask
        return octet.to_bytes(1, "big")

    return write


def _short_string(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > SHORT_STRING_MAX:
        raise ValueError(f"{len(raw)} bytes in a short string: {text[:40]!r}...")
    return bytes((len(raw),)) + raw


def _long_string(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return _LENGTH.pack(len(raw)) + raw
