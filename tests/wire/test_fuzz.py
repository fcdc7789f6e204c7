"""Random conversations, valid, mutated and mad: the broker serves the next client as before."""

from contextlib import closing, suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pamqp import commands

from tests.wire.raw import (
    HEARTBEAT,
    PROTOCOL_HEADER,
    Peer,
    content,
    frame,
    header,
    method,
    publish,
    start_ok,
)

pytestmark = pytest.mark.slow

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


conversations = st.lists(valid | valid | valid | mutated() | mad, max_size=25)


@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=conversations,
    start=st.sampled_from([HANDSHAKE] * 8 + [HANDSHAKE[:place] for place in range(6)]),
    in_one=flags,
    leaves=flags,
)
def test_the_broker_serves_on(server, bystander, pieces, start, in_one, leaves):
    peer = Peer(server.port)
    # It may be closed for what it sends, and there may be nothing to read.
    with closing(peer.socket), suppress(ConnectionError, TimeoutError):
        for piece in [b"".join(start + pieces)] if in_one else start + pieces:
            peer.send(piece)
        peer.socket.settimeout(0.01)
        while not leaves and peer.socket.recv(262144):
            continue
    bystander.check()
