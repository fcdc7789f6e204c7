"""Lists as tables that fit the terminal, or as JSON."""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import cast

import click

GAP = "  "
HEADINGS = {
    "messages_ready": "ready",
    "messages_unacknowledged": "unacked",
    "disk_bytes": "on disk",
    "retained_bytes": "retained",
}
"""What stands above a column whose name is longer than all that is in it."""
NARROWEST = 8
"""A column is cut down to this many characters where the terminal is too narrow."""


def show(result: object, columns: Sequence[str], *, as_json: bool) -> None:
    """Write the list of objects that a broker answered: *columns* of it, or all as JSON."""
    if as_json:
        click.echo(json.dumps(result, indent=2, ensure_ascii=False))
        return
    rows = cast("list[Mapping[str, object]]", result)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in lines(rows, columns, width):
        click.echo(line)


def lines(
    rows: Sequence[Mapping[str, object]], columns: Sequence[str], width: int | None
) -> list[str]:
    """A head and a line for each of *rows*, cut to *width* characters if it is not None."""
    head = [HEADINGS.get(column, column) for column in columns]
    cells = [head, *([_text(row[column]) for column in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if width is not None:
        _narrow(widths, width - len(GAP) * (len(widths) - 1))
    return [
        GAP.join(_fitted(cell, size) for cell, size in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def _narrow(widths: list[int], available: int) -> None:
    """Take from the widest column until all are *available* characters, or none can give."""
    while sum(widths) > available and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1


def _fitted(cell: str, size: int) -> str:
    return cell.ljust(size) if len(cell) <= size else cell[: size - 1] + "…"


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return "".join(character if character.isprintable() else "?" for character in value)
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return json.dumps(value, ensure_ascii=False)
