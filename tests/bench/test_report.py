import json
from dataclasses import replace

import pytest

from leveret.bench.compare import compare
from leveret.bench.histogram import Percentiles
from leveret.bench.report import (
    Comparison,
    Result,
    comparison_table,
    comparisons_json,
    middle,
    results_json,
    results_table,
)

RESULT = Result(
    workload="c",
    broker="127.0.0.1:5672",
    seconds=10.0,
    published=1_234_567,
    confirmed=1_234_567,
    consumed=1_234_567,
    published_per_s=1_234_567.0,
    confirmed_per_s=1_234_567.0,
    consumed_per_s=1_000_000.0,
    delivery_ms=Percentiles(1.2345, 123.45, 1234.5, 98765.4),
    confirm_ms=None,
    lost=0,
    duplicated=0,
    out_of_order=0,
    redelivered=0,
    nacked=0,
    early=0,
    idle_mb=38.5,
    most_mb=12345.6,
    cpu_us=1234.5,
)
SLOWER = replace(RESULT, broker="[::1]:65535", consumed_per_s=400_000.0)


@pytest.mark.parametrize(
    "table",
    [
        results_table([RESULT, replace(RESULT, workload="custom", delivery_ms=None)]),
        comparison_table([Comparison(RESULT, SLOWER)]),
    ],
)
def test_tables_fit_80_columns(table: str) -> None:
    assert max(len(line) for line in table.splitlines()) <= 80
    assert "Every message came once and in order." in table


def test_memory_and_cpu_are_told_where_they_are_known() -> None:
    assert "c on 127.0.0.1:5672: 1.35 us of CPU a message, memory 38 to 97 MB" in results_table(
        [replace(RESULT, idle_mb=38.0, most_mb=97.2, cpu_us=1.346)]
    )
    unknown = replace(RESULT, idle_mb=None, most_mb=None, cpu_us=None)
    assert "memory" not in results_table([unknown])
    assert middle([unknown, RESULT]).cpu_us == 1234.5


def test_faults_are_told() -> None:
    broken = replace(RESULT, lost=3, out_of_order=1)
    assert broken.faults == "3 lost, 1 out of order"
    assert "c on 127.0.0.1:5672: 3 lost, 1 out of order" in results_table([RESULT, broken])


def test_comparison_takes_turns_and_the_medians() -> None:
    calls = []

    def run(result: Result, rates: list[float]) -> Result:
        calls.append(result.broker)
        return replace(result, consumed_per_s=rates.pop(0))

    fast, slow = [30.0, 10.0, 20.0], [5.0, 4.0, 6.0]
    comparison = compare(lambda: run(RESULT, fast), lambda: run(SLOWER, slow), rounds=3)
    assert calls == [RESULT.broker, SLOWER.broker] * 3
    assert comparison.ratio == 4
    assert json.loads(comparisons_json([comparison]))[0]["ratio"] == 4


def test_faults_of_several_runs_add_up() -> None:
    result = middle([replace(RESULT, lost=2), replace(RESULT, lost=3), RESULT])
    assert result.lost == 5
    assert result.workload == "c"


def test_json_has_every_figure() -> None:
    (result,) = json.loads(results_json([RESULT]))
    assert result["consumed_per_s"] == 1_000_000
    assert result["delivery_ms"]["p99"] == 1234.5
    assert result["confirm_ms"] is None
