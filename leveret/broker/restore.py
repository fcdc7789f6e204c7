"""Restoring a vhost: its exchanges, queues, bindings, policies and limits as they were stored."""

import json

from leveret.broker.definitions import decode_arguments
from leveret.broker.limits import VHostLimits
from leveret.broker.policies import Policy, PolicySet
from leveret.broker.queue_pool import QueuePool
from leveret.broker.vhost import VHost
from leveret.exchanges.destination import Destination
from leveret.exchanges.registry import create_exchange
from leveret.queues.arguments import QueueArguments
from leveret.storage.errors import StorageError
from leveret.storage.metadata import Definitions
from leveret.storage.rows import BindingRow


def restore(vhost: VHost, pool: QueuePool, definitions: Definitions) -> None:
    """Fill a new *vhost* with what *definitions* name for it.

    A queue whose log cannot be read is there, but stopped.
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
    vhost.delays.start()


def _restore_queues(vhost: VHost, pool: QueuePool, definitions: Definitions) -> None:
    vhost_id = vhost.definitions.vhost_id
    queues = [queue for queue in definitions.queues if queue.vhost_id == vhost_id]
    pool.sweep(queue.id for queue in queues)
    for row in queues:
        declared = QueueArguments.parse(decode_arguments(row.arguments), row.name, vhost.name)
        effective = vhost.policies.effective_queue_arguments(declared, row.name)
        try:
            queue = pool.restore(row, declared, counts_tries=effective.counts_tries)
            vhost.add_queue(queue, declared)
        except (OSError, StorageError) as error:
            # The others are none the worse for it; its files stay for whoever repairs them.
            stopped = pool.unopened(row)
            vhost.add_queue(stopped, declared)
            vhost.fail_queue(stopped, error)


def _restore_binding(vhost: VHost, row: BindingRow) -> None:
    source = vhost.exchanges.get(row.source)
    destination: Destination | None = (
        vhost.exchanges.get(row.destination)
        if row.destination_type == "exchange"
        else vhost.queues.get(row.destination)
    )
    if source is None or destination is None:
        return  # its queue was not opened
    vhost.restore_binding(source, destination, row.routing_key, decode_arguments(row.arguments))
