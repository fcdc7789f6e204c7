"""VHost: one name space of exchanges and queues, and the rules of making and removing them.

Rules and reply texts are those of RabbitMQ. Methods that change something durable answer True:
the caller then waits for the definitions to be on disk before it replies. So do those that find
what another connection has just made.
"""

import base64
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from leveret.amqp.errors import (
    AccessRefused,
    InternalError,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)
from leveret.amqp.properties import DIRECT_REPLY_TO
from leveret.amqp.tables import Field, Table
from leveret.broker.appending import Refusals
from leveret.broker.dead_letters import DeadLetters
from leveret.broker.definitions import DefinitionLog, is_durable
from leveret.broker.delays import DelayedMessages
from leveret.broker.duplicates import Duplicates
from leveret.broker.keeper import Keeper
from leveret.broker.limits import VHostLimits
from leveret.broker.policies import PolicySet
from leveret.broker.postings import Postings, history_of
from leveret.broker.recovery import Recovery
from leveret.broker.routes import RouteTable
from leveret.broker.turn import Turn
from leveret.exchanges.binding import Binding
from leveret.exchanges.default import DefaultExchange
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange import ALTERNATE_EXCHANGE, Exchange
from leveret.exchanges.registry import PREDECLARED, create_exchange
from leveret.queues.arguments import QueueArguments, QueueType
from leveret.queues.classic import ClassicQueue
from leveret.queues.consumers import Consumer
from leveret.queues.declaration import QueueDeclaration
from leveret.queues.delay import DelayStore
from leveret.storage.errors import DiskFull, StorageError
from leveret.storage.key_log import KeyLog

logger = logging.getLogger(__name__)

RESERVED_PREFIX = "amq."
GENERATED_PREFIX = "amq.gen-"
"""Of the names of queues that were declared without one."""


class QueueFactory(Protocol):
    """Makes queues: gives each its store and, if it is durable, its id and directory."""

    def create(
        self, declaration: QueueDeclaration, arguments: QueueArguments, owner: object | None
    ) -> ClassicQueue:
        """A new, empty queue; *arguments* are those of the declaration."""

    def open_delays(self) -> DelayStore:
        """The delayed messages of the vhost."""

    def open_key_log(self, name: str) -> KeyLog:
        """The file of the keys called *name*."""


class RestoreQueue(Protocol):
    """How a queue comes back from its log."""

    def __call__(self, effective: QueueArguments) -> ClassicQueue:
        """The queue, with what the *effective* arguments need. Raises OSError, StorageError."""


class VHost:
    """The exchanges, queues and bindings of one virtual host.

    The queues in `recovering` are there by name; their messages are not known yet.
    *check_exchange_limit* is given the names of a new exchange and of the vhost and raises
    PreconditionFailed if the broker may not have another one.
    """

    def __init__(
        self,
        name: str,
        turn: Turn,
        definitions: DefinitionLog,
        queue_factory: QueueFactory,
        check_exchange_limit: Callable[[str, str], None],
        recovery: Recovery,
    ) -> None:
        self.name = name
        self.turn = turn
        self.definitions = definitions
        self.policies = PolicySet()
        self.limits = VHostLimits()
        self._queue_factory = queue_factory
        self._check_exchange_limit = check_exchange_limit
        self.queues: dict[str, ClassicQueue] = {}
        self.recovery = recovery
        self.recovering: set[ClassicQueue] = set()
        self._exclusive: dict[object, dict[ClassicQueue, None]] = {}
        self.exchanges: dict[str, Exchange] = {"": DefaultExchange(self.queues)}
        for predeclared in PREDECLARED:
            self.exchanges[predeclared.name] = create_exchange(
                predeclared.type_name,
                predeclared.name,
                vhost_name=name,
                durable=True,
                internal=predeclared.internal,
            )
        self.routes = RouteTable(name, self.exchanges)
        self.delays = DelayedMessages(queue_factory.open_delays(), turn, self._post_due)
        self.duplicates = Duplicates(queue_factory.open_key_log, turn)
        self.postings = Postings(
            self.routes.router, turn, self.delays, self.duplicates, self.recovering
        )
        dead_letters = DeadLetters(
            self.exchanges.get, self.postings, turn, self.recovering, recovery.want
        )
        self._keeper = Keeper(dead_letters, self.duplicates, turn, self._remove_unused)

    # ---- exchanges

    def exchange(self, name: str) -> Exchange:
        """The exchange called *name*. Raises NotFound."""
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise NotFound(f"no exchange '{name}' in vhost '{self.name}'")
        return exchange

    def declare_exchange(
        self,
        name: str,
        type_name: str,
        *,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Table,
    ) -> bool:
        """Make the exchange, or check that the one that exists is the same (§1.6.2.1)."""
        current = self.exchanges.get(name)
        if current is None and name.startswith(RESERVED_PREFIX):
            raise AccessRefused(f"exchange name '{name}' contains reserved prefix 'amq.*'")
        exchange = create_exchange(
            type_name,
            name,
            vhost_name=self.name,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments,
        )
        if current is not None:
            current.check_equivalent(exchange)
            return current.durable and self.definitions.is_pending
        self._check_exchange_limit(name, self.name)
        self.exchanges[name] = exchange
        self._configure_exchange(exchange)
        self.routes.changed()
        return self.definitions.exchange_declared(exchange)

    def _configure_exchange(self, exchange: Exchange) -> None:
        # A declaration comes before a policy. The default exchange has no alternate.
        if exchange.name and ALTERNATE_EXCHANGE not in exchange.arguments:
            exchange.alternate_exchange = self.policies.alternate_exchange(exchange.name)

    def delete_exchange(self, name: str, *, if_unused: bool) -> bool:
        """Remove the exchange and all bindings from and to it; a missing one is fine."""
        if name.startswith(RESERVED_PREFIX):
            raise AccessRefused(
                f"deletion of system exchange '{name}' in vhost '{self.name}' not allowed"
            )
        exchange = self.exchanges.get(name)
        if exchange is None:
            return False
        if if_unused and exchange.has_bindings:
            raise PreconditionFailed(f"exchange '{name}' in vhost '{self.name}' in use")
        self._remove_exchange(exchange)
        return exchange.durable

    def _remove_exchange(self, exchange: Exchange) -> None:
        del self.exchanges[exchange.name]
        self.definitions.exchange_deleted(exchange)
        if exchange.deduplication:
            self.duplicates.remove(exchange)
        self._unbind_destination(exchange)
        self.routes.changed()

    # ---- queues

    def queue(self, name: str, owner: object) -> ClassicQueue:
        """The queue called *name*, as *owner* may use it.

        Raises NotFound, for a queue that has stopped too, and ResourceLocked.
        """
        queue = self.queues.get(name)
        if queue is None or name.startswith(DIRECT_REPLY_TO):
            raise NotFound(f"no queue '{name}' in vhost '{self.name}'")
        self._check_owner(queue, owner)
        if queue.stopped:
            raise NotFound(queue.stopped)
        return queue

    def _check_owner(self, queue: ClassicQueue, owner: object) -> None:
        if queue.owner is not None and queue.owner is not owner:
            raise self._locked(queue)

    def _locked(self, queue: ClassicQueue) -> ResourceLocked:
        return ResourceLocked(
            f"cannot obtain exclusive access to locked queue '{queue.name}' in vhost "
            f"'{self.name}'. It could be originally declared on another connection or the "
            "exclusive property value does not match that of the original declaration."
        )

    def declare_queue(
        self, declaration: QueueDeclaration, owner: object
    ) -> tuple[ClassicQueue, bool]:
        """Make the queue, or check that the one that exists is the same (§1.7.2.1).

        An empty name is replaced by a generated one. *owner* is the declaring connection.
        """
        if not declaration.name:
            for kind in (QueueType.QUORUM, QueueType.STREAM):
                if declaration.arguments.get("x-queue-type") == Field("S", kind):
                    raise PreconditionFailed(
                        f"Cannot declare a server-named queue for type rabbit_{kind}_queue"
                    )
            declaration = QueueDeclaration(
                generated_name(GENERATED_PREFIX),
                declaration.durable,
                declaration.exclusive,
                declaration.auto_delete,
                declaration.arguments,
            )
        elif (current := self.queues.get(declaration.name)) is not None:
            if declaration.exclusive != current.declaration.exclusive:
                raise self._locked(current)
            self._check_owner(current, owner)
            current.declaration.check_equivalent(declaration, self.name)
            is_pending = current.declaration.is_durable and self.definitions.is_pending
            return self.queue(declaration.name, owner), is_pending
        elif declaration.name.startswith(RESERVED_PREFIX):
            raise AccessRefused(f"queue name '{declaration.name}' contains reserved prefix 'amq.*'")
        self._check_queue_limit(declaration.name)
        arguments = QueueArguments.parse(declaration.arguments, declaration.name, self.name)
        if arguments.queue_type is not QueueType.CLASSIC:
            declaration.check_lasting(self.name)
        queue = self._queue_factory.create(
            declaration, arguments, owner if declaration.exclusive else None
        )
        self.add_queue(queue, arguments)
        return queue, self.definitions.queue_declared(queue)

    def _check_queue_limit(self, name: str) -> None:
        limit = self.limits.max_queues
        if limit is None:
            return
        count = sum(not queue.startswith(DIRECT_REPLY_TO) for queue in self.queues)
        if count >= limit:
            raise PreconditionFailed(
                f"cannot declare queue '{name}': queue limit in vhost '{self.name}' ({limit}) "
                "is reached"
            )

    def add_reply_queue(self) -> ClassicQueue:
        """A queue for direct replies, under a name nobody can guess; gone with its consumer."""
        declaration = QueueDeclaration(
            generated_name(f"{DIRECT_REPLY_TO}."),
            durable=False,
            exclusive=False,
            auto_delete=True,
            arguments={},
        )
        queue = self._queue_factory.create(declaration, QueueArguments(), None)
        self.add_queue(queue, QueueArguments())
        return queue

    def expect_queue(
        self, queue: ClassicQueue, arguments: QueueArguments, restore: RestoreQueue
    ) -> None:
        """Enter a queue that is to be recovered by *restore*; *arguments* as in `add_queue`."""
        self.queues[queue.name] = queue
        queue.arguments = queue.declared_arguments = arguments
        self.recovering.add(queue)
        self.recovery.add(
            queue,
            partial(self._restore, queue.name, arguments, restore),
            partial(self._recovered, queue),
        )

    def _restore(self, name: str, declared: QueueArguments, restore: RestoreQueue) -> ClassicQueue:
        """Recover a queue; not in the loop. Raises OSError, StorageError."""
        effective = self.policies.effective_queue_arguments(declared, name)
        queue = restore(effective)
        queue.declared_arguments = declared
        # What this reads of the messages is not read in the loop. Keys are shared with the loop.
        if effective != queue.arguments and not effective.deduplicates:
            queue.configure(effective, self._keeper, self.turn.now_ms)
        return queue

    def _recovered(self, queue: ClassicQueue, made: ClassicQueue, error: Exception | None) -> None:
        """*queue* can be used: it is what was *made* of its log, or it has stopped."""
        if error is None:
            queue.become(made)
        if queue not in self.recovering:
            return  # it was deleted meanwhile
        self._awaits_no_more(queue)
        try:
            self._recovered_with(queue, error)
        except (OSError, StorageError) as failure:
            self.fail_queue(queue, failure)

    def _awaits_no_more(self, queue: ClassicQueue) -> None:
        self.recovering.discard(queue)
        if not self.recovering:
            self.delays.start()

    def _recovered_with(self, queue: ClassicQueue, error: Exception | None) -> None:
        if error is not None:
            # The others are none the worse for it; its files stay for whoever repairs them.
            self.fail_queue(queue, error)
            return
        effective = self._arguments(queue)
        if effective != queue.arguments:
            queue.configure(effective, self._keeper, self.turn.now_ms)
        if queue.ready.count or not effective.is_plain:
            self.turn.touch(queue)

    def add_queue(self, queue: ClassicQueue, arguments: QueueArguments) -> None:
        """Enter a new queue into the pool; *arguments* are those it was declared with."""
        self.queues[queue.name] = queue
        queue.declared_arguments = arguments
        effective = self._arguments(queue)
        if effective != queue.arguments:
            queue.configure(effective, self._keeper, self.turn.now_ms)
            self.turn.touch(queue)
        if queue.owner is not None:
            self._exclusive.setdefault(queue.owner, {})[queue] = None
        self.routes.changed()

    def delete_queue(
        self, name: str, owner: object, *, if_unused: bool, if_empty: bool
    ) -> tuple[int, bool]:
        """Remove the queue; answers how many messages were ready. A missing one is fine."""
        queue = self.queues.get(name)
        if queue is None or name.startswith(DIRECT_REPLY_TO):
            return 0, False
        self._check_owner(queue, owner)
        queue.used(self.turn.now_ms)
        self.turn.work_off(queue)
        if if_empty and queue.ready.count:
            raise PreconditionFailed(f"queue '{name}' in vhost '{self.name}' not empty")
        if if_unused and len(queue.consumers):
            raise PreconditionFailed(f"queue '{name}' in vhost '{self.name}' in use")
        count = queue.ready.count
        self.remove_queue(queue)
        return count, queue.declaration.is_durable

    def remove_queue(self, queue: ClassicQueue) -> None:
        """Take a queue out of the pool, with its bindings, consumers and messages.

        The definition goes first: a directory without one is swept at the next start, a
        definition without its directory would be a queue that lost its messages.
        """
        del self.queues[queue.name]
        if queue.owner in self._exclusive:
            self._exclusive[queue.owner].pop(queue, None)
        self.routes.changed()
        durable = self.definitions.queue_deleted(queue)
        self._unbind_destination(queue)
        self.turn.forget(queue)
        self._keeper.forget(queue)
        for consumer in list(queue.consumers):
            queue.consumers.remove(consumer)
            consumer.outlet.cancelled(consumer)
        if queue in self.recovering:
            self._awaits_no_more(queue)
            self.recovery.drop(queue)
        if durable:
            self.definitions.wait(partial(self._definition_deleted, queue))
            self.turn.wait_for_commit()
        else:
            queue.delete()

    def _definition_deleted(self, queue: ClassicQueue, error: Exception | None) -> None:
        self.recovery.once_idle(queue, partial(_definition_deleted, queue, error))

    def _post_due(
        self, exchange_name: str, routing_key: str, messages: list[bytes], attributes: int
    ) -> Refusals:
        exchange = self.exchanges.get(exchange_name)
        if exchange is None:
            return {}
        return self.postings.post_due(exchange, routing_key, messages, attributes)

    def _remove_unused(self, queue: ClassicQueue) -> None:
        if self.queues.get(queue.name) is queue:  # it may just have been deleted
            logger.info("queue expired: vhost=%s queue=%s", self.name, queue.name)
            self.remove_queue(queue)

    def fail_queue(self, queue: ClassicQueue, error: Exception) -> None:
        """A queue's log cannot be trusted any more: stop the queue, keep its files.

        It keeps its name and bindings: what is published to it must fail, not go nowhere, and a
        new queue of that name would have its files removed.
        """
        logger.error("queue stopped: vhost=%s queue=%s: %s", self.name, queue.name, error)
        queue.stop(
            f"queue '{queue.name}' in vhost '{self.name}' has stopped: its storage failed", error
        )
        self.turn.forget(queue)
        for consumer in list(queue.consumers):
            queue.consumers.remove(consumer)
            consumer.outlet.cancelled(consumer)

    def cancel(self, queue: ClassicQueue, consumer: Consumer) -> None:
        """Remove a consumer from its queue."""
        queue.consumers.remove(consumer)
        queue.used(self.turn.now_ms)
        self.turn.touch(queue)
        self.drop_if_unused(queue)

    def drop_if_unused(self, queue: ClassicQueue) -> None:
        """An auto-delete queue goes with its last consumer."""
        if (
            queue.declaration.auto_delete
            and not len(queue.consumers)
            and self.queues.get(queue.name) is queue
        ):
            self.remove_queue(queue)

    # ---- bindings

    def bind(
        self, source_name: str, destination: Destination, routing_key: str, arguments: Table
    ) -> bool:
        """Bind *destination* to the exchange called *source_name*."""
        source = self.exchange(source_name)
        binding = Binding(source_name, destination, routing_key, arguments)
        if not source.bind(binding):
            return is_durable(source, binding) and self.definitions.is_pending
        self.routes.changed()
        history = history_of(source)
        if history is not None:
            self.postings.replay(destination, history.history())
        return self.definitions.bound(source, binding)

    def restore_binding(
        self, source: Exchange, destination: Destination, routing_key: str, arguments: Table
    ) -> None:
        """Bind as the definitions say."""
        source.bind(Binding(source.name, destination, routing_key, arguments))
        self.routes.changed()

    def unbind(
        self, source_name: str, destination: Destination, routing_key: str, arguments: Table
    ) -> bool:
        """Undo a binding; a missing one is fine."""
        source = self.exchanges.get(source_name)
        binding = Binding(source_name, destination, routing_key, arguments)
        if source is None or not source.unbind(binding):
            return False
        self.routes.changed()
        durable = self.definitions.unbound(source, binding)
        self._drop_exchange_if_unused(source)
        return durable

    def _unbind_destination(self, destination: Destination) -> None:
        """Remove the bindings to *destination*; their rows go with its own definition."""
        for source in list(self.exchanges.values()):
            if source.unbind_destination(destination):
                self._drop_exchange_if_unused(source)

    def _drop_exchange_if_unused(self, exchange: Exchange) -> None:
        if exchange.auto_delete and not exchange.has_bindings:
            self._remove_exchange(exchange)

    # ---- policies

    def use_policies(self, policies: PolicySet) -> None:
        """Go by *policies* from now on, with what exists as well."""
        self.policies = policies
        for exchange in self.exchanges.values():
            self._configure_exchange(exchange)
        for queue in list(self.queues.values()):
            try:
                self._change_arguments(queue)
            except (OSError, StorageError) as error:
                self.fail_queue(queue, error)
        self.routes.changed()

    def _change_arguments(self, queue: ClassicQueue) -> None:
        if queue in self.recovering:
            return  # it will go by those that are in force when it is there
        arguments = self._arguments(queue)
        if arguments != queue.arguments and not queue.stopped:
            with suppress(InternalError):  # it has stopped now
                # What was published in this turn counts as what is there.
                self.turn.work_off(queue)
                queue.configure(arguments, self._keeper, self.turn.now_ms)

    def _arguments(self, queue: ClassicQueue) -> QueueArguments:
        return self.policies.effective_queue_arguments(queue.declared_arguments, queue.name)

    # ---- end

    def release(self, owner: object) -> None:
        """The connection *owner* is gone: its exclusive queues go with it."""
        for queue in list(self._exclusive.pop(owner, ())):
            self.remove_queue(queue)

    def delete(self) -> None:
        """Remove all that is in it, but for its definition."""
        for queue in list(self.queues.values()):
            self.remove_queue(queue)
        for kept in (self.delays, self.duplicates):
            self.turn.forget(kept)
        self.duplicates.close()
        self.definitions.wait(partial(_definition_deleted, self.delays))
        self.turn.wait_for_commit()

    def close(self) -> None:
        """Let go of all files."""
        self.duplicates.close()
        try:
            self.delays.close()
        except (OSError, StorageError) as error:
            logger.error("delayed messages not closed: vhost=%s: %s", self.name, error)
        is_full = False
        for queue in self.queues.values():
            try:
                queue.flush()
            except DiskFull:  # nobody was told that what is left is safe
                is_full = True
            except (OSError, StorageError) as error:
                self.fail_queue(queue, error)
        for queue in self.queues.values():
            try:
                if not is_full:  # else what is settled here may have got nowhere else
                    queue.flush_state()
                queue.close()
            except (OSError, StorageError) as error:
                self.fail_queue(queue, error)


def generated_name(prefix: str) -> str:
    """*prefix* and 22 characters that nobody can guess, as RabbitMQ names queues and consumers."""
    return prefix + base64.urlsafe_b64encode(secrets.token_bytes(16)).rstrip(b"=").decode()


def _definition_deleted(holder: ClassicQueue | DelayedMessages, error: Exception | None) -> None:
    if error is None:
        holder.delete()
    else:
        holder.close()  # the next start brings it back: nobody was told that it is gone
