"""Report: what a run of cases came to, in numbers and as JSON; the other forms build on it."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from leveret.conformance.case import Profile
from leveret.conformance.rules import Level, Rule, rules
from leveret.conformance.runner import Outcome, Result

NOT_OBSERVABLE = "not observable"
NO_CASE = "no case"
COUNTED = (*Outcome, NOT_OBSERVABLE, NO_CASE)
"""What a summary counts, in its order: how cases ended, and rules that have none."""


@dataclass(frozen=True, slots=True)
class Report:
    """One run. `profile` is the one whose word counts for the exit code."""

    product: str
    version: str
    profile: Profile
    results: Sequence[Result]
    not_observable: Sequence[Rule]
    """Rules that no client can see kept or broken."""
    without_case: Sequence[Rule]
    """Rules that could be seen and that nobody looks at."""
    seconds: float

    def summary(self, profile: Profile) -> dict[Level, Counter[str]]:
        """How often each of COUNTED came, by level, in the eyes of *profile*."""
        counts: dict[Level, Counter[str]] = {level: Counter() for level in Level}
        for result in self.results:
            if profile in result.case.profiles:
                counts[result.case.level][result.outcome(profile)] += 1
        for rule in self.not_observable:
            counts[rule.level][NOT_OBSERVABLE] += 1
        for rule in self.without_case:
            counts[rule.level][NO_CASE] += 1
        return counts

    @property
    def failures(self) -> list[Result]:
        """What failed, or could not be carried out, in the eyes of the profile."""
        bad = (Outcome.FAILED, Outcome.ERROR)
        return [result for result in self.results if result.outcome(self.profile) in bad]


def met_by(result: Result) -> list[Profile]:
    """The profiles, of those that the case counts for, whose expectation was met."""
    met = result.seen.met.value if result.seen else frozenset()
    return [profile for profile in Profile if profile in met & result.case.profiles]


def rule_name(rule: str) -> str:
    """The words for a case's rule: its place and name for a number, itself elsewhere."""
    if not rule.isdecimal():
        return rule
    return rules()[int(rule)].words


def rule_id(rule: str) -> str:
    """What a rule's number is called where there are rows of errors beside; a row is itself."""
    return f"rule-{rule}" if rule.isdecimal() else rule


def printable(text: str) -> str:
    """*text* without what a terminal obeys and XML forbids; ends of lines stay."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}"
        for letter in text
    )


def to_json(report: Report) -> str:
    """The whole of it as a JSON object."""
    whole = {
        "broker": {"product": report.product, "version": report.version},
        "profile": report.profile,
        "seconds": round(report.seconds, 3),
        "summary": {
            profile: {level: dict(counts) for level, counts in report.summary(profile).items()}
            for profile in Profile
        },
        "results": [_result(result, report.profile) for result in report.results],
        "not_observable": [_rule(rule) for rule in report.not_observable],
        "no_case": [_rule(rule) for rule in report.without_case],
    }
    return json.dumps(whole, indent=2)


def _result(result: Result, profile: Profile) -> dict[str, object]:
    case = result.case
    return {
        "rule": case.rule,
        "name": rule_name(case.rule),
        "case": case.id,
        "title": case.title,
        "profile": sorted(case.profiles),
        "level": case.level,
        "outcome": result.outcome(profile),
        "outcomes": {one: result.outcome(one) for one in sorted(case.profiles)},
        "met": met_by(result),
        "spec": case.spec,
        "rabbitmq": case.rabbitmq,
        "broker": result.text,
        "evidence": result.evidence,
        "seconds": round(result.seconds, 3),
    }


def _rule(rule: Rule) -> dict[str, object]:
    return {
        "rule": rule.id,
        "name": rule.words,
        "level": rule.level,
        "party": rule.party,
        "description": rule.description,
        "reason": rule.tested_how,
    }
