"""Restoring a vhost: its exchanges, queues, bindings, policies and limits as they were stored."""

import json
from functools import partial

from leveret.broker.definitions import decode_arguments
from leveret.broker.limits import VHostLimits
from leveret.broker.policies import Policy, PolicySet
from leveret.broker.queue_pool import QueuePool
from leveret.broker.vhost import VHost
from leveret.exchanges.destination import Destination
from leveret.exchanges.registry import create_exchange
from leveret.queues.arguments import QueueArguments
from leveret.storage.metadata import Definitions
from leveret.storage.rows import BindingRow


def restore(vhost: VHost, pool: QueuePool, definitions: Definitions) -> None:
    """Fill a new *vhost* with what *definitions* name for it.

    The queues are there, and recovered later.
    """
    vhost_id = vhost.definitions.vhost_id
    for parameter in definitions.parameters:
        if (parameter.component, parameter.vhost_id) == (VHostLimits.component, vhost_id):
            vhost.limits = VHostLimits.parse(json.loads(parameter.value))
    for exchange in definitions.exchanges:
        if exchange.vhost_id == vhost_id:
            vhost.exchanges[exchange.name] = create_exchange(
                exchange.type,
                exchange.name,
                vhost_name=vhost.name,
                durable=exchange.durable,
                auto_delete=exchange.auto_delete,
                internal=exchange.internal,
                arguments=decode_arguments(exchange.arguments),
            )
    for restored in vhost.exchanges.values():
        if restored.deduplication:
            vhost.duplicates.open(restored)
    policies = [policy for policy in definitions.policies if policy.vhost_id == vhost_id]
    vhost.use_policies(PolicySet(map(Policy.from_row, policies)))
    _restore_queues(vhost, pool, definitions)
    for binding in definitions.bindings:
        if binding.vhost_id == vhost_id:
            _restore_binding(vhost, binding)
    if not vhost.recovering:
        vhost.delays.start()


def _restore_queues(vhost: VHost, pool: QueuePool, definitions: Definitions) -> None:
    vhost_id = vhost.definitions.vhost_id
    queues = [queue for queue in definitions.queues if queue.vhost_id == vhost_id]
    pool.sweep(queue.id for queue in queues)
    for row in queues:
        declared = QueueArguments.parse(decode_arguments(row.arguments), row.name, vhost.name)
        vhost.expect_queue(
            pool.unopened(row, declared), declared, partial(pool.restore, row, declared)
        )


def _restore_binding(vhost: VHost, row: BindingRow) -> None:
    source = vhost.exchanges.get(row.source)
    destination: Destination | None = (
        vhost.exchanges.get(row.destination)
        if row.destination_type == "exchange"
        else vhost.queues.get(row.destination)
    )
    if source is None or destination is None:
        return
    vhost.restore_binding(source, destination, row.routing_key, decode_arguments(row.arguments))
