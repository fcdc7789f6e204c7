"""`leveret user`."""

import sys
from pathlib import Path

import click

from leveret.server.commands.client import ask
from leveret.server.commands.options import (
    data_dir_option,
    every_vhost_option,
    json_option,
    vhost_option,
)
from leveret.server.commands.table import show

_password_option = click.option(
    "--password",
    help="Better not given here, where others may see it: it is asked for, or read from stdin.",
)


@click.group()
def user() -> None:
    """Users, their passwords, tags and permissions."""


@user.command(
    epilog="""\b
    Examples:
      leveret user add alice
      leveret user add bob --tag monitoring --tag management < password.txt
    """,
)
@click.argument("name")
@_password_option
@click.option(
    "--tag", "tags", multiple=True, help="administrator, monitoring, ...; may be given again."
)
@data_dir_option
def add(data_dir: Path, name: str, password: str | None, tags: tuple[str, ...]) -> None:
    """Make a user, who has no permissions yet."""
    ask(data_dir, "add_user", name=name, password=_password(password), tags=list(tags))


@user.command("list")
@json_option
@data_dir_option
def list_(data_dir: Path, as_json: bool) -> None:
    """List the users and their tags."""
    show(ask(data_dir, "list_users"), ("user", "tags"), as_json=as_json)


@user.command()
@click.argument("name")
@data_dir_option
def delete(data_dir: Path, name: str) -> None:
    """Remove a user; the connections are closed."""
    ask(data_dir, "delete_user", name=name)


@user.command("set-password")
@click.argument("name")
@_password_option
@data_dir_option
def set_password(data_dir: Path, name: str, password: str | None) -> None:
    """Give a user another password; open connections stay."""
    ask(data_dir, "change_password", name=name, password=_password(password))


@user.command("set-tags")
@click.argument("name")
@click.argument("tags", nargs=-1)
@data_dir_option
def set_tags(data_dir: Path, name: str, tags: tuple[str, ...]) -> None:
    """Replace the tags of a user by TAGS, none if none are given."""
    ask(data_dir, "set_user_tags", name=name, tags=list(tags))


@user.command(
    "set-permissions",
    epilog="""\b
    Examples:
      leveret user set-permissions alice '.*' '.*' '.*'
      leveret user set-permissions bob '' '^orders$' '^bob[.]' --vhost shop
    """,
)
@click.argument("name")
@click.argument("configure")
@click.argument("write")
@click.argument("read")
@vhost_option
@data_dir_option
def set_permissions(data_dir: Path, name: str, **arguments: object) -> None:
    """Say which names a user may CONFIGURE, WRITE and READ in a vhost.

    Each is a regular expression that is looked for anywhere in a name; '' is for no name.
    """
    ask(data_dir, "set_permissions", user=name, **arguments)


@user.command("clear-permissions")
@click.argument("name")
@vhost_option
@data_dir_option
def clear_permissions(data_dir: Path, name: str, vhost: str) -> None:
    """Shut a user out of a vhost."""
    ask(data_dir, "clear_permissions", user=name, vhost=vhost)


@user.command("list-permissions")
@click.argument("name", required=False)
@every_vhost_option
@json_option
@data_dir_option
def list_permissions(data_dir: Path, name: str | None, vhost: str | None, as_json: bool) -> None:
    """List the permissions of a user, or of all."""
    columns = ("user", "vhost", "configure", "write", "read")
    show(ask(data_dir, "list_permissions", user=name, vhost=vhost), columns, as_json=as_json)


def _password(given: str | None) -> str:
    if given is not None:
        return given
    if sys.stdin.isatty():
        password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True)
        return password
    return sys.stdin.readline().rstrip("\n")
