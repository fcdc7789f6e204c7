import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from leveret import __version__
from leveret.server.config import OPTIONS
from leveret.server.main import LazyCommand, LazyGroup, main

HEAVY = {"anyio", "asyncio", "uvloop", "sqlite_utils", "sqlite3", "pamqp", "leveret.bench.command"}


def leveret(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = "from leveret.server.main import main; main(prog_name='leveret')"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_version() -> None:
    done = leveret("--version")
    assert (done.returncode, done.stdout) == (0, f"leveret {__version__}\n")


def test_help_lists_the_commands_and_imports_nothing_heavy() -> None:
    program = (
        "import json, sys\n"
        "from leveret.server.main import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    *text, modules = done.stdout.splitlines()
    assert [line.split()[0] for line in text if line.startswith(("  bench", "  serve"))] == [
        "bench",
        "serve",
    ]
    assert not HEAVY & set(json.loads(modules))


def test_help_of_serve_has_every_option_and_examples() -> None:
    text = CliRunner().invoke(main, ["serve", "--help"]).output
    for option in OPTIONS:
        assert f"  {option.flag} " in text
    assert "--config" in text
    assert "\n    leveret serve --data-dir /var/lib/leveret --host 0.0.0.0\n" in text


@pytest.mark.parametrize(
    ("arguments", "environment", "complaint"),
    [
        (
            ["--port", "http"],
            {},
            "command line: --port: expected a whole number from 0 to 65535, got 'http'",
        ),
        (
            [],
            {"LEVERET_SYNC": "yes"},
            "environment: LEVERET_SYNC: expected one of always, interval, never, got 'yes'",
        ),
        (
            ["--config", "missing.toml"],
            {},
            "missing.toml: cannot be read: No such file or directory",
        ),
    ],
)
def test_bad_configuration_is_one_line_and_exit_code_1(
    arguments: list[str], environment: dict[str, str], complaint: str
) -> None:
    done = leveret("serve", *arguments, **environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"leveret: {complaint}\n"


def test_data_directory_that_cannot_be_used_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    done = leveret("serve", "--port", "0", "--data-dir", str(file))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"leveret: data directory {file} cannot be used: ")


def test_lazy_command_is_imported_when_it_is_used() -> None:
    group = LazyGroup("group")
    group.add_command(LazyCommand("run", location="no.such.module:command", short_help="Runs."))
    run = CliRunner()
    assert "run  Runs." in run.invoke(group, ["--help"]).output
    assert isinstance(run.invoke(group, ["run"]).exception, ModuleNotFoundError)


def test_lazy_command_gets_its_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lazy_example.py").write_text(
        "import click\n"
        "@click.command()\n"
        "@click.option('--count', type=int, help='How many.')\n"
        "def command(count): click.echo(count + 1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    group = LazyGroup("group")
    group.add_command(click.Command("other"))
    group.add_command(LazyCommand("run", location="lazy_example:command", short_help="Runs."))
    run = CliRunner()
    assert run.invoke(group, ["run", "--count", "1"]).output == "2\n"
    assert "How many." in run.invoke(group, ["run", "--help"]).output
