"""Broker: the vhosts and users of one data directory."""

import itertools
import logging
from pathlib import Path

from leveret.amqp.sasl import Credentials
from leveret.broker.definitions import DefinitionLog, decode_arguments
from leveret.broker.queue_pool import QueuePool, StorageSettings
from leveret.broker.turn import Turn
from leveret.broker.users import User, UserStore
from leveret.broker.vhost import VHost
from leveret.exchanges.destination import Destination
from leveret.exchanges.registry import create_exchange
from leveret.storage.changes import PutUser, PutVHost
from leveret.storage.committer import Committer
from leveret.storage.errors import StorageError
from leveret.storage.metadata import Definitions
from leveret.storage.rows import BindingRow, VHostRow

logger = logging.getLogger(__name__)

DEFAULT_VHOST = "/"


class Broker:
    """Everything that clients can reach. Implements `LoginRules`."""

    def __init__(
        self, directory: Path, settings: StorageSettings, committer: Committer, turn: Turn
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._committer = committer
        self.turn = turn
        self.vhosts: dict[str, VHost] = {}
        self.users = UserStore()
        self._queue_ids = itertools.count(1)

    def open(self, definitions: Definitions) -> None:
        """Bring back what *definitions* name; an empty database gets `/` and `guest`."""
        self._queue_ids = itertools.count(definitions.next_queue_id)
        if not definitions.vhosts:
            row = VHostRow(definitions.next_vhost_id, DEFAULT_VHOST)
            self._committer.change(PutVHost(row))
            definitions.vhosts.append(row)
        if not definitions.users:
            guest = User.with_password("guest", "guest", ("administrator",))
            self._committer.change(PutUser(guest.to_row()))
            self.users.add(guest)
        for user_row in definitions.users:
            self.users.add(User.from_row(user_row))
        for vhost_row in definitions.vhosts:
            self.vhosts[vhost_row.name] = self._open_vhost(vhost_row, definitions)

    def _open_vhost(self, row: VHostRow, definitions: Definitions) -> VHost:
        pool = QueuePool(
            self._directory / "vhosts" / str(row.id),
            self._settings,
            lambda: next(self._queue_ids),
        )
        vhost = VHost(row.name, self.turn, DefinitionLog(self._committer, row.id), pool)
        for exchange in definitions.exchanges:
            if exchange.vhost_id == row.id:
                vhost.exchanges[exchange.name] = create_exchange(
                    exchange.type,
                    exchange.name,
                    vhost_name=row.name,
                    durable=exchange.durable,
                    auto_delete=exchange.auto_delete,
                    internal=exchange.internal,
                    arguments=decode_arguments(exchange.arguments),
                )
        queues = [queue for queue in definitions.queues if queue.vhost_id == row.id]
        pool.sweep(queue.id for queue in queues)
        for queue in queues:
            try:
                vhost.add_queue(pool.restore(queue))
            except (OSError, StorageError) as error:
                # The others are none the worse for it; its files stay for whoever repairs them.
                stopped = pool.unopened(queue)
                vhost.add_queue(stopped)
                vhost.fail_queue(stopped, error)
        for binding in definitions.bindings:
            if binding.vhost_id == row.id:
                _bind(vhost, binding)
        return vhost

    def vhost(self, name: str) -> VHost | None:
        """The vhost called *name*."""
        return self.vhosts.get(name)

    def authenticate(self, credentials: Credentials, *, is_loopback: bool) -> User:
        """The user with these credentials. Raises LoginRefusedReason."""
        username, password = credentials
        return self.users.authenticate(username, password, is_loopback=is_loopback)

    def queue_failed(self, queue: object, error: Exception) -> None:
        """A queue met an error that is its own: stop it, the broker goes on."""
        for vhost in self.vhosts.values():
            for candidate in vhost.queues.values():
                if candidate is queue:
                    vhost.fail_queue(candidate, error)
                    return
        logger.error("a queue that is no more failed: %s", error)

    def log_failed(self, error: Exception) -> None:
        """A log was stopped because it could not be synced: its queue finds out, and stops."""
        logger.error("sync failed: %s", error)
        for vhost in self.vhosts.values():
            for queue in vhost.queues.values():
                self.turn.touch(queue)

    def close(self) -> None:
        """Let go of all files. Whatever is not yet on disk is written first."""
        for vhost in self.vhosts.values():
            vhost.close()


def _bind(vhost: VHost, row: BindingRow) -> None:
    source = vhost.exchanges.get(row.source)
    destination: Destination | None = (
        vhost.exchanges.get(row.destination)
        if row.destination_type == "exchange"
        else vhost.queues.get(row.destination)
    )
    if source is None or destination is None:
        return  # its queue was not opened
    vhost.restore_binding(source, destination, row.routing_key, decode_arguments(row.arguments))
