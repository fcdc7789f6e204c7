"""`leveret delayed`."""

import re
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import cast

import click

from leveret.server.commands.client import ask
from leveret.server.commands.options import data_dir_option, json_option, vhost_option
from leveret.server.commands.table import show
from leveret.server.failure import Failure

COLUMNS = ("id", "due", "in", "size", "exchange", "routing_key", "message_id")

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
_POSITION = re.compile(r"(\d+):(\d+)", re.ASCII)


@click.group(
    epilog="""\b
    Examples:
      leveret delayed list --exchange reminders
      leveret delayed cancel 4711 4712
    """,
)
def delayed() -> None:
    """Messages that wait for their time."""


@delayed.command("list")
@vhost_option
@click.option("--exchange", help="Only those published to this exchange.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="How many.")
@click.option("--after", metavar="DUE:ID", help="Go on there, as the list before said.")
@json_option
@data_dir_option
def list_(
    data_dir: Path,
    vhost: str,
    exchange: str | None,
    limit: int,
    after: str | None,
    as_json: bool,
) -> None:
    """List what waits, the first due first.

    The time is that of this machine, the date if it is more than a day off.
    """
    waiting = _waiting(data_dir, vhost, exchange, limit, _position(after))
    found = list(islice(waiting, limit + 1))
    shown = found[:limit]
    show(shown if as_json else list(map(_readable, shown)), COLUMNS, as_json=as_json)
    if len(found) > limit:
        click.echo(f"more: --after {shown[-1]['due_ms']}:{shown[-1]['id']}", err=True)


@delayed.command()
@click.argument("ids", metavar="ID...", type=int, nargs=-1, required=True)
@vhost_option
@data_dir_option
def cancel(data_dir: Path, ids: tuple[int, ...], vhost: str) -> None:
    """Drop messages, by their ids in the list: they are never sent."""
    answer = ask(data_dir, "cancel_delayed", vhost=vhost, ids=list(ids))
    unknown = cast("dict[str, list[int]]", answer)["unknown"]
    if unknown:
        raise Failure(f"no message waits with the id {', '.join(map(str, unknown))}")


def _waiting(
    data_dir: Path, vhost: str, exchange: str | None, limit: int, after: list[int] | None
) -> Iterator[dict[str, object]]:
    """The messages behind *after*, a page of the broker's after the other."""
    # Of one exchange it may take many messages to find a few.
    asked = limit + 1 if exchange is None else None
    while True:
        answer = ask(
            data_dir, "list_delayed", vhost=vhost, exchange=exchange, limit=asked, after=after
        )
        page = cast("dict[str, list[dict[str, object]]]", answer)
        yield from page["messages"]
        after = cast("list[int] | None", page["next"])
        if after is None:
            return


def _position(text: str | None) -> list[int] | None:
    if text is None:
        return None
    match = _POSITION.fullmatch(text)
    if match is None:
        raise Failure(f"--after is like 1700000000000:17, not {text!r}")
    return [int(number) for number in match.groups()]


def _readable(message: dict[str, object]) -> dict[str, object]:
    due_ms, remaining_ms = cast("int", message["due_ms"]), cast("int", message["remaining_ms"])
    is_soon = remaining_ms < _UNITS[0][1]
    due = datetime.fromtimestamp(due_ms / 1000).strftime("%H:%M:%S" if is_soon else "%Y-%m-%d")
    return {**message, "due": due, "in": _duration(remaining_ms)}


def _duration(milliseconds: int) -> str:
    """The two highest units of a duration: 3d4h, 5min10s."""
    text = ""
    for unit, size in _UNITS:
        count, milliseconds = divmod(milliseconds, size)
        if text:
            return f"{text}{count}{unit}"
        if count:
            text = f"{count}{unit}"
    return text or "0s"
