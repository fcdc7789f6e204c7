"""Who may import whom, read from the source; CONTRIBUTING.md says why."""

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "leveret"

OURS = {
    "amqp": set(),
    "storage": set(),
    "exchanges": {"amqp"},
    "queues": {"amqp", "storage"},
    "broker": {"amqp", "exchanges", "queues", "storage"},
    "server": {"amqp", "exchanges", "queues", "storage", "broker"},
    "conformance": set(),
    "bench": set(),
}
"""Folder -> the other folders it may import."""

THIRD_PARTY = {
    "amqp": {"pamqp"},
    "storage": {"cryptography", "sqlite_utils"},
    "exchanges": set(),
    "queues": set(),
    # pamqp's method classes are the vocabulary in which `amqp` hands over methods.
    "broker": {"pamqp"},
    "server": {"anyio", "click", "uvloop"},
    # All but click and pamqp only in programs that `conformance` runs as processes of their own.
    "conformance": {"aio_pika", "celery", "click", "kombu", "pamqp", "pika"},
    "bench": {"aio_pika", "click", "pamqp", "pika"},
}
"""Folder -> what it may import from elsewhere; the standard library is free."""

SYNCHRONOUS = ("amqp", "exchanges", "queues", "storage", "broker")
"""Folders that are called and answer: they know no event loop, no socket and no other thread."""

FOREIGN_TO_SYNCHRONOUS = {
    "anyio",
    "asyncio",
    "concurrent",
    "multiprocessing",
    "select",
    "selectors",
    "socket",
    "ssl",
    "threading",
    "uvloop",
}

LINKS = ("amqp", "conformance", "exchanges", "queues", "storage")

FOREIGN_PROGRAMS = ROOT / "tests" / "clients" / "programs"
"""Run in processes of their own, where `amqp` is Celery's client library."""


def modules(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if not path.is_symlink())


def imported_names(path: Path) -> Iterator[str]:
    """Every module that *path* imports, also inside functions and for type checking only."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module == "leveret":
                yield from (f"leveret.{alias.name}" for alias in node.names)
            else:
                yield node.module


def folder_of(name: str) -> str | None:
    """The folder of ours that an imported module is in: `queues` for `leveret.queues.ready`."""
    top, _, rest = name.partition(".")
    part = rest.partition(".")[0]
    return part if top == "leveret" and (PACKAGE / part).is_dir() and part else None


def test_the_table_has_every_folder() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert folders == set(OURS) == set(THIRD_PARTY)


@pytest.mark.parametrize("folder", sorted(OURS))
def test_imports_follow_the_layers(folder: str) -> None:
    for path in modules(PACKAGE / folder):
        for name in imported_names(path):
            top = name.partition(".")[0]
            if top == "leveret":
                assert folder_of(name) in {None, folder, *OURS[folder]}, f"{path} imports {name}"
            elif top not in sys.stdlib_module_names:
                assert top in THIRD_PARTY[folder], f"{path} imports {name}"


@pytest.mark.parametrize("folder", SYNCHRONOUS)
def test_the_inner_layers_are_synchronous(folder: str) -> None:
    for path in modules(PACKAGE / folder):
        foreign = {name.partition(".")[0] for name in imported_names(path)} & FOREIGN_TO_SYNCHRONOUS
        assert not foreign, f"{path} imports {foreign}"
        for node in ast.walk(ast.parse(path.read_text())):
            assert not isinstance(
                node, ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith | ast.Await
            ), f"{path}:{node.lineno} is asynchronous"


def test_everything_goes_by_one_name() -> None:
    for path in modules(PACKAGE):
        for node in ast.walk(ast.parse(path.read_text())):
            relative = isinstance(node, ast.ImportFrom) and node.level
            assert not relative, f"{path}: a relative import: write leveret.<folder>"


@pytest.mark.parametrize("top", ["leveret", "tests", "examples"])
def test_nobody_imports_through_the_links(top: str) -> None:
    for path in modules(ROOT / top):
        if path.is_relative_to(FOREIGN_PROGRAMS):
            continue
        through = {name.partition(".")[0] for name in imported_names(path)} & set(LINKS)
        assert not through, f"{path} imports {through}: write leveret.<folder>"


@pytest.mark.parametrize("name", LINKS)
def test_link_at_the_root_is_relative_and_leads_into_the_package(name: str) -> None:
    assert os.readlink(ROOT / name) == f"leveret/{name}"
    assert (ROOT / name).is_dir()


def test_a_package_runs_no_code_when_it_is_imported() -> None:
    for path in PACKAGE.rglob("__init__.py"):
        for statement in ast.parse(path.read_text()).body:
            assert isinstance(statement, ast.Import | ast.ImportFrom | ast.Expr | ast.Assign), (
                f"{path}:{statement.lineno}"
            )
