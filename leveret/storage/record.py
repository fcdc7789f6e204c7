"""Record: one payload in a segment, and how runs of records are written and read.

Format, big endian:
    u32 payload length
    u32 crc32
    u64 timestamp in milliseconds
    u64 attributes
    payload

    meta   = timestamp, attributes: 16 bytes, equal in all records of a batch
    crc32  = crc32(meta + payload) XOR (offset & 0xffffffff)

The checksum covers timestamp, attributes and payload and binds the record to its offset; a wrong
length reads a wrong payload. Records follow each other without a hole.

A record with bit 63 of its attributes set is a control record, no message. Its payload:
    u8 kind, 1: a gap
    u64 how many messages are gone from this place, of which the record's offset is the first
    perhaps more bytes, which mean nothing
The next record has the offset behind the gap. Only files whose flags say so have control records.

Both directions are built from iterators that run in C: nothing here interprets bytecode per
record where the records of a run have one length.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate, chain, compress, count, repeat
from operator import and_, ne, xor
from pathlib import Path
from zlib import crc32

from leveret.storage.batch import Batch
from leveret.storage.errors import CorruptRecord

RECORD_HEADER = struct.Struct(">IIQQ")
RECORD_HEADER_SIZE = RECORD_HEADER.size
META = struct.Struct(">QQ")
CONTROL = 1 << 63
"""The attribute of records that are no messages."""
ENCRYPTED = 1 << 62
"""The attribute of records whose payload is encrypted (see cipher.py)."""
GAP = struct.Struct(">BQ")
GAP_RECORD_SIZE = RECORD_HEADER_SIZE + GAP.size
"""Bytes of the shortest gap."""
Picked = tuple[int, int, int, bytes]
"""A record by itself: offset, timestamp in milliseconds, attributes, payload."""

_HEAD = struct.Struct(">II16s")
_LENGTH = struct.Struct(">I")
_COUNTED = struct.Struct(">II")
_ATTRIBUTES_AT = 16
record_length = _LENGTH.unpack_from
"""Reads the length of a payload, in a tuple, from the header at a position."""
_LOW_32 = 0xFFFFFFFF
# The bytes of a header that are equal in all records of a run; the low byte of the length first,
# because it differs most.
_RUN_COLUMNS = (3, 2, 1, 0, *range(23, 7, -1))
_LENGTH_COLUMNS = _RUN_COLUMNS[:4]
_GAP_KIND = 1
_CONTROL_BYTE = 0x80  # of the meta's ninth byte
# Bounds the bytes looked at in vain where equal lengths are a coincidence.
_MAX_RUN = 512


def encode_batch(batch: Batch) -> bytes | bytearray:
    """Return the records of *batch*, one behind the other."""
    payloads = batch.payloads
    meta = META.pack(batch.timestamp_ms, batch.attributes)
    if len(payloads) == 1:
        checksum = crc32(payloads[0], crc32(meta)) ^ (batch.first_offset & _LOW_32)
        return _HEAD.pack(len(payloads[0]), checksum, meta) + payloads[0]
    checksums = _checksums(payloads, meta, batch.first_offset)
    if batch.payload_length:
        return _encode_uniform(batch, meta, checksums)
    headers = map(_HEAD.pack, map(len, payloads), checksums, repeat(meta))
    return b"".join(chain.from_iterable(zip(headers, payloads, strict=True)))


def _encode_uniform(batch: Batch, meta: bytes, checksums: Iterator[int]) -> bytearray:
    """Join with a header whose checksum is empty, then fill in the checksums by column."""
    separator = bytearray(_HEAD.pack(batch.payload_length, 0, meta))
    records = separator.join([b"", *batch.payloads])
    stride = RECORD_HEADER_SIZE + batch.payload_length
    packed = struct.pack(f">{len(batch.payloads)}I", *checksums)
    records[4::stride] = packed[0::4]
    records[5::stride] = packed[1::4]
    records[6::stride] = packed[2::4]
    records[7::stride] = packed[3::4]
    return records


def _checksums(payloads: list[bytes], meta: bytes, first_offset: int) -> Iterator[int]:
    low = first_offset & _LOW_32
    offsets: Iterator[int] = iter(range(low, low + len(payloads)))
    if low + len(payloads) > _LOW_32:
        offsets = map(and_, offsets, repeat(_LOW_32))
    return map(xor, map(crc32, payloads, repeat(crc32(meta))), offsets)


def encode_gap(
    first_offset: int, count: int, timestamp_ms: int, size: int = GAP_RECORD_SIZE
) -> bytes | bytearray:
    """Return the record, of *size* bytes, that stands for *count* messages that are gone."""
    payload = GAP.pack(_GAP_KIND, count) + bytes(size - GAP_RECORD_SIZE)
    return encode_batch(Batch(first_offset, timestamp_ms, CONTROL, [payload], len(payload)))


def records_within(batch: Batch, size: int, growth: int = 0) -> int:
    """Return how many records from the front of *batch* fit into *size* bytes.

    *growth* is by how many bytes the payload of each will be longer.
    """
    extra = RECORD_HEADER_SIZE + growth
    sizes = accumulate(len(payload) + extra for payload in batch.payloads)
    return bisect_right(list(sizes), size)


def split_batch(batch: Batch, at: int) -> tuple[Batch, Batch]:
    """Return the first *at* messages of *batch* and the others."""
    head = Batch(
        batch.first_offset,
        batch.timestamp_ms,
        batch.attributes,
        batch.payloads[:at],
        batch.payload_length,
    )
    tail = Batch(
        batch.first_offset + at,
        batch.timestamp_ms,
        batch.attributes,
        batch.payloads[at:],
        batch.payload_length,
    )
    return head, tail


def count_records(data: bytes, first_offset: int) -> tuple[int, int]:
    """Return how many good and complete messages *data* begins with, and their bytes.

    Checks each and makes nothing of it. Stops in front of a control record, too.
    """
    view, end = memoryview(data), len(data)
    position, offset = 0, first_offset
    while position + RECORD_HEADER_SIZE <= end:
        length, checksum = _COUNTED.unpack_from(data, position)
        stop = position + RECORD_HEADER_SIZE + length
        # Timestamp, attributes and payload lie behind each other.
        if stop > end or crc32(view[position + 8 : stop]) ^ (offset & _LOW_32) != checksum:
            break
        if data[position + _ATTRIBUTES_AT] & 0x80:
            break
        position = stop
        offset += 1
    return offset - first_offset, position


def skip_records(data: bytes, limit: int) -> tuple[int, int]:
    """Step over up to *limit* records and return how many and their bytes.

    Checks nothing. The last record may end behind *data*.
    """
    skipped = position = previous = 0
    while skipped < limit and position + RECORD_HEADER_SIZE <= len(data):
        stride = RECORD_HEADER_SIZE + _LENGTH.unpack_from(data, position)[0]
        run = 1
        if stride == previous:
            most = min(limit - skipped, (len(data) - position) // stride, _MAX_RUN)
            run = _run_length(data, position, stride, most, _LENGTH_COLUMNS) if most > 1 else 1
        position += run * stride
        skipped += run
        previous = stride
    return skipped, position


def record_size(data: bytes, at: int = 0) -> int:
    """Return the bytes of the record whose header is at *at*."""
    length: int = _LENGTH.unpack_from(data, at)[0]
    return RECORD_HEADER_SIZE + length


def is_control(data: bytes, at: int) -> bool:
    """Whether the record whose header is at *at* is no message."""
    return data[at + 16] >= _CONTROL_BYTE


def gap_count(data: bytes, at: int) -> int:
    """Return how many messages the gap at *at* stands for, 0 if a message is there.

    *data* has the whole record if it is a gap.
    """
    if not is_control(data, at):
        return 0
    count: int = GAP.unpack_from(data, at + RECORD_HEADER_SIZE)[1]
    return count


def record_timestamp_ms(header: bytes) -> int:
    """Return the timestamp of the record that begins with *header*."""
    timestamp_ms: int = RECORD_HEADER.unpack_from(header)[2]
    return timestamp_ms


def record_attributes(header: bytes) -> int:
    """Return the attributes of the record that begins with *header*."""
    attributes: int = RECORD_HEADER.unpack_from(header)[3]
    return attributes


def read_record(data: bytes, at: int, offset: int, *, path: Path, position: int) -> Picked:
    """Decode the record at *at*; *path* and *position* say where *data* begins, for errors.

    Raises CorruptRecord.
    """
    length, checksum, meta = _HEAD.unpack_from(data, at)
    start = at + RECORD_HEADER_SIZE
    payload = data[start : start + length]
    actual = crc32(payload, crc32(meta)) ^ (offset & _LOW_32)
    if actual != checksum:
        expected = f"crc32 {checksum:08x}, not {actual:08x}"
        raise CorruptRecord(path, position + at, offset, expected)
    timestamp_ms, attributes = META.unpack(meta)
    return offset, timestamp_ms, attributes, payload


def read_batches(
    data: bytes, first_offset: int, *, path: Path, position: int
) -> tuple[list[Batch], int, int]:
    """Decode the complete records of *data*; return them, the bytes they took, the next offset.

    Neighbours with equal timestamp and attributes come as one batch, which no gap interrupts.
    *path* and *position* say where *data* begins, for errors. Stops in front of a bad record, and
    raises CorruptRecord if it is the first.
    """
    batches: list[Batch] = []
    end = len(data)
    at = 0
    offset = first_offset
    while at + RECORD_HEADER_SIZE <= end:
        start = at
        payloads, checksums, meta, payload_length, at = _gather(data, at)
        if not payloads:
            break
        is_gap = meta[8] >= _CONTROL_BYTE
        if is_gap:
            del payloads[1:], checksums[1:]
            at = start + RECORD_HEADER_SIZE + len(payloads[0])
        actual = list(_checksums(payloads, meta, offset))
        bad = actual != checksums
        if bad:
            payloads = payloads[: next(compress(count(), map(ne, actual, checksums)))]
            at = start + sum(map(len, payloads)) + RECORD_HEADER_SIZE * len(payloads)
        if is_gap and payloads:
            kind, gap = GAP.unpack_from(payloads[0]) if len(payloads[0]) >= GAP.size else (0, 0)
            if kind != _GAP_KIND:
                raise CorruptRecord(path, position + start, offset, "a gap")
            offset += gap
        elif payloads:
            timestamp_ms, attributes = META.unpack(meta)
            batches.append(Batch(offset, timestamp_ms, attributes, payloads, payload_length))
            offset += len(payloads)
        if bad:
            if offset == first_offset:
                expected = f"crc32 {checksums[0]:08x}, not {actual[0]:08x}"
                raise CorruptRecord(path, position, first_offset, expected)
            break
    return batches, at, offset


def _gather(data: bytes, at: int) -> tuple[list[bytes], list[int], bytes, int, int]:
    """Collect the records from *at* on that share timestamp and attributes.

    Returns payloads, stored checksums, meta, the common length or 0, and where the next begins.
    """
    payloads: list[bytes] = []
    checksums: list[int] = []
    end = len(data)
    first_length, _, first_meta = _HEAD.unpack_from(data, at)
    previous_length = -1
    common_length = first_length
    while at + RECORD_HEADER_SIZE <= end:
        length, checksum, meta = _HEAD.unpack_from(data, at)
        body = at + RECORD_HEADER_SIZE
        stop = body + length
        if stop > end or meta != first_meta:
            break
        if length == previous_length:
            stride = stop - at
            run = _run_length(data, at, stride, min((end - at) // stride, _MAX_RUN))
            stop = at + run * stride
            rows = _run_struct(length).iter_unpack(memoryview(data)[at:stop])
            run_checksums, run_payloads = zip(*rows, strict=True)
            checksums += run_checksums
            payloads += run_payloads
        else:
            checksums.append(checksum)
            payloads.append(data[body:stop])
            if length != first_length:
                common_length = 0
            previous_length = length
        at = stop
    return payloads, checksums, first_meta, common_length, at


def _run_length(
    data: bytes, at: int, stride: int, limit: int, columns: tuple[int, ...] = _RUN_COLUMNS
) -> int:
    """Return how many records from *at* on, up to *limit*, repeat the first one's header."""
    for column in columns:
        values = data[at + column : at + limit * stride : stride]
        limit -= len(values.lstrip(values[:1]))
        if limit == 1:
            break
    return limit


@lru_cache(maxsize=256)
def _run_struct(length: int) -> struct.Struct:
    return struct.Struct(f">4xI16x{length}s")
