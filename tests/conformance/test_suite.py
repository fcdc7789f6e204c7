"""The whole suite against this broker, started for it."""

import json
import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest

from leveret.conformance import cases
from leveret.conformance.catalogue import all_cases, rules_without_case
from leveret.conformance.rules import rules
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    words = [sys.executable, str(ROOT / "tools" / "conformance.py"), "leveret", "--format", "json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def shown(results: list[dict[str, Any]]) -> str:
    return "\n\n".join(
        "\n".join([f"{one['case']}: {one['broker']}", *one["evidence"][-20:]]) for one in results
    )


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_every_must_of_the_profile_rabbitmq_is_kept(report: dict[str, Any]) -> None:
    broken = [
        result
        for result in report["results"]
        if result["level"].startswith("MUST") and result["outcome"] in ("failed", "error")
    ]
    assert not broken, shown(broken)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_every_case_can_be_carried_out(report: dict[str, Any]) -> None:
    broken = [result for result in report["results"] if result["outcome"] == "error"]
    assert not broken, shown(broken)
    assert len(report["results"]) == len(all_cases())


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_restarts_are_part_of_it(report: dict[str, Any]) -> None:
    skipped = {
        result["broker"]
        for result in report["results"]
        # A client library may be missing on this machine.
        if result["outcome"] == "skipped" and not result["case"].startswith("clients/")
    }
    assert skipped <= {"needs --management-url"}


def test_every_chapter_is_part_of_the_suite() -> None:
    found = [
        import_module(f"{cases.__name__}.{module.name}") for module in iter_modules(cases.__path__)
    ]
    written = {module.chapter.name for module in found if hasattr(module, "chapter")}
    assert {chapter.name for chapter in cases.CHAPTERS} == written


def test_a_case_names_a_rule_that_there_is() -> None:
    named = {int(case.rule) for case in all_cases() if case.rule.isdecimal()}
    assert named <= set(rules())


def test_every_rule_that_can_be_observed_has_a_case() -> None:
    assert rules_without_case() == []
