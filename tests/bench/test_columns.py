import struct

from hypothesis import given
from hypothesis import strategies as st

from leveret.bench.columns import (
    count_alike,
    is_counting,
    write_constant,
    write_counter,
    write_hex_counter,
)

FIRST = st.integers(0, 2**63) | st.integers(-300, 300).map(lambda near: (7 << 32) + 65536 + near)
COUNT = st.integers(1, 600)


@given(first=FIRST, count=COUNT, position=st.integers(0, 5), tail=st.integers(0, 5))
def test_counter_is_what_struct_writes(first: int, count: int, position: int, tail: int) -> None:
    stride = position + 8 + tail
    run = bytearray(stride * count)
    write_counter(run, position, stride, first, count)
    expected = b"".join(
        bytes(position) + struct.pack(">Q", number) + bytes(tail)
        for number in range(first, first + count)
    )
    assert run == expected
    assert is_counting(run, position, stride, first, count)


@given(first=FIRST, count=COUNT, data=st.data())
def test_one_changed_byte_is_seen(first: int, count: int, data: st.DataObject) -> None:
    run = bytearray(9 * count)
    write_counter(run, 1, 9, first, count)
    record, byte = data.draw(st.integers(0, count - 1)), data.draw(st.integers(6, 8))
    run[record * 9 + byte] ^= 1
    assert not is_counting(run, 1, 9, first, count)


@given(first=FIRST, count=COUNT)
def test_hex_counter_is_what_format_writes(first: int, count: int) -> None:
    run = bytearray(b"-" * 18 * count)
    write_hex_counter(run, 1, 18, first, count)
    assert run == b"".join(b"-%016x-" % number for number in range(first, first + count))


def test_constant_is_written_into_each_record() -> None:
    run = bytearray(b"..." * 3)
    write_constant(run, 1, 3, b"ab", 3)
    assert run == b".ab.ab.ab"


def test_only_whole_records_that_are_alike_count() -> None:
    run = bytearray(b"a1x a2x a3x b4x a5x a6")
    assert count_alike(run, 0, len(run), 4, [(0, b"a")]) == 3
    assert count_alike(run, 16, len(run), 4, [(0, b"a"), (2, b"x")]) == 1
    assert count_alike(run, 20, len(run), 4, [(0, b"a")]) == 0
