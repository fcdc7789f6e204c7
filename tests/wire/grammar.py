"""Grammar of conversations with a broker: valid pieces, mutated ones, mad ones, recorded sessions.

A conversation is a list of pieces, each of which is sent at once.
"""

from collections.abc import Sequence

from hypothesis import strategies as st
from pamqp import commands

from tests.wire.raw import (
    HEARTBEAT,
    PROTOCOL_HEADER,
    content,
    frame,
    header,
    method,
    publish,
    start_ok,
)

HANDSHAKE = [
    PROTOCOL_HEADER,
    method(0, start_ok()),
    method(0, commands.Connection.TuneOk(2047, 131072, 0)),
    method(0, commands.Connection.Open("/")),
    method(1, commands.Channel.Open()),
    method(2, commands.Channel.Open()),
]

channels = st.sampled_from([1, 1, 1, 1, 2, 3, 0])
names = st.sampled_from(["", "fuzz-a", "fuzz-b", "amq.direct", "amq.topic", "amq.headers"])
keys = st.sampled_from(["", "fuzz-a", "a.b", "#"])
flags = st.booleans()
tags = st.integers(0, 6)
tables = st.dictionaries(
    st.sampled_from(["x-message-ttl", "x-match", "alternate-exchange", "x-max-priority", "a"]),
    st.sampled_from(["any", "fuzz-a", 5, -70_000, True, None, {"b": []}]),
    max_size=2,
)
properties = st.one_of(
    st.sampled_from([b"\0\0", b"\x10\x00\x02", b"\x00\x10\x05guest", b"\x01\x00\x0210"]),
    st.binary(max_size=12),
)
methods = st.one_of(
    st.builds(
        commands.Queue.Declare,
        queue=names,
        passive=flags,
        durable=flags,
        exclusive=flags,
        auto_delete=flags,
        nowait=flags,
        arguments=tables,
    ),
    st.builds(commands.Queue.Delete, queue=names, if_unused=flags, if_empty=flags, nowait=flags),
    st.builds(commands.Queue.Purge, queue=names, nowait=flags),
    st.builds(
        commands.Queue.Bind,
        queue=names,
        exchange=names,
        routing_key=keys,
        nowait=flags,
        arguments=tables,
    ),
    st.builds(
        commands.Queue.Unbind, queue=names, exchange=names, routing_key=keys, arguments=tables
    ),
    st.builds(
        commands.Exchange.Declare,
        exchange=names,
        exchange_type=st.sampled_from(["direct", "fanout", "topic", "headers", "odd"]),
        durable=flags,
        auto_delete=flags,
        internal=flags,
        arguments=tables,
    ),
    st.builds(commands.Exchange.Delete, exchange=names, if_unused=flags),
    st.builds(commands.Exchange.Bind, source=names, destination=names, routing_key=keys),
    st.builds(commands.Exchange.Unbind, source=names, destination=names, routing_key=keys),
    st.builds(
        commands.Basic.Consume, queue=names, no_ack=flags, exclusive=flags, consumer_tag=keys
    ),
    st.builds(commands.Basic.Cancel, consumer_tag=keys, nowait=flags),
    st.builds(commands.Basic.Get, queue=names, no_ack=flags),
    st.builds(commands.Basic.Ack, delivery_tag=tags, multiple=flags),
    st.builds(commands.Basic.Nack, delivery_tag=tags, multiple=flags, requeue=flags),
    st.builds(commands.Basic.Reject, delivery_tag=tags, requeue=flags),
    st.builds(commands.Basic.Qos, prefetch_count=st.integers(0, 3), global_=flags),
    st.builds(commands.Basic.Recover, requeue=flags),
    st.builds(commands.Channel.Flow, active=flags),
    st.sampled_from(
        [
            commands.Channel.Open(),
            commands.Channel.Close(200, "", 0, 0),
            commands.Channel.CloseOk(),
            commands.Confirm.Select(),
            commands.Tx.Select(),
            commands.Tx.Commit(),
            commands.Tx.Rollback(),
        ]
    ),
)
valid = st.one_of(
    st.builds(method, channels, methods),
    st.builds(method, channels, methods),
    st.builds(
        publish,
        channels,
        keys,
        st.sampled_from([b"", b"body", bytes(3000), bytes(140_000)]),
        exchange=names,
        mandatory=flags,
        properties=properties,
    ).flatmap(lambda data: st.integers(1, 6).map(lambda times: data * times)),
    st.just(HEARTBEAT),
)
mad = st.one_of(
    st.binary(max_size=40),
    st.builds(frame, st.integers(0, 9), channels, st.binary(max_size=40)),
    st.builds(header, channels, st.integers(0, 2**64 - 1), properties),
    st.builds(content, channels, st.binary(max_size=10), properties),
)


@st.composite
def mutated(draw):
    """A valid piece with one octet changed, cut off or put in."""
    data = bytearray(draw(valid))
    place = draw(st.integers(0, min(len(data) - 1, 200)))
    match draw(st.integers(0, 2)):
        case 0:
            data[place] = draw(st.integers(0, 255))
        case 1:
            del data[place]
        case _:
            data.insert(place, draw(st.integers(0, 255)))
    return bytes(data)


starts = st.sampled_from([HANDSHAKE] * 8 + [HANDSHAKE[:place] for place in range(6)])
conversations = st.builds(
    lambda start, pieces: start + pieces,
    starts,
    st.lists(valid | valid | valid | mutated() | mad, max_size=25),
)


# ---- recorded sessions


def pieces_of(stream: bytes) -> list[bytes]:
    """What a client has sent, cut into the protocol header and frames."""
    pieces, position = [stream[:8]], 8
    while position < len(stream):
        stop = position + 8 + int.from_bytes(stream[position + 3 : position + 7], "big")
        pieces.append(stream[position:stop])
        position = stop
    return pieces


ODD_NUMBERS = [
    start + rest * (length - 1)
    for length in (1, 2, 4, 8)
    for start, rest in ((b"\0", b"\0"), (b"\xff", b"\xff"), (b"\x7f", b"\xff"), (b"\x80", b"\0"))
]
"""Least and greatest numbers of all lengths, with and without sign."""


@st.composite
def spoilt(draw, sessions: Sequence[list[bytes]]):
    """A recorded session in which some pieces are changed, left out, doubled or moved."""
    pieces = list(draw(st.sampled_from(sessions)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(pieces) - 1))
        piece = bytearray(pieces[place])
        inside = draw(st.integers(0, len(piece) - 1)) if piece else 0
        match draw(st.integers(0, 7)):
            case 0:
                del pieces[place + 1 :]
                pieces[place] = bytes(piece[:inside])
            case 1 if len(pieces) > 1:
                del pieces[place]
            case 2:
                pieces.insert(place, pieces[place])
            case 3:
                pieces.append(pieces.pop(place))
            case 4:
                pieces[place] = draw(st.sampled_from(draw(st.sampled_from(sessions))))
            case 5:
                pieces.insert(place, draw(valid | mad))
            case 6:
                number = draw(st.sampled_from(ODD_NUMBERS))
                piece[inside : inside + len(number)] = number
                pieces[place] = bytes(piece)
            case _:
                piece[inside : inside + 1] = draw(st.binary(max_size=3))
                pieces[place] = bytes(piece)
    return pieces
