"""Columns: numbers written into and checked in runs of records of one length.

A run of *count* records of *stride* bytes has each byte of a field at `position + k * stride`. One
extended slice takes or sets that byte in all of them at once, so the work per record is done by
the interpreter's own loops. Numbers are u64, big endian. No run is longer than MAX_COUNT.
"""

import struct
from collections.abc import Iterable

_LOW = bytes(range(256)) * 512
_HIGH = b"".join(bytes([high]) * 256 for high in range(256)) * 2
_FIRST_DIGIT = b"".join(b"%02x" % byte for byte in range(256))[::2]
_SECOND_DIGIT = b"".join(b"%02x" % byte for byte in range(256))[1::2]

_SHIFTS = range(56, -8, -8)
_U64 = struct.Struct(">Q")

MAX_COUNT = 65536


def counter_column(first: int, count: int, shift: int) -> bytes:
    """The byte at bit *shift* of each of the numbers from *first* on.

    The bytes above the lowest two change at most once in MAX_COUNT numbers.
    """
    low = first & 0xFFFF
    if shift < 16:
        return (_HIGH if shift else _LOW)[low : low + count]
    before = min(count, 65536 - low)
    upper, shift = first >> 16, shift - 16
    column = bytes([upper >> shift & 255]) * before
    if before < count:
        column += bytes([upper + 1 >> shift & 255]) * (count - before)
    return column


def write_counter(run: bytearray, position: int, stride: int, first: int, count: int) -> None:
    """Write the numbers from *first* on into *count* records, into the first at *position*."""
    for offset, shift in enumerate(_SHIFTS, position):
        run[_column(offset, stride, count)] = counter_column(first, count, shift)


def write_hex_counter(run: bytearray, position: int, stride: int, first: int, count: int) -> None:
    """Write the numbers from *first* on as 16 hexadecimal digits each."""
    for offset, shift in zip(range(position, position + 16, 2), _SHIFTS, strict=True):
        column = counter_column(first, count, shift)
        run[_column(offset, stride, count)] = column.translate(_FIRST_DIGIT)
        run[_column(offset + 1, stride, count)] = column.translate(_SECOND_DIGIT)


def write_constant(run: bytearray, position: int, stride: int, value: bytes, count: int) -> None:
    """Write *value* into *count* records, into the first at *position*."""
    for offset, byte in enumerate(value, position):
        run[_column(offset, stride, count)] = bytes([byte]) * count


def write_packed(run: bytearray, position: int, stride: int, packed: bytes, count: int) -> None:
    """Write *count* values of one length, which follow each other in *packed*, one per record."""
    width = len(packed) // count
    for offset in range(width):
        run[_column(position + offset, stride, count)] = packed[offset::width]


def read_counters(run: bytearray, position: int, stride: int, count: int) -> tuple[int, ...]:
    """The u64 in each of *count* records, in the first at *position*."""
    packed = bytearray(8 * count)
    for offset in range(8):
        packed[offset::8] = run[_column(position + offset, stride, count)]
    return struct.unpack(f">{count}Q", packed)


def is_counting(run: bytearray, position: int, stride: int, first: int, count: int) -> bool:
    """Whether *count* records, the first at *position*, hold the numbers from *first* on.

    The first and the last are compared as a whole, those between by their lowest 24 bits.
    """
    last = position + (count - 1) * stride
    return (
        _U64.unpack_from(run, position) == (first,)
        and _U64.unpack_from(run, last) == (first + count - 1,)
        and all(
            run[_column(position + 7 - shift // 8, stride, count)]
            == counter_column(first, count, shift)
            for shift in (0, 8, 16)
        )
    )


def count_alike(
    run: bytearray, start: int, end: int, stride: int, constants: Iterable[tuple[int, bytes]]
) -> int:
    """How many whole records from *start* on have each byte of *constants* at its offset."""
    count = min((end - start) // stride, MAX_COUNT)
    for offset, byte in constants:
        if not count:
            break
        column = run[_column(start + offset, stride, count)]
        if column != byte * count:
            count -= len(column.lstrip(byte))
    return count


def _column(position: int, stride: int, count: int) -> slice:
    return slice(position, position + (count - 1) * stride + 1, stride)
