"""The page of two brokers, made from their reports."""

import csv
import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from leveret.conformance.catalogue import all_cases
from tests.conftest import ROOT

EXPLAINED = "delivery/2.6-cancel-at-once/cancel-in-one-piece-with-consume"


def result_of(name: str, outcome: str, met: list[str]) -> dict[str, Any]:
    return {
        "case": name,
        "rule": "error-1",
        "title": f"Title of {name}",
        "level": "MUST",
        "profile": ["rabbitmq", "spec"],
        "outcome": outcome,
        "outcomes": {"rabbitmq": outcome, "spec": "passed" if "spec" in met else "failed"},
        "met": met,
        "spec": "a | b",
        "rabbitmq": "<c>",
        "broker": "no queue 'conformance-1f-q12'",
    }


def make(directory: Path, *results: dict[str, Any]) -> tuple[int, str, str]:
    """The page of a broker that passes everything and of RabbitMQ with these results."""
    unseen = {"rule": "4", "name": "n", "level": "MUST", "description": "d", "reason": "r"}
    both = [result_of(result["case"], "passed", ["spec", "rabbitmq"]) for result in results]
    paths = [directory / "ours.json", directory / "rabbitmq.json"]
    for path, broker, found in (
        (paths[0], {"product": "some", "version": "1"}, both),
        (paths[1], {"product": "RabbitMQ", "version": "3.10.8"}, results),
    ):
        report = {"broker": broker, "results": found, "not_observable": [unseen]}
        path.write_text(json.dumps(report))
    words = [sys.executable, str(ROOT / "tools" / "conformance_page.py"), *map(str, paths)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_an_explained_failure_is_shown_with_the_explanation(tmp_path: Path) -> None:
    code, page, said = make(tmp_path, result_of(EXPLAINED, "failed", []))
    assert (code, said) == (0, "")
    assert "A fault of RabbitMQ's" in page
    assert "not explained" not in page


@pytest.mark.parametrize(
    ("results", "complaint"),
    [
        (
            [result_of(EXPLAINED, "failed", []), result_of("one/error-1/x", "failed", [])],
            "no explanation of one/error-1/x",
        ),
        ([result_of(EXPLAINED, "passed", ["rabbitmq", "spec"])], f"an explanation of {EXPLAINED}"),
    ],
)
def test_failures_and_explanations_belong_together(
    tmp_path: Path, results: list[dict[str, Any]], complaint: str
) -> None:
    code, _, said = make(tmp_path, *results)
    assert code == 1
    assert f"RabbitMQ 3.10.8: {complaint}" in said


def test_a_departure_is_listed_with_what_each_met(tmp_path: Path) -> None:
    departure = result_of("one/error-1/x", "passed", ["rabbitmq"])
    _, page, _ = make(tmp_path, result_of(EXPLAINED, "failed", []), departure)
    title = "error-1 Title of one/error-1/x"
    assert rf"| {title} | MUST | a \| b | \<c\> | yes | rabbitmq |" in page
    assert "conformance-1f" not in page


def test_explanations_are_of_cases_that_there_are() -> None:
    text = files("leveret.conformance").joinpath("departures.csv").read_text(encoding="utf-8")
    explained = {row["case"] for row in csv.DictReader(text.splitlines())}
    assert explained <= {case.id for case in all_cases()}
