"""ChannelSession: the broker's side of one channel: publishing, delivering, settling.

The hot methods (`publish`, `ack`, `deliver`) are here; every other method is a function in
`handlers_*`, found by its class in the table that the session hands over.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter, concat
from typing import TYPE_CHECKING

from pamqp import commands
from pamqp.base import Frame as Method

from leveret.amqp.constants import ReplyCode
from leveret.amqp.errors import AmqpError, CommandInvalid, PreconditionFailed
from leveret.amqp.fastpath import encode_deliver_prefix, encode_deliveries, encode_return
from leveret.amqp.message import (
    EXPIRES,
    HAS_BCC,
    TRANSIENT,
    address_content,
    channel_number,
    encode_attributes,
    head_length,
    with_header,
)
from leveret.amqp.methods import build_method
from leveret.amqp.properties import Facts, PropertyView, explain_expiration
from leveret.broker.confirms import ConfirmTracker
from leveret.broker.deadlines import Deadlines
from leveret.broker.permissions import Access, Resource
from leveret.broker.postings import publish, routing_keys, without_bcc
from leveret.broker.routes import IMMEDIATE, MANDATORY, Route, Routed
from leveret.broker.timestamps import Timestamping, stamped
from leveret.broker.transactions import Transaction
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
        "_is_stamping",
        "_prefixes",
        "_turn",
        "confirms",
        "consumers",
        "fetched",
        "flow_active",
        "last_queue_name",
        "number",
        "prefetch",
        "reply_to",
        "session",
        "shared_prefetch",
        "transaction",
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
        self._is_stamping = session.timestamping is not Timestamping.NEVER
        tuning = session.connection.tuning
        # Publishers send frames of at most what we offered; only a consumer with less needs care.
        self._frame_max = tuning.frame_max if tuning.frame_max < session.offered_frame_max else 0
        self._prefixes: dict[tuple[str, int], bytes] = {}
        self.consumers: dict[str, tuple[Consumer, ClassicQueue, Holder]] = {}
        self.unacked = UnackedLedger()
        self.fetched = 0  # those of `unacked` that came by basic.get, which no prefetch limits
        self.confirms: ConfirmTracker | None = None
        self.transaction: Transaction | None = None
        self.prefetch = 0
        self.shared_prefetch = 0
        self.flow_active = True
        self.last_queue_name = ""
        self.reply_to = ""  # what stands for amq.rabbitmq.reply-to in messages from here
        self._deadlines: Deadlines | None = None

    # ---- publish

    def publish(
        self, methods: list[bytes], facts: Facts, contents: list[bytes], content_length: int
    ) -> None:
        """Route a run of messages and append it to its queues."""
        if facts.user_id is not None:
            self._check_user_id(facts.user_id)
        if facts.invalid_expiration is not None:
            text = facts.invalid_expiration
            raise PreconditionFailed(f"invalid expiration '{text}': {explain_expiration(text)}")
        if self._is_stamping:
            contents = [self._stamped(content) for content in contents]
            content_length = 0
        if facts.has_instructions or facts.wants_direct_reply:
            self._publish_singly(methods, facts, contents)
            return
        method = methods[0]
        if methods.count(method) == len(methods):
            route = self._route(method)
            self._publish(Routed(route.queues, [route], contents, content_length), facts)
            return
        try:
            routes = self.vhost.routes.find_each(methods)
            if not self.session.permissions.writes_all:
                for route in routes:
                    self._check_write(route)
        except AmqpError:
            # What comes before the one at fault is published; the one at fault raises again.
            for method, content in zip(methods, contents, strict=True):
                self.publish([method], facts, [content], len(content))
            raise
        targets = [route.queues for route in routes]
        if targets.count(targets[0]) == len(targets) and len({r.bits for r in routes}) == 1:
            self._publish(Routed(targets[0], routes, contents, content_length), facts)
            return
        start = 0
        for key, group in groupby(routes, _TARGET):
            part = list(group)
            stop = start + len(part)
            run = Routed(key[0], part, contents[start:stop], content_length)
            self._publish(run, facts)
            start = stop

    def _route(self, method: bytes) -> Route:
        route = self.vhost.routes.find(method)
        if not self.session.permissions.writes_all:
            self._check_write(route)
        return route

    def _check_write(self, route: Route) -> None:
        # Routes are shared by all users of the vhost, so this is asked anew for each run.
        self.session.permissions.check(Access.WRITE, Resource.EXCHANGE, route.exchange.name)

    def _publish_singly(self, methods: list[bytes], facts: Facts, contents: list[bytes]) -> None:
        for method, content in zip(methods, contents, strict=True):
            route = self._route(method)
            if facts.has_instructions:
                # Refused now, and not when a transaction is committed.
                routing_keys(route.routing_key, _properties(content).headers or {})
            if facts.wants_direct_reply:
                content = self._with_reply_to(content)
            self._publish(Routed(None, [route], [content], len(content)), facts)

    def _stamped(self, content: bytes) -> bytes:
        rule, now_ms = self.session.timestamping, self._turn.now_ms
        payload = stamped(_properties(content), rule, now_ms)
        return content if payload is None else with_header(content, 0, payload)

    def _with_reply_to(self, content: bytes) -> bytes:
        if not self.reply_to:
            raise PreconditionFailed("fast reply consumer does not exist")
        payload = _properties(content).with_changes(reply_to=self.reply_to)
        return with_header(content, 0, payload)

    def _publish(self, run: Routed, facts: Facts) -> None:
        if self.transaction is not None:
            self.transaction.publish(run, facts)
        else:
            self.enqueue(run, facts)

    def enqueue(self, run: Routed, facts: Facts) -> bool:
        """Append a routed run to its queues, return what is unroutable, count the confirms.

        Answers whether all queues took all they were given.
        """
        queues, routes, contents, _ = run
        if queues is None:
            return self._enqueue_singly(run, facts)
        refused: Sequence[int] = ()
        if queues:
            refused = self._append(queues, run, facts)
        elif routes[0].bits & MANDATORY:
            self._return(run)
        if self.confirms is not None:
            durable = facts.persistent and any(q.declaration.is_durable for q in queues)
            self.confirms.publish(len(contents), durable=durable, refused=refused)
            self._turn.confirm(self.confirms)
        return not refused

    def _append(self, queues: tuple[ClassicQueue, ...], run: Routed, facts: Facts) -> Sequence[int]:
        """Answers the places of the messages that a queue refused."""
        head = run.routes[0].head
        length = len(head) + run.content_length if run.content_length else 0
        if len(run.routes) == 1:
            messages = [head + content for content in run.contents]
        else:
            heads = list(map(_HEAD, run.routes))
            messages = list(map(concat, heads, run.contents))  # type: ignore[arg-type]  # bytes only
            lengths = set(map(len, heads))
            if len(lengths) > 1:
                return self._append_singly(queues, run, messages, facts)
        turn = self._turn
        attributes = encode_attributes(len(head), self.number, flags_of(facts))
        refused: set[int] = set()
        for queue in queues:
            places = publish(queue, messages, attributes, length, turn)
            if places:
                refused.update(places)
        return sorted(refused) if refused else ()

    def _append_singly(
        self,
        queues: tuple[ClassicQueue, ...],
        run: Routed,
        messages: list[bytes],
        facts: Facts,
    ) -> Sequence[int]:
        """Heads of different lengths: a batch for each, which the store joins where it can."""
        refused = []
        flags = flags_of(facts)
        for place, (route, message) in enumerate(zip(run.routes, messages, strict=True)):
            attributes = encode_attributes(len(route.head), self.number, flags)
            results = [
                publish(queue, [message], attributes, len(message), self._turn) for queue in queues
            ]
            if any(results):
                refused.append(place)
        return refused

    def _enqueue_singly(self, run: Routed, facts: Facts) -> bool:
        routes = run.routes if len(run.routes) > 1 else run.routes * len(run.contents)
        is_complete = True
        for route, content in zip(routes, run.contents, strict=True):
            posted = self.vhost.postings.post(
                route.exchange,
                route.routing_key,
                route.head + content,
                encode_attributes(len(route.head), self.number, flags_of(facts)),
                accepts=self._can_deliver if route.bits & IMMEDIATE else None,
            )
            if not posted.is_routed:
                if posted.lacks_consumers:
                    self._return_one(route, content, ReplyCode.NO_CONSUMERS)
                elif route.bits & (MANDATORY | IMMEDIATE):
                    self._return_one(route, content, ReplyCode.NO_ROUTE)
            if self.confirms is not None:
                refused = (0,) if posted.refused_by else ()
                self.confirms.publish(1, durable=posted.is_durable, refused=refused)
                self._turn.confirm(self.confirms)
            is_complete &= not posted.refused_by
        return is_complete

    def refuse(self, count: int) -> None:
        """*count* publishes are dropped: nack them, if this channel is in confirm mode."""
        if self.confirms is not None:
            self.confirms.publish(count, durable=False, refused=range(count))
            self._turn.confirm(self.confirms)

    def _can_deliver(self, queue: ClassicQueue) -> bool:
        self._turn.work_off(queue)
        return queue.can_deliver

    def _return(self, run: Routed) -> None:
        routes = run.routes if len(run.routes) > 1 else run.routes * len(run.contents)
        for route, content in zip(routes, run.contents, strict=True):
            self._return_one(route, content, ReplyCode.NO_ROUTE)

    def _return_one(self, route: Route, content: bytes, code: ReplyCode) -> None:
        message = route.head + content
        self.session.send(encode_return(self.number, code, code.name, message, len(route.head)))

    def _check_user_id(self, user_id: str) -> None:
        user = self.session.user
        assert user is not None
        if user_id != user.name and "impersonator" not in user.tags:
            raise PreconditionFailed(
                f"user_id property set to '{user_id}' but authenticated user was '{user.name}'"
            )

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
        key = consumer.tag, head
        prefix = self._prefixes.get(key)
        if prefix is None:
            prefix = encode_deliver_prefix(self.number, consumer.tag.encode(), head)
            self._prefixes[key] = prefix
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
        self.consumers.pop(consumer.tag, None)
        if self.session.has_capability("consumer_cancel_notify"):
            self.session.send_method(
                self.number,
                build_method(commands.Basic.Cancel, consumer_tag=consumer.tag, nowait=True),
            )

    # ---- settle

    def ack(self, tags: list[int]) -> None:
        """basic.ack of single deliveries."""
        if self.transaction is not None:
            for tag in tags:
                self.transaction.settle(self.unacked, tag, Outcome.ACKED, multiple=False)
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
        transaction = self.transaction
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

    def confirm_select(self) -> None:
        """Enter confirm mode; once is enough."""
        if self.confirms is None:
            self.confirms = ConfirmTracker(
                self.number, send=self._send_confirm, fail=self.session.fail
            )

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
        reply_queue = self.vhost.queues.get(self.reply_to)
        if reply_queue is not None:  # its consumer was refused
            self.vhost.remove_queue(reply_queue)


def _without_bcc(batch: Batch) -> Batch:
    payloads = [without_bcc(payload, batch.attributes) for payload in batch.payloads]
    return Batch(batch.first_offset, batch.timestamp_ms, batch.attributes, payloads, 0)


def _properties(content: bytes) -> PropertyView:
    size = int.from_bytes(content[3:7], "big")
    return PropertyView(content[7 : 7 + size], is_checked=True)


def flags_of(facts: Facts) -> int:
    """The flags in the attributes of messages with these facts."""
    return (0 if facts.persistent else TRANSIENT) | (EXPIRES if facts.expires else 0)
