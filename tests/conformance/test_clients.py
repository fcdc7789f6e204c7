"""Client libraries: what becomes of their scenarios if something is missing or goes wrong."""

import shutil
from pathlib import Path

import pytest

from leveret.conformance.case import Case, Profile
from leveret.conformance.cases.clients import JavaScriptLibrary, Library
from leveret.conformance.ground import Facilities
from leveret.conformance.raw_client import Address
from leveret.conformance.rules import Level
from leveret.conformance.runner import Outcome, Result, run_case
from tests.conftest import BrokerProcess


def look(library: Library, scenario: str, uri: str) -> Result:
    case = Case(
        "clients/x/y",
        "client-x",
        Level.MUST,
        "A title",
        "",
        "this",
        lambda ground: library.look(scenario, ground),
        limit_s=60,
    )
    return run_case(case, Facilities(Address.parse(uri)))


def test_a_library_that_is_not_installed_is_skipped(one_broker: BrokerProcess) -> None:
    result = look(Library("x", ["scenarios"], ["no-such-package"]), "confirms", one_broker.uri)
    assert result.outcome(Profile.RABBITMQ) is Outcome.SKIPPED
    assert result.text == "needs the package no-such-package"


def test_without_node_and_npm_javascript_is_skipped(
    one_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    result = look(JavaScriptLibrary("x", [], []), "confirms", one_broker.uri)
    assert result.outcome(Profile.RABBITMQ) is Outcome.SKIPPED
    assert result.text == "needs node and npm"


@pytest.mark.skipif(not shutil.which("npm"), reason="needs npm")
def test_without_a_registry_javascript_is_skipped(
    one_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    monkeypatch.setenv("npm_config_cache", str(tmp_path))
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    result = look(JavaScriptLibrary("x", [], []), "confirms", one_broker.uri)
    assert result.outcome(Profile.RABBITMQ) is Outcome.SKIPPED
    assert result.text.startswith("needs npm's registry: ")


def test_a_program_that_ends_early_has_failed(one_broker: BrokerProcess) -> None:
    result = look(Library("x", ["scenarios"], ["pamqp"]), "confirms", one_broker.uri)
    assert result.outcome(Profile.RABBITMQ) is Outcome.FAILED
    assert result.text.endswith(": ended before it came to this")


def test_what_a_library_raises_is_told_with_its_output(one_broker: BrokerProcess) -> None:
    uri = one_broker.uri.replace("guest:guest", "guest:wrong")
    result = look(Library("x", ["use_pika_blocking"], ["pika"]), "confirms", uri)
    assert result.outcome(Profile.RABBITMQ) is Outcome.FAILED
    assert "ProbableAuthenticationError" in result.text
    assert any("Traceback" in line for line in result.evidence)
