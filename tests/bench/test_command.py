import socket

import pytest
from click.testing import CliRunner, Result

from leveret.bench.command import command


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def test_list_names_the_workloads() -> None:
    result = run("--list")
    assert result.exit_code == 0
    names = [line.split()[0] for line in result.output.splitlines()]
    assert names == [*"abcdefgh", "priority", "ttl", "delayed"]


def test_help_fits_80_columns_and_has_examples() -> None:
    result = run("--help")
    assert "Examples:" in result.output
    assert max(len(line) for line in result.output.splitlines()) <= 80


def test_a_broker_that_is_not_there_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    result = run("--uri", f"amqp://127.0.0.1:{port}/")
    assert result.exit_code == 2
    assert result.output == (
        f"leveret bench: cannot connect to 127.0.0.1:{port}: Connection refused\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--workload", "zz"],
        ["--uri", "http://h/"],
        ["--against", "h"],
        ["--auto-ack", "--ack-every", "2"],
        ["--size", "3"],
        ["--workload", "d", "--consumers", "2"],
    ],
)
def test_what_cannot_be_done_is_one_line(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.output.startswith("leveret bench: ")
    assert result.output.count("\n") == 1
