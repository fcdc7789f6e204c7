"""`leveret stream`."""

from pathlib import Path

import click

from leveret.server.commands.client import ask
from leveret.server.commands.options import data_dir_option, json_option
from leveret.server.commands.table import show

_vhost_option = click.option("--vhost", default="/", help="Vhost of the stream (default /).")


@click.group()
def stream() -> None:
    """Streams of the running broker."""


@stream.group()
def offsets() -> None:
    """Where the named consumers of a stream go on when they come next."""


@offsets.command("list")
@click.argument("queue")
@_vhost_option
@json_option
@data_dir_option
def list_(data_dir: Path, queue: str, vhost: str, as_json: bool) -> None:
    """List the named consumers of QUEUE, and how many messages each has before it."""
    found = ask(data_dir, "list_stream_offsets", queue=queue, vhost=vhost)
    show(found, ("name", "offset", "lag"), as_json=as_json)


@offsets.command("set")
@click.argument("queue")
@click.argument("name")
@click.argument("offset", type=click.IntRange(min=0))
@_vhost_option
@data_dir_option
def set_(data_dir: Path, queue: str, name: str, offset: int, vhost: str) -> None:
    """Have the consumer NAME of QUEUE go on at OFFSET; it must not be there meanwhile."""
    ask(data_dir, "set_stream_offset", queue=queue, vhost=vhost, name=name, offset=offset)


@offsets.command()
@click.argument("queue")
@click.argument("name")
@_vhost_option
@data_dir_option
def reset(data_dir: Path, queue: str, name: str, vhost: str) -> None:
    """Forget how far the consumer NAME of QUEUE has come."""
    ask(data_dir, "reset_stream_offset", queue=queue, vhost=vhost, name=name)
