"""Field tables with their type letters kept (§4.2.5.5, in RabbitMQ's dialect of the letters).

    table   u32 size in bytes, then entries up to that size
    entry   u8 length, name in UTF-8, value
    value   one letter, then
        S x   u32 length, bytes          b B   8 bits, signed and unsigned
        F     table                      s u   16 bits, signed and unsigned
        A     u32 size, values           I i   32 bits, signed and unsigned
        t     u8, 0 is false             l L   64 bits, signed
        D     u8 scale, u32 unscaled     T     64 bits, unsigned: seconds since 1970
        V     nothing                    f d   IEEE 754 single and double

All numbers are big endian. Encoding what was read gives the same bytes again, but for duplicate
names (the last one wins) and booleans above 1.
"""

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from struct import Struct
from struct import error as StructError
from typing import NamedTuple, TypeAlias, cast

from leveret.amqp.constants import SHORT_STRING_MAX

MAX_DEPTH = 128
"""Levels of tables and arrays in each other; a peer must not exhaust our stack."""

TYPE_NAMES: Mapping[str, str] = {
    "S": "longstr",
    "x": "binary",
    "F": "table",
    "A": "array",
    "t": "bool",
    "b": "byte",
    "B": "unsignedbyte",
    "s": "short",
    "u": "unsignedshort",
    "I": "signedint",
    "i": "unsignedint",
    "l": "long",
    "L": "long",
    "d": "double",
    "f": "float",
    "D": "decimal",
    "T": "timestamp",
    "V": "void",
}
"""Letter -> what RabbitMQ calls the type in its error texts."""

INTEGER_TAGS = frozenset("bBsuIilL")
"""Clients choose the width of an integer by its value: all widths are one type."""

_SIZE = Struct(">I")
_DECIMAL = Struct(">BI")
_NUMBERS = {
    ord(letter): (letter, Struct(layout))
    for letter, layout in {
        "t": ">?",
        "b": ">b",
        "B": ">B",
        "s": ">h",
        "u": ">H",
        "I": ">i",
        "i": ">I",
        "l": ">q",
        "L": ">q",
        "T": ">Q",
        "f": ">f",
        "d": ">d",
    }.items()
}
_FIXED_SIZES = {letter: number.size for letter, (_, number) in _NUMBERS.items()} | {
    ord("D"): _DECIMAL.size,
    ord("V"): 0,
}
_LONG_STRING, _BINARY, _TABLE, _ARRAY, _DECIMAL_LETTER, _VOID = b"SxFADV"

FieldValue: TypeAlias = "bool | int | float | Decimal | bytes | str | Table | list[Field] | None"
PlainValue: TypeAlias = (
    "bool | int | float | Decimal | bytes | str | dict[str, PlainValue] | list[PlainValue] | None"
)


class MalformedTable(ValueError):
    """Bytes that are no field table; says what is wrong and at which byte of the input."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"{reason} at byte {position}")


class Field(NamedTuple):
    """One value of a field table and the letter that it had on the wire."""

    tag: str
    value: FieldValue


Table: TypeAlias = dict[str, Field]


def read_table(data: bytes, position: int, end: int) -> tuple[Table, int]:
    """Read the table at *position*, which must end by *end*; return it and the position behind.

    Long strings are `str` where they are UTF-8 and `bytes` where they are not.
    Raises MalformedTable.
    """
    return _read_table(data, position, end, 1)


def read_entries(data: bytes, position: int, end: int) -> Table:
    """Read the entries of a table that lacks its size, as AMQPLAIN sends it.

    Raises MalformedTable.
    """
    return _read_entries(data, position, end, 1)


def validate_table(data: bytes, position: int, end: int) -> int:
    """Check the table at *position* as `read_table` does, without building it; return the end.

    Raises MalformedTable.
    """
    return _skip_table(data, position, end, 1)


def encode_table(table: Table) -> bytes:
    """Encode *table*, size included, with the letters of its fields.

    Raises ValueError for a value that its letter cannot carry or a name above 255 bytes.
    """
    return _sized(b"".join([_encode_entry(name, field) for name, field in table.items()]))


def patch_table(raw: bytes, name: str, field: Field | None) -> bytes:
    """Return the encoded table *raw* with the entry *name* replaced, appended, or removed (None).

    All other entries keep their bytes and their order.
    Raises MalformedTable for *raw*, ValueError as `encode_table`.
    """
    entry = b"" if field is None else _encode_entry(name, field)
    start, end = _extent(raw, 0, len(raw))
    wanted = name.encode()
    parts = []
    for entry_name, position, stop in _entries(raw, start, end):
        if entry_name != wanted:
            parts.append(raw[position:stop])
        elif entry:
            parts.append(entry)
            entry = b""
    parts.append(entry)
    return _sized(b"".join(parts))


def find_field(raw: bytes, name: str) -> tuple[int, int] | None:
    """Return start and stop of the field called *name* in the encoded table *raw*, with its letter.

    Of duplicate names the last one counts. Raises MalformedTable.
    """
    start, end = _extent(raw, 0, len(raw))
    wanted = name.encode()
    found = None
    for entry_name, position, stop in _entries(raw, start, end):
        if entry_name == wanted:
            found = position + 1 + len(wanted), stop
    return found


def table_of(mapping: Mapping[str, object]) -> Table:
    """Return plain Python values as a table, with the letters that common clients choose.

    An int becomes `I` if 32 bits hold it and `l` otherwise; bytes become `S`. A `Field` among the
    values stays as it is. Raises ValueError for a value that has no letter or is nested too deep.
    """
    return _table_of(mapping, 1)


def plain(table: Table) -> dict[str, PlainValue]:
    """Return *table* as plain Python values; a timestamp becomes its seconds."""
    return {name: plain_value(field) for name, field in table.items()}


def plain_value(field: Field) -> PlainValue:
    """Return the value of *field* with the letters dropped at every level."""
    value = field.value
    if isinstance(value, dict):
        return plain(value)
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    return value


def type_name(field: Field) -> str:
    """Return RabbitMQ's name for the type of *field*, as its error texts show it."""
    return TYPE_NAMES[field.tag]


def _extent(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Return start and stop of what follows the size at *position*."""
    start = position + 4
    if start > end:
        raise MalformedTable("size cut short", position)
    stop = start + int.from_bytes(data[position:start], "big")
    if stop > end:
        raise MalformedTable(
            f"size of {stop - start} bytes exceeds the {end - start} left", position
        )
    return start, stop


def _read_name(data: bytes, position: int, end: int) -> tuple[str, int]:
    stop = position + 1 + data[position]
    if stop > end:
        raise MalformedTable("name cut short", position)
    try:
        return data[position + 1 : stop].decode(), stop
    except UnicodeDecodeError:
        raise MalformedTable("name is not UTF-8", position) from None


def _check_depth(depth: int, position: int) -> None:
    if depth > MAX_DEPTH:
        raise MalformedTable(f"nested more than {MAX_DEPTH} levels deep", position)


def _read_table(data: bytes, position: int, end: int, depth: int) -> tuple[Table, int]:
    _check_depth(depth, position)
    start, stop = _extent(data, position, end)
    return _read_entries(data, start, stop, depth), stop


def _read_entries(data: bytes, position: int, end: int, depth: int) -> Table:
    table: Table = {}
    while position < end:
        name, position = _read_name(data, position, end)
        table[name], position = _read_field(data, position, end, depth)
    return table


def _read_array(data: bytes, position: int, end: int, depth: int) -> tuple[list[Field], int]:
    _check_depth(depth, position)
    position, stop = _extent(data, position, end)
    fields = []
    while position < stop:
        field, position = _read_field(data, position, stop, depth)
        fields.append(field)
    return fields, stop


def _read_field(data: bytes, position: int, end: int, depth: int) -> tuple[Field, int]:
    if position >= end:
        raise MalformedTable("value missing", position)
    letter = data[position]
    position += 1
    if letter == _LONG_STRING:
        start, stop = _extent(data, position, end)
        return Field("S", _text_or_bytes(data[start:stop])), stop
    if letter in _NUMBERS:
        tag, number = _NUMBERS[letter]
        stop = _skip_fixed(number.size, position, end)
        return Field(tag, number.unpack_from(data, position)[0]), stop
    if letter == _TABLE:
        table, stop = _read_table(data, position, end, depth + 1)
        return Field("F", table), stop
    if letter == _ARRAY:
        fields, stop = _read_array(data, position, end, depth + 1)
        return Field("A", fields), stop
    if letter == _BINARY:
        start, stop = _extent(data, position, end)
        return Field("x", data[start:stop]), stop
    if letter == _VOID:
        return Field("V", None), position
    if letter == _DECIMAL_LETTER:
        stop = _skip_fixed(_DECIMAL.size, position, end)
        scale, unscaled = _DECIMAL.unpack_from(data, position)
        return Field("D", Decimal(f"{unscaled}E-{scale}")), stop
    raise MalformedTable(f"unknown type letter {bytes([letter])!r}", position - 1)


def _text_or_bytes(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _skip_fixed(size: int, position: int, end: int) -> int:
    stop = position + size
    if stop > end:
        raise MalformedTable("value cut short", position)
    return stop


def _skip_table(data: bytes, position: int, end: int, depth: int) -> int:
    """Walk over a table; flat, because it checks the headers of every message not seen before."""
    _check_depth(depth, position)
    position, stop = _extent(data, position, end)
    while position < stop:
        value = position + 1 + data[position]
        if value >= stop:
            raise MalformedTable("name or value cut short", position)
        if not data[position + 1 : value].isascii():
            _read_name(data, position, stop)
        position = _skip_value(data, value, stop, depth)
    return stop


def _skip_value(data: bytes, position: int, end: int, depth: int) -> int:
    if position >= end:
        raise MalformedTable("value missing", position)
    letter = data[position]
    position += 1
    if letter in _FIXED_SIZES:
        return _skip_fixed(_FIXED_SIZES[letter], position, end)
    if letter in (_LONG_STRING, _BINARY):
        return _extent(data, position, end)[1]
    if letter == _TABLE:
        return _skip_table(data, position, end, depth + 1)
    if letter == _ARRAY:
        _check_depth(depth + 1, position)
        position, stop = _extent(data, position, end)
        while position < stop:
            position = _skip_value(data, position, stop, depth + 1)
        return stop
    raise MalformedTable(f"unknown type letter {bytes([letter])!r}", position - 1)


def _entries(data: bytes, position: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, start and stop of each entry."""
    while position < end:
        value = _read_name(data, position, end)[1]
        stop = _skip_value(data, value, end, 1)
        yield data[position + 1 : value], position, stop
        position = stop


def _encode_entry(name: str, field: Field) -> bytes:
    raw_name = name.encode()
    if len(raw_name) > SHORT_STRING_MAX:
        raise ValueError(f"name of {len(raw_name)} bytes in a field table: {name[:40]!r}...")
    return bytes([len(raw_name)]) + raw_name + _encode_field(field)


def _encode_field(field: Field) -> bytes:
    try:
        encode = _ENCODERS[field.tag]
    except KeyError:
        raise ValueError(f"unknown type letter {field.tag!r} in a field table") from None
    try:
        return field.tag.encode() + encode(field.value)
    except (TypeError, AttributeError, ArithmeticError, StructError) as error:
        raise ValueError(f"{field.value!r} does not fit the type letter {field.tag!r}") from error


def _sized(content: bytes) -> bytes:
    return _SIZE.pack(len(content)) + content


def _encode_string(value: FieldValue) -> bytes:
    if isinstance(value, str):
        return _sized(value.encode())
    if isinstance(value, bytes):
        return _sized(value)
    raise TypeError


def _encode_decimal(value: FieldValue) -> bytes:
    if not isinstance(value, Decimal):
        raise TypeError
    scale = max(0, -cast("int", value.as_tuple().exponent))
    return _DECIMAL.pack(scale, int(value.scaleb(scale)))


def _encode_nested(value: FieldValue) -> bytes:
    if isinstance(value, dict):
        return encode_table(value)
    raise TypeError


def _encode_array(value: FieldValue) -> bytes:
    if isinstance(value, list):
        return _sized(b"".join([_encode_field(item) for item in value]))
    raise TypeError


def _encode_void(value: FieldValue) -> bytes:
    if value is None:
        return b""
    raise TypeError


_ENCODERS: Mapping[str, Callable[[FieldValue], bytes]] = {
    "S": _encode_string,
    "x": _encode_string,
    "F": _encode_nested,
    "A": _encode_array,
    "D": _encode_decimal,
    "V": _encode_void,
} | {letter: number.pack for letter, number in _NUMBERS.values()}


def _table_of(mapping: Mapping[str, object], depth: int) -> Table:
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
    return {name: _field_of(value, depth) for name, value in mapping.items()}


def _field_of(value: object, depth: int) -> Field:
    match value:
        case Field():
            return value
        case bool():
            return Field("t", value)
        case int():
            return Field(_integer_letter(value), value)
        case str() | bytes():
            return Field("S", value)
        case float():
            return Field("d", value)
        case None:
            return Field("V", None)
        case Decimal():
            return Field("D", value)
        case Mapping():
            return Field("F", _table_of(value, depth + 1))
        case list() | tuple():
            if depth >= MAX_DEPTH:
                raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
            return Field("A", [_field_of(item, depth + 1) for item in value])
    raise ValueError(f"{type(value).__name__} has no type letter in a field table")


def _integer_letter(value: int) -> str:
    if -(2**31) <= value < 2**31:
        return "I"
    if -(2**63) <= value < 2**63:
        return "l"
    raise ValueError(f"{value} does not fit 64 bits")
