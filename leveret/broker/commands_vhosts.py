"""Commands on vhosts."""

from collections.abc import Callable, Iterable

from leveret.amqp.constants import SHORT_STRING_MAX
from leveret.broker.broker import Broker
from leveret.broker.errors import AlreadyExists, InvalidRequest, NoSuchObject
from leveret.broker.vhost import VHost


def add_vhost(broker: Broker, *, name: str) -> None:
    """Make a vhost; users need permissions to enter it. Raises InvalidRequest, AlreadyExists."""
    if not 0 < len(name.encode()) <= SHORT_STRING_MAX:
        raise InvalidRequest(f"the name of a vhost has 1 to {SHORT_STRING_MAX} bytes")
    if name in broker.vhosts:
        raise AlreadyExists(f"vhost '{name}' already exists")
    broker.add_vhost(name)


def delete_vhost(broker: Broker, *, name: str) -> None:
    """Remove a vhost with its queues and messages; closes its connections. Raises NoSuchObject."""
    broker.delete_vhost(find_vhost(broker, name))


def list_vhosts(broker: Broker) -> list[dict[str, object]]:
    """The vhosts and how much is in them."""
    return [
        {
            "name": vhost.name,
            "queues": len(vhost.queues),
            "exchanges": len(vhost.exchanges),
            "connections": len(broker.connections.in_vhost(vhost.name)),
        }
        for vhost in vhosts_named(broker, None)
    ]


def find_vhost(broker: Broker, name: str) -> VHost:
    """The vhost called *name*. Raises NoSuchObject."""
    vhost = broker.vhosts.get(name)
    if vhost is None:
        raise NoSuchObject(f"vhost '{name}' does not exist")
    return vhost


def vhosts_named(broker: Broker, name: str | None) -> Iterable[VHost]:
    """The vhost called *name*, or all by name. Raises NoSuchObject."""
    if name is not None:
        return [find_vhost(broker, name)]
    return sorted(broker.vhosts.values(), key=lambda vhost: vhost.name)


COMMANDS: dict[str, Callable[..., object]] = {
    "add_vhost": add_vhost,
    "delete_vhost": delete_vhost,
    "list_vhosts": list_vhosts,
}
