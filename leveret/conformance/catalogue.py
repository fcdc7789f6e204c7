"""Catalogue: all cases, and the rules that none of them looks at."""

from collections.abc import Sequence

from leveret.conformance.case import Case
from leveret.conformance.cases import CHAPTERS
from leveret.conformance.rules import Rule, rules


def all_cases() -> list[Case]:
    """Every case, in the order of the chapters."""
    return [case for chapter in CHAPTERS for case in chapter.cases]


def rules_not_observable() -> Sequence[Rule]:
    """The rules that no client can see kept or broken."""
    return [rule for rule in rules().values() if not rule.observable]


def rules_without_case() -> Sequence[Rule]:
    """The rules that could be seen and that no case looks at."""
    looked_at = {case.rule for case in all_cases()}
    return [
        rule for number, rule in rules().items() if rule.observable and str(number) not in looked_at
    ]
