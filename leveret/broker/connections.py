"""OpenConnections: the connections that are in a vhost, and whether one or a channel may be added.

Channels are counted where a limit on them is set, when one is opened. Reply texts are those of
RabbitMQ.
"""

import platform
from collections.abc import Iterable, Iterator
from typing import Protocol

from leveret.amqp.errors import NotAllowed
from leveret.broker.limits import NodeLimits, UserLimits, VHostLimits
from leveret.queues.classic import ClassicQueue

NODE_NAME = f"leveret@{platform.node()}"


class Client(Protocol):
    """An open connection."""

    @property
    def peer(self) -> str:
        """Host and port of the other side."""

    @property
    def state(self) -> str:
        """RabbitMQ's word for what it is doing."""

    @property
    def channel_count(self) -> int:
        """How many channels are open on it."""

    def deliveries(self, queue: ClassicQueue) -> Iterator[tuple[int, int, str | None]]:
        """What it has unacknowledged of *queue*: offset, channel, consumer tag if there is one."""

    def close(self, reason: str) -> None:
        """Close it from our side (320)."""


class OpenConnections:
    """Who is connected, by user and by vhost."""

    def __init__(self, limits: NodeLimits) -> None:
        self._limits = limits
        self._places: dict[Client, tuple[str, str]] = {}
        self._of_user: dict[str, dict[Client, None]] = {}
        self._of_vhost: dict[str, dict[Client, None]] = {}

    def __iter__(self) -> Iterator[tuple[Client, str, str]]:
        """All of them, with user and vhost."""
        for client, (user_name, vhost_name) in self._places.items():
            yield client, user_name, vhost_name

    def of_user(self, user_name: str) -> list[Client]:
        """The connections of a user."""
        return list(self._of_user.get(user_name, ()))

    def in_vhost(self, vhost_name: str) -> list[Client]:
        """The connections to a vhost."""
        return list(self._of_vhost.get(vhost_name, ()))

    def check_node(self) -> None:
        """Raise NotAllowed if the node has all the connections it may have."""
        limit = self._limits.connections
        if limit and len(self._places) >= limit:
            raise NotAllowed(f"connection refused: node connection limit ({limit}) is reached")

    def check_vhost(self, user_name: str, vhost_name: str, limits: VHostLimits) -> None:
        """Raise NotAllowed if the vhost has all the connections it may have."""
        limit = limits.max_connections
        if limit is not None and len(self._of_vhost.get(vhost_name, ())) >= limit:
            raise NotAllowed(
                f"access to vhost '{vhost_name}' refused for user '{user_name}': "
                f"connection limit ({limit}) is reached"
            )

    def check_user(self, user_name: str, limits: UserLimits) -> None:
        """Raise NotAllowed if the user has all the connections it may have."""
        limit = limits.max_connections
        if limit is not None and len(self._of_user.get(user_name, ())) >= limit:
            raise NotAllowed(
                f"connection refused for user '{user_name}': "
                f"user connection limit ({limit}) is reached"
            )

    def check_channel(self, user_name: str, limits: UserLimits) -> None:
        """Raise NotAllowed if the node or the user has all the channels it may have."""
        limit = self._limits.channels
        if limit and _channels(self._places) >= limit:
            raise NotAllowed(
                f"number of channels opened on node '{NODE_NAME}' has reached the maximum "
                f"allowed limit of ({limit})"
            )
        most = limits.max_channels
        if most is not None and _channels(self._of_user.get(user_name, ())) >= most:
            raise NotAllowed(
                f"number of channels opened for user '{user_name}' has reached the maximum "
                f"allowed user limit of ({most})"
            )

    def add(self, client: Client, user_name: str, vhost_name: str) -> None:
        """A connection is in its vhost."""
        self._places[client] = user_name, vhost_name
        self._of_user.setdefault(user_name, {})[client] = None
        self._of_vhost.setdefault(vhost_name, {})[client] = None

    def remove(self, client: Client) -> None:
        """A connection is gone; one that was never added is fine."""
        if client not in self._places:
            return
        user_name, vhost_name = self._places.pop(client)
        for clients, name in ((self._of_user, user_name), (self._of_vhost, vhost_name)):
            del clients[name][client]
            if not clients[name]:
                del clients[name]


def _channels(clients: Iterable[Client]) -> int:
    return sum(client.channel_count for client in clients)
