"""Scenarios of a client library, which a program runs one after the other.

It prints a line of JSON for each:
    {"scenario": "confirms", "passed": true, "text": ""}
"""

import itertools
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping

import click

WAIT_S = 10.0
"""How long a scenario waits for anything."""
LARGE = bytes(range(256)) * 20_000
"""A body of many frames: 5 MB."""
_numbers = itertools.count()


class Unexpected(Exception):
    """The library saw something else than a user of it would expect."""


def expect(seen: object, expected: object) -> None:
    """Raise Unexpected unless *seen* is *expected*."""
    if seen != expected:
        raise Unexpected(f"expected {_short(expected)}, saw {_short(seen)}")


def unique(kind: str) -> str:
    """A name that no other program uses."""
    return f"conformance-{os.getpid():x}-{kind}{next(_numbers)}"


def numbered(count: int) -> list[bytes]:
    """Bodies that tell each other apart."""
    return [b"%d" % number for number in range(count)]


def run_all(scenarios: Mapping[str, Callable[[], object]]) -> None:
    """Run all of them, whatever becomes of each, and print what did."""
    for name, scenario in scenarios.items():
        text = ""
        try:
            scenario()
        except Exception as error:  # the next scenario may go better
            traceback.print_exc()
            text = f"{type(error).__name__}: {_short(error)}"
        line = {"scenario": name, "passed": not text, "text": text}
        click.echo(json.dumps(line))


def run_with_uri(scenarios: Iterable[Callable[[str], object]]) -> None:
    """Run functions that take the broker's URI, the last word of the command, under their names."""
    uri = sys.argv[-1]
    run_all({each.__name__.replace("_", "-"): lambda each=each: each(uri) for each in scenarios})  # type: ignore[misc]


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 300 else f"{text[:300]}..."
