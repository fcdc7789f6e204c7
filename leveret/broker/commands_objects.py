"""Commands that show what there is: queues, exchanges, connections."""

from collections.abc import Callable

from leveret.amqp.properties import DIRECT_REPLY_TO
from leveret.broker.broker import Broker
from leveret.broker.commands_vhosts import find_vhost, vhosts_named
from leveret.broker.policies import Policy
from leveret.broker.vhost import VHost
from leveret.exchanges.exchange import Exchange
from leveret.queues.arguments import QueueType
from leveret.queues.classic import ClassicQueue


def list_queues(broker: Broker, *, vhost: str | None = None) -> list[dict[str, object]]:
    """The queues of a vhost or of all, with what is in them. Raises NoSuchObject."""
    return [
        _queue(found, found.queues[name])
        for found in vhosts_named(broker, vhost)
        for name in sorted(found.queues)
        if not name.startswith(DIRECT_REPLY_TO)
    ]


def _queue(vhost: VHost, queue: ClassicQueue) -> dict[str, object]:
    match = vhost.policies.match_queue(queue.name, queue.arguments.queue_type)
    is_recovering = queue in vhost.recovering
    return {
        "vhost": vhost.name,
        "name": queue.name,
        "type": queue.arguments.queue_type.value,
        "durable": queue.declaration.durable,
        "auto_delete": queue.declaration.auto_delete,
        "exclusive": queue.declaration.exclusive,
        "policy": _name(match.policy),
        "operator_policy": _name(match.operator_policy),
        "effective_policy_definition": match.definition,
        "messages_ready": None if is_recovering else queue.ready.count,
        "messages_unacknowledged": queue.unacked,
        "messages": None if is_recovering else queue.length,
        "consumers": len(queue.consumers),
        **_offsets(queue),
        "disk_bytes": queue.disk_bytes,
        "retained_bytes": queue.retained_bytes,
        "state": "recovering" if is_recovering else "stopped" if queue.stopped else "running",
    }


def _offsets(queue: ClassicQueue) -> dict[str, object]:
    """Where a stream begins, and where its next message will lie."""
    if queue.log is None or queue.arguments.queue_type is not QueueType.STREAM:
        return {}
    return {"first_offset": queue.log.first_offset, "next_offset": queue.log.next_offset}


def list_exchanges(broker: Broker, *, vhost: str | None = None) -> list[dict[str, object]]:
    """The exchanges of a vhost or of all. Raises NoSuchObject."""
    return [
        _exchange(found, found.exchanges[name])
        for found in vhosts_named(broker, vhost)
        for name in sorted(found.exchanges)
    ]


def _exchange(vhost: VHost, exchange: Exchange) -> dict[str, object]:
    match = vhost.policies.match_exchange(exchange.name)
    return {
        "vhost": vhost.name,
        "name": exchange.name,
        "type": exchange.type_name,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "alternate_exchange": exchange.alternate_exchange,
        "policy": _name(match.policy),
    }


def list_connections(broker: Broker, *, vhost: str | None = None) -> list[dict[str, object]]:
    """The open connections, to one vhost or to all. Raises NoSuchObject."""
    if vhost is not None:
        find_vhost(broker, vhost)
    return [
        {
            "peer": client.peer,
            "user": user_name,
            "vhost": vhost_name,
            "state": client.state,
            "channels": client.channel_count,
        }
        for client, user_name, vhost_name in broker.connections
        if vhost in (None, vhost_name)
    ]


def _name(policy: Policy | None) -> str | None:
    return None if policy is None else policy.name


COMMANDS: dict[str, Callable[..., object]] = {
    "list_queues": list_queues,
    "list_exchanges": list_exchanges,
    "list_connections": list_connections,
}
