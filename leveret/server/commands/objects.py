"""`leveret queue`, `leveret exchange` and `leveret connection`."""

from pathlib import Path

import click

from leveret.server.commands.client import ask
from leveret.server.commands.history import browse, copy, move, rewind
from leveret.server.commands.options import data_dir_option, every_vhost_option, json_option
from leveret.server.commands.table import show


def _list_command(command: str, columns: tuple[str, ...], help_text: str) -> click.Command:
    @click.command("list", help=help_text)
    @every_vhost_option
    @json_option
    @data_dir_option
    def list_(data_dir: Path, vhost: str | None, as_json: bool) -> None:
        shown = columns if vhost is not None else ("vhost", *columns)
        show(ask(data_dir, command, vhost=vhost), shown, as_json=as_json)

    return list_


queue = click.Group("queue", help="Queues of the running broker and their messages.")
queue.add_command(
    _list_command(
        "list_queues",
        (
            "name",
            "type",
            "policy",
            "messages_ready",
            "messages_unacknowledged",
            "consumers",
            "disk_bytes",
            "retained_bytes",
            "state",
        ),
        "List the queues with their policies, messages, consumers and bytes on disk.",
    )
)
for _command in (browse, rewind, move, copy):
    queue.add_command(_command)

exchange = click.Group("exchange", help="Exchanges of the running broker.")
exchange.add_command(
    _list_command(
        "list_exchanges",
        ("name", "type", "durable", "alternate_exchange", "policy"),
        "List the exchanges.",
    )
)

connection = click.Group("connection", help="Connections to the running broker.")
connection.add_command(
    _list_command(
        "list_connections",
        ("peer", "user", "state", "channels"),
        "List the open connections.",
    )
)
