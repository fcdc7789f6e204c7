"""The command `leveret conformance`."""

import json
import signal
import socket
import subprocess
import sys

import pytest
from click.testing import CliRunner, Result

from leveret.conformance.catalogue import all_cases
from leveret.conformance.command import command
from tests.conformance.broken_broker import BrokenBroker
from tests.conformance.faults import FAULTS
from tests.conftest import BrokerProcess
from tests.programs import heed_interrupts

CASE = "exchange/rule-39/passive-declare-of-a-missing-exchange"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def listed(*arguments: str) -> list[str]:
    result = run("--list", *arguments)
    assert result.exit_code == 0
    return [line.split()[0] for line in result.stdout.splitlines()]


def test_list_names_every_case_once() -> None:
    names = listed()
    assert names == [case.id for case in all_cases()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "pattern", [CASE, "rule-39/passive-declare", "exchange/rule-39/passive-d*", "*declare*: not-f*"]
)
def test_only_takes_parts_and_patterns_of_ids_and_rules(pattern: str) -> None:
    names = listed("--only", pattern)
    assert CASE in names
    assert len(names) < len(all_cases()) / 4


def test_skip_leaves_out_what_it_names() -> None:
    everything = listed("--only", "exchange")
    left = listed("--only", "exchange", "--skip", "rule-38/", "--skip", "rule-39/")
    assert set(everything) - set(left) == {
        *listed("--only", "rule-38/"),
        *listed("--only", "rule-39/"),
    }


def test_only_may_be_repeated() -> None:
    both = {*listed("--only", "rule-38/"), *listed("--only", "rule-39/")}
    assert set(listed("--only", "rule-38/", "--only", "rule-39/")) == both


def test_the_profile_of_the_specification_leaves_out_what_it_does_not_speak_of() -> None:
    assert listed("--profile", "spec") == [case.id for case in all_cases() if case.spec]


def test_help_fits_80_columns_and_has_examples() -> None:
    result = run("--help")
    assert "Examples:" in result.output
    assert max(len(line) for line in result.output.splitlines()) <= 80


def test_exit_code_says_whether_what_must_be_is(one_broker: BrokerProcess) -> None:
    result = run(one_broker.uri, "--only", CASE, "--format", "json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["broker"]["product"] == "leveret"
    assert [found["case"] for found in report["results"]] == [CASE]
    assert [found["outcome"] for found in report["results"]] == ["passed"]


def test_exit_code_of_a_broken_broker(one_broker: BrokerProcess) -> None:
    broken = BrokenBroker(one_broker.port, FAULTS["closes channels with another code"])
    try:
        result = run(f"amqp://127.0.0.1:{broken.port}/", "--only", CASE)
    finally:
        broken.close()
    assert result.exit_code == 1, result.output
    assert f"FAILED {CASE}" in result.stdout


@pytest.mark.parametrize("form", ["table", "json", "junit", "html"])
def test_every_form_is_printed(form: str, one_broker: BrokerProcess) -> None:
    result = run(one_broker.uri, "--only", "rule-39", "--format", form)
    assert result.exit_code == 0, result.output
    assert "leveret" in result.stdout


def test_a_broker_that_is_not_there_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    result = run(f"amqp://guest:secret@127.0.0.1:{port}/")
    assert result.exit_code == 2
    assert result.output.startswith(f"leveret conformance: 127.0.0.1:{port}: ")
    assert len(result.output.splitlines()) == 1


def test_a_login_that_is_refused_is_one_line(one_broker: BrokerProcess) -> None:
    result = run(one_broker.uri.replace("guest:guest", "guest:secret"))
    assert result.exit_code == 2
    assert "ACCESS_REFUSED" in result.output
    assert "secret" not in result.output
    assert len(result.output.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["http://x/"], "amqp://"), (["--only", "nothing-like-it"], "nothing-like-it")],
)
def test_what_cannot_be_done_is_one_line(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.output
    assert len(result.output.splitlines()) == 1


def test_ctrl_c_ends_it(one_broker: BrokerProcess) -> None:
    words = [sys.executable, "-m", "leveret.server", "conformance", one_broker.uri]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stderr=pipe, stdout=pipe, preexec_fn=heed_interrupts) as process:
        assert process.stderr is not None
        process.stderr.readline()  # the cases have begun
        process.send_signal(signal.SIGINT)
        output, said = process.communicate()
    assert process.returncode == 130
    assert said.decode().splitlines()[-1] == "leveret conformance: interrupted"
    assert b"Traceback" not in said
    assert output == b""
