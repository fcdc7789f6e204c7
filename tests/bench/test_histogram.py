import pytest

from leveret.bench.histogram import Histogram


def test_percentiles_are_within_two_percent() -> None:
    histogram = Histogram()
    for milliseconds in range(1, 1001):
        histogram.add(milliseconds * 1_000_000)
    times = histogram.percentiles()
    assert times
    assert times.p50 == pytest.approx(500, rel=0.02)
    assert times.p95 == pytest.approx(950, rel=0.02)
    assert times.p99 == pytest.approx(990, rel=0.02)
    assert times.max == 1000


def test_a_count_weighs() -> None:
    histogram = Histogram()
    histogram.add(100, 99)
    histogram.add(1_000_000)
    times = histogram.percentiles()
    assert times
    assert times.p99 == pytest.approx(0.0001, rel=0.02)
    assert times.max == 1


def test_nothing_measured_has_no_percentiles() -> None:
    assert Histogram().percentiles() is None
