"""`leveret doctor`."""

import json
import logging
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import click

from leveret.server.commands.options import json_option
from leveret.server.failure import Failure
from leveret.storage.data_directory import DataDirectoryError
from leveret.storage.doctor import Diagnosis, Place, data_size, diagnosis_json, examine
from leveret.storage.repairs import Finding

WIDTH = 100
PATIENCE_S = 2.0
"""How long it works before it shows how far it is."""


class CannotCheck(Failure):
    """There is nothing to be said of the data directory."""

    exit_code = 2


@click.command(
    epilog="""\b
    Exit code:
      0  sound; what a crash leaves behind counts as such, and after --repair what was mended
      1  damage
      2  cannot be checked: in use, no data directory, of a newer version, damaged metadata
    \b
    Examples:
      leveret doctor /var/lib/leveret
      leveret doctor --json ./leveret-data
      leveret doctor --repair ./leveret-data
    """,
)
@click.argument("data_dir", type=click.Path(path_type=Path))
@click.option("--repair", is_flag=True, help="Mend what is wrong, and keep what is removed for it.")
@json_option
@click.pass_context
def doctor(context: click.Context, data_dir: Path, repair: bool, as_json: bool) -> None:
    """Check DATA_DIR, which no broker may be using.

    Everything in it is read: each record of each queue with its checksum, indexes, states,
    snapshots and definitions. For what is wrong it says what the broker would make of it. Nothing
    is changed without --repair.

    With --repair damaged messages are taken out, and the queues go on behind them. All that is
    removed or replaced is kept in DATA_DIR/removed.
    """
    try:
        # What the parts would log is in the report.
        with _quiet(), _progress(data_dir) as progress:
            found = examine(data_dir, progress, repair=repair)
    except (DataDirectoryError, OSError) as error:
        raise CannotCheck(str(error)) from None
    if as_json:
        click.echo(json.dumps(diagnosis_json(found), indent=2, ensure_ascii=False))
    else:
        for line in report(found):
            click.echo(line)
    if found.refusal:
        raise CannotCheck(found.refusal)
    context.exit(0 if found.is_sound or repair else 1)


def report(found: Diagnosis) -> Iterator[str]:
    """What was found, for people; lines of at most `WIDTH` characters."""
    for (kind, vhost, name), places in groupby(found.places, key=_title):
        where = f" in vhost '{_printable(vhost)}'" if vhost else ""
        yield from _wrapped(f"{kind}{_quoted(name)}{where}:", "")
        for place in places:
            for finding in place.findings:
                yield from _wrapped(_line(found, finding), "  ")
    yield from _wrapped(_summary(found), "")
    if found.kept is not None:
        yield from _wrapped(f"repaired; what was removed or replaced is in {found.kept}", "")


def _title(place: Place) -> tuple[str, str, str]:
    return place.kind, place.vhost, place.name


def _line(found: Diagnosis, finding: Finding) -> str:
    place = str(finding.path.relative_to(found.data_dir))
    if finding.position is not None:
        place += f", byte {finding.position}"
    kind = "harmless: " if finding.is_harmless else ""
    return f"{kind}{place}: {finding.wrong}; {finding.repair}"


def _summary(found: Diagnosis) -> str:
    checked = f"{_count(found.queues, 'queue')}, {_count(found.segments, 'segment')}"
    return f"checked {checked}, {_size(found.size)}: {_result(found)}"


def _result(found: Diagnosis) -> str:
    damaged = Counter(
        place.kind
        for place in found.places
        if not all(finding.is_harmless for finding in place.findings)
    )
    if not damaged:
        return "sound"
    queues = damaged.pop("queue", 0)
    parts = [_count(queues, "queue")] if queues else []
    return f"{_count(found.bad, 'damaged message')} in {' and '.join([*parts, *sorted(damaged)])}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _size(number: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            break
        number /= 1000
    return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:,.1f} {unit}"


def _quoted(name: str) -> str:
    return f" '{_printable(name)}'" if name else ""


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


def _wrapped(line: str, indent: str) -> list[str]:
    return textwrap.wrap(
        line,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "    ",
        break_on_hyphens=False,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def _progress(data_dir: Path) -> Iterator[Callable[[int], None]]:
    """A bar of the bytes that were checked, where somebody looks at it and has to wait."""
    if not sys.stderr.isatty():
        yield lambda size: None
        return
    bar = click.progressbar(length=data_size(data_dir), label="checking", file=sys.stderr)
    shown_at = time.monotonic() + PATIENCE_S
    is_shown = False

    def advance(size: int) -> None:
        nonlocal is_shown
        if is_shown:
            bar.update(size)
            return
        bar.pos += size
        if time.monotonic() >= shown_at:
            is_shown = True
            bar.render_progress()

    try:
        yield advance
    finally:
        if is_shown:
            bar.render_finish()
