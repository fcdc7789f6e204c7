"""The catalogue of errors: every row has a case, or the reason why it cannot have one."""

from leveret.conformance.cases.refusals import UNREACHABLE
from leveret.conformance.catalogue import all_cases


def test_every_row_has_a_case_or_a_reason() -> None:
    with_case = {case.rule for case in all_cases() if case.rule.startswith("error-")}
    assert with_case | UNREACHABLE.keys() == {f"error-{number}" for number in range(1, 95)}
    assert not with_case & UNREACHABLE.keys()
