"""Report: the figures of runs as a table of at most 80 columns and as JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from statistics import median

from leveret.bench.histogram import Percentiles


@dataclass(frozen=True, slots=True)
class Result:
    """One run, or the medians of several. Rates are of the measured time, sums of the whole run.

    For delayed messages `delivery_ms` is how late they came, and `early` how many came too soon.
    `idle_mb` is the broker's memory before the run, `most_mb` the most in it, in 1,000,000 bytes,
    `cpu_us` its CPU time in microseconds for each message delivered.
    """

    workload: str
    broker: str
    seconds: float
    published: int
    confirmed: int
    consumed: int
    published_per_s: float
    confirmed_per_s: float
    consumed_per_s: float
    delivery_ms: Percentiles | None
    confirm_ms: Percentiles | None
    lost: int
    duplicated: int
    out_of_order: int
    redelivered: int
    nacked: int
    early: int
    idle_mb: float | None
    most_mb: float | None
    cpu_us: float | None

    @property
    def faults(self) -> str:
        """What went wrong, in words; empty if every message came once and in order."""
        counts = {
            "lost": self.lost,
            "duplicated": self.duplicated,
            "out of order": self.out_of_order,
            "nacked": self.nacked,
            "early": self.early,
        }
        return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The same work on two brokers."""

    first: Result
    second: Result

    @property
    def ratio(self) -> float:
        """How many times as many messages the first delivered per second."""
        return self.first.consumed_per_s / self.second.consumed_per_s


def middle(results: Sequence[Result]) -> Result:
    """The medians of rates and times of *results*, and the sums of everything counted."""
    numbers = {
        field.name: sum(getattr(result, field.name) for result in results)
        for field in fields(Result)
        if field.type is int
    }
    return replace(
        results[0],
        **numbers,
        seconds=sum(result.seconds for result in results),
        published_per_s=median(result.published_per_s for result in results),
        confirmed_per_s=median(result.confirmed_per_s for result in results),
        consumed_per_s=median(result.consumed_per_s for result in results),
        idle_mb=_middle(result.idle_mb for result in results),
        most_mb=_middle(result.most_mb for result in results),
        cpu_us=_middle(result.cpu_us for result in results),
        delivery_ms=_middle_times([result.delivery_ms for result in results]),
        confirm_ms=_middle_times([result.confirm_ms for result in results]),
    )


def results_table(results: Sequence[Result]) -> str:
    """A line for each result, and what went wrong."""
    lines = [
        f"{'':10}{'published':>10}{'consumed':>10}{'delivery ms':>31}{'confirm ms':>17}",
        f"{'workload':10}{'msgs/s':>10}{'msgs/s':>10}"
        f"{'p50':>8}{'p95':>8}{'p99':>8}{'max':>8}{'p50':>8}{'p99':>8}",
    ]
    lines += [
        f"{result.workload:10}{result.published_per_s:10.0f}{result.consumed_per_s:10.0f}"
        + _times(result.delivery_ms, "p50", "p95", "p99", "max")
        + _times(result.confirm_ms, "p50", "p99")
        for result in results
    ]
    return "\n".join([*lines, "", *_verdict(results)])


def comparison_table(comparisons: Sequence[Comparison]) -> str:
    """A line for each comparison: rates, their ratio, and times at the same place."""
    first, second = comparisons[0].first.broker, comparisons[0].second.broker
    lines = [
        f"A = {first}, B = {second}",
        "",
        f"{'':10}{'consumed msgs/s':>22}{'':8}{'delivery p50 / p99 ms':>40}",
        f"{'workload':10}{'A':>11}{'B':>11}{'A / B':>8}{'A':>20}{'B':>20}",
    ]
    lines += [
        f"{pair.first.workload:10}{pair.first.consumed_per_s:11.0f}"
        f"{pair.second.consumed_per_s:11.0f}{pair.ratio:8.2f}"
        f"{_pair(pair.first.delivery_ms):>20}{_pair(pair.second.delivery_ms):>20}"
        for pair in comparisons
    ]
    results = [result for pair in comparisons for result in (pair.first, pair.second)]
    return "\n".join([*lines, "", *_verdict(results)])


def results_json(results: Sequence[Result]) -> str:
    """The results as a JSON array."""
    return json.dumps([asdict(result) for result in results], indent=2)


def comparisons_json(comparisons: Sequence[Comparison]) -> str:
    """The comparisons as a JSON array."""
    return json.dumps([{**asdict(pair), "ratio": pair.ratio} for pair in comparisons], indent=2)


def _verdict(results: Sequence[Result]) -> list[str]:
    faults = [
        f"{result.workload} on {result.broker}: {result.faults}"
        for result in results
        if result.faults
    ]
    taken = [
        f"{result.workload} on {result.broker}: {_time(result.cpu_us)} us of CPU a message, "
        f"memory {result.idle_mb:.0f} to {result.most_mb:.0f} MB"
        for result in results
        if result.idle_mb and result.most_mb
    ]
    return [*taken, *(faults or ["Every message came once and in order."])]


def _middle(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _middle_times(times: Sequence[Percentiles | None]) -> Percentiles | None:
    known = [one for one in times if one]
    if not known:
        return None
    return Percentiles(
        *(median(getattr(one, field.name) for one in known) for field in fields(Percentiles))
    )


def _times(times: Percentiles | None, *names: str) -> str:
    return "".join(f"{_time(getattr(times, name) if times else None):>8}" for name in names)


def _pair(times: Percentiles | None) -> str:
    return f"{_time(times.p50)} / {_time(times.p99)}" if times else "-"


def _time(time: float | None) -> str:
    """Three digits that count, and none where nothing was measured."""
    if time is None:
        return "-"
    return f"{time:.0f}" if time >= 100 else f"{time:.3g}"
