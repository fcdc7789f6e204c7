"""`leveret message`."""

import json
import sys
from pathlib import Path
from typing import cast

import click

from leveret.server.commands.bodies import (
    decode_body,
    json_body,
    readable_body,
    readable_timestamp,
)
from leveret.server.commands.client import ask
from leveret.server.commands.options import data_dir_option, json_option, vhost_option
from leveret.server.commands.paging import Pages
from leveret.server.commands.places import readable_time
from leveret.server.failure import Failure

WHOLE_BODY = 1 << 31
NAMED = 20
"""Other messages with the same id that are named."""


@click.group()
def message() -> None:
    """Single messages, those that are done with included."""


@message.command(
    epilog="""\b
    Examples:
      leveret message show --queue orders --offset 4711
      leveret message show --queue orders --id 0d1f3a
      leveret message show --queue orders --offset 4711 --body > body.bin
    """,
)
@click.option("--queue", required=True, help="Which queue.")
@click.option("--offset", type=click.IntRange(0), help="Its place in the queue.")
@click.option("--id", "message_id", help="Its message_id; the newest one is shown.")
@click.option("--body", "only_body", is_flag=True, help="Write the body and nothing else.")
@vhost_option
@json_option
@data_dir_option
def show(
    data_dir: Path,
    vhost: str,
    queue: str,
    offset: int | None,
    message_id: str | None,
    only_body: bool,
    as_json: bool,
) -> None:
    """Show a message: its properties and headers, its state, and where it went.

    The first look for an id reads the queue from its beginning; later ones know the ids.
    """
    if (offset is None) is (message_id is None):
        raise Failure("say which message: either --offset or --id")
    others: list[int] = []
    if message_id is not None:
        *others, offset = _find(data_dir, vhost, queue, message_id)
    wanted = WHOLE_BODY if only_body else None
    answer = ask(
        data_dir, "show_message", vhost=vhost, queue=queue, offset=offset, body_bytes=wanted
    )
    found = cast("dict[str, object]", answer)
    body = decode_body(found.pop("body", ""))
    if only_body:
        if found["state"] == "gone":
            raise Failure(f"the message at offset {offset} is gone")
        sys.stdout.buffer.write(body)
    elif as_json:
        more = {"other_offsets": others} if others else {}
        click.echo(json.dumps({**found, **json_body(body), **more}, indent=2, ensure_ascii=False))
    else:
        _write(found, body)
        if others:
            named = ", ".join(map(str, others[: -NAMED - 1 : -1]))
            rest = ", ..." if len(others) > NAMED else ""
            click.echo(f"{len(others)} older with this id at offset {named}{rest}", err=True)


def _find(data_dir: Path, vhost: str, queue: str, message_id: str) -> list[int]:
    """The offsets of the messages with this id, oldest first. Raises Failure if there is none."""
    offsets: list[int] = []
    pages = Pages(
        data_dir, "find_message", "searching", vhost=vhost, queue=queue, message_id=message_id
    )
    for answer in pages:
        offsets += cast("list[int]", answer["offsets"])
    if not offsets:
        raise Failure(f"queue '{queue}' has no message with the id {message_id!r}")
    return offsets


def _write(found: dict[str, object], body: bytes) -> None:
    rows = {
        "offset": found["offset"],
        "state": f"{found['state']}: {found['where']}",
    }
    if "next_try_ms" in found:
        rows["next try"] = readable_time(cast("int", found["next_try_ms"]))
    if "time_ms" in found:
        size = cast("int", found["size"])
        rows |= {
            "deliveries": found["deliveries"],
            "time": readable_time(cast("int", found["time_ms"])),
            "exchange": found["exchange"] or "(default)",
            "routing key": found["routing_key"],
            "size": f"{size} bytes",
        }
        properties = cast("dict[str, object]", found["properties"])
        if "timestamp" in properties:
            properties["timestamp"] = readable_timestamp(cast("int", properties["timestamp"]))
        rows |= {name.replace("_", " "): value for name, value in properties.items()}
    for name, value in rows.items():
        click.echo(f"{name:16}  {_on_a_line(value)}".rstrip())
    headers = cast("dict[str, object]", found.get("headers", {}))
    for name, value in headers.items():
        click.echo(f"header {_on_a_line(name)}: {_on_a_line(value)}")
    if body:
        is_cut = len(body) < size
        what = f"the first {len(body)} bytes of the body" if is_cut else "the body"
        text = readable_body(body, is_cut=is_cut).removesuffix("\n")
        click.echo(f"\n{what}:\n{text}")


def _on_a_line(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "".join(character if character.isprintable() else "?" for character in text)
