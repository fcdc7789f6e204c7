"""`leveret vhost`."""

from pathlib import Path

import click

from leveret.server.commands.client import ask
from leveret.server.commands.options import data_dir_option, json_option
from leveret.server.commands.table import show


@click.group(
    epilog="""\b
    Example:
      leveret vhost add shop
      leveret user set-permissions alice '.*' '.*' '.*' --vhost shop
    """,
)
def vhost() -> None:
    """Virtual hosts: name spaces of queues and exchanges."""


@vhost.command()
@click.argument("name")
@data_dir_option
def add(data_dir: Path, name: str) -> None:
    """Make a vhost. Nobody has permissions in it yet."""
    ask(data_dir, "add_vhost", name=name)


@vhost.command("list")
@json_option
@data_dir_option
def list_(data_dir: Path, as_json: bool) -> None:
    """List the vhosts."""
    columns = ("name", "queues", "exchanges", "connections")
    show(ask(data_dir, "list_vhosts"), columns, as_json=as_json)


@vhost.command()
@click.argument("name")
@data_dir_option
def delete(data_dir: Path, name: str) -> None:
    """Remove a vhost with all its queues and messages; its connections are closed."""
    ask(data_dir, "delete_vhost", name=name)
