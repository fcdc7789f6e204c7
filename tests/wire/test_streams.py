"""Streams: what cannot be done with one (rows 87 and 88)."""

import pytest
from pamqp import commands

from tests.wire.raw import Refusal, method
from tests.wire.rows import case

Basic = commands.Basic
STREAM = "queue 's' in vhost '/'"


@pytest.fixture
def stream(connect):
    """A connection with the stream `s`, whose consumers are sent one message at a time."""
    peer = connect(1)
    declare = commands.Queue.Declare(queue="s", durable=True, arguments={"x-queue-type": "stream"})
    peer.call(1, declare, commands.Queue.DeclareOk)
    yield connect(1)
    peer.call(1, commands.Queue.Delete(queue="s"), commands.Queue.DeleteOk)


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        case(87, Basic.Get(queue="s"), "basic.get"),
        case(87, commands.Queue.Purge(queue="s"), "queue.purge"),
    ],
)
def test_nothing_is_taken_out_of_a_stream(stream, request_, name):
    stream.send(method(1, request_))
    text = f"NOT_IMPLEMENTED - {name} not supported by stream queues {STREAM}"
    ids = request_.index >> 16, request_.frame_id
    assert stream.refusal() == Refusal("connection", 540, text, ids)


PREFETCH = Basic.Qos(prefetch_count=1)
PREFETCH_OF_ALL = Basic.Qos(prefetch_count=1, global_=True)


@pytest.mark.parametrize(
    ("qos", "consume", "place", "code", "text"),
    [
        case(88, None, Basic.Consume(queue="s"), "channel", 406,
             f"PRECONDITION_FAILED - consumer prefetch count is not set for stream {STREAM}"),
        case(88, PREFETCH, Basic.Consume(queue="s", no_ack=True), "connection", 540,
             f"NOT_IMPLEMENTED - automatic acknowledgement not supported by stream {STREAM}"),
        case(88, PREFETCH_OF_ALL, Basic.Consume(queue="s"), "connection", 540,
             f"NOT_IMPLEMENTED - {STREAM} does not support global qos"),
        *[case(88, PREFETCH, Basic.Consume(queue="s", arguments={"x-stream-offset": value}),
               "channel", 406,
               f"PRECONDITION_FAILED - invalid arg 'x-stream-offset' for {STREAM}: "
               f"{{invalid_offset_arg,{value!r}}}")
          for value in ("begin", "1w", "", True, 1.5)],
    ],
)  # fmt: skip
def test_a_consumer_of_a_stream_is_refused(stream, qos, consume, place, code, text):
    if qos is not None:
        stream.call(1, qos, Basic.QosOk)
    stream.send(method(1, consume))
    assert stream.refusal() == Refusal(place, code, text, (60, 20))
