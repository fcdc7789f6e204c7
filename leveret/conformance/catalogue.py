"""Catalogue: all cases, and the rules that none of them looks at."""

from collections.abc import Sequence

from leveret.conformance.case import Case
from leveret.conformance.cases import CHAPTERS
from leveret.conformance.cases.refusals import UNREACHABLE
from leveret.conformance.rules import Level, Rule, rules


def all_cases() -> list[Case]:
    """Every case, in the order of the chapters."""
    return [case for chapter in CHAPTERS for case in chapter.cases]


def rules_not_observable() -> Sequence[Rule]:
    """The rules that no client can see kept or broken, and such rows of the error catalogue."""
    unseen = [rule for rule in rules().values() if not rule.observable]
    return unseen + [_row(name, reason) for name, reason in UNREACHABLE.items()]


def rules_without_case() -> Sequence[Rule]:
    """The rules that could be seen and that no case looks at."""
    looked_at = {case.rule for case in all_cases()}
    return [
        rule for number, rule in rules().items() if rule.observable and str(number) not in looked_at
    ]


def _row(name: str, reason: str) -> Rule:
    """A row of the catalogue of errors in the shape of a rule."""
    number = name.removeprefix("error-")
    place = "catalogue of errors"
    return Rule(name, place, f"row {number}", Level.MUST, "server", "", False, reason, "")
