"""The fast path against the reference: frames one at a time, pamqp, and encoding piece by piece."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands
from pamqp.frame import marshal

from leveret.amqp.channel import Channel
from leveret.amqp.errors import NotFound
from leveret.amqp.fastpath import (
    ACK,
    PublishReader,
    encode_ack,
    encode_deliver_prefix,
    encode_deliveries,
    encode_get_ok,
    encode_return,
    take_acks,
)
from leveret.amqp.frames import HEARTBEAT_FRAME, encode_frame
from leveret.amqp.message import encode_head
from leveret.amqp.methods import build_method, encode_method
from leveret.amqp.properties import FactsReader
from leveret.amqp.publish_shape import ShapeBook
from leveret.amqp.tables import Field, encode_table
from tests.amqp.recorder import (
    ChannelRecorder,
    Recorder,
    body_frames,
    channel_frame,
    cut,
    header_frame,
    method_frame,
    opened,
    publish_frames,
)

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
channels = st.integers(0, 0xFFFF)
tags = st.integers(0, 2**64 - 1)
CHANNELS = 3

# ---- publishes and acks in


def publish(channel, exchange, key, bits, properties, body, room):
    """One publish; bodies are given by their size."""
    arguments = b"\0\0%c%b%c%b%c" % (len(exchange), exchange, len(key), key, bits)
    method = encode_frame(1, channel, b"\x00\x3c\x00\x28" + arguments)
    header = header_frame(channel, len(body), properties=properties)
    return method + header + body_frames(channel, body, room)


def with_message_id(text):
    return b"\x10\x80\x02%c%b" % (len(text), text)


def numbered(channel, exchange, bodies):
    """Publishes alike but for key, message_id and body."""
    return [
        publish(
            channel,
            exchange,
            b"key-%04d" % number,
            number % 7 == 6,
            with_message_id(b"id-%04d" % number),
            body,
            131064,
        )
        for number, body in enumerate(bodies)
    ]


def sized(size):
    return (b"0123456789\xce\x01\x00\x3c" * (size // 14 + 1))[:size]


numbers = st.integers(1, CHANNELS)
sizes = st.one_of(
    st.just(16),
    st.integers(0, 40),
    st.sampled_from([1000, 4096, 131063, 131064, 131065, 131072, 200_000]),
)
property_lists = st.one_of(
    st.just(b"\x00\x00"),
    st.just(b"\x10\x00\x02"),
    st.just(b"\x20\x00\x00\x00\x00\x04\x01at\x01"),
    st.sampled_from(["id-1", "id-2", "é-3", ""]).map(lambda text: with_message_id(text.encode())),
    st.integers(0, 2**64 - 1).map(lambda stamp: b"\x00\x40" + stamp.to_bytes(8, "big")),
)
publishes = st.builds(
    publish,
    numbers,
    st.sampled_from([b"", b"e", b"amq.topic", "é".encode()]),
    st.sampled_from([b"", b"q", b"a.b.c", "é".encode(), b"k" * 255]),
    st.sampled_from([0, 1]),
    property_lists,
    sizes.map(sized),
    st.sampled_from([131064, 131064, 131072, 4088, 60_000]),
)
acks = st.builds(
    lambda channel, tag, bits: encode_frame(1, channel, ACK + tag.to_bytes(8, "big") + bits),
    numbers,
    tags | st.integers(1, 300),
    st.sampled_from([b"\0", b"\0", b"\x01", b"\xfe", b"\x03"]),
)
nacks = st.builds(
    lambda channel, tag: method_frame(channel, commands.Basic.Nack(tag)), numbers, st.integers(0, 9)
)
runs = st.one_of(
    st.tuples(publishes, st.integers(1, 20)).map(lambda run: [run[0]] * run[1]),
    st.lists(publishes, max_size=4),
    st.builds(
        numbered,
        numbers,
        st.sampled_from([b"", b"e"]),
        st.lists(st.binary(min_size=1, max_size=2), max_size=20),
    ),
    st.lists(acks, max_size=6),
    st.lists(nacks, max_size=1),
    st.just([HEARTBEAT_FRAME]),
)


@st.composite
def traffic(draw):
    """Publishes, acks, nacks and heartbeats of some channels, and where to cut them."""
    pieces = [frame for run in draw(st.lists(runs, max_size=6)) for frame in run]
    data = b"".join(pieces[:60])
    return data, draw(st.lists(st.integers(0, len(data)), max_size=6).map(sorted))


def told_by_reference(data):
    """What receivers are told if frames come one at a time to their channels."""
    recorder = Recorder()
    facts_reader = FactsReader()
    reference = {
        number: Channel(number, ChannelRecorder(number, recorder), facts_reader, 1 << 30)
        for number in range(1, CHANNELS + 1)
    }
    for kind, number, payload in cut(data):
        if kind != 8:
            reference[number].receive(kind, payload)
    return recorder.calls


@settings(max_examples=150)
@given(traffic())
def test_the_fast_path_tells_what_frames_one_at_a_time_tell(case):
    data, cuts = case
    expected = told_by_reference(data)
    bounds = [0, *cuts, len(data)]
    pieces = [data[start:stop] for start, stop in pairwise(bounds)]
    for fed in ([data], pieces, [encode_frame(*frame) for frame in cut(data)]):
        recorder = opened(channels=CHANNELS)
        for piece in fed:
            recorder.connection.receive_data(piece)
        assert recorder.calls == expected
        assert recorder.output == b""


def alternating(first, second, count=5):
    return b"".join([first] * count + [first, second] * count + [second] * count)


SIMPLE = publish_frames(1, body=b"body")


@pytest.mark.parametrize(
    "other",
    [
        publish_frames(2, body=b"body"),
        publish_frames(1, key="p", body=b"body"),
        publish_frames(1, exchange="e", body=b"body"),
        publish_frames(1, body=b"longer body"),
        publish_frames(1, body=b"ydob"),
        publish_frames(1, body=b""),
        publish(1, b"", b"q", 0, b"\x10\x00\x02", b"body", 131064),
        publish(1, b"", b"q", 1, b"\0\0", b"body", 131064),
        publish(1, b"", b"q", 0, b"\0\0", b"body", 2),
        method_frame(1, commands.Basic.Ack(1)),
        HEARTBEAT_FRAME,
    ],
)
def test_publishes_that_almost_repeat_are_told_apart(other):
    data = alternating(SIMPLE, other)
    recorder = opened(channels=2)
    recorder.connection.receive_data(data)
    assert recorder.calls == told_by_reference(data)


def test_publishes_that_differ_in_their_delay_are_of_one_shape():
    def delayed(delay, tag="I"):
        table = encode_table({"a": Field("S", "b"), "x-delay": Field(tag, delay)})
        return publish(1, b"", b"q", 0, b"\x20\x00" + table, b"body", 131064)

    delays = [5, 7, 0, -1, 2**31 - 1, 300, 5, 5, 5]
    data = b"".join([*map(delayed, delays), delayed(1, "l"), *map(delayed, delays), SIMPLE])
    recorder = opened()
    recorder.connection.receive_data(data)
    assert recorder.calls == told_by_reference(data)
    reader = PublishReader(FactsReader(), ShapeBook(), 1 << 30)
    first = reader.take(data, 0, len(data), 1)
    run = reader.take_alike(data, first.position)
    assert len(first.contents) + len(run.contents) == len(delays)


FAULTY = {
    "long names": b"\x00\x3c\x00\x28\x00\x00\x05q\x00",
    "no names": b"\x00\x3c\x00\x28\x00",
    "no arguments": b"\x00\x3c\x00\x28",
    "octets behind": b"\x00\x3c\x00\x28\x00\x00\x00\x01q\x00\x00",
    "no bits": b"\x00\x3c\x00\x28\x00\x00\x00\x01q",
    "UTF-8 of the exchange": b"\x00\x3c\x00\x28\x00\x00\x01\xff\x01q\x00",
    "UTF-8 of the key": b"\x00\x3c\x00\x28\x00\x00\x00\x01\xff\x00",
}


@pytest.mark.parametrize("name", FAULTY)
@pytest.mark.parametrize("repeat", [1, 3])
def test_faulty_arguments_are_the_same_fault_for_both(name, repeat):
    content = header_frame(1, 4) + body_frames(1, b"body")
    faulty = (encode_frame(1, 1, FAULTY[name]) + content) * repeat
    outputs = []
    for pieces in ([SIMPLE * 3 + faulty], [SIMPLE, SIMPLE, SIMPLE, faulty[:15], faulty[15:]]):
        recorder = opened()
        for piece in pieces:
            recorder.connection.receive_data(piece)
        assert [call[0] for call in recorder.calls] == ["publish"] * 3 + [
            "channel closed",
            "closed",
        ]
        outputs.append(recorder.output)
    assert outputs[0] == outputs[1]
    assert opened_close(outputs[0]) == "close 501"


def opened_close(output):
    recorder = opened()
    recorder.connection.output = [output]
    [close] = recorder.sent()
    return close


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (header_frame(1, 4, properties=b"\x80\x00\x09") + body_frames(1, b"body"), 541),
        (header_frame(1, 4, weight=1) + body_frames(1, b"body"), 505),
        (header_frame(1, 4, class_id=50) + body_frames(1, b"body"), 505),
        (header_frame(1, 3) + body_frames(1, b"body"), 501),
        (header_frame(1, 4) + body_frames(1, b"body")[:-1] + b"\x00", 501),
        (header_frame(1, 4)[:-1] + b"\x00" + body_frames(1, b"body"), 501),
        (header_frame(0, 4) + body_frames(1, b"body"), 505),
        (header_frame(1, 4) + body_frames(0, b"body"), 505),
        (header_frame(1, 131073) + encode_frame(3, 1, bytes(131073)), 501),
        (header_frame(1, 4, properties=b"\x00\x80\xff" + bytes(140_000)), 501),
    ],
)
@pytest.mark.parametrize("before", [1, 2, 3, 4, 5, 6])
def test_what_came_before_a_fault_is_told_before_it(fault, code, before):
    method = SIMPLE[: SIMPLE.index(0xCE) + 1]
    data = SIMPLE * before + method + fault + SIMPLE
    outputs = []
    for pieces in ([data], [SIMPLE] * before + [method, fault, SIMPLE], [data[:-60], data[-60:]]):
        recorder = opened()
        for piece in pieces:
            recorder.connection.receive_data(piece)
        told = [call[0] for call in recorder.calls]
        assert told == ["publish"] * before + ["channel closed", "closed"]
        outputs.append(recorder.output)
    assert len(set(outputs)) == 1
    assert opened_close(outputs[0]) == f"close {code}"


def test_a_closing_channel_costs_no_more_the_more_is_piled_up_for_it():
    """A run is not cut out for a channel that will not take it."""
    recorder = opened(channels=2)
    recorder.connection.receive_data(SIMPLE * 5)
    recorder.connection.receive_data(channel_frame(1, commands.Channel.Close))
    taken = []
    reader = recorder.connection._publishes

    class Counting:
        """The reader, counting the messages it cuts out."""

        def __getattr__(self, name):
            return getattr(reader, name)

        def take_alike(self, *arguments):
            run = reader.take_alike(*arguments)
            taken.extend(run.contents if run else ())
            return run

    recorder.connection._publishes = Counting()
    recorder.connection.receive_data(channel_frame(1, commands.Channel.Open))
    recorder.connection.close_channel(1, NotFound("gone"), 0, 0)
    recorder.connection.receive_data(SIMPLE * 50)
    assert len(taken) <= 50


def test_frames_that_are_not_complete_are_not_taken():
    reader = PublishReader(FactsReader(), ShapeBook(), 1 << 30)
    for end in range(len(SIMPLE)):
        if end >= 11:
            assert reader.take(SIMPLE[:end], 0, end, 1) is None
        assert reader.take_alike(SIMPLE[:end], 0) is None


@given(st.lists(st.tuples(tags, st.booleans()), min_size=1, max_size=30), channels, st.binary())
def test_a_run_of_acks_is_each_of_them(run, channel, behind):
    data = b"before" + b"".join(
        marshal(commands.Basic.Ack(tag % 2**63, multiple), channel) for tag, multiple in run
    )
    position, taken = take_acks(data + behind, 6)
    pairs = [tag if isinstance(tag, tuple) else (tag, False) for tag in taken]
    expected = [(tag % 2**63, multiple) for tag, multiple in run]
    assert pairs[: len(expected)] == expected
    assert position == len(data) + 21 * (len(pairs) - len(expected))


@given(st.binary(max_size=60))
def test_what_is_not_an_ack_is_not_taken(data):
    ack = method_frame(1, commands.Basic.Ack(1))
    if not data.startswith(ack[:11]):
        assert take_acks(data, 0) is None
    for end in range(len(ack)):
        assert take_acks(ack[:end], 0) is None


def test_a_run_of_acks_ends_where_the_channel_changes():
    first, second = (method_frame(number, commands.Basic.Ack(7)) for number in (1, 2))
    assert take_acks(first * 2 + second, 0) == (42, [7, 7])


# ---- deliveries and confirms out


@given(channels, tags, st.booleans())
def test_an_ack_is_encoded_as_any_method(channel, tag, multiple):
    ack = build_method(commands.Basic.Ack, delivery_tag=tag, multiple=multiple)
    assert encode_ack(channel, tag, multiple=multiple) == method_frame(channel, ack)


def content(channel, body):
    return header_frame(channel, len(body)) + body_frames(channel, body)


def delivery(channel, consumer_tag, tag, exchange, key, body, redelivered=False):
    """A basic.deliver and its content, by the general encoder."""
    deliver = build_method(
        commands.Basic.Deliver,
        consumer_tag=consumer_tag,
        delivery_tag=tag,
        redelivered=redelivered,
        exchange=exchange,
        routing_key=key,
    )
    return encode_frame(1, channel, encode_method(deliver)) + content(channel, body)


first_tags = st.integers(1, 2**40) | st.sampled_from([250, 255, 256, 65530, 2**32 - 3, 2**63 - 9])


@given(
    channels,
    names,
    names,
    names,
    first_tags,
    st.lists(st.binary(max_size=20), min_size=1, max_size=12)
    | st.lists(st.binary(min_size=5, max_size=5), min_size=1, max_size=600),
)
def test_deliveries_are_encoded_as_one_after_the_other(channel, ctag, exchange, key, tag, bodies):
    head = encode_head(exchange.encode(), key.encode())
    messages = [head + content(channel, body) for body in bodies]
    prefix = encode_deliver_prefix(channel, ctag.encode(), len(head))
    expected = b"".join(
        delivery(channel, ctag, tag + place, exchange, key, body)
        for place, body in enumerate(bodies)
    )
    lengths = {0} | ({len(messages[0])} if len({*map(len, messages)}) == 1 else set())
    for length in lengths:
        assert encode_deliveries(prefix, tag, messages, length) == expected


def test_pamqp_encodes_the_same_delivery():
    head = encode_head(b"logs", b"a.b")
    prefix = encode_deliver_prefix(7, b"ctag", len(head))
    message = head + content(7, b"body")
    redelivered = b"\x01" + message[1:]
    for flag, octets in ((False, message), (True, redelivered)):
        expected = marshal(commands.Basic.Deliver("ctag", 300, flag, "logs", "a.b"), 7)
        assert encode_deliveries(prefix, 300, [octets], 0) == expected + content(7, b"body")


@given(channels, names, names, tags, st.integers(0, 2**32 - 1), st.booleans(), st.binary())
def test_get_ok_is_encoded_as_any_method(channel, exchange, key, tag, left, redelivered, body):
    head = encode_head(exchange.encode(), key.encode())
    message = (b"\x01" if redelivered else b"\x00") + head[1:] + content(channel, body)
    get_ok = build_method(
        commands.Basic.GetOk,
        delivery_tag=tag,
        redelivered=redelivered,
        exchange=exchange,
        routing_key=key,
        message_count=left,
    )
    expected = method_frame(channel, get_ok) + content(channel, body)
    assert encode_get_ok(channel, tag, message, len(head), left) == expected


@given(channels, names, names, st.integers(0, 2**16 - 1), names, st.binary())
def test_a_return_is_encoded_as_any_method(channel, exchange, key, code, text, body):
    head = encode_head(exchange.encode(), key.encode())
    returned = build_method(
        commands.Basic.Return, reply_code=code, reply_text=text, exchange=exchange, routing_key=key
    )
    expected = method_frame(channel, returned) + content(channel, body)
    message = head + content(channel, body)
    assert encode_return(channel, code, text, message, len(head)) == expected
