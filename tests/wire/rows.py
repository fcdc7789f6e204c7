"""Rows of the error catalogue (`docs/errors.md`): each test names those that it covers.

`@row(32)` marks a test, `case(32, ...)` the values of a parametrised one, which then has `row-32`
in its name.
"""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

ROWS = range(1, 95)
row = pytest.mark.row

UNTESTED = {
    14: "A vhost is never down on its own: it is there, or it is deleted.",
    72: "There are no queues that only the broker itself may delete.",
}
"""Rows that nothing a client sends can lead to, and why."""


def case(number: int, *values: Any) -> Any:
    """The values of a test for row *number*."""
    return pytest.param(*values, id=f"row-{number}", marks=row(number))


def rows_covered(module: ModuleType) -> Iterator[int]:
    """The rows that the tests of *module* name."""
    for test in vars(module).values():
        for mark in getattr(test, "pytestmark", ()):
            if mark.name == "row":
                yield from mark.args
            elif mark.name == "parametrize":
                for values in mark.args[1]:
                    for inner in getattr(values, "marks", ()):
                        yield from inner.args
