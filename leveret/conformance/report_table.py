"""A report for a terminal of 100 columns."""

from collections.abc import Iterator
from itertools import zip_longest
from textwrap import wrap

from leveret.conformance.case import Profile
from leveret.conformance.report import (
    COUNTED,
    NO_CASE,
    NOT_OBSERVABLE,
    Report,
    met_by,
    printable,
    rule_name,
)
from leveret.conformance.runner import Outcome, Result, is_passed

WIDTH = 100
_RULE_WIDTH = 26
_COLUMN_WIDTH = 29
_COLUMN_LINES = 4
_EVIDENCE_LINES = 40
_FRAME_LINES = 3


def table(report: Report) -> str:
    """A line a case, with three columns where they differ; then the failures and their evidence."""
    lines = [
        f"{report.product} {report.version}, profile {report.profile}",
        "",
        "Where the three differ (+ the expectation that the broker met):",
        _columns("specification", "RabbitMQ", "this broker")[0],
    ]
    longest = max((len(result.case.rule) for result in report.results), default=0)
    width = min(longest, _RULE_WIDTH)
    chapter = ""
    for result in report.results:
        begin = result.case.id.partition("/")[0]
        if begin != chapter:
            chapter = begin
            lines += ["", chapter]
        lines += _case(result, report.profile, width)
    lines += _rules(report)
    for failure in report.failures:
        lines += ["", *_failure(failure, report.profile)]
    return "\n".join(printable(line).rstrip() for line in [*lines, "", *_summary(report)])


def _case(result: Result, profile: Profile, width: int) -> Iterator[str]:
    case, outcome = result.case, result.outcome(profile)
    head = f"  {outcome:8}{case.level:9}{_cut(case.rule, width):{width + 1}}"
    yield head + _cut(case.title, WIDTH - len(head))
    if outcome is Outcome.SKIPPED:
        yield f"{'':10}{result.text}"
    elif set(met := met_by(result)) != case.profiles:
        spec, rabbitmq = (
            f"{'+' if one in met else '-'} {text}" if text else ""
            for one, text in ((Profile.SPEC, case.spec), (Profile.RABBITMQ, case.rabbitmq))
        )
        broker = "see below" if outcome is Outcome.ERROR else result.text
        yield from _columns(spec, rabbitmq, broker)


def _columns(*texts: str) -> list[str]:
    """Texts beside each other, wrapped."""
    wrapped = [
        wrap(printable(text), _COLUMN_WIDTH, max_lines=_COLUMN_LINES, placeholder=" ...")
        for text in texts
    ]
    return [
        " " * 10 + " ".join(f"{cell:{_COLUMN_WIDTH}}" for cell in row)
        for row in zip_longest(*wrapped, fillvalue="")
    ]


def _failure(result: Result, profile: Profile) -> Iterator[str]:
    case = result.case
    yield f"{result.outcome(profile).upper()} {case.id}"
    facts = {
        "rule": rule_name(case.rule),
        "case": case.title,
        "specification": case.spec,
        "RabbitMQ": case.rabbitmq,
        "this broker": result.text,
    }
    for name, text in facts.items():
        for number, line in enumerate(_wrapped(text)):
            yield f"  {'' if number else name:15}{line}"
    left_out = len(result.evidence) - _EVIDENCE_LINES
    if left_out > 0:
        yield f"    ... {left_out} lines before"
    for line in result.evidence[-_EVIDENCE_LINES:]:
        yield from wrap(
            printable(line),
            WIDTH,
            initial_indent=" " * 4,
            subsequent_indent=" " * 8,
            max_lines=_FRAME_LINES,
            placeholder=" ...",
        )


def _wrapped(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield from wrap(printable(line), WIDTH - 17, subsequent_indent="  ") or [""]


def _rules(report: Report) -> Iterator[str]:
    """The rules that no case looks at."""
    kinds = {NOT_OBSERVABLE: report.not_observable, NO_CASE: report.without_case}
    for kind, found in kinds.items():
        if found:
            yield from ("", kind)
        for rule in found:
            head = f"  {rule.level:9}{rule.id:<9}{rule.words}: "
            yield _cut(head + rule.tested_how, WIDTH)


def _summary(report: Report) -> Iterator[str]:
    yield f"{'':19}" + "".join(f"{name:>{len(name) + 3}}" for name in COUNTED)
    for profile in Profile:
        for level, counts in report.summary(profile).items():
            yield f"{profile:10}{level:9}" + "".join(
                f"{counts[name]:{len(name) + 3}}" for name in COUNTED
            )
    verdict = "kept" if is_passed(report.results, report.profile) else "not kept"
    yield ""
    yield (
        f"Every MUST and MUST NOT of profile {report.profile} that was looked at: {verdict}. "
        f"{len(report.results)} cases in {report.seconds:.1f} s"
    )


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."
