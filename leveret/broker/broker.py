"""Broker: the vhosts and users of one data directory, and who is connected."""

import itertools
import json
import logging
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from leveret.amqp.errors import NotAllowed, PreconditionFailed
from leveret.amqp.sasl import Credentials
from leveret.broker.alarms import Alarms
from leveret.broker.connections import Client, OpenConnections
from leveret.broker.definitions import DefinitionLog
from leveret.broker.limits import NodeLimits, UserLimits
from leveret.broker.permissions import ALL_NAMES, Permissions
from leveret.broker.queue_pool import QueuePool, StorageSettings
from leveret.broker.recovery import Recovery
from leveret.broker.restore import restore
from leveret.broker.turn import Turn
from leveret.broker.users import User, UserStore
from leveret.broker.vhost import VHost
from leveret.queues.message_ids import IdBudget
from leveret.storage.changes import Change, DeleteVHost, PutPermission, PutUser, PutVHost
from leveret.storage.committer import Committer, Waiter
from leveret.storage.metadata import Definitions
from leveret.storage.rows import PermissionRow, VHostRow

logger = logging.getLogger(__name__)

DEFAULT_VHOST = "/"
NO_LIMITS = NodeLimits()
NO_USER_LIMITS = UserLimits()


class Broker:
    """Everything that clients can reach. Implements `LoginRules`."""

    def __init__(
        self,
        directory: Path,
        settings: StorageSettings,
        committer: Committer,
        turn: Turn,
        limits: NodeLimits = NO_LIMITS,
    ) -> None:
        self._directory = directory
        self._limits = limits
        self._settings = settings
        self._committer = committer
        self.turn = turn
        self.alarms = Alarms()
        self.vhosts: dict[str, VHost] = {}
        self.recovery = Recovery()
        self.id_budget = IdBudget(settings.message_id_bytes)
        self.users = UserStore()
        self.user_limits: dict[str, UserLimits] = {}
        self.permissions: dict[tuple[str, str], Permissions] = {}
        """By the names of user and vhost."""
        self.connections = OpenConnections(limits)
        self._vhost_ids = itertools.count(1)
        self._queue_ids = itertools.count(1)

    # ---- start

    def open(self, definitions: Definitions) -> None:
        """Bring back what *definitions* name; a new database gets `/` and `guest`.

        The messages in the queues are left to `recovery`.
        """
        self._vhost_ids = itertools.count(definitions.next_vhost_id)
        self._queue_ids = itertools.count(definitions.next_queue_id)
        if definitions.next_vhost_id == 1:
            self._add_defaults(definitions)
        self._sweep(vhost.id for vhost in definitions.vhosts)
        for user_row in definitions.users:
            self.users.add(User.from_row(user_row))
        for vhost_row in definitions.vhosts:
            vhost, pool = self._new_vhost(vhost_row)
            restore(vhost, pool, definitions)
            self.vhosts[vhost.name] = vhost
        vhost_names = {vhost.id: vhost.name for vhost in definitions.vhosts}
        for row in definitions.permissions:
            key = row.user, vhost_names[row.vhost_id]
            self.permissions[key] = Permissions(*key, row.configure, row.write, row.read)
        for parameter in definitions.parameters:
            if parameter.component == UserLimits.component:
                limits = UserLimits.parse(json.loads(parameter.value))
                self.user_limits[parameter.name] = limits

    def _add_defaults(self, definitions: Definitions) -> None:
        vhost = VHostRow(next(self._vhost_ids), DEFAULT_VHOST)
        guest = User.with_password("guest", "guest", ("administrator",)).to_row()
        permission = PermissionRow(guest.name, vhost.id, ALL_NAMES, ALL_NAMES, ALL_NAMES)
        definitions.vhosts.append(vhost)
        definitions.users.append(guest)
        definitions.permissions.append(permission)
        for change in (PutVHost(vhost), PutUser(guest), PutPermission(permission)):
            self.write(change)

    def _sweep(self, known: Iterable[int]) -> None:
        """Remove the directories of vhosts that the definitions do not name any more."""
        vhosts = self._directory / "vhosts"
        names = {str(vhost_id) for vhost_id in known}
        for path in vhosts.iterdir() if vhosts.is_dir() else ():
            if path.name not in names:
                logger.info("removing what is left of a deleted vhost: %s", path.name)
                self._settings.space.sweep(_remove(path))

    def _new_vhost(self, row: VHostRow) -> tuple[VHost, QueuePool]:
        pool = QueuePool(
            self._directory / "vhosts" / str(row.id),
            self._settings,
            lambda: next(self._queue_ids),
        )
        definitions = DefinitionLog(self._committer, row.id)
        vhost = VHost(
            row.name, self.turn, definitions, pool, self._check_exchange_limit, self.recovery
        )
        return vhost, pool

    # ---- vhosts and definitions

    def vhost(self, name: str) -> VHost | None:
        """The vhost called *name*."""
        return self.vhosts.get(name)

    def add_vhost(self, name: str) -> VHost:
        """Make a vhost; no user has permissions in it."""
        row = VHostRow(next(self._vhost_ids), name)
        self.write(PutVHost(row))
        vhost, _ = self._new_vhost(row)
        vhost.delays.start()
        self.vhosts[name] = vhost
        return vhost

    def delete_vhost(self, vhost: VHost) -> None:
        """Remove a vhost with all that is in it; its connections are closed."""
        for client in self.connections.in_vhost(vhost.name):
            client.close(f"vhost '{vhost.name}' is deleted")
        del self.vhosts[vhost.name]
        for user_name, vhost_name in list(self.permissions):
            if vhost_name == vhost.name:
                del self.permissions[user_name, vhost_name]
        self.write(DeleteVHost(vhost.definitions.vhost_id))
        vhost.delete()

    def write(self, change: Change) -> None:
        """Something durable changed."""
        self._committer.change(change)

    @property
    def has_changes(self) -> bool:
        """Is there a change that is not known to be on disk?"""
        return self._committer.has_changes

    def wait(self, waiter: Waiter) -> None:
        """Tell *waiter* once all changes so far are on disk."""
        self._committer.wait_for_changes(waiter)
        self.turn.wait_for_commit()

    def _check_exchange_limit(self, exchange_name: str, vhost_name: str) -> None:
        limit = self._limits.exchanges
        if limit and sum(len(vhost.exchanges) for vhost in self.vhosts.values()) >= limit:
            raise PreconditionFailed(
                f"cannot declare exchange '{exchange_name}' in vhost '{vhost_name}': "
                f"exchange limit of {limit} is reached"
            )

    # ---- connections

    def authenticate(self, credentials: Credentials, *, is_loopback: bool) -> User:
        """The user with these credentials. Raises LoginRefusedReason."""
        username, password = credentials
        return self.users.authenticate(username, password, is_loopback=is_loopback)

    def enter(self, session: Client, user: User, vhost_name: str) -> tuple[VHost, Permissions]:
        """Let *session* into a vhost. Raises NotAllowed."""
        self.connections.check_node()
        vhost = self.vhosts.get(vhost_name)
        if vhost is None:
            raise NotAllowed(f"vhost {vhost_name} not found")
        self.connections.check_vhost(user.name, vhost_name, vhost.limits)
        self.connections.check_user(user.name, self._limits_of(user))
        permissions = self.permissions.get((user.name, vhost_name))
        if permissions is None:
            raise NotAllowed(f"access to vhost '{vhost_name}' refused for user '{user.name}'")
        self.connections.add(session, user.name, vhost_name)
        return vhost, permissions

    def leave(self, session: Client) -> None:
        """*session* is gone, if it ever entered."""
        self.connections.remove(session)

    def check_channel(self, user: User) -> None:
        """Raise NotAllowed if *user* must not open another channel."""
        self.connections.check_channel(user.name, self._limits_of(user))

    def check_consumer(self, count: int) -> None:
        """Raise NotAllowed if a channel that has *count* consumers must not have another."""
        limit = self._limits.consumers_per_channel
        if limit and count >= limit:
            raise NotAllowed(f"reached maximum ({limit}) of consumers per channel")

    def _limits_of(self, user: User) -> UserLimits:
        return self.user_limits.get(user.name, NO_USER_LIMITS)

    # ---- failures and the end

    def queue_failed(self, queue: object, error: Exception) -> None:
        """A queue met an error that is its own: stop it, the broker goes on."""
        for vhost in self.vhosts.values():
            for candidate in vhost.queues.values():
                if candidate is queue:
                    vhost.fail_queue(candidate, error)
                    return
            if vhost.delays is queue:
                logger.error("delayed messages stopped: vhost=%s: %s", vhost.name, error)
                vhost.delays.stop(error)
                return
        logger.error("a queue that is no more failed: %s", error)

    def log_failed(self, error: Exception) -> None:
        """A log was stopped because it could not be synced: its queue finds out, and stops."""
        logger.error("sync failed: %s", error)
        for vhost in self.vhosts.values():
            for queue in vhost.queues.values():
                self.turn.touch(queue)
            self.turn.touch(vhost.delays)

    def close(self) -> None:
        """Let go of all files. Whatever is not yet on disk is written first."""
        for vhost in self.vhosts.values():
            vhost.close()


def _remove(vhost_directory: Path) -> Iterator[None]:
    shutil.rmtree(vhost_directory)
    yield
