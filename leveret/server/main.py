"""The command `leveret`. Nothing heavy is imported before the command that needs it runs."""

import importlib
import os
from pathlib import Path

import click

from leveret import __version__
from leveret.server.config import OPTIONS, ConfigError, load_config
from leveret.server.failure import Failure


class LazyCommand(click.Command):
    """Stands in the list of commands for the real one, which is at *location*: `module:name`."""

    def __init__(self, name: str, *, location: str, short_help: str) -> None:
        super().__init__(name, short_help=short_help)
        self.location = location

    def load(self) -> click.Command:
        """Import the command."""
        module, _, attribute = self.location.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command), self.location
        return command


class LazyGroup(click.Group):
    """A group that imports a `LazyCommand` when it is used, not when it is listed."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command named by *args*, loaded."""
        name, command, rest = super().resolve_command(ctx, args)
        if isinstance(command, LazyCommand):
            command = command.load()
        return name, command, rest


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
    Examples:
      leveret serve           a broker on 127.0.0.1:5672 with its data in ./leveret-data
      leveret serve --help    every option
      leveret queue list      the queues of the broker that runs on ./leveret-data
      leveret bench --help    measure a broker
      leveret conformance     ask a broker what it does with each rule of AMQP
    """,
)
@click.version_option(__version__, prog_name="leveret", message="%(prog)s %(version)s")
def main() -> None:
    """An AMQP 0-9-1 broker with segment logs under its queues."""


@main.command(
    epilog="""\b
    Examples:
      leveret serve --data-dir /var/lib/leveret --host 0.0.0.0
      leveret serve --config /etc/leveret.toml --log-level debug
      leveret serve --port 0 --sync never
      LEVERET_PORT=5673 leveret serve
    """,
)
@click.option("--config", "file", type=click.Path(path_type=Path), help="TOML file with options.")
def serve(file: Path | None, **arguments: object) -> None:
    """Run the broker until SIGINT or SIGTERM.

    An option is taken from the command line, else from its variable (LEVERET_DATA_DIR for
    --data-dir), else from the file given by --config; else it has its default.
    """
    from leveret.server.log_setup import configure_logging

    try:
        config = load_config(file, os.environ, arguments)
    except ConfigError as error:
        raise Failure(str(error)) from None
    configure_logging(config.log_level)

    from leveret.server.launcher import StartError, run

    try:
        run(config, os.environ)
    except StartError as error:
        raise Failure(str(error)) from None


# The values stay text here, so that one check and one wording of errors serves all sources.
serve.params.extend(
    click.Option(
        [option.flag],
        help=f"{option.help} ({option.kind.expectation}; default {option.default_text})",
    )
    for option in OPTIONS
)

COMMANDS = {
    "bench": ("leveret.bench.command:command", "Measure a broker under load."),
    "conformance": (
        "leveret.conformance.command:command",
        "Ask a broker what it does with each rule of AMQP.",
    ),
    "connection": ("leveret.server.commands.objects:connection", "List connections."),
    "delayed": ("leveret.server.commands.delayed:delayed", "List and cancel delayed messages."),
    "doctor": ("leveret.server.commands.doctor:doctor", "Check and repair a data directory."),
    "exchange": ("leveret.server.commands.objects:exchange", "List exchanges."),
    "key": ("leveret.server.commands.keys:key", "Make and list encryption keys."),
    "limits": ("leveret.server.commands.limits:limits", "Limit vhosts and users."),
    "message": ("leveret.server.commands.messages:message", "Show a message."),
    "operator-policy": (
        "leveret.server.commands.policies:operator_policy",
        "Set upper bounds for policies.",
    ),
    "policy": (
        "leveret.server.commands.policies:policy",
        "Set arguments of queues and exchanges by pattern.",
    ),
    "queue": (
        "leveret.server.commands.objects:queue",
        "List queues; browse, rewind, move and copy their messages.",
    ),
    "stream": (
        "leveret.server.commands.streams:stream",
        "Show and set how far consumers of streams have come.",
    ),
    "user": ("leveret.server.commands.users:user", "Add, change and remove users."),
    "vhost": ("leveret.server.commands.vhosts:vhost", "Add and remove vhosts."),
}
"""Where each other command is, and what it does."""

for _name, (_location, _help) in COMMANDS.items():
    main.add_command(LazyCommand(_name, location=_location, short_help=_help))
