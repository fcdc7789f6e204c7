"""Producers: one process, one selector, batches of encoded publishes."""

import selectors
import time
from collections import deque
from collections.abc import Iterable
from multiprocessing.connection import Connection as Pipe

from pamqp import commands

from leveret.bench.client import Address, Connection, decode_method
from leveret.bench.errors import BenchError
from leveret.bench.frames import CONFIRM_SIZE, SEQUENCE_BITS, PublishBatch, read_confirms
from leveret.bench.histogram import Histogram
from leveret.bench.topology import Lane, Topology
from leveret.bench.worker import Counters, Published, Ready, Start, Stop
from leveret.bench.workloads import Workload

_BATCH_BYTES = 128 * 1024
_BATCH_MESSAGES = 512
# Then it is the turn of the other connections and of the confirms.
_BATCHES_PER_TURN = 8
_CONFIRM_TIMEOUT_S = 30.0


class ConfirmWindow:
    """The messages of one channel that wait for their confirm; at most *size* of them."""

    def __init__(self, size: int, times: Histogram) -> None:
        self.outstanding = 0
        self._size = size
        self._times = times
        self._next_tag = 1
        # All tags below have been confirmed; of those from it on, the ones in `_early`.
        self._low = 1
        self._early: set[int] = set()
        # (tag behind the last, nanoseconds of publish) of each batch, oldest first.
        self._batches: deque[tuple[int, int]] = deque()

    def room(self, wanted: int) -> int:
        """How many of *wanted* messages may be published now.

        The window is refilled in steps of an eighth, as by a client that batches its writes.
        """
        free = self._size - self.outstanding
        return min(free, wanted) if free >= min(wanted, self._size // 8) else 0

    def add(self, count: int, stamp_ns: int) -> None:
        """Take note of *count* messages published at *stamp_ns*."""
        self._next_tag += count
        self.outstanding += count
        self._batches.append((self._next_tag, stamp_ns))

    def settle(self, tag: int, *, multiple: bool, now_ns: int, measuring: bool) -> int:
        """Take note of a confirm and return how many messages it settles.

        A confirm that overtakes others is timed when they have come.
        Raises BenchError for a tag never used or settled before.
        """
        if not self._low <= tag < self._next_tag or tag in self._early:
            raise BenchError(f"the broker confirmed the publish {tag}, which is not outstanding")
        if multiple:
            self._early = {early for early in self._early if early > tag}
            low = tag + 1
        elif tag == self._low:
            low = tag + 1
        else:
            self._early.add(tag)
            low = self._low
        while low in self._early:
            self._early.remove(low)
            low += 1
        if low > self._low:
            self._advance(low, now_ns, measuring=measuring)
        settled = self.outstanding - (self._next_tag - self._low - len(self._early))
        self.outstanding -= settled
        return settled

    def _advance(self, low: int, now_ns: int, *, measuring: bool) -> None:
        while self._low < low:
            end, stamp_ns = self._batches[0]
            reached = min(end, low)
            if measuring:
                self._times.add(now_ns - stamp_ns, reached - self._low)
            self._low = reached
            if reached == end:
                self._batches.popleft()


class Pace:
    """A fixed rate of *per_second* messages from *start_ns* on."""

    def __init__(self, per_second: float, start_ns: int) -> None:
        self._interval_ns = 1e9 / per_second
        self._start_ns = start_ns
        self._sent = 0

    @property
    def next_due_ns(self) -> int:
        """When the next message is due."""
        return self._start_ns + int(self._sent * self._interval_ns)

    def due(self, now_ns: int) -> int:
        """How many messages are due and not sent."""
        return max(int((now_ns - self._start_ns) / self._interval_ns) + 1 - self._sent, 0)

    def sent(self, count: int) -> None:
        """Take note of *count* messages sent."""
        self._sent += count


class _LaneBatch:
    """The encoded messages of one lane and the number of the last one sent."""

    def __init__(self, lane: Lane, topology: Topology, frame_max: int) -> None:
        workload = topology.workload
        self.lane = lane
        self.published = 0
        self.batch = PublishBatch(
            topology.exchange_name,
            lane.keys,
            workload.size,
            capacity=max(1, min(_BATCH_MESSAGES, _BATCH_BYTES // (workload.size + 100))),
            frame_max=frame_max,
            is_persistent=workload.is_persistent,
            is_unique=workload.is_unique,
            priorities=workload.priorities,
            expirations=workload.expirations,
            delay_ms=workload.delay_ms,
        )

    def fill(self, count: int, stamp_ns: int) -> tuple[memoryview, int]:
        """The frames of the next messages, at most *count*, and how many they are."""
        number = (self.lane.stream << SEQUENCE_BITS) + self.published + 1
        frames = self.batch.fill(number, count, stamp_ns, int(time.time()))
        filled = len(frames) // self.batch.stride
        self.published += filled
        return frames, filled


class Producer:
    """One connection that publishes on its lanes in turn."""

    def __init__(
        self,
        connection: Connection,
        lanes: Iterable[_LaneBatch],
        *,
        window: ConfirmWindow | None,
        limit: int | None,
        counters: Counters,
    ) -> None:
        self.connection = connection
        self.lanes = list(lanes)
        self.nacked = 0
        self.pace: Pace | None = None
        self._window = window
        # How many messages may still be published; None for any number.
        self._left = limit
        self._counters = counters
        self._turn = 0
        self._pending = memoryview(b"")
        # The window or the socket held up the next message, so it counts from when it was due.
        self._was_held = False

    @property
    def is_finished(self) -> bool:
        """Whether everything is sent and confirmed and no more will follow."""
        return self._left == 0 and not self._pending and not self.outstanding

    @property
    def outstanding(self) -> int:
        """How many messages wait for their confirm."""
        return self._window.outstanding if self._window else 0

    def stop(self) -> None:
        """Publish nothing more than what is under way."""
        self._left = 0

    def has_work(self, now_ns: int) -> bool:
        """Whether it can send something now."""
        return bool(self._pending) or self._room(now_ns) > 0

    def publish(self) -> None:
        """Send until the socket is full, there is nothing to send, or it is the turn of others."""
        for _ in range(_BATCHES_PER_TURN):
            if not self._pending and not self._next_batch():
                return
            try:
                sent = self.connection.socket.send(self._pending)
            except BlockingIOError:
                self._was_held = True
                return
            self._pending = self._pending[sent:]

    def read(self) -> None:
        """Receive confirms."""
        buffer = self.connection.buffer
        buffer.receive(self.connection.socket)
        now_ns = time.monotonic_ns()
        while True:
            confirms = read_confirms(buffer.data, buffer.start, buffer.end)
            buffer.start += len(confirms) * CONFIRM_SIZE
            for tag, multiple in confirms:
                self._settle(tag, multiple=multiple, now_ns=now_ns)
            # Most of the time nothing is left, or the beginning of a confirm.
            frame = buffer.take_frame()
            if frame is None:
                return
            method = decode_method(frame)
            if isinstance(method, commands.Basic.Nack):
                self.nacked += self._settle(
                    method.delivery_tag, multiple=method.multiple, now_ns=now_ns
                )
            elif method is not None:
                raise BenchError(f"the broker sent {method.name} to a producer")

    def _settle(self, tag: int, *, multiple: bool, now_ns: int) -> int:
        if self._window is None:
            raise BenchError("the broker sent a confirm that was not asked for")
        measuring = bool(self._counters.measuring)
        count = self._window.settle(tag, multiple=multiple, now_ns=now_ns, measuring=measuring)
        self._counters.confirmed += count
        return count

    def _room(self, now_ns: int) -> int:
        room = _BATCH_MESSAGES if self._left is None else min(self._left, _BATCH_MESSAGES)
        if self.pace:
            room = min(room, self.pace.due(now_ns))
        if room and self._window:
            room = self._window.room(room)
            self._was_held |= not room
        return room

    def _next_batch(self) -> bool:
        now_ns = time.monotonic_ns()
        room = self._room(now_ns)
        if not room:
            return False
        stamp_ns = self.pace.next_due_ns if self.pace and self._was_held else now_ns
        self._was_held = False
        self._pending, count = self.lanes[self._turn].fill(room, stamp_ns)
        self._turn = (self._turn + 1) % len(self.lanes)
        if self._left is not None:
            self._left -= count
        if self.pace:
            self.pace.sent(count)
        if self._window:
            self._window.add(count, stamp_ns)
        self._counters.published += count
        return True


class Producers:
    """All producers of a run, in a process of their own."""

    def __init__(
        self, address: Address, topology: Topology, counters: Counters, orders: Pipe
    ) -> None:
        self._workload = topology.workload
        self._orders = orders
        self._confirm_times = Histogram()
        # Not epoll, which rounds its timeout up to whole milliseconds.
        self._selector = selectors.SelectSelector()
        self._producers = [
            _connect(index, address, topology, counters, self._confirm_times)
            for index in range(self._workload.producers)
        ]

    def run(self) -> None:
        """Publish from the start order to the stop order, wait for the confirms, report."""
        self._orders.send(Ready())
        if not isinstance(self._orders.recv(), Start):
            return
        started_ns = time.monotonic_ns()
        for producer in self._producers:
            producer.connection.socket.setblocking(False)
            self._selector.register(
                producer.connection.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, producer
            )
        self._selector.register(self._orders, selectors.EVENT_READ, None)
        self._set_pace(started_ns)
        self._loop()
        self._orders.send(
            Published(
                by_stream={
                    lane.lane.stream: lane.published
                    for producer in self._producers
                    for lane in producer.lanes
                },
                seconds=(time.monotonic_ns() - started_ns) / 1e9,
                nacked=sum(producer.nacked for producer in self._producers),
                confirm=self._confirm_times.percentiles(),
            )
        )
        for producer in self._producers:
            producer.connection.close()

    def _set_pace(self, started_ns: int) -> None:
        if not self._workload.rate:
            return
        count = len(self._producers)
        interval_ns = 1e9 / self._workload.rate
        for index, producer in enumerate(self._producers):
            start_ns = started_ns + int(index * interval_ns)
            producer.pace = Pace(self._workload.rate / count, start_ns)

    def _loop(self) -> None:
        progress_ns = time.monotonic_ns()
        while not all(producer.is_finished for producer in self._producers):
            now_ns = time.monotonic_ns()
            for producer in self._producers:
                self._watch(producer, now_ns)
            ready = self._selector.select(self._timeout_s(now_ns))
            for key, events in ready:
                if key.data is None:
                    self._take_order()
                    continue
                if events & selectors.EVENT_READ:
                    key.data.read()
                if events & selectors.EVENT_WRITE:
                    key.data.publish()
            if ready:
                progress_ns = time.monotonic_ns()
            elif now_ns - progress_ns > _CONFIRM_TIMEOUT_S * 1e9:
                waiting = sum(producer.outstanding for producer in self._producers)
                raise BenchError(
                    f"no progress for {_CONFIRM_TIMEOUT_S:g} s, {waiting} messages unconfirmed"
                )

    def _watch(self, producer: Producer, now_ns: int) -> None:
        events = selectors.EVENT_READ
        if producer.has_work(now_ns):
            events |= selectors.EVENT_WRITE
        key = self._selector.get_key(producer.connection.socket)
        if key.events != events:
            self._selector.modify(producer.connection.socket, events, producer)

    def _timeout_s(self, now_ns: int) -> float:
        """Until the next message of a fixed rate is due."""
        waits = [
            producer.pace.next_due_ns - now_ns
            for producer in self._producers
            if producer.pace and not producer.is_finished
        ]
        waits = [wait for wait in waits if wait > 0]
        return min([*waits, 1_000_000_000]) / 1e9

    def _take_order(self) -> None:
        if isinstance(self._orders.recv(), Stop):
            for producer in self._producers:
                producer.stop()


def _connect(
    index: int, address: Address, topology: Topology, counters: Counters, times: Histogram
) -> Producer:
    workload: Workload = topology.workload
    connection = Connection(address)
    if workload.confirm:
        connection.call(commands.Confirm.Select())
    share, rest = divmod(workload.fill, workload.producers)
    return Producer(
        connection,
        [_LaneBatch(lane, topology, connection.frame_max) for lane in topology.lanes(index)],
        window=ConfirmWindow(workload.confirm, times) if workload.confirm else None,
        limit=share + (index < rest) if workload.fill else None,
        counters=counters,
    )
