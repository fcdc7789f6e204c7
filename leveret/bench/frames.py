"""Frames: publishes and acks encoded in batches, deliveries and confirms found in a received run.

Body of a message, big endian; the rest up to its size is filler:
    u64 nanoseconds (monotonic clock) at publish, for a delayed message when it is due
    u64 message number: 16 bits stream, 48 bits sequence number from 1
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Self

from leveret.bench import variety
from leveret.bench.columns import (
    count_alike,
    write_constant,
    write_counter,
    write_hex_counter,
    write_packed,
)
from leveret.bench.errors import BenchError

MIN_BODY_SIZE = 16
SEQUENCE_BITS = 48
# Stands in the key of a unique message where its number is written.
KEY_NUMBER = "0" * 16

_CHANNEL = 1
_METHOD, _HEADER, _BODY = 1, 2, 3
_FRAME_END = b"\xce"
_FRAME = struct.Struct(">BHI")
_METHOD_ID = struct.Struct(">HH")
_U64 = struct.Struct(">Q")
_PUBLISH = _METHOD_ID.pack(60, 40)
_DELIVER = _METHOD_ID.pack(60, 60)
_ACK = struct.Struct(">BHIHHQBB")
_CONFIRM = struct.Struct(">11xQ?x")
_TAG_OFFSET = 11
_CONTENT_TYPE, _HEADERS, _DELIVERY_MODE, _PRIORITY = 0x8000, 0x2000, 0x1000, 0x0800
_EXPIRATION, _MESSAGE_ID, _TIMESTAMP = 0x0100, 0x0080, 0x0040
# Class id, weight, body size, flags of the properties, which follow.
_HEADER_START = struct.Struct(">HHQH")


def encode_frame(frame_type: int, payload: bytes) -> bytes:
    """One frame on the channel that all of our work uses."""
    return _FRAME.pack(frame_type, _CHANNEL, len(payload)) + payload + _FRAME_END


def encode_ack(delivery_tag: int, *, multiple: bool) -> bytes:
    """A basic.ack."""
    return _ACK.pack(_METHOD, _CHANNEL, 13, 60, 80, delivery_tag, multiple, 0xCE)


def encode_acks(first_tag: int, count: int) -> bytearray:
    """*count* basic.ack, one for each tag from *first_tag* on."""
    run = bytearray(encode_ack(0, multiple=False) * count)
    write_counter(run, _TAG_OFFSET, _ACK.size, first_tag, count)
    return run


_CONFIRM_CONSTANTS = [
    (offset, bytes([byte]))
    for offset, byte in enumerate(encode_ack(0, multiple=False))
    if not _TAG_OFFSET <= offset < _TAG_OFFSET + 9
]


def read_confirms(data: bytearray, start: int, end: int) -> list[tuple[int, bool]]:
    """The (delivery tag, multiple) of each basic.ack from *start* on, up to another frame."""
    count = count_alike(data, start, end, _ACK.size, _CONFIRM_CONSTANTS)
    with memoryview(data) as view, view[start : start + count * _ACK.size] as run:
        return list(_CONFIRM.iter_unpack(run))


CONFIRM_SIZE = _ACK.size


class PublishBatch:
    """A ring of encoded publishes to *exchange*, one after the other with each of *keys*.

    The keys have one length, so the messages have, too. With *is_unique* each message has its own
    message-id and timestamp, and its own routing key where a key contains KEY_NUMBER. *priorities*
    is the highest priority, *expirations* the number of different expirations, *delay_ms* the
    longest delay, each 0 for none.
    """

    def __init__(
        self,
        exchange: str,
        keys: Sequence[str],
        body_size: int,
        *,
        capacity: int,
        frame_max: int,
        is_persistent: bool,
        is_unique: bool,
        priorities: int = 0,
        expirations: int = 0,
        delay_ms: int = 0,
    ) -> None:
        methods = [_encode_publish(exchange, key) for key in keys]
        properties = {
            _CONTENT_TYPE: _short_string("application/json") if is_unique else b"",
            _HEADERS: _encode_delay() if delay_ms else b"",
            _DELIVERY_MODE: b"\x02" if is_persistent else b"",
            _PRIORITY: b"\x00" if priorities else b"",
            _EXPIRATION: _short_string("0" * 10) if expirations else b"",
            _MESSAGE_ID: _short_string("0" * 16 + KEY_NUMBER) if is_unique else b"",
            _TIMESTAMP: bytes(8) if is_unique else b"",
        }
        header = _encode_header(body_size, properties)
        body = _encode_body(body_size, frame_max)
        self.stride = len(methods[0]) + len(header) + len(body)
        self.capacity = capacity
        self._slots = len(keys) * -(-capacity // len(keys))
        self._slot = 0
        rounds = self._slots // len(keys)
        self._ring = bytearray(b"".join(method + header + body for method in methods) * rounds)
        self._stamp_offset = len(methods[0]) + len(header) + _FRAME.size
        self._is_unique = is_unique
        key_start = len(methods[0]) - len(keys[0]) - 2
        number = keys[0].find(KEY_NUMBER)
        self._key_offset = key_start + number if number >= 0 else None
        ends = _property_ends(properties, len(methods[0]))
        self._timestamp_offset = ends[_TIMESTAMP] - 8
        self._message_id_offset = ends[_MESSAGE_ID] - len(KEY_NUMBER)
        self._varied: list[tuple[int, variety.Cycle]] = []
        if priorities:
            self._varied.append((ends[_PRIORITY] - 1, variety.priorities(priorities)))
        if expirations:
            self._varied.append((ends[_EXPIRATION] - 10, variety.expirations(expirations)))
        self._delay_offset = ends[_HEADERS] - 4
        self._delays = variety.delays(delay_ms) if delay_ms else None

    def fill(self, first_number: int, count: int, stamp_ns: int, time_s: int) -> memoryview:
        """Number and stamp the next messages, at most *count*, and return their frames.

        The result is valid until the next call. It holds *count* messages or as many as stand
        before the end of the ring: its length divided by `stride`.
        """
        count = min(count, self.capacity, self._slots - self._slot)
        ring, stride = self._ring, self.stride
        start = self._slot * stride
        stamp = start + self._stamp_offset
        if self._delays is None:
            write_constant(ring, stamp, stride, _U64.pack(stamp_ns), count)
        else:
            delays = self._delays.take(count)
            write_packed(ring, start + self._delay_offset, stride, delays, count)
            write_packed(ring, stamp, stride, _due_times(stamp_ns, delays, count), count)
        for offset, cycle in self._varied:
            write_packed(ring, start + offset, stride, cycle.take(count), count)
        write_counter(ring, stamp + 8, stride, first_number, count)
        if self._is_unique:
            timestamp = _U64.pack(time_s)
            write_constant(ring, start + self._timestamp_offset, stride, timestamp, count)
            write_hex_counter(ring, start + self._message_id_offset, stride, first_number, count)
            if self._key_offset is not None:
                write_hex_counter(ring, start + self._key_offset, stride, first_number, count)
        self._slot = (self._slot + count) % self._slots
        return memoryview(ring)[start : start + count * stride]


@dataclass(frozen=True, slots=True)
class DeliveryShape:
    """Where things stand in a delivery. A consumer's deliveries are alike in nearly all cases."""

    stride: int
    tag_offset: int
    stamp_offset: int
    constants: tuple[tuple[int, bytes], ...]

    @classmethod
    def measure(cls, data: bytearray, start: int, end: int) -> Self | None:
        """The shape of the delivery at *start*; None if it has not come to its end.

        Its frames follow each other: we use one channel and no heartbeats, so that nothing but a
        close can come between them, and that ends the run anyway.
        Raises BenchError if it is not a message of ours.
        """
        frames: list[tuple[int, int]] = []
        position, size, missing = start, 0, -1
        while missing:
            if end - position < _FRAME.size:
                return None
            frame_type, _, length = _FRAME.unpack_from(data, position)
            if end - position < _FRAME.size + length + 1:
                return None
            expected = (_METHOD, _HEADER, _BODY)[min(len(frames), 2)]
            if frame_type != expected or data[position + _FRAME.size + length] != _FRAME_END[0]:
                raise BenchError(f"broken delivery: frame type {frame_type} in place of {expected}")
            if frame_type == _HEADER:
                size = missing = read_u64(data, position + _FRAME.size + 4)
            elif frame_type == _BODY:
                missing -= length
                if missing < 0:
                    raise BenchError(f"broken delivery: {-missing} bytes above its body size")
            frames.append((position - start, length))
            position += _FRAME.size + length + 1
        if len(frames) < 3 or min(size, frames[2][1]) < MIN_BODY_SIZE:
            raise BenchError(f"a message of {size} bytes came that nobody published")
        return cls(
            stride=position - start,
            tag_offset=12 + data[start + 11],
            stamp_offset=frames[2][0] + _FRAME.size,
            constants=tuple((offset, bytes([data[start + offset]])) for offset in _framing(frames)),
        )

    def count(self, data: bytearray, start: int, end: int) -> int:
        """How many whole deliveries of this shape stand one after the other from *start* on."""
        return count_alike(data, start, end, self.stride, self.constants)

    @property
    def number_offset(self) -> int:
        """Where the message number stands."""
        return self.stamp_offset + 8

    @property
    def redelivered_offset(self) -> int:
        """Where the redelivered flag stands."""
        return self.tag_offset + 8


def is_delivery(data: bytearray, start: int) -> bool:
    """Whether the frame at *start* is a basic.deliver. Its first 11 bytes must be there."""
    return data[start] == _METHOD and data[start + 7 : start + 11] == _DELIVER


def read_u64(data: bytearray, position: int) -> int:
    """The number at *position*."""
    return int(_U64.unpack_from(data, position)[0])


def _framing(frames: Sequence[tuple[int, int]]) -> list[int]:
    """The offsets of the bytes that make a run what it is.

    Of each frame its type, the low half of its length and its end; of a deliver its method id; of
    a header the low end of the body size. Fewer bytes are faster, and a broker that breaks only
    the others breaks the next frame, too.
    """
    (method, _), (header, _), *_ = frames
    offsets = [method + 8, method + 10, header + _FRAME.size + 10, header + _FRAME.size + 11]
    for start, length in frames:
        offsets += [start, start + 5, start + 6, start + _FRAME.size + length]
    return offsets


def _short_string(text: str) -> bytes:
    encoded = text.encode()
    return bytes([len(encoded)]) + encoded


def _encode_publish(exchange: str, key: str) -> bytes:
    arguments = b"\x00\x00" + _short_string(exchange) + _short_string(key) + b"\x00"
    return encode_frame(_METHOD, _PUBLISH + arguments)


def _encode_header(body_size: int, properties: Mapping[int, bytes]) -> bytes:
    """A content header with those of *properties* that are not empty."""
    flags = sum(flag for flag, encoded in properties.items() if encoded)
    start = _HEADER_START.pack(60, 0, body_size, flags)
    return encode_frame(_HEADER, start + b"".join(properties.values()))


def _property_ends(properties: Mapping[int, bytes], header: int) -> dict[int, int]:
    """Where each of *properties* ends in a message whose header frame begins at *header*."""
    first = header + _FRAME.size + _HEADER_START.size
    ends = accumulate(map(len, properties.values()), initial=first)
    return dict(zip(properties, islice(ends, 1, None), strict=True))


def _encode_delay() -> bytes:
    """A table of headers with an i32 for the delay at its end."""
    entry = _short_string("x-delay") + b"I" + bytes(4)
    return struct.pack(">I", len(entry)) + entry


def _due_times(stamp_ns: int, delays: bytes, count: int) -> bytes:
    delays_ms = struct.unpack(f">{count}i", delays)
    return struct.pack(f">{count}Q", *(stamp_ns + delay_ms * 1_000_000 for delay_ms in delays_ms))


def _encode_body(body_size: int, frame_max: int) -> bytes:
    room = frame_max - _FRAME.size - 1
    lengths = [room] * (body_size // room) + [body_size % room] * bool(body_size % room)
    return b"".join(encode_frame(_BODY, bytes(length)) for length in lengths)
