"""Long work that the broker does page by page, with a progress bar where somebody looks at it."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import click

from leveret.server.commands.client import ask
from leveret.server.commands.places import parse_place

Answer = dict[str, object]

from_option = click.option(
    "--from", "begin", metavar="PLACE", help="From this offset or time on; see above."
)
until_option = click.option(
    "--until", "end", metavar="PLACE", help="Up to this offset or time, not including it."
)

PLACES = """\b
A PLACE is an offset, 'first', or a time:
  4711                       the message at this offset
  2026-11-21T09:30           by the clock of this machine, to the day or the millisecond
  2026-11-21T09:30:00+01:00  with a zone
  '10m ago', '2h ago'        also s, d and w
A time stands for the first message that is not older.
"""


def places(begin: str | None, end: str | None) -> dict[str, object]:
    """The arguments of a request for the range from *begin* to *end*. Raises Failure."""
    now_ms = time.time_ns() // 1_000_000
    arguments: dict[str, object] = {}
    for name, text in (("start", begin), ("stop", end)):
        if text is not None:
            place = parse_place(text, now_ms)
            arguments[name] = place.get("offset")
            arguments[f"{name}_ms"] = place.get("time_ms")
    return arguments


class Pages:
    """The answers of *command*, one for each page; `arguments` may be changed in between."""

    def __init__(self, data_dir: Path, command: str, label: str, **arguments: object) -> None:
        self._data_dir = data_dir
        self._command = command
        self._label = label
        self.arguments = arguments

    def __iter__(self) -> Iterator[Answer]:
        answer = self._ask()
        if answer["next"] is None:
            yield answer
            return
        begin, end = cast("int", answer["begin"]), cast("int", answer["end"])
        with click.progressbar(
            length=end - begin,
            label=self._label,
            file=sys.stderr,
            hidden=not sys.stderr.isatty(),
        ) as bar:
            while True:
                yield answer
                following = cast("int | None", answer["next"])
                bar.update((end if following is None else following) - begin - bar.pos)
                if following is None:
                    return
                # What the places mean has been said: from now on as offsets.
                offsets = {"start": following, "stop": end, "start_ms": None, "stop_ms": None}
                self.arguments |= offsets
                answer = self._ask()

    def _ask(self) -> Answer:
        return cast("Answer", ask(self._data_dir, self._command, **self.arguments))
