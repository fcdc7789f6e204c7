"""The error catalogue is covered, row by row, and told to users."""

import importlib
import re
from pathlib import Path

import pytest

from tests.wire.rows import ROWS, UNTESTED, rows_covered

HERE = Path(__file__).parent
CATALOGUE = HERE.parent.parent / "docs" / "errors.md"


@pytest.fixture(autouse=True)
def bystander():
    """There is no broker here to harm."""


def test_every_row_is_covered_by_a_test_or_listed_with_the_reason():
    modules = [f"tests.wire.{path.stem}" for path in HERE.glob("test_*.py")]
    covered = {number for name in modules for number in rows_covered(importlib.import_module(name))}
    assert covered | UNTESTED.keys() == set(ROWS)
    assert not covered & UNTESTED.keys()


def test_the_documentation_has_every_row_once_and_in_order():
    numbers = re.findall(r"^\| (\d\d?) \|", CATALOGUE.read_text(), re.MULTILINE)
    assert list(map(int, numbers)) == list(ROWS)
