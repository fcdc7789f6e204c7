"""ChannelSession: the broker's side of one channel: delivering, settling; a Publisher publishes.

Every method but basic.publish and the plain basic.ack is a function in `handlers_*`, found by its
class in the table that the session hands over.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from pamqp import commands
from pamqp.base import Frame as Method

from leveret.amqp.errors import CommandInvalid, PreconditionFailed
from leveret.amqp.fastpath import encode_deliver_prefix, encode_deliveries
from leveret.amqp.message import (
    HAS_BCC,
    address_content,
    channel_number,
    head_length,
)
from leveret.amqp.methods import build_method
from leveret.broker.awaited_queues import awaited_queues
from leveret.broker.deadlines import Deadlines
from leveret.broker.postings import without_bcc
from leveret.broker.publisher import Publisher
from leveret.broker.turn import Turn
from leveret.broker.unacked import Delivery, Holder, UnackedLedger, grouped
from leveret.broker.vhost import VHost
from leveret.queues.arguments import TimeoutAction
from leveret.queues.classic import ClassicQueue
from leveret.queues.consumers import UNLIMITED, Consumer
from leveret.queues.outcome import Outcome
from leveret.storage.batch import Batch

if TYPE_CHECKING:
    from leveret.broker.handlers import Handler
    from leveret.broker.session import Session


_HEAD = attrgetter("head")
_TARGET = attrgetter("queues", "bits")


class ChannelSession:
    """One channel. Implements `ChannelReceiver` for the protocol and `Outlet` for queues."""

    __slots__ = (
        "_deadlines",
        "_frame_max",
        "_handlers",
        "_prefixes",
        "_turn",
        "consumers",
        "fetched",
        "flow_active",
        "last_queue_name",
        "number",
        "prefetch",
        "publish",
        "publisher",
        "session",
        "shared_prefetch",
        "unacked",
        "vhost",
    )

    def __init__(
        self,
        number: int,
        session: "Session",
        vhost: VHost,
        turn: Turn,
        handlers: "Mapping[type[Method], Handler]",
    ) -> None:
        self.number = number
        self.session = session
        self.vhost = vhost
        self._turn = turn
        self._handlers = handlers
        tuning = session.connection.tuning
        # Publishers send frames of at most what we offered; only a consumer with less needs care.
        self._frame_max = tuning.frame_max if tuning.frame_max < session.offered_frame_max else 0
        # Of the deliveries to a consumer tag, by the length of the message's head.
        self._prefixes: dict[str, dict[int, bytes]] = {}
        self.consumers: dict[str, tuple[Consumer, ClassicQueue, Holder]] = {}
        self.unacked = UnackedLedger()
        self.fetched = 0  # those of `unacked` that came by basic.get, which no prefetch limits
        self.prefetch = 0
        self.shared_prefetch = 0
        self.flow_active = True
        self.last_queue_name = ""
        self._deadlines: Deadlines | None = None
        self.publisher = Publisher(number, session, vhost, turn, self._send_confirm)
        self.publish = self.publisher.publish

    # ---- deliver (Outlet)

    def credit(self) -> int:
        """How many more deliveries the socket and the channel's own limits allow."""
        if not self.session.has_room or not self.flow_active:
            return 0
        if self.shared_prefetch:
            return self.shared_prefetch - len(self.unacked) + self.fetched
        return UNLIMITED

    @property
    def has_shared_limit(self) -> bool:
        """Is there a prefetch limit for the channel as a whole?"""
        return self.shared_prefetch > 0

    def deliver(
        self, consumer: Consumer, batch: Batch, offsets: Sequence[int], *, redelivered: bool
    ) -> None:
        """Send a batch to one of the channel's consumers."""
        head = head_length(batch.attributes)
        messages, length = self.addressed(batch)
        if redelivered:
            messages = [b"\x01" + message[1:] for message in messages]
        count = len(messages)
        first_tag = self.unacked.issue(count)
        if not consumer.no_ack:
            holder = self.consumers[consumer.tag][2]
            self.unacked.add(first_tag, holder, offsets)
            consumer.unacked += count
            if consumer.timeout_ms:
                due_ms = self._turn.now_ms + consumer.timeout_ms
                self._set_deadline(holder, range(first_tag, first_tag + count), due_ms)
        prefixes = self._prefixes.setdefault(consumer.tag, {})
        prefix = prefixes.get(head)
        if prefix is None:
            prefix = encode_deliver_prefix(self.number, consumer.tag.encode(), head)
            prefixes[head] = prefix
        self.session.send(encode_deliveries(prefix, first_tag, messages, length))

    def addressed(self, batch: Batch) -> tuple[list[bytes], int]:
        """The messages of *batch* as this channel sends them, and their length or 0."""
        start = head_length(batch.attributes)
        if batch.attributes & HAS_BCC:
            batch = _without_bcc(batch)
        fits = not self._frame_max or (
            (batch.payload_length or max(map(len, batch.payloads))) - start <= self._frame_max
        )
        if fits and channel_number(batch.attributes) == self.number:
            return batch.payloads, batch.payload_length
        number, frame_max = self.number, self._frame_max
        messages = [address_content(m, start, number, frame_max) for m in batch.payloads]
        # Cutting frames anew changes the length of those that are cut.
        return messages, batch.payload_length if fits else 0

    def cancelled(self, consumer: Consumer) -> None:
        """A consumed queue is gone."""
        self.remove_consumer(consumer.tag)
        if self.session.has_capability("consumer_cancel_notify"):
            self.session.send_method(
                self.number,
                build_method(commands.Basic.Cancel, consumer_tag=consumer.tag, nowait=True),
            )

    def remove_consumer(self, tag: str) -> tuple[Consumer, ClassicQueue, Holder] | None:
        """Take the consumer called *tag* from the channel; its queue has it still."""
        self._prefixes.pop(tag, None)
        return self.consumers.pop(tag, None)

    # ---- settle

    def ack(self, tags: list[int]) -> None:
        """basic.ack of single deliveries."""
        if self.publisher.transaction is not None:
            for tag in tags:
                self.publisher.transaction.settle(self.unacked, tag, Outcome.ACKED, multiple=False)
            return
        for holder, offsets in self.unacked.take(tags):
            self._settle(holder, offsets, Outcome.ACKED)

    def settle_one(self, tag: int, outcome: Outcome) -> None:
        """End one delivery. Raises PreconditionFailed for an unknown tag."""
        for holder, offsets in self.unacked.take([tag]):
            self._settle(holder, offsets, outcome)

    def settle_up_to(self, tag: int, outcome: Outcome) -> None:
        """End all deliveries up to *tag*; 0 is all there are."""
        self._settle_all(self.unacked.take_multiple(tag), outcome)

    def _settle_all(self, deliveries: list[Delivery], outcome: Outcome) -> None:
        for holder, offsets in grouped(deliveries):
            self._settle(holder, offsets, outcome)

    def _settle(self, holder: Holder, offsets: list[int], outcome: Outcome) -> None:
        queue, consumer = holder
        if consumer is not None:
            consumer.unacked -= len(offsets)
            if consumer.cursor is not None:
                consumer.cursor.settled(offsets, outcome)
        else:
            self.fetched -= len(offsets)
        if self.shared_prefetch:
            self.wake_consumers()
        if queue.stopped or self.vhost.queues.get(queue.name) is not queue:
            return  # deleted meanwhile: its deliveries may still be settled, to no effect
        if outcome is Outcome.ACKED:
            queue.settle(offsets)
        elif outcome is Outcome.REJECTED:
            queue.reject(offsets)
        else:
            failed = outcome is Outcome.FAILED
            queue.requeue(offsets, failed=failed, now_ms=self._turn.now_ms)
        self._turn.touch(queue)

    def requeue_all(self) -> None:
        """Everything outstanding becomes ready again, at its old place.

        What a transaction has settled is not outstanding; a rollback makes it so again.
        """
        transaction = self.publisher.transaction
        tags = self.unacked.covered(0, multiple=True)
        if transaction is not None:
            tags = [tag for tag in tags if not transaction.has_settled(tag)]
        for holder, offsets in self.unacked.take(tags):
            self._settle(holder, offsets, Outcome.RETURNED)

    # ---- deliveries that nobody acknowledges

    def _set_deadline(self, holder: Holder, tags: range, due_ms: int) -> None:
        if self._deadlines is None:
            self._deadlines = Deadlines()
        self._deadlines.set(holder, tags, due_ms)

    def check_deadlines(self, now_ms: int) -> None:
        """Take back, or close the channel for, what has been unacknowledged for too long."""
        if self._deadlines is None:
            return
        for holder, tags in self._deadlines.take_late(now_ms, self.unacked):
            queue, consumer = holder
            assert consumer is not None
            if queue.arguments.consumer_timeout_action is TimeoutAction.REQUEUE:
                for _, offsets in self.unacked.expire(tags):
                    self._settle(holder, offsets, Outcome.FAILED)
            else:
                self.session.reject(
                    self.number,
                    PreconditionFailed(
                        f"delivery acknowledgement on channel {self.number} timed out. Timeout "
                        f"value used: {consumer.timeout_ms} ms. This timeout value can be "
                        "configured, see consumers doc guide to learn more"
                    ),
                )
                return

    def wake_consumers(self) -> None:
        """Look again at the queues of this channel's consumers."""
        for _, queue, _ in self.consumers.values():
            self._turn.touch(queue)

    # ---- the rest

    def method(self, method: Method) -> None:
        """Any method but publish and plain ack."""
        handler = self._handlers.get(type(method))
        if handler is None:
            raise CommandInvalid("unimplemented method")
        if self.vhost.recovering:
            awaited = awaited_queues(self, method)
            if awaited:
                ids = method.index.to_bytes(4, "big")
                self.session.wait_for(awaited, self.number, ids, partial(self.method, method))
                return
        handler(self, method)

    def send(self, method: Method) -> None:
        """Reply on this channel."""
        self.session.send_method(self.number, method)

    def reply(self, method: Method, *, nowait: bool, durable: bool) -> None:
        """Reply unless *nowait*; if something *durable* changed, not before it is on disk."""
        if nowait:
            if durable:
                self._turn.wait_for_commit()
        elif durable:
            self.session.commit_then(lambda: self.send(method))
        else:
            self.send(method)

    def commit_logs_then(self, method: Method) -> None:
        """Reply once what this turn wrote is on disk."""
        self.session.commit_then(lambda: self.send(method), logs=True)

    def _send_confirm(self, frame: bytes) -> None:
        channel = self.session.connection.channels.get(self.number)
        if channel is not None and channel.receiver is self and channel.is_open:
            self.session.send(frame)

    def closed(self) -> None:
        """The channel is gone: its consumers first, so that nothing comes back to them."""
        consumers, self.consumers = self.consumers, {}
        deliveries = self.unacked.take_all()
        for consumer, queue, _ in consumers.values():
            if consumer in list(queue.consumers):
                queue.consumers.remove(consumer)
                queue.used(self._turn.now_ms)
                self._turn.touch(queue)
        self._settle_all(deliveries, Outcome.FAILED)
        for _, queue, _ in consumers.values():
            self.vhost.drop_if_unused(queue)
        reply_queue = self.vhost.queues.get(self.publisher.reply_to)
        if reply_queue is not None:  # its consumer was refused
            self.vhost.remove_queue(reply_queue)


def _without_bcc(batch: Batch) -> Batch:
    payloads = [without_bcc(payload, batch.attributes) for payload in batch.payloads]
    return Batch(batch.first_offset, batch.timestamp_ms, batch.attributes, payloads, 0)
