import contextlib
import struct
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.storage.batch import Batch
from leveret.storage.errors import CorruptRecord
from leveret.storage.record import (
    CONTROL,
    RECORD_HEADER_SIZE,
    count_records,
    encode_batch,
    encode_gap,
    gap_count,
    read_batches,
    records_within,
    skip_records,
    split_batch,
)

PATH = Path("0.log")
U64 = st.integers(0, 2**64 - 1)
OFFSETS = st.one_of(
    st.integers(0, 1000), st.integers(2**32 - 20, 2**32 + 20), st.integers(0, 2**63)
)


def make_batch(first_offset: int, payloads: list[bytes], meta: tuple[int, int] = (7, 9)) -> Batch:
    lengths = {len(payload) for payload in payloads}
    length = lengths.pop() if len(lengths) == 1 else 0
    return Batch(first_offset, *meta, payloads, length)


def reference_encode(batch: Batch) -> bytes:
    out = b""
    for offset, payload in enumerate(batch.payloads, batch.first_offset):
        meta = struct.pack(">QQ", batch.timestamp_ms, batch.attributes)
        checksum = crc32(meta + payload) ^ (offset & 0xFFFFFFFF)
        out += struct.pack(">II", len(payload), checksum) + meta + payload
    return out


def uniform_payloads() -> st.SearchStrategy[list[bytes]]:
    return st.integers(0, 40).flatmap(
        lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=30)
    )


PAYLOADS = st.one_of(uniform_payloads(), st.lists(st.binary(max_size=40), min_size=1, max_size=30))


@given(OFFSETS, U64, U64, PAYLOADS)
def test_every_path_encodes_as_the_reference(
    offset: int, timestamp_ms: int, attributes: int, payloads: list[bytes]
) -> None:
    batch = make_batch(offset, payloads, (timestamp_ms, attributes))
    assert encode_batch(batch) == reference_encode(batch)
    batch.payload_length = 0
    assert encode_batch(batch) == reference_encode(batch)


PARTS = st.tuples(st.sampled_from([(1, 1), (1, 2), (2, 1)]), PAYLOADS) | st.integers(1, 2**33)
"""Batches, and gaps between them."""


@given(OFFSETS, st.lists(PARTS, max_size=8))
def test_decoding_gives_back_what_was_encoded(
    offset: int, parts: list[tuple[tuple[int, int], list[bytes]] | int]
) -> None:
    data, expected, at = b"", [], offset
    for part in parts:
        if isinstance(part, int):
            data += encode_gap(at, part, 1)
            assert gap_count(data[-33:], 0) == part
            at += part
            continue
        meta, payloads = part
        batch = make_batch(at, payloads, meta)
        data += encode_batch(batch)
        assert gap_count(data[-len(encode_batch(batch)) :], 0) == 0
        expected += [(o, meta, payload) for o, payload in enumerate(payloads, at)]
        at = batch.next_offset
    batches, consumed, following = read_batches(data, offset, path=PATH, position=8)
    assert (consumed, following) == (len(data), at)
    found = [
        (at, (b.timestamp_ms, b.attributes), payload)
        for b in batches
        for at, payload in enumerate(b.payloads, b.first_offset)
    ]
    assert found == expected
    for batch in batches:
        assert batch == make_batch(
            batch.first_offset, batch.payloads, (batch.timestamp_ms, batch.attributes)
        )


def test_a_damaged_gap_is_found() -> None:
    good = bytes(encode_gap(3, 7, 1))
    for index in range(4 * 8, len(good) * 8):
        data = bytearray(good)
        data[index // 8] ^= 1 << index % 8
        with pytest.raises(CorruptRecord):
            read_batches(bytes(data), 3, path=PATH, position=8)
    unknown = encode_batch(make_batch(3, [b"\x02" + bytes(8)], (1, CONTROL)))
    with pytest.raises(CorruptRecord, match="expected a gap"):
        read_batches(bytes(unknown), 3, path=PATH, position=8)


def test_a_long_run_is_one_batch() -> None:
    batch = make_batch(5, [b"%06d" % i for i in range(5000)])
    data = bytes(encode_batch(batch))
    assert read_batches(data, 5, path=PATH, position=8) == ([batch], len(data), 5005)


def test_an_incomplete_record_ends_the_batches() -> None:
    batch = make_batch(0, [b"aaaa", b"bbbb", b"cccc"])
    data = bytes(encode_batch(batch))
    stride = RECORD_HEADER_SIZE + 4
    for size in range(len(data)):
        batches, consumed, following = read_batches(data[:size], 0, path=PATH, position=8)
        assert consumed == size // stride * stride
        assert sum(len(b.payloads) for b in batches) == following == size // stride


@pytest.mark.parametrize("payloads", [[b"aaaa", b"bbbb", b"cccc"], [b"a", b"bb", b"ccc"], [b"x"]])
def test_any_flipped_bit_is_found(payloads: list[bytes]) -> None:
    good = bytes(encode_batch(make_batch(3, payloads)))
    for index in range(len(good) * 8):
        data = bytearray(good)
        data[index // 8] ^= 1 << index % 8
        found: list[bytes] = []
        with contextlib.suppress(CorruptRecord):
            batches, *_ = read_batches(bytes(data), 3, path=PATH, position=8)
            found = [payload for batch in batches for payload in batch.payloads]
        assert found == payloads[: len(found)]
        assert len(found) < len(payloads)


def test_a_record_is_bound_to_its_offset() -> None:
    data = bytes(encode_batch(make_batch(3, [b"abc"])))
    with pytest.raises(CorruptRecord, match=r"0\.log: record 4 at byte 8: expected crc32"):
        read_batches(data, 4, path=PATH, position=8)
    with pytest.raises(CorruptRecord) as caught:
        read_batches(data, 2, path=PATH, position=900)
    assert (caught.value.path, caught.value.position, caught.value.offset) == (PATH, 900, 2)


def test_splitting_and_skipping_count_in_records() -> None:
    batch = make_batch(10, [b"a", b"bb", b"ccc"])
    assert [records_within(batch, size) for size in (-1, 24, 25, 50, 51, 77, 78)] == [
        *(0, 0, 1, 1, 2, 2, 3)
    ]
    head, tail = split_batch(batch, 2)
    assert (head.first_offset, head.payloads) == (10, [b"a", b"bb"])
    assert (tail.first_offset, tail.payloads) == (12, [b"ccc"])
    data = bytes(encode_batch(batch))
    assert skip_records(data, 2) == (2, 51)
    assert skip_records(data[:60], 5) == (2, 51)
    assert skip_records(data[:-1], 3) == (3, 78)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20), st.data())
def test_counted_are_the_records_that_can_be_read(payloads: list[bytes], data) -> None:
    first = data.draw(st.sampled_from([0, 7, (1 << 32) - 3]))
    records = bytearray(encode_batch(Batch(first, 5, 6, payloads, 0)))
    for at in data.draw(st.lists(st.integers(0, len(records) - 1), max_size=2)):
        records[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(records)))
    given_bytes = bytes(records[:cut])
    try:
        batches, consumed, following = read_batches(
            given_bytes, first, path=Path("log"), position=0
        )
    except CorruptRecord:
        batches, consumed, following = [], 0, first
    if not any(batch.attributes & CONTROL for batch in batches):
        assert count_records(given_bytes, first) == (following - first, consumed)
