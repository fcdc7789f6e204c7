"""The documents name what exists: files, make targets, code."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]

LINK = re.compile(r"\]\(([^)\s]+)\)")
STEP = re.compile(r"^\| `(\w+/\w+\.py)` \| `([\w.]+)` \|", re.MULTILINE)
"""A row of a message's path: a module and what runs in it."""
CODE = re.compile(r"`([A-Z]\w+)(?:\.(\w+))?`")
"""A class, or a class and what it has."""


def defined_in(path: Path) -> set[str]:
    """Classes and functions of a module, and what its classes have as `Class.name`."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            functions = [part for part in ast.walk(node) if isinstance(part, ast.FunctionDef)]
            names |= {f"{node.name}.{function.name}" for function in functions}
            names |= {
                f"{node.name}.{part.attr}"
                for part in ast.walk(node)
                if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
            }
    return names


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in LINK.findall(document.read_text()):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        linked = document.parent / name if name else document
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


def test_the_index_has_every_document() -> None:
    linked = set(LINK.findall((ROOT / "docs" / "README.md").read_text()))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"} <= linked


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_make_targets_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", document.read_text(), re.MULTILINE))
    assert named <= targets


def test_the_readme_has_two_set_up_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert re.findall(r"^make (\w+)", readme, re.MULTILINE) == ["run", "test"]


def test_the_path_of_a_message_is_the_one_in_the_code() -> None:
    steps = STEP.findall((ROOT / "CONTRIBUTING.md").read_text())
    assert len(steps) > 20
    for module, name in steps:
        assert name in defined_in(ROOT / "leveret" / module), f"{module} {name}"


def test_every_class_that_contributing_names_is_there() -> None:
    known = set().union(*(defined_in(path) for path in (ROOT / "leveret").rglob("*.py")))
    for name, attribute in CODE.findall((ROOT / "CONTRIBUTING.md").read_text()):
        full = f"{name}.{attribute}" if attribute else name
        assert full in known or (ROOT / full).exists(), full
