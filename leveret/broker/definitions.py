"""Definitions: the durable exchanges, queues and bindings of a vhost, written as they change.

Changes are handed to the committer; a declare waits for it before it is answered.
"""

from leveret.amqp.tables import Table, encode_table, read_table
from leveret.exchanges.binding import Binding
from leveret.exchanges.exchange import Exchange
from leveret.queues.classic import ClassicQueue
from leveret.storage.changes import (
    Change,
    DeleteBinding,
    DeleteExchange,
    DeleteQueue,
    PutBinding,
    PutExchange,
    PutQueue,
)
from leveret.storage.committer import Committer, Waiter
from leveret.storage.rows import BindingRow, ExchangeRow, QueueRow


class DefinitionLog:
    """Turns what happens in one vhost into changes of the definitions database.

    Each method answers whether something durable changed; only then is there anything to wait for.
    """

    __slots__ = ("_committer", "vhost_id")

    def __init__(self, committer: Committer, vhost_id: int) -> None:
        self._committer = committer
        self.vhost_id = vhost_id

    def exchange_declared(self, exchange: Exchange) -> bool:
        """An exchange was made."""
        return exchange.durable and self.write(
            PutExchange(
                ExchangeRow(
                    self.vhost_id,
                    exchange.name,
                    exchange.type_name,
                    exchange.durable,
                    exchange.auto_delete,
                    exchange.internal,
                    encode_table(exchange.arguments),
                )
            )
        )

    def exchange_deleted(self, exchange: Exchange) -> bool:
        """An exchange went, and its bindings with it."""
        return exchange.durable and self.write(DeleteExchange(self.vhost_id, exchange.name))

    def queue_declared(self, queue: ClassicQueue) -> bool:
        """A queue was made."""
        declaration = queue.declaration
        return declaration.is_durable and self.write(
            PutQueue(
                QueueRow(
                    queue.id,
                    self.vhost_id,
                    queue.name,
                    "classic",
                    declaration.durable,
                    declaration.auto_delete,
                    declaration.exclusive,
                    encode_table(declaration.arguments),
                )
            )
        )

    def queue_deleted(self, queue: ClassicQueue) -> bool:
        """A queue went, and its bindings with it."""
        return queue.declaration.is_durable and self.write(DeleteQueue(queue.id))

    def bound(self, source: Exchange, binding: Binding) -> bool:
        """A binding was made."""
        return is_durable(source, binding) and self.write(PutBinding(self._row(binding)))

    def unbound(self, source: Exchange, binding: Binding) -> bool:
        """A binding went."""
        return is_durable(source, binding) and self.write(DeleteBinding(self._row(binding)))

    @property
    def is_pending(self) -> bool:
        """Is there a definition that is not known to be on disk?"""
        return self._committer.has_changes

    def wait(self, waiter: Waiter) -> None:
        """Tell *waiter* once everything written so far is durable."""
        self._committer.wait_for_changes(waiter)

    def _row(self, binding: Binding) -> BindingRow:
        destination = binding.destination
        return BindingRow(
            self.vhost_id,
            binding.source,
            destination.name,
            "exchange" if isinstance(destination, Exchange) else "queue",
            binding.routing_key,
            encode_table(binding.arguments),
        )

    def write(self, change: Change) -> bool:
        """Something else was set for the vhost."""
        self._committer.change(change)
        return True


def is_durable(source: Exchange, binding: Binding) -> bool:
    """Does the binding outlive the broker? Only if both its ends do."""
    destination = binding.destination
    if isinstance(destination, Exchange):
        return source.durable and destination.durable
    assert isinstance(destination, ClassicQueue)
    return source.durable and destination.declaration.is_durable


def decode_arguments(raw: bytes) -> Table:
    """Arguments as they were written."""
    return read_table(raw, 0, len(raw))[0] if raw else {}
