"""Load: one run of a workload on one broker.

Producers and consumers are a process each. The process that made them declares the queues, tells
them to start and to stop, and reads their counters at both ends of the measured time.
"""

import multiprocessing
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import RawValue
from typing import TypeVar

from leveret.bench.broker_process import cpu_s, find_peer, resident_mb
from leveret.bench.client import Address, Connection
from leveret.bench.consumer import Consumers
from leveret.bench.errors import BenchError
from leveret.bench.producer import Producers
from leveret.bench.report import Result
from leveret.bench.topology import Topology
from leveret.bench.worker import (
    Consumed,
    Counters,
    Failed,
    Order,
    Published,
    Ready,
    Report,
    Start,
    Stop,
    report_failure,
)
from leveret.bench.workloads import Workload

_TICK_S = 0.5
_SPAWN = multiprocessing.get_context("spawn")

R = TypeVar("R", Ready, Published, Consumed)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands; rates per second over the last tick."""

    phase: str
    elapsed_s: float
    published_per_s: float
    consumed_per_s: float


@dataclass(frozen=True, slots=True)
class _Sample:
    at_s: float
    published: int
    confirmed: int
    consumed: int


class Load:
    """A workload and the broker to run it on; times in seconds."""

    def __init__(
        self,
        address: Address,
        workload: Workload,
        *,
        warmup_s: float,
        duration_s: float,
        on_progress: Callable[[Progress], None],
    ) -> None:
        workload.check()
        self.address = address
        self.workload = workload
        self._warmup_s = warmup_s
        self._duration_s = duration_s
        self._on_progress = on_progress
        self._counters: Counters = RawValue(Counters)
        self._started_s = 0.0
        self._last = self._sample()
        self._broker_pid: int | None = None
        self._idle_mb: float | None = None
        self._most_mb: float | None = None
        self._begin_cpu_s: float | None = None

    def run(self) -> Result:
        """Run once and return what was measured. Raises BenchError if it cannot."""
        topology = Topology(self.workload, f"leveret-bench-{secrets.token_hex(4)}")
        control = Connection(self.address)
        try:
            self._broker_pid = find_peer(control.socket)
            self._begin_cpu_s = self._cpu_s()
            self._weigh()
            topology.declare(control)
            # Told apart by what they do; the consumers exist before the first publish.
            with (
                self._worker("consumers", topology) as consumers,
                self._worker("producers", topology) as producers,
            ):
                self._started_s = time.monotonic()
                self._last = self._sample()
                if self.workload.fill:
                    return self._fill_and_drain(topology, producers, consumers)
                return self._measure(topology, producers, consumers)
        finally:
            # Otherwise a broken connection here hides the error that broke it.
            with suppress(BenchError, OSError):
                topology.delete(control)
                control.close()

    def _measure(self, topology: Topology, producers: "_Worker", consumers: "_Worker") -> Result:
        consumers.order(Start())
        producers.order(Start())
        workers = (producers, consumers)
        self._wait("warm-up", self._warmup_s, workers)
        self._counters.measuring = 1
        before = self._sample()
        self._wait("measuring", self._duration_s, workers)
        after = self._sample()
        self._counters.measuring = 0
        producers.order(Stop({}))
        published = self._result(producers, Published, "confirms")
        consumers.order(_stop_at(topology, published))
        consumed = self._result(consumers, Consumed, "drain")
        seconds = after.at_s - before.at_s
        return self._combine(
            seconds,
            published,
            consumed,
            published_per_s=(after.published - before.published) / seconds,
            confirmed_per_s=(after.confirmed - before.confirmed) / seconds,
            consumed_per_s=(after.consumed - before.consumed) / seconds,
        )

    def _fill_and_drain(
        self, topology: Topology, producers: "_Worker", consumers: "_Worker"
    ) -> Result:
        is_delayed = self.workload.delay_ms > 0
        self._counters.measuring = 1
        if is_delayed:
            consumers.order(Start())
        producers.order(Start())
        published = self._result(producers, Published, "fill")
        if not is_delayed:
            # How long a message lay in the queue says nothing of the broker.
            self._counters.measuring = 0
            consumers.order(Start())
        consumers.order(_stop_at(topology, published))
        consumed = self._result(consumers, Consumed, "drain")
        return self._combine(
            published.seconds + consumed.seconds,
            published,
            consumed,
            published_per_s=self._counters.published / published.seconds,
            confirmed_per_s=self._counters.confirmed / published.seconds,
            consumed_per_s=self._counters.consumed / consumed.seconds,
        )

    def _combine(
        self,
        seconds: float,
        published: Published,
        consumed: Consumed,
        *,
        published_per_s: float,
        confirmed_per_s: float,
        consumed_per_s: float,
    ) -> Result:
        return Result(
            workload=self.workload.name,
            broker=str(self.address),
            seconds=seconds,
            published=self._counters.published,
            confirmed=self._counters.confirmed,
            consumed=self._counters.consumed,
            published_per_s=published_per_s,
            confirmed_per_s=confirmed_per_s,
            consumed_per_s=consumed_per_s,
            delivery_ms=consumed.delivery,
            confirm_ms=published.confirm,
            lost=consumed.lost,
            duplicated=consumed.duplicated,
            out_of_order=consumed.out_of_order,
            redelivered=consumed.redelivered,
            nacked=published.nacked,
            early=consumed.early,
            idle_mb=self._idle_mb,
            most_mb=self._most_mb,
            cpu_us=self._cpu_us(),
        )

    @contextmanager
    def _worker(self, role: str, topology: Topology) -> Iterator["_Worker"]:
        ours, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(
            target=_work,
            args=(role, self.address, topology, self._counters, theirs),
            name=role,
            daemon=True,
        )
        process.start()
        theirs.close()
        worker = _Worker(process, ours)
        try:
            worker.expect(Ready)
            yield worker
        finally:
            worker.end()

    def _wait(self, phase: str, seconds: float, workers: tuple["_Worker", ...]) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            pipes = [worker.pipe for worker in workers]
            # A worker that says something in this time has failed.
            if multiprocessing.connection.wait(pipes, min(left, _TICK_S)):
                for worker in workers:
                    if worker.pipe.poll():
                        worker.expect(Published)
            self._tell(phase)

    def _result(self, worker: "_Worker", kind: type[R], phase: str) -> R:
        while not worker.pipe.poll(_TICK_S):
            self._tell(phase)
        return worker.expect(kind)

    def _tell(self, phase: str) -> None:
        now, last = self._sample(), self._last
        if now.at_s - last.at_s < _TICK_S / 2:
            return
        self._last = now
        self._weigh()
        seconds = now.at_s - last.at_s
        self._on_progress(
            Progress(
                phase=phase,
                elapsed_s=now.at_s - self._started_s,
                published_per_s=(now.published - last.published) / seconds,
                consumed_per_s=(now.consumed - last.consumed) / seconds,
            )
        )

    def _weigh(self) -> None:
        """Take note of the broker's memory: what it had first, and the most."""
        now_mb = None if self._broker_pid is None else resident_mb(self._broker_pid)
        if now_mb is not None:
            self._idle_mb = self._idle_mb or now_mb
            self._most_mb = max(self._most_mb or 0, now_mb)

    def _cpu_us(self) -> float | None:
        """The broker's CPU time for each message delivered so far, in microseconds."""
        end_s, consumed = self._cpu_s(), self._counters.consumed
        if self._begin_cpu_s is None or end_s is None or not consumed:
            return None
        return (end_s - self._begin_cpu_s) / consumed * 1e6

    def _cpu_s(self) -> float | None:
        return None if self._broker_pid is None else cpu_s(self._broker_pid)

    def _sample(self) -> _Sample:
        counters = self._counters
        return _Sample(time.monotonic(), counters.published, counters.confirmed, counters.consumed)


class _Worker:
    """A process of the run and our end of the pipe to it."""

    def __init__(self, process: BaseProcess, pipe: Pipe) -> None:
        self.pipe = pipe
        self._process = process

    def order(self, order: Order) -> None:
        try:
            self.pipe.send(order)
        except BrokenPipeError:
            # It said why before it went.
            self.expect(Ready)

    def expect(self, kind: type[R]) -> R:
        """The next report, which must be of *kind*."""
        try:
            report: Report = self.pipe.recv()
        except EOFError:
            raise BenchError(f"the process of the {self._process.name} died") from None
        if isinstance(report, Failed):
            raise BenchError(report.text)
        assert isinstance(report, kind)
        return report

    def end(self) -> None:
        self.pipe.close()
        self._process.join(1.0)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()
        self._process.close()


def _stop_at(topology: Topology, published: Published) -> Stop:
    """The order to consume until everything *published* has come."""
    return Stop(
        {
            (queue, lane.stream): published.by_stream[lane.stream]
            for producer in range(topology.workload.producers)
            for lane in topology.lanes(producer)
            for queue in lane.queues
        }
    )


def _work(
    role: str, address: Address, topology: Topology, counters: Counters, orders: Pipe
) -> None:
    """The main function of a worker process."""
    # Ctrl-C is for the process that started us; it ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    kind = Producers if role == "producers" else Consumers
    report_failure(orders, lambda: kind(address, topology, counters, orders).run())
