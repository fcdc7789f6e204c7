import struct
from collections import Counter
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands
from pamqp.body import ContentBody
from pamqp.frame import marshal, unmarshal
from pamqp.header import ContentHeader

from leveret.bench.errors import BenchError
from leveret.bench.frames import (
    CONFIRM_SIZE,
    KEY_NUMBER,
    SEQUENCE_BITS,
    DeliveryShape,
    PublishBatch,
    encode_ack,
    encode_acks,
    is_delivery,
    read_confirms,
    read_u64,
)

from .wire import delivery


def decode(data: bytes) -> list[object]:
    frames: list[object] = []
    while data:
        size, channel, frame = unmarshal(data)
        assert channel == 1
        frames.append(frame)
        data = data[size:]
    return frames


@pytest.mark.parametrize("size", [16, 100, 4088, 4089, 9000])
@pytest.mark.parametrize("is_persistent", [False, True])
def test_batch_holds_publishes_with_their_numbers(size: int, is_persistent: bool) -> None:
    batch = PublishBatch(
        "x",
        ["a.1", "a.2"],
        size,
        capacity=5,
        frame_max=4096,
        is_persistent=is_persistent,
        is_unique=False,
    )
    first = (3 << SEQUENCE_BITS) + 7
    frames = decode(bytes(batch.fill(first, 4, 99, 0)))
    assert len(frames) == 4 * (2 + -(-size // 4088))
    methods = [frame for frame in frames if isinstance(frame, commands.Basic.Publish)]
    headers = [frame for frame in frames if isinstance(frame, ContentHeader)]
    bodies = b"".join(frame.value for frame in frames if isinstance(frame, ContentBody))
    assert [method.routing_key for method in methods] == ["a.1", "a.2", "a.1", "a.2"]
    assert {method.exchange for method in methods} == {"x"}
    assert {header.properties.delivery_mode for header in headers} == {2 if is_persistent else None}
    for index in range(4):
        assert struct.unpack_from(">QQ", bodies, index * size) == (99, first + index)
    assert len(bodies) == 4 * size


def test_batch_goes_round_its_keys() -> None:
    batch = PublishBatch(
        "x", list("abc"), 16, capacity=2, frame_max=4096, is_persistent=False, is_unique=False
    )
    keys: list[str] = []
    number = 1
    while len(keys) < 9:
        frames = batch.fill(number, 5, 0, 0)
        number += len(frames) // batch.stride
        keys += [
            frame.routing_key
            for frame in decode(bytes(frames))
            if isinstance(frame, commands.Basic.Publish)
        ]
    assert "".join(keys).startswith("abcabcabc")
    assert number == len(keys) + 1


def test_unique_messages_have_their_own_key_id_and_time() -> None:
    batch = PublishBatch(
        "x",
        [f"dev.{KEY_NUMBER}.temp"],
        16,
        capacity=3,
        frame_max=4096,
        is_persistent=True,
        is_unique=True,
    )
    frames = decode(bytes(batch.fill(0xABC, 3, 1, 1_700_000_000)))
    for index, number in enumerate((0xABC, 0xABD, 0xABE)):
        method, header, _ = frames[3 * index : 3 * index + 3]
        assert isinstance(method, commands.Basic.Publish)
        assert isinstance(header, ContentHeader)
        assert method.routing_key == f"dev.{number:016x}.temp"
        assert header.properties.message_id == f"{number:032x}"
        timestamp = header.properties.timestamp
        assert timestamp
        assert timestamp.timestamp() == 1_700_000_000
        assert header.properties.content_type == "application/json"
        assert header.properties.delivery_mode == 2


def headers_of(frames: list[object]) -> list[commands.Basic.Properties]:
    return [frame.properties for frame in frames if isinstance(frame, ContentHeader)]


@pytest.mark.parametrize("is_unique", [False, True])
def test_messages_differ_in_priority_expiration_and_delay(is_unique: bool) -> None:
    batch = PublishBatch(
        "x",
        ["key"],
        20,
        capacity=400,
        frame_max=4096,
        is_persistent=True,
        is_unique=is_unique,
        priorities=3,
        expirations=300,
        delay_ms=5000,
    )
    frames = decode(bytes(batch.fill(1, 400, 7, 0)))
    properties = headers_of(frames)
    assert {one.priority for one in properties} == {0, 1, 2, 3}
    assert len({one.expiration for one in properties}) == 300
    assert all(one.expiration and int(one.expiration) >= 10**9 for one in properties)
    delays = [cast("int", (one.headers or {})["x-delay"]) for one in properties]
    assert len(set(delays)) > 300
    assert all(2500 <= delay <= 5000 for delay in delays)
    bodies = [frame.value for frame in frames if isinstance(frame, ContentBody)]
    assert [struct.unpack_from(">QQ", body) for body in bodies] == [
        (7 + delay * 1_000_000, number) for number, delay in enumerate(delays, 1)
    ]
    assert {one.delivery_mode for one in properties} == {2}
    assert len({one.message_id for one in properties}) == (400 if is_unique else 1)


def test_values_go_round() -> None:
    batch = PublishBatch(
        "x",
        ["key"],
        16,
        capacity=1000,
        frame_max=4096,
        is_persistent=False,
        is_unique=False,
        expirations=7,
    )
    seen = []
    for number in range(1, 70_000, 1000):
        seen += [one.expiration for one in headers_of(decode(bytes(batch.fill(number, 999, 0, 0))))]
    assert set(Counter(seen).keys()) == {str(10**9 + value) for value in range(7)}


def test_acks_are_what_pamqp_writes() -> None:
    assert encode_ack(258, multiple=True) == marshal(commands.Basic.Ack(258, True), 1)
    assert encode_acks(255, 3) == b"".join(
        marshal(commands.Basic.Ack(tag, False), 1) for tag in (255, 256, 257)
    )


@given(
    acks=st.lists(st.tuples(st.integers(1, 2**64 - 1), st.booleans()), max_size=20),
    cut=st.integers(0, 500),
)
def test_confirms_are_read_up_to_the_last_whole_one(acks: list[tuple[int, bool]], cut: int) -> None:
    data = bytearray(b"".join(encode_ack(tag, multiple=multiple) for tag, multiple in acks))
    end = min(cut, len(data))
    assert read_confirms(data, 0, end) == acks[: end // CONFIRM_SIZE]


def test_a_nack_is_no_confirm() -> None:
    data = bytearray(encode_ack(1, multiple=False) + marshal(commands.Basic.Nack(2), 1))
    assert read_confirms(data, 0, len(data)) == [(1, False)]


@pytest.mark.parametrize(("size", "frame_max"), [(16, 4096), (1024, 4096), (9000, 4096)])
def test_shape_finds_the_numbers_of_a_delivery(size: int, frame_max: int) -> None:
    one = delivery(5, 77, stream=2, size=size, frame_max=frame_max)
    data = bytearray(b"xyz" + one)
    shape = DeliveryShape.measure(data, 3, len(data))
    assert shape
    assert is_delivery(data, 3)
    assert shape.stride == len(one)
    assert read_u64(data, 3 + shape.tag_offset) == 5
    assert read_u64(data, 3 + shape.number_offset) == (2 << SEQUENCE_BITS) + 77
    assert read_u64(data, 3 + shape.stamp_offset) == 1077
    assert data[3 + shape.redelivered_offset] == 0


def test_a_delivery_cut_anywhere_has_no_shape() -> None:
    data = bytearray(delivery(1, 1, size=5000, frame_max=4096))
    assert all(DeliveryShape.measure(data, 0, end) is None for end in range(len(data)))


def test_a_delivery_of_another_shape_ends_the_run() -> None:
    alike = [delivery(tag, tag) for tag in range(1, 5)]
    data = bytearray(b"".join([*alike, delivery(5, 5, key="longer"), delivery(6, 6)]))
    shape = DeliveryShape.measure(data, 0, len(data))
    assert shape
    assert shape.count(data, 0, len(data)) == 4
    assert shape.count(data, 0, len(alike[0]) * 4 - 1) == 3


@pytest.mark.parametrize("size", [1, 15])
def test_a_message_without_a_number_is_refused(size: int) -> None:
    data = bytearray(delivery(1, 1, size=16).replace(b"\0" * 7 + b"\x10", bytes(7) + bytes([size])))
    with pytest.raises(BenchError, match=r"nobody published|above its body size"):
        DeliveryShape.measure(data, 0, len(data))
