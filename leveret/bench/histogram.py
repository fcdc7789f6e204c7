"""Histogram: times in buckets of under 2 % width, and their percentiles."""

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Times in milliseconds."""

    p50: float
    p95: float
    p99: float
    max: float


class Histogram:
    """Counts times in nanoseconds."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._max_ns = 0

    def add(self, time_ns: int, count: int = 1) -> None:
        """Count a time *count* times. A negative one, from a coarse clock, counts as 0."""
        time_ns = max(time_ns, 0)
        shift = max(time_ns.bit_length() - 7, 0)
        self._counts[time_ns >> shift << shift] += count
        self._max_ns = max(self._max_ns, time_ns)

    def percentiles(self) -> Percentiles | None:
        """The percentiles of what was counted; None if there is nothing."""
        total = self._counts.total()
        if not total:
            return None
        values = [self._percentile_ns(total * share) for share in (0.50, 0.95, 0.99)]
        return Percentiles(*(value / 1e6 for value in (*values, self._max_ns)))

    def _percentile_ns(self, rank: float) -> int:
        passed = 0
        for value, count in sorted(self._counts.items()):
            passed += count
            if passed >= rank:
                return value
        return self._max_ns
