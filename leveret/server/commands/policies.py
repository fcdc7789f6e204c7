"""`leveret policy` and `leveret operator-policy`."""

import json
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
from leveret.server.failure import Failure

COLUMNS = ("vhost", "name", "pattern", "apply-to", "definition", "priority")


def _commands(kind: str, plural: str) -> list[click.Command]:
    """The commands on policies of one kind; *kind* and *plural* are the broker's names."""

    @click.command(
        epilog="""\b
        Examples:
          leveret policy set ttl '^jobs[.]' '{"message-ttl": 60000}' --apply-to queues
          leveret operator-policy set bound '' '{"max-length": 1000000}' --priority 1
        """,
    )
    @click.argument("name")
    @click.argument("pattern")
    @click.argument("definition")
    @click.option("--priority", type=int, default=0, show_default=True, help="The highest wins.")
    @click.option(
        "--apply-to",
        default="all",
        show_default=True,
        help="queues, classic_queues, quorum_queues, streams, exchanges or all.",
    )
    @vhost_option
    @data_dir_option
    def set_(data_dir: Path, definition: str, **arguments: object) -> None:
        """Set NAME for all names in which the regular expression PATTERN is found.

        DEFINITION is a JSON object: {"max-length": 1000}.
        """
        ask(data_dir, f"set_{kind}", definition=_parse(definition), **arguments)

    @click.command()
    @every_vhost_option
    @json_option
    @data_dir_option
    def list_(data_dir: Path, vhost: str | None, as_json: bool) -> None:
        """List them, those of the highest priority first."""
        show(ask(data_dir, f"list_{plural}", vhost=vhost), COLUMNS, as_json=as_json)

    @click.command()
    @click.argument("name")
    @vhost_option
    @data_dir_option
    def clear(data_dir: Path, name: str, vhost: str) -> None:
        """Remove NAME; what it did ends at once."""
        ask(data_dir, f"clear_{kind}", name=name, vhost=vhost)

    set_.name, list_.name = "set", "list"
    return [set_, list_, clear]


def _parse(definition: str) -> dict[str, object]:
    try:
        parsed = json.loads(definition)
    except ValueError as error:
        raise Failure(f"the definition is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise Failure('the definition is not a JSON object like {"max-length": 1000}')
    return parsed


policy = click.Group(
    "policy",
    commands=_commands("policy", "policies"),
    help="Optional arguments for all queues and exchanges whose names match a pattern.",
)
operator_policy = click.Group(
    "operator-policy",
    commands=_commands("operator_policy", "operator_policies"),
    help="Upper bounds for what policies and declarations ask for.",
)
