"""A report as one HTML file that needs nothing else: no script, no font, no other file."""

from collections.abc import Iterator
from html import escape

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
from leveret.conformance.rules import Level
from leveret.conformance.runner import Outcome, Result, is_passed

_STYLE = """
:root { color-scheme: light dark; --line: #d5d9de; --soft: #f5f6f8; --quiet: #5b6470;
  --passed: #1a7f37; --failed: #c11c28; --error: #9a4c00; --skipped: #5b6470; }
@media (prefers-color-scheme: dark) { :root { --line: #3a414a; --soft: #1d2228; --quiet: #9aa4af;
  --passed: #4cc26a; --failed: #ff7b72; --error: #f0a35e; --skipped: #9aa4af; } }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem;
  padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .5rem; text-align: left;
  vertical-align: top; overflow-wrap: anywhere; }
th { background: var(--soft); position: sticky; top: 0; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.results td:nth-child(n + 4) { width: 22%; }
.passed { color: var(--passed); } .failed { color: var(--failed); font-weight: 600; }
.error { color: var(--error); font-weight: 600; } .skipped { color: var(--skipped); }
.quiet { color: var(--quiet); font-size: .85em; }
.met { border-left: 3px solid var(--passed); }
pre { background: var(--soft); padding: .6rem; overflow-x: auto; font-size: .85em; }
nav a { margin-right: .8rem; }
"""


def html(report: Report) -> str:
    """The report as an HTML document."""
    return "\n".join(_document(report)) + "\n"


def _document(report: Report) -> Iterator[str]:
    broker = _text(f"{report.product} {report.version}")
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>Conformance of {broker}</title>\n<style>{_STYLE}</style>\n</head>\n<body>"
    yield f"<h1>Conformance of {broker}</h1>"
    is_kept = is_passed(report.results, report.profile)
    mark, verdict = ("passed", "kept") if is_kept else ("failed", "not kept")
    yield (
        f"<p>Every MUST and MUST NOT of profile {report.profile} that was looked at: "
        f'<strong class="{mark}">{verdict}</strong>. '
        f"{len(report.results)} cases in {report.seconds:.1f} s.</p>"
    )
    yield from _summary(report)
    chapters: dict[str, list[Result]] = {}
    for result in report.results:
        chapters.setdefault(result.case.id.partition("/")[0], []).append(result)
    links = (f'<a href="#{_text(name)}">{_text(name)}</a>' for name in chapters)
    yield f"<nav>{' '.join(links)}</nav>"
    for name, results in chapters.items():
        yield f'<h2 id="{_text(name)}">{_text(name)}</h2>'
        yield '<table class="results">\n<thead><tr><th>outcome</th><th>rule</th><th>case</th>'
        yield "<th>specification</th><th>RabbitMQ</th><th>this broker</th></tr></thead>\n<tbody>"
        for result in results:
            yield from _row(result, report.profile)
        yield "</tbody>\n</table>"
    yield from _rules(report)
    yield "</body>\n</html>"


def _summary(report: Report) -> Iterator[str]:
    heads = "".join(f'<th class="number">{name}</th>' for name in COUNTED)
    yield f"<table>\n<thead><tr><th>profile</th><th>level</th>{heads}</tr></thead>\n<tbody>"
    for profile in Profile:
        counts = report.summary(profile)
        for level in Level:
            cells = "".join(f'<td class="number">{counts[level][name]}</td>' for name in COUNTED)
            yield f"<tr><td>{profile}</td><td>{level}</td>{cells}</tr>"
    yield "</tbody>\n</table>"


def _row(result: Result, profile: Profile) -> Iterator[str]:
    case, outcome, met = result.case, result.outcome(profile), met_by(result)
    yield (
        f'<tr><td class="{outcome}">{outcome}</td>'
        f'<td title="{_text(rule_name(case.rule))}">{_text(case.rule)}'
        f'<br><span class="quiet">{case.level}</span></td>'
        f'<td>{_text(case.title)}<br><span class="quiet">{_text(case.id)}</span></td>'
    )
    for one, text in ((Profile.SPEC, case.spec), (Profile.RABBITMQ, case.rabbitmq)):
        yield f'<td class="met">{_text(text)}</td>' if one in met else f"<td>{_text(text)}</td>"
    yield f"<td>{_text(result.text)}"
    if result.evidence and outcome in (Outcome.FAILED, Outcome.ERROR):
        evidence = _text("\n".join(result.evidence))
        yield f"<details><summary>evidence</summary><pre>{evidence}</pre></details>"
    yield "</td></tr>"


def _rules(report: Report) -> Iterator[str]:
    kinds = {NOT_OBSERVABLE: report.not_observable, NO_CASE: report.without_case}
    for kind, found in kinds.items():
        if not found:
            continue
        yield f"<h2>{kind.capitalize()}</h2>\n<table>"
        yield "<thead><tr><th>rule</th><th>level</th><th>what it asks</th><th>how, or why not</th>"
        yield "</tr></thead>\n<tbody>"
        for rule in found:
            name = _text(f"{rule.id} {rule.words}")
            yield (
                f"<tr><td>{name}</td><td>{rule.level}</td><td>{_text(rule.description)}</td>"
                f"<td>{_text(rule.tested_how)}</td></tr>"
            )
        yield "</tbody>\n</table>"


def _text(text: str) -> str:
    return escape(printable(text))
