"""`leveret queue browse`, `rewind`, `move` and `copy`."""

import json
from inspect import cleandoc
from pathlib import Path
from typing import cast

import click

from leveret.server.commands.bodies import decode_body, json_body, readable_body
from leveret.server.commands.options import data_dir_option, json_option, vhost_option
from leveret.server.commands.paging import PLACES, Pages, from_option, places, until_option
from leveret.server.commands.places import readable_time
from leveret.server.commands.table import show
from leveret.server.failure import Failure

COLUMNS = ("offset", "time", "state", "size", "exchange", "routing_key", "message_id")
STATES = click.Choice(("ready", "delivered", "settled", "all"))
WHOLE_BODY = 1 << 31

_dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would be done.")
_limit_option = click.option("--limit", type=click.IntRange(1), help="At most so many messages.")
_to_queue_option = click.option("--to-queue", metavar="QUEUE", help="To this queue, as they are.")
_to_exchange_option = click.option(
    "--to-exchange", metavar="EXCHANGE", help="Published anew to this exchange."
)
_key_option = click.option(
    "--routing-key", help="With this routing key, without their CC and BCC; else with their own."
)


@click.command(
    epilog="""\b
    Examples:
      leveret queue browse orders --from '10m ago'
      leveret queue browse orders --from 4711 --limit 1 --body --json
      leveret queue browse orders --from first --state settled
    """,
)
@click.argument("queue")
@from_option
@until_option
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="How many.")
@click.option("--state", type=STATES, default="all", show_default=True, help="Only these.")
@click.option("--body", "with_body", is_flag=True, help="Show the bodies too.")
@vhost_option
@json_option
@data_dir_option
def browse(
    data_dir: Path,
    queue: str,
    begin: str | None,
    end: str | None,
    limit: int,
    with_body: bool,
    as_json: bool,
    **arguments: object,
) -> None:
    """List messages of QUEUE without consuming them, also those that are done with."""
    arguments |= {"queue": queue, "body_bytes": WHOLE_BODY if with_body else 0}
    pages = Pages(
        data_dir, "browse_queue", "looking", limit=limit, **arguments, **places(begin, end)
    )
    found: list[dict[str, object]] = []
    following = None
    for answer in pages:
        found += cast("list[dict[str, object]]", answer["messages"])
        following = answer["next"]
        pages.arguments["limit"] = limit - len(found)
        if len(found) == limit:
            break
    if as_json:
        show([_as_json(row, with_body) for row in found], (), as_json=True)
    else:
        columns = (*COLUMNS, "body") if with_body else COLUMNS
        show([_readable(row) for row in found], columns, as_json=False)
    if len(found) == limit and following is not None:
        click.echo(f"more: --from {following}", err=True)


def _as_json(row: dict[str, object], with_body: bool) -> dict[str, object]:
    body = decode_body(row.pop("body"))
    return {**row, **(json_body(body) if with_body else {})}


def _readable(row: dict[str, object]) -> dict[str, object]:
    state = f"{row['state']}, redelivered" if row["redelivered"] else row["state"]
    time = readable_time(cast("int", row["time_ms"]))
    body = " ".join(readable_body(decode_body(row["body"])).split())
    return {**row, "time": time, "state": state, "body": body}


@click.command(
    epilog="""\b
    Examples:
      leveret queue rewind orders --to '2h ago' --dry-run
      leveret queue rewind orders --to 2026-11-21T09:30 --until 2026-11-21T10:00
    """,
)
@click.argument("queue")
@click.option("--to", "begin", metavar="PLACE", required=True, help="From this offset or time on.")
@until_option
@_dry_run_option
@vhost_option
@json_option
@data_dir_option
def rewind(
    data_dir: Path, begin: str, end: str | None, dry_run: bool, as_json: bool, **arguments: object
) -> None:
    """Make messages of QUEUE ready again that were done with and are still on disk.

    They come back to their old place, marked as redelivered and with the header x-replayed, and do
    not expire. What is ready or with a consumer stays as it is.
    """
    pages = Pages(
        data_dir, "rewind_queue", "rewinding", dry_run=dry_run, **arguments, **places(begin, end)
    )
    summary = _Summary()
    for answer in pages:
        summary.add(answer)
    summary.write("would be ready again" if dry_run else "are ready again", as_json=as_json)


@click.command(
    epilog="""\b
    Examples:
      leveret queue move orders.dead --to-exchange orders
      leveret queue move orders --to-queue parked --from first --until '1d ago'
      leveret queue move orders --to-exchange retry --routing-key late --limit 100 --dry-run
    """,
)
@click.argument("queue")
@_to_queue_option
@_to_exchange_option
@_key_option
@from_option
@until_option
@_limit_option
@_dry_run_option
@vhost_option
@json_option
@data_dir_option
def move(data_dir: Path, **arguments: object) -> None:
    """Move the ready messages of QUEUE, the oldest first, to a queue or an exchange.

    A message leaves QUEUE once it is as safe in its new place; one that nothing is bound for
    stays. Consumers may go on meanwhile.
    """
    _transfer(data_dir, "move_messages", "moved", arguments)


@click.command(
    epilog="""\b
    Examples:
      leveret queue copy orders --to-queue test --limit 10
      leveret queue copy orders --to-exchange audit --state all --from '1d ago'
    """,
)
@click.argument("queue")
@_to_queue_option
@_to_exchange_option
@_key_option
@from_option
@until_option
@_limit_option
@click.option("--state", type=STATES, default="ready", show_default=True, help="Only these.")
@_dry_run_option
@vhost_option
@json_option
@data_dir_option
def copy(data_dir: Path, **arguments: object) -> None:
    """Send messages of QUEUE, the oldest first, to a queue or an exchange as well.

    They stay as they are. With --state all those that are done with are copied too.
    """
    _transfer(data_dir, "copy_messages", "copied", arguments)


def _transfer(data_dir: Path, command: str, done: str, arguments: dict[str, object]) -> None:
    to_exchange = arguments["to_exchange"]
    if (arguments["to_queue"] is None) is (to_exchange is None):
        raise Failure("say where to: either --to-queue or --to-exchange")
    if arguments["routing_key"] is not None and to_exchange is None:
        raise Failure("--routing-key goes with --to-exchange")
    begin, end = arguments.pop("begin"), arguments.pop("end")
    as_json, limit = bool(arguments.pop("as_json")), cast("int | None", arguments.pop("limit"))
    bounds = places(cast("str | None", begin), cast("str | None", end))
    pages = Pages(data_dir, command, "working", **arguments, **bounds, limit=limit)
    summary = _Summary()
    for answer in pages:
        summary.add(answer)
        if limit is not None:
            if summary.seen >= limit:
                break
            pages.arguments["limit"] = limit - summary.seen
        if summary.refused:
            break
    would_be = "would be " if arguments["dry_run"] else ""
    summary.write(f"{would_be}{done}", as_json=as_json)
    if summary.refused:
        raise Failure(f"the target is full: it refused {_messages(summary.refused)}")
    if summary.unroutable:
        left = _messages(summary.unroutable)
        raise Failure(f"not {done}, for nothing is bound for it: {left}")


class _Summary:
    """What the pages came to."""

    def __init__(self) -> None:
        self.count = self.size = self.unroutable = self.refused = 0
        self.first: list[int] | None = None
        self.last: list[int] | None = None

    @property
    def seen(self) -> int:
        """Messages that were done, or could not be."""
        return self.count + self.unroutable + self.refused

    def add(self, answer: dict[str, object]) -> None:
        """Another page."""
        self.count += cast("int", answer["count"])
        self.size += cast("int", answer["bytes"])
        self.unroutable += cast("int", answer.get("unroutable", 0))
        self.refused += cast("int", answer.get("refused", 0))
        if answer["last"] is not None:
            self.last = cast("list[int]", answer["last"])
            self.first = self.first or cast("list[int]", answer["first"])

    def write(self, done: str, *, as_json: bool) -> None:
        """Say it in a line or two, or as JSON."""
        if as_json:
            ends = {"first": self.first, "last": self.last}
            others = {"unroutable": self.unroutable, "refused": self.refused}
            click.echo(json.dumps({"count": self.count, "bytes": self.size, **ends, **others}))
            return
        click.echo(f"{_messages(self.count)} ({_size(self.size)}) {done}")
        for name, end in (("first", self.first), ("last", self.last)):
            if end is not None:
                click.echo(f"{name}: offset {end[0]}, {readable_time(end[1])}")


def _messages(count: int) -> str:
    return f"{count} message" if count == 1 else f"{count} messages"


def _size(count: int) -> str:
    if count < 10_000:
        return f"{count} byte" if count == 1 else f"{count} bytes"
    unit, divisor = next(unit for unit in _UNITS if count < 10_000 * unit[1] or unit is _UNITS[-1])
    return f"{count / divisor:.1f} {unit}"


_UNITS = (("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30))


for _command in (browse, rewind, move, copy):
    _command.help = f"{cleandoc(_command.help or '')}\n\n{PLACES}"
