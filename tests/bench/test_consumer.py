import threading
import time

import pytest
from pamqp import commands
from pamqp.frame import marshal

from leveret.bench.client import Connection
from leveret.bench.consumer import Checks, Consumer
from leveret.bench.errors import BenchError
from leveret.bench.frames import encode_ack
from leveret.bench.histogram import Histogram
from leveret.bench.sequence import SequenceCheck
from leveret.bench.worker import Counters

from .conftest import ScriptedPeer
from .wire import delivery


class Run:
    """A consumer of queue 0, and what the broker sends to it and gets from it."""

    def __init__(
        self, peer: ScriptedPeer, connection: Connection, ack_every: int, delay_ms: int = 0
    ) -> None:
        self.counters = Counters(measuring=1)
        self.checks: Checks = {(0, stream): SequenceCheck(is_ordered=True) for stream in (0, 1)}
        self.times = Histogram()
        self.consumer = Consumer(
            connection,
            0,
            ack_every=ack_every,
            checks=self.checks,
            times=self.times,
            counters=self.counters,
            delay_ms=delay_ms,
        )
        self._peer = peer
        thread = threading.Thread(target=peer.answer, args=("Basic.Consume",))
        thread.start()
        self.consumer.start("q", prefetch=10)
        thread.join()
        connection.socket.settimeout(5)

    def send(self, data: bytes) -> None:
        assert self._peer.socket
        self._peer.socket.sendall(data)
        self.consumer.read()

    def received(self, size: int) -> bytes:
        assert self._peer.socket
        self._peer.socket.settimeout(5)
        data = b""
        while len(data) < size:
            data += self._peer.socket.recv(size - len(data))
        return data


@pytest.fixture
def run(peer: ScriptedPeer, connection: Connection) -> Run:
    return Run(peer, connection, ack_every=1)


@pytest.mark.parametrize("piece", [1, 7, 50, 333, 4096])
def test_deliveries_cut_anywhere_are_counted_and_acked(run: Run, piece: int) -> None:
    sizes = [(16, 1), (16, 2), (16, 3), (700, 4), (16, 5), (5000, 6), (5000, 7)]
    data = b"".join(delivery(tag, tag, size=size, frame_max=4096) for size, tag in sizes)
    step = piece if piece > 1 else 13
    for start in range(0, len(data), step):
        run.send(data[start : start + step])
    assert run.counters.consumed == 7
    check = run.checks[0, 0]
    assert (check.lost(7), check.duplicated, check.out_of_order) == (0, 0, 0)
    acks = b"".join(encode_ack(tag, multiple=False) for tag in range(1, 8))
    assert run.received(len(acks)) == acks
    assert run.times.percentiles()


def test_streams_may_be_mixed_in_one_queue(run: Run) -> None:
    mixed = [(1, 0, 1), (2, 1, 1), (3, 1, 2), (4, 0, 2)]
    run.send(b"".join(delivery(tag, number, stream=stream) for tag, stream, number in mixed))
    assert [run.checks[0, stream].lost(2) for stream in (0, 1)] == [0, 0]


def test_lost_duplicated_and_late_messages_are_counted(run: Run) -> None:
    numbers = [1, 2, 2, 5, 4]
    run.send(b"".join(delivery(tag, number) for tag, number in enumerate(numbers, 1)))
    check = run.checks[0, 0]
    assert (check.lost(6), check.duplicated, check.out_of_order) == (2, 1, 1)


def test_a_delayed_message_that_comes_too_soon_is_counted(
    peer: ScriptedPeer, connection: Connection
) -> None:
    run = Run(peer, connection, ack_every=0, delay_ms=100)
    due_ns = time.monotonic_ns() + 60_000_000_000
    run.send(delivery(1, 1) + delivery(2, 2, stamp_ns=due_ns) + delivery(3, 3))
    assert run.consumer.early == 1


def test_redelivered_messages_are_counted(run: Run) -> None:
    run.send(delivery(1, 1, is_redelivered=True) + delivery(2, 2))
    assert run.consumer.redelivered == 1


def test_each_third_is_acked_with_all_before_it(peer: ScriptedPeer, connection: Connection) -> None:
    run = Run(peer, connection, ack_every=3)
    run.send(b"".join(delivery(tag, tag) for tag in range(1, 6)))
    run.send(b"".join(delivery(tag, tag) for tag in range(6, 9)))
    acks = encode_ack(3, multiple=True) + encode_ack(6, multiple=True)
    assert run.received(len(acks)) == acks


def test_a_delivery_tag_left_out_is_an_error(run: Run) -> None:
    with pytest.raises(BenchError, match="delivery tags from 1 on"):
        run.send(delivery(1, 1) + delivery(3, 2))


def test_a_message_of_an_unknown_stream_is_an_error(run: Run) -> None:
    with pytest.raises(BenchError, match="not sent to it"):
        run.send(delivery(1, 1, stream=9))


def test_a_close_in_between_is_told_with_its_reason(run: Run) -> None:
    close = marshal(commands.Channel.Close(406, "PRECONDITION_FAILED - no", 60, 80), 1)
    with pytest.raises(BenchError, match="closed the channel: 406 PRECONDITION_FAILED - no"):
        run.send(delivery(1, 1) + close)
    assert run.counters.consumed == 1
