"""`leveret limits`."""

from pathlib import Path

import click

from leveret.server.commands.client import ask
from leveret.server.commands.options import data_dir_option, json_option
from leveret.server.commands.table import show
from leveret.server.failure import Failure

_vhost_option = click.option("--vhost", help="Limits of this vhost.")
_user_option = click.option("--user", help="Limits of this user.")


@click.group()
def limits() -> None:
    """Limits of vhosts (max-connections, max-queues) and users (max-connections, max-channels)."""


@limits.command(
    "set",
    epilog="""\b
    Examples:
      leveret limits set --vhost / max-queues 1000
      leveret limits set --user alice max-connections 10
    """,
)
@click.argument("limit")
@click.argument("value", type=int)
@_vhost_option
@_user_option
@data_dir_option
def set_(data_dir: Path, limit: str, value: int, vhost: str | None, user: str | None) -> None:
    """Set LIMIT to VALUE; 0 allows none, what there is stays."""
    kind, name = _of(vhost, user)
    ask(data_dir, f"set_{kind}_limits", limits={limit: value}, **{kind: name})


@limits.command("list")
@_vhost_option
@_user_option
@json_option
@data_dir_option
def list_(data_dir: Path, vhost: str | None, user: str | None, as_json: bool) -> None:
    """List the limits of a vhost or a user, or all."""
    found: list[object] = []
    for kind, name, other in (("vhost", vhost, user), ("user", user, vhost)):
        if name is not None or other is None:
            answer = ask(data_dir, f"list_{kind}_limits", **{kind: name})
            assert isinstance(answer, list)
            found += answer
    if not as_json:
        found = [{"vhost": None, "user": None} | row for row in found if isinstance(row, dict)]
    show(found, ("vhost", "user", "limits"), as_json=as_json)


@limits.command()
@click.argument("limit", required=False)
@_vhost_option
@_user_option
@data_dir_option
def clear(data_dir: Path, limit: str | None, vhost: str | None, user: str | None) -> None:
    """Lift LIMIT, or all limits of a vhost or user."""
    kind, name = _of(vhost, user)
    ask(data_dir, f"clear_{kind}_limits", name=limit, **{kind: name})


def _of(vhost: str | None, user: str | None) -> tuple[str, str]:
    if vhost is not None and user is None:
        return "vhost", vhost
    if user is not None and vhost is None:
        return "user", user
    raise Failure("say whose limits: either --vhost or --user")
