"""Columns: numbers written into and checked in runs of records of one length.

A run of *count* records of *stride* bytes has each byte of a field at `position + k * stride`. One
extended slice takes or sets that byte in all of them at once, so the work per record is done by
the interpreter's own loops. Numbers are u64, big endian. No run is longer than MAX_COUNT.
"""

from collections.abc import Iterable, Iterator

_LOW = bytes(range(256)) * 512
_HIGH = b"".join(bytes([high]) * 256 for high in range(256)) * 2
_FIRST_DIGIT = b"".join(b"%02x" % byte for byte in range(256))[::2]
_SECOND_DIGIT = b"".join(b"%02x" % byte for byte in range(256))[1::2]

MAX_COUNT = 65536


def counter_columns(first: int, count: int) -> Iterator[bytes]:
    """Yield the eight byte columns of the numbers from *first* on, highest byte first.

    The upper six bytes change at most once in MAX_COUNT numbers.
    """
    low = first & 0xFFFF
    before = min(count, 65536 - low)
    upper, next_upper = first >> 16, (first >> 16) + 1
    for shift in (40, 32, 24, 16, 8, 0):
        column = bytes([upper >> shift & 255]) * before
        yield column + bytes([next_upper >> shift & 255]) * (count - before)
    yield _HIGH[low : low + count]
    yield _LOW[low : low + count]


def write_counter(run: bytearray, position: int, stride: int, first: int, count: int) -> None:
    """Write the numbers from *first* on into *count* records, into the first at *position*."""
    for offset, column in enumerate(counter_columns(first, count), position):
        run[_column(offset, stride, count)] = column


def write_hex_counter(run: bytearray, position: int, stride: int, first: int, count: int) -> None:
    """Write the numbers from *first* on as 16 hexadecimal digits each."""
    for index, column in enumerate(counter_columns(first, count)):
        offset = position + 2 * index
        run[_column(offset, stride, count)] = column.translate(_FIRST_DIGIT)
        run[_column(offset + 1, stride, count)] = column.translate(_SECOND_DIGIT)


def write_constant(run: bytearray, position: int, stride: int, value: bytes, count: int) -> None:
    """Write *value* into *count* records, into the first at *position*."""
    for offset, byte in enumerate(value, position):
        run[_column(offset, stride, count)] = bytes([byte]) * count


def is_counting(run: bytearray, position: int, stride: int, first: int, count: int) -> bool:
    """Whether *count* records, the first at *position*, hold the numbers from *first* on."""
    return all(
        run[_column(offset, stride, count)] == column
        for offset, column in enumerate(counter_columns(first, count), position)
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
        count -= len(column.lstrip(byte))
    return count


def _column(position: int, stride: int, count: int) -> slice:
    return slice(position, position + (count - 1) * stride + 1, stride)
