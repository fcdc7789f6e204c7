"""Rows: each workload, how it is measured, and what it has to reach."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from session import Session

_SAFE = "--persistent --confirm 1000 --prefetch 1000 --size 1024 --multi-ack 1"
_FILL = "--publish-only --persistent --size 100 --confirm 1000 --queue fill"
_DRAIN = "--consume-only --prefetch 1000 --multi-ack 1 --queue fill --durable"
_FIRST = "--consume-only --prefetch 1 --count 1 --queue fill --durable --reuse"
_IDLE_CONNECTIONS = 1000
# Where each message differs from the one before, nothing that was remembered helps.
_UNIQUE_SHARE = 0.6
# Memory is read when what a start or a fill leaves behind has been put away.
_SETTLE_S = 10.0


@dataclass(frozen=True)
class Value:
    """A measured value and, where they apply, what else was seen with it.

    `cpu_us` is the broker's CPU time per message, `others_cpus` the cores that others used.
    """

    value: float
    cpu_us: float | None = None
    others_cpus: float | None = None


@dataclass(frozen=True)
class Figure:
    """One line of the table: what is measured and what is required of it.

    `ratio` and `cpu_ratio` are how many times better than RabbitMQ, `limit` is the most in `unit`.
    """

    title: str
    unit: str = "msgs/s"
    is_lower_better: bool = False
    ratio: float | None = None
    cpu_ratio: float | None = None
    limit: float | None = None


@dataclass(frozen=True)
class Row:
    """A measurement on a fresh broker; it gives a value for each of its figures."""

    name: str
    figures: tuple[Figure, ...]
    measure: Callable[[Session], Sequence[Value]]


@dataclass(frozen=True)
class _Load:
    """A row that is one run of the load generator."""

    name: str
    title: str
    arguments: str
    ratio: float
    cpu_ratio: float | None = None

    def row(self, *, is_unique: bool) -> Row:
        """The row; *is_unique* gives each message its own id, time and, where it can, key."""
        share, suffix, title, arguments = 1.0, "", self.title, self.arguments
        if is_unique:
            share, suffix = _UNIQUE_SHARE, "u"
            title, arguments = f"{title}, unique", f"{arguments} --unique"

        def measure(session: Session) -> list[Value]:
            result = session.load(*arguments.split(), *_times(session), "--strict")
            return [_rate(result, "consumed")]

        cpu_ratio = None if self.cpu_ratio is None else self.cpu_ratio * share
        figure = Figure(title, ratio=self.ratio * share, cpu_ratio=cpu_ratio)
        return Row(f"{self.name}{suffix}", (figure,), measure)


_LOADS = (
    _Load("a16", "transient, 16 B, automatic ack", "--size 16 --autoack", 3.5),
    _Load("b1k", "transient, 1 KiB, automatic ack", "--size 1024 --autoack", 2.5),
    _Load("c", "persistent, 1 KiB, confirms, ack each", _SAFE, 5, cpu_ratio=7),
    _Load(
        "d",
        "as c, 4 producers, consumers and queues",
        f"{_SAFE} --producers 4 --consumers 4 --queues 4",
        4.5,
    ),
    _Load(
        "e",
        "fan-out to 10 queues, 100 B (deliveries)",
        "--type fanout --queues 10 --consumers 10 --autoack --size 100",
        5,
    ),
    _Load(
        "f", "topic, 1,000 bindings, 100 B", "--type topic --bindings 1000 --autoack --size 100", 6
    ),
)


def rows() -> dict[str, Row]:
    """All rows by name, in the order of the table."""
    table = [load.row(is_unique=False) for load in _LOADS]
    table += [_fill_and_drain(is_unique=False)]
    table += [_latency(), _churn(), _start(), _backlog(), _idle_connections()]
    table += [load.row(is_unique=True) for load in _LOADS]
    table += [_fill_and_drain(is_unique=True)]
    return {row.name: row for row in table}


def _fill_and_drain(*, is_unique: bool) -> Row:
    share, suffix, more = (_UNIQUE_SHARE, "u", ["--unique"]) if is_unique else (1.0, "", [])

    def measure(session: Session) -> list[Value]:
        filled = _fill(session, *more)
        return [_rate(filled, "published"), _rate(session.load(*_DRAIN.split()), "consumed")]

    comment = ", unique" if is_unique else ""
    figures = (
        Figure(f"fill with 100 B, persistent, confirms{comment}", ratio=8 * share),
        Figure(f"drain it, ack each{comment}", ratio=4 * share),
    )
    return Row(f"g{suffix}", figures, measure)


def _latency() -> Row:
    arguments = f"{_SAFE} --rate 1000 --strict"

    def measure(session: Session) -> list[Value]:
        result = session.load(*arguments.split(), *_times(session))
        cpu_us, others_cpus = result["broker_cpu_us_per_msg"], result["others_cpus"]
        return [
            Value(result[what][percentile] / 1000, cpu_us, others_cpus)
            for what in ("latency_us", "confirm_us")
            for percentile in ("p50", "p99")
        ]

    figures = tuple(
        Figure(f"1,000 msgs/s as c: {what} {percentile}", "ms", is_lower_better=True, ratio=1)
        for what in ("delivery", "confirm")
        for percentile in ("p50", "p99")
    )
    return Row("h", figures, measure)


def _churn() -> Row:
    def measure(session: Session) -> list[Value]:
        result = session.load("--churn", "1", *_times(session))
        cpu_us, others_cpus = result["broker_cpu_us_per_conn"], result["others_cpus"]
        return [Value(result["conn_per_s"], cpu_us, others_cpus)]

    return Row("k", (Figure("connect and close, one at a time", "conns/s", ratio=2),), measure)


def _start() -> Row:
    def measure(session: Session) -> list[Value]:
        return [Value(session.start_s)]

    figure = Figure("start to the first connection", "s", is_lower_better=True, limit=0.5)
    return Row("m", (figure,), measure)


def _backlog() -> Row:
    """Memory at rest and with a backlog, and how soon its first message comes after a restart."""

    def restart(session: Session) -> Value:
        begin = time.monotonic()
        session.start()
        session.load(*_FIRST.split())
        return Value(time.monotonic() - begin)

    def measure(session: Session) -> list[Value]:
        time.sleep(_SETTLE_S)
        idle_mb = session.resident_mb()
        _fill(session)
        time.sleep(_SETTLE_S)
        growth_mb = session.resident_mb() - idle_mb
        session.running.stop()
        stopped = restart(session)
        session.running.kill()
        killed = restart(session)
        return [Value(idle_mb), Value(growth_mb), stopped, killed]

    figures = (
        Figure("memory at rest", "MB", is_lower_better=True, limit=45),
        Figure("more with the messages of g queued", "MB", is_lower_better=True, limit=40),
        Figure("first delivery of them after a stop", "s", is_lower_better=True, limit=2),
        Figure("the same after SIGKILL", "s", is_lower_better=True, limit=2),
    )
    return Row("mem", figures, measure)


def _idle_connections() -> Row:
    def measure(session: Session) -> list[Value]:
        result = session.load("--idle", str(_IDLE_CONNECTIONS), "--warmup", "3", "--duration", "5")
        return [Value(result["kb_per_connection"] * 1.024)]

    figure = Figure("memory of an idle connection", "KB", is_lower_better=True, limit=40)
    return Row("l", (figure,), measure)


def _fill(session: Session, *more: str) -> dict[str, Any]:
    return session.load(*_FILL.split(), "--count", str(session.settings.messages), *more)


def _times(session: Session) -> tuple[str, ...]:
    settings = session.settings
    return "--duration", str(settings.seconds), "--warmup", str(settings.warmup_s)


def _rate(result: dict[str, Any], what: str) -> Value:
    cpu_us, others_cpus = result["broker_cpu_us_per_msg"], result["others_cpus"]
    return Value(result[f"{what}_per_s"], cpu_us, others_cpus)
