"""A report as JUnit XML, which CI servers read.

A failure there is what fails the run: a MUST or MUST NOT of the profile. What is not met and need
not be, was skipped or cannot be observed is a skipped test with the reason.
"""

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from leveret.conformance.case import Profile
from leveret.conformance.report import (
    NO_CASE,
    NOT_OBSERVABLE,
    Report,
    printable,
    rule_id,
    rule_name,
)
from leveret.conformance.rules import Rule
from leveret.conformance.runner import Outcome, Result


def junit(report: Report) -> str:
    """The report as an XML document."""
    root = Element("testsuites", name="leveret conformance", time=f"{report.seconds:.3f}")
    chapters: dict[str, list[Result]] = {}
    for result in report.results:
        chapters.setdefault(result.case.id.partition("/")[0], []).append(result)
    for name, results in chapters.items():
        suite = SubElement(root, "testsuite", name=name)
        facts = SubElement(suite, "properties")
        broker = f"{report.product} {report.version}"
        SubElement(facts, "property", name="broker", value=printable(broker))
        SubElement(facts, "property", name="profile", value=report.profile)
        for result in results:
            _add(suite, result, report.profile)
    _add_rules(root, NOT_OBSERVABLE, report.not_observable)
    _add_rules(root, NO_CASE, report.without_case)
    for suite in root:
        suite.set("tests", str(len(suite.findall("testcase"))))
        for kind, plural in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            suite.set(plural, str(len(suite.findall(f"testcase/{kind}"))))
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode")


def _add(suite: Element, result: Result, profile: Profile) -> None:
    case, outcome = result.case, result.outcome(profile)
    chapter, _, name = case.id.partition("/")
    time = f"{result.seconds:.3f}"
    test = SubElement(suite, "testcase", classname=chapter, name=name, time=time)
    facts = SubElement(test, "properties")
    for key, value in {
        "rule": case.rule,
        "rule name": rule_name(case.rule),
        "title": case.title,
        "level": case.level,
        "profile": " ".join(sorted(case.profiles)),
        "outcome": outcome,
        "spec": case.spec,
        "rabbitmq": case.rabbitmq,
    }.items():
        SubElement(facts, "property", name=key, value=printable(value))
    text = printable(result.text)
    if outcome is Outcome.SKIPPED:
        SubElement(test, "skipped", message=text)
    elif outcome is not Outcome.PASSED and not case.level.startswith("MUST"):
        SubElement(test, "skipped", message=f"{outcome}, but only a {case.level}: {text}")
    elif outcome is not Outcome.PASSED:
        kind = "error" if outcome is Outcome.ERROR else "failure"
        found = SubElement(test, kind, message=text, type=case.level)
        found.text = printable("\n".join(result.evidence))


def _add_rules(root: Element, kind: str, found: Sequence[Rule]) -> None:
    if not found:
        return
    suite = SubElement(root, "testsuite", name=kind)
    for rule in found:
        test = SubElement(suite, "testcase", classname=kind, name=rule_id(rule.id))
        reason = f"{kind}: {rule.words}: {rule.tested_how}"
        SubElement(test, "skipped", message=printable(reason))
