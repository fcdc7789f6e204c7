"""Consumers: one process, one selector, deliveries counted and checked by the run."""

import selectors
import time
from itertools import groupby
from multiprocessing.connection import Connection as Pipe

from pamqp import commands

from leveret.bench.client import Address, Connection, decode_method
from leveret.bench.columns import is_counting, read_counters
from leveret.bench.errors import BenchError
from leveret.bench.frames import (
    SEQUENCE_BITS,
    DeliveryShape,
    encode_ack,
    encode_acks,
    is_delivery,
    read_u64,
)
from leveret.bench.histogram import Histogram
from leveret.bench.sequence import SequenceCheck
from leveret.bench.topology import Topology
from leveret.bench.worker import Consumed, Counters, Ready, Start, Stop

# Of one received run so many messages are timed.
_TIMED_PER_RUN = 4
_STALL_S = 10.0

Checks = dict[tuple[int, int], SequenceCheck]


class Consumer:
    """One connection that consumes from one queue."""

    def __init__(
        self,
        connection: Connection,
        queue: int,
        *,
        ack_every: int,
        checks: Checks,
        times: Histogram,
        counters: Counters,
        delay_ms: int = 0,
    ) -> None:
        self.connection = connection
        self.redelivered = 0
        self.early = 0
        self._queue = queue
        self._ack_every = ack_every
        self._checks = checks
        self._times = times
        self._counters = counters
        self._shape: DeliveryShape | None = None
        self._next_tag = 1
        self._acks = bytearray()
        self._is_delayed = delay_ms > 0
        # Brokers count whole milliseconds, and their clock need not run exactly as ours does.
        self._slack_ns = (1 + delay_ms // 1000) * 1_000_000

    @property
    def has_acks(self) -> bool:
        """Whether acks wait for room in the socket."""
        return bool(self._acks)

    def start(self, queue_name: str, prefetch: int) -> None:
        """Begin to consume."""
        if prefetch:
            self.connection.call(commands.Basic.Qos(prefetch_count=prefetch))
        consume = commands.Basic.Consume(
            queue=queue_name, consumer_tag="c", no_ack=not self._ack_every
        )
        self.connection.call(consume)
        self.connection.socket.setblocking(False)
        # The first deliveries can have come together with the reply.
        self._work_off()

    def read(self) -> None:
        """Receive once and work off what came."""
        self.connection.buffer.receive(self.connection.socket)
        self._work_off()

    def send_acks(self) -> None:
        """Send as much as the socket takes."""
        try:
            sent = self.connection.socket.send(self._acks)
        except BlockingIOError:
            return
        del self._acks[:sent]

    def _work_off(self) -> None:
        buffer = self.connection.buffer
        now_ns = time.monotonic_ns()
        while buffer.end - buffer.start >= 11:
            if not is_delivery(buffer.data, buffer.start):
                if not self._take_other_frame():
                    break
                continue
            shape = self._shape
            count = shape.count(buffer.data, buffer.start, buffer.end) if shape else 0
            if shape is None or not count:
                shape = DeliveryShape.measure(buffer.data, buffer.start, buffer.end)
                if shape is None:
                    break
                self._shape = shape
                count = shape.count(buffer.data, buffer.start, buffer.end)
            self._take(shape, count, now_ns)
            buffer.start += count * shape.stride
        if self._acks:
            self.send_acks()

    def _take_other_frame(self) -> bool:
        frame = self.connection.buffer.take_frame()
        if frame is None:
            return False
        if (method := decode_method(frame)) is not None:
            raise BenchError(f"the broker sent {method.name} to a consumer")
        return True

    def _take(self, shape: DeliveryShape, count: int, now_ns: int) -> None:
        """Check, time and acknowledge *count* deliveries at the start of the buffer."""
        data, start, stride = (
            self.connection.buffer.data,
            self.connection.buffer.start,
            shape.stride,
        )
        end = start + count * stride
        if not is_counting(data, start + shape.tag_offset, stride, self._next_tag, count):
            tag = read_u64(data, start + shape.tag_offset)
            raise BenchError(f"delivery tags from {tag} on are not 1 apart and the next ones")
        flags = data[start + shape.redelivered_offset : end : stride]
        self.redelivered += count - flags.count(0)
        self._check(start + shape.number_offset, stride, count)
        if self._counters.measuring:
            step = stride * (1 if self._is_delayed else max(1, count // _TIMED_PER_RUN))
            for position in range(start + shape.stamp_offset, end, step):
                self._time(now_ns - read_u64(data, position))
        if self._ack_every:
            self._acknowledge(count)
        self._next_tag += count
        self._counters.consumed += count

    def _time(self, taken_ns: int) -> None:
        self._times.add(taken_ns)
        if taken_ns < -self._slack_ns:
            self.early += 1

    def _check(self, position: int, stride: int, count: int) -> None:
        data = self.connection.buffer.data
        first = read_u64(data, position)
        if is_counting(data, position, stride, first, count):
            check, base = self._check_of(first)
            check.add(first - base, count)
            return
        numbers = read_counters(data, position, stride, count)
        for _, run in groupby(numbers, lambda number: number >> SEQUENCE_BITS):
            same = list(run)
            check, base = self._check_of(min(same))
            check.add_each([number - base for number in same])

    def _check_of(self, number: int) -> tuple[SequenceCheck, int]:
        """The check of the stream of *number*, and the number before the first of the stream."""
        stream = number >> SEQUENCE_BITS
        check = self._checks.get((self._queue, stream))
        base = stream << SEQUENCE_BITS
        if check is None or number == base:
            raise BenchError(f"queue {self._queue} delivered a message that was not sent to it")
        return check, base

    def _acknowledge(self, count: int) -> None:
        first, every = self._next_tag, self._ack_every
        if every == 1:
            self._acks += encode_acks(first, count)
            return
        for tag in range(first + -first % every, first + count, every):
            self._acks += encode_ack(tag, multiple=True)


class Consumers:
    """All consumers of a run, in a process of their own."""

    def __init__(
        self, address: Address, topology: Topology, counters: Counters, orders: Pipe
    ) -> None:
        self._topology = topology
        self._counters = counters
        self._orders = orders
        self._times = Histogram()
        self._selector = selectors.DefaultSelector()
        workload = topology.workload
        # Nothing comes before the shortest delay is over, and perhaps nothing before the longest.
        self._stall_s = _STALL_S + workload.delay_ms / 1000
        self._checks: Checks = {
            (queue, lane.stream): SequenceCheck(is_ordered=workload.is_ordered)
            for producer in range(workload.producers)
            for lane in topology.lanes(producer)
            for queue in lane.queues
        }
        self._consumers = [
            Consumer(
                Connection(address),
                index % workload.queue_count,
                ack_every=workload.ack_every,
                checks=self._checks,
                times=self._times,
                counters=counters,
                delay_ms=workload.delay_ms,
            )
            for index in range(workload.consumer_count)
        ]

    def run(self) -> None:
        """Consume from the start order until all that was published has come, and report."""
        self._orders.send(Ready())
        if not isinstance(self._orders.recv(), Start):
            return
        names, prefetch = self._topology.queue_names, self._topology.workload.prefetch
        started_ns = time.monotonic_ns()
        for index, consumer in enumerate(self._consumers):
            consumer.start(names[index % len(names)], prefetch)
            self._selector.register(consumer.connection.socket, selectors.EVENT_READ, consumer)
        self._selector.register(self._orders, selectors.EVENT_READ, None)
        last_ns, published = self._loop()
        checks = self._checks.values()
        self._orders.send(
            Consumed(
                seconds=(last_ns - started_ns) / 1e9,
                lost=sum(check.lost(published[key]) for key, check in self._checks.items()),
                duplicated=sum(check.duplicated for check in checks),
                out_of_order=sum(check.out_of_order for check in checks),
                redelivered=sum(consumer.redelivered for consumer in self._consumers),
                early=sum(consumer.early for consumer in self._consumers),
                delivery=self._times.percentiles(),
            )
        )
        for consumer in self._consumers:
            consumer.connection.abort()

    def _loop(self) -> tuple[int, dict[tuple[int, int], int]]:
        """The time of the last message, and what was published by (queue, stream)."""
        published: dict[tuple[int, int], int] | None = None
        last_ns = time.monotonic_ns()
        while True:
            ready = self._selector.select(1.0)
            for key, events in ready:
                if key.data is None:
                    order = self._orders.recv()
                    assert isinstance(order, Stop)
                    published = order.published
                    continue
                if events & selectors.EVENT_READ:
                    key.data.read()
                    last_ns = time.monotonic_ns()
                if events & selectors.EVENT_WRITE:
                    key.data.send_acks()
                self._watch(key)
            if published is not None and (
                self._has_all(published) or time.monotonic_ns() - last_ns > self._stall_s * 1e9
            ):
                return last_ns, published

    def _watch(self, key: selectors.SelectorKey) -> None:
        events = selectors.EVENT_READ
        if key.data.has_acks:
            events |= selectors.EVENT_WRITE
        if key.events != events:
            self._selector.modify(key.fileobj, events, key.data)

    def _has_all(self, published: dict[tuple[int, int], int]) -> bool:
        return all(check.lost(published[key]) <= 0 for key, check in self._checks.items())
