"""Report: medians of the runs, their ratios, and what of it is met, as Markdown and JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from processes import CompareError
from rows import Figure, Row, Value

OURS, THEIRS, BEFORE = "leveret", "rabbitmq", "before"
# Above this many cores used by others in any run, the figures say little.
MAX_OTHERS_CPUS = 0.10


@dataclass(frozen=True)
class Line:
    """One figure on both brokers. None where a broker was left out or a part does not apply.

    Ratios say how many times better we are, also where less is better; `before` compares with
    an earlier run of ours.
    """

    row: str
    title: str
    unit: str
    ours: float | None
    rabbitmq: float | None
    ratio: float | None
    cpu_us_ours: float | None
    cpu_us_rabbitmq: float | None
    cpu_ratio: float | None
    required: str
    is_met: bool | None
    before: float | None
    others_cpus: float

    @property
    def verdict(self) -> str:
        """Whether it is met, in words."""
        met = {True: "yes", False: "**no**", None: "-"}[self.is_met]
        return f"{met} (disturbed)" if self.others_cpus > MAX_OTHERS_CPUS else met


def lines(
    row: Row, values: Mapping[str, Sequence[Sequence[Value]]], earlier: dict[tuple[str, str], float]
) -> list[Line]:
    """The lines of *row* from the *values* that its runs gave by broker; *earlier* ones of ours."""
    return [
        _line(
            row.name,
            figure,
            [run[index] for run in values.get(OURS, ())],
            [run[index] for run in values.get(THEIRS, ())],
            _earlier([run[index] for run in values.get(BEFORE, ())])
            or earlier.get((row.name, figure.title)),
        )
        for index, figure in enumerate(row.figures)
    ]


def _earlier(values: Sequence[Value]) -> float | None:
    return median(value.value for value in values) if values else None


def markdown(table: Sequence[Line]) -> str:
    """The table for the documentation."""
    head = [
        "| row | workload | unit | leveret | RabbitMQ | ratio | CPU µs/msg | RabbitMQ | ratio "
        "| required | met | to before |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---|---|---:|",
    ]
    body = [
        "| "
        + " | ".join(
            [
                line.row,
                line.title,
                line.unit,
                _number(line.ours),
                _number(line.rabbitmq),
                _number(line.ratio),
                _number(line.cpu_us_ours),
                _number(line.cpu_us_rabbitmq),
                _number(line.cpu_ratio),
                line.required,
                line.verdict,
                _number(line.before),
            ]
        )
        + " |"
        for line in table
    ]
    worst = max(line.others_cpus for line in table)
    note = f"Disturbed: others used over {MAX_OTHERS_CPUS} cores in a run, at most {worst:.2f}."
    return "\n".join([*head, *body, "", *([note, ""] if worst > MAX_OTHERS_CPUS else [])])


def to_json(table: Sequence[Line], circumstances: dict[str, Any]) -> str:
    """Everything as JSON, with the *circumstances* of the run."""
    return json.dumps({**circumstances, "lines": [asdict(line) for line in table]}, indent=2) + "\n"


def read_earlier(path: Path) -> dict[tuple[str, str], float]:
    """Our values in an earlier JSON, by row and title.

    Raises CompareError if it is none.
    """
    try:
        content = json.loads(path.read_text())
        return {(line["row"], line["title"]): line["ours"] for line in content["lines"]}
    except OSError as error:
        raise CompareError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise CompareError(f"{path}: not the JSON of an earlier run") from None


def summary(line: Line) -> str:
    """The line for somebody who waits."""
    return (
        f"  {line.title}: {_number(line.ours)} / {_number(line.rabbitmq)} {line.unit}"
        f" = {_number(line.ratio)}x  {line.required}  met: {line.verdict}"
    )


def _line(
    row: str,
    figure: Figure,
    ours: Sequence[Value],
    theirs: Sequence[Value],
    earlier: float | None,
) -> Line:
    our_value, their_value = (_median([one.value for one in runs]) for runs in (ours, theirs))
    our_cpu, their_cpu = (_median([one.cpu_us for one in runs]) for runs in (ours, theirs))
    ratio = _times_better(our_value, their_value, is_lower_better=figure.is_lower_better)
    cpu_ratio = _times_better(our_cpu, their_cpu, is_lower_better=True)
    return Line(
        row=row,
        title=figure.title,
        unit=figure.unit,
        ours=our_value,
        rabbitmq=their_value,
        ratio=ratio,
        cpu_us_ours=our_cpu,
        cpu_us_rabbitmq=their_cpu,
        cpu_ratio=cpu_ratio,
        required=_requirement(figure),
        is_met=_is_met(figure, our_value, ratio, cpu_ratio),
        before=_times_better(our_value, earlier, is_lower_better=figure.is_lower_better),
        others_cpus=max((one.others_cpus or 0 for one in (*ours, *theirs)), default=0),
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _times_better(
    ours: float | None, theirs: float | None, *, is_lower_better: bool
) -> float | None:
    if not ours or not theirs:
        return None
    return theirs / ours if is_lower_better else ours / theirs


def _requirement(figure: Figure) -> str:
    parts = []
    if figure.ratio is not None:
        parts.append(f"≥ {figure.ratio:g}x")
    if figure.cpu_ratio is not None:
        parts.append(f"CPU ≤ 1/{figure.cpu_ratio:g}")
    if figure.limit is not None:
        parts.append(f"≤ {figure.limit:g} {figure.unit}")
    return ", ".join(parts)


def _is_met(
    figure: Figure, value: float | None, ratio: float | None, cpu_ratio: float | None
) -> bool | None:
    """Whether everything required is reached; None if it cannot be told."""
    verdicts = [
        None if reached is None else reached >= required
        for reached, required in ((ratio, figure.ratio), (cpu_ratio, figure.cpu_ratio))
        if required is not None
    ]
    if figure.limit is not None:
        verdicts.append(None if value is None else value <= figure.limit)
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _number(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
