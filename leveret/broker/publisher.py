"""Publisher: the publishing side of one channel: routes, appends, returns and counts confirms."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter, concat, itemgetter
from typing import TYPE_CHECKING

from leveret.amqp.constants import ReplyCode
from leveret.amqp.errors import AmqpError, PreconditionFailed
from leveret.amqp.fastpath import PUBLISH, encode_return
from leveret.amqp.message import EXPIRES, TRANSIENT, encode_attributes, with_header
from leveret.amqp.properties import Facts, PropertyView, explain_expiration
from leveret.broker.appending import publish
from leveret.broker.confirms import ConfirmTracker
from leveret.broker.permissions import Access, Resource
from leveret.broker.postings import routing_keys
from leveret.broker.recovery import NotRecovered
from leveret.broker.routes import IMMEDIATE, MANDATORY, Route, Routed
from leveret.broker.timestamps import Timestamping, stamped
from leveret.broker.transactions import Transaction
from leveret.broker.turn import Turn
from leveret.broker.vhost import VHost
from leveret.queues.classic import ClassicQueue

if TYPE_CHECKING:
    from leveret.broker.session import Session


_HEAD = attrgetter("head")
_TARGET = attrgetter("queues", "bits")


class Publisher:
    """Takes the publishes of one channel; *send_confirm* sends while the channel is open.

    `confirms` and `transaction` are there in the modes of these names. `reply_to` is the address
    that stands for amq.rabbitmq.reply-to in messages from here, if it consumes direct replies.
    """

    __slots__ = (
        "_is_stamping",
        "_number",
        "_permissions",
        "_send_confirm",
        "_session",
        "_turn",
        "_vhost",
        "confirms",
        "reply_to",
        "transaction",
    )

    def __init__(
        self,
        number: int,
        session: "Session",
        vhost: VHost,
        turn: Turn,
        send_confirm: Callable[[bytes], None],
    ) -> None:
        self._number = number
        self._session = session
        self._vhost = vhost
        self._turn = turn
        self._send_confirm = send_confirm
        self._permissions = session.permissions
        self._is_stamping = session.timestamping is not Timestamping.NEVER
        self.confirms: ConfirmTracker | None = None
        self.transaction: Transaction | None = None
        self.reply_to = ""

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
        if facts.has_copies or facts.wants_direct_reply:
            self._publish_singly(methods, facts, contents)
            return
        if facts.has_delay:
            self._publish_delayed(methods, facts, contents)
            return
        method = methods[0]
        if methods.count(method) == len(methods):
            route = self._route(method)
            self._publish(Routed(route.queues, [route], contents, content_length), facts)
            return
        try:
            routes = self._vhost.routes.find_each(methods)
            if not self._permissions.writes_all:
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
        route = self._vhost.routes.find(method)
        if not self._permissions.writes_all:
            self._check_write(route)
        return route

    def _check_write(self, route: Route) -> None:
        # Routes are shared by all users of the vhost, so this is asked anew for each run.
        self._permissions.check(Access.WRITE, Resource.EXCHANGE, route.exchange.name)

    def _publish_singly(self, methods: list[bytes], facts: Facts, contents: list[bytes]) -> None:
        for method, content in zip(methods, contents, strict=True):
            route = self._route(method)
            if facts.has_copies:
                # Refused now, and not when a transaction is committed.
                routing_keys(route.routing_key, _properties(content).headers or {})
            if facts.wants_direct_reply:
                content = self._with_reply_to(content)
            self._publish(Routed(None, [route], [content], len(content)), facts)

    def _publish_delayed(self, methods: list[bytes], facts: Facts, contents: list[bytes]) -> None:
        for method, group in groupby(zip(methods, contents, strict=True), itemgetter(0)):
            run = [content for _, content in group]
            self._publish(Routed(None, [self._route(method)], run, 0), facts)

    def _stamped(self, content: bytes) -> bytes:
        rule, now_ms = self._session.timestamping, self._turn.now_ms
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

        Answers whether all queues took all they were given. What goes to a queue that is being
        recovered is done later, and so is what comes behind it.
        """
        queues, routes, contents, _ = run
        if self._vhost.recovering and self._is_deferred(run, facts):
            return True
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

    def _is_deferred(self, run: Routed, facts: Facts) -> bool:
        """Have *run* wait for queues that are being recovered, or behind another one that does."""
        recovering = self._vhost.recovering
        awaited = [queue for queue in run.queues or () if queue in recovering]
        if not awaited and not self._session.connection.has_deferred:
            return False
        self._defer(awaited, run, facts)
        return True

    def _defer(self, awaited: list[ClassicQueue], run: Routed, facts: Facts) -> None:
        self._session.wait_for(awaited, self._number, PUBLISH, partial(self.enqueue, run, facts))

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
        attributes = encode_attributes(len(head), self._number, flags_of(facts))
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
            attributes = encode_attributes(len(route.head), self._number, flags)
            results = [
                publish(queue, [message], attributes, len(message), self._turn) for queue in queues
            ]
            if any(results):
                refused.append(place)
        return refused

    def _enqueue_singly(self, run: Routed, facts: Facts) -> bool:
        if facts.has_delay and not facts.has_copies and self._hold(run, facts):
            return True
        routes = run.routes if len(run.routes) > 1 else run.routes * len(run.contents)
        is_complete = True
        for place, (route, content) in enumerate(zip(routes, run.contents, strict=True)):
            try:
                posted = self._vhost.postings.post(
                    route.exchange,
                    route.routing_key,
                    route.head + content,
                    encode_attributes(len(route.head), self._number, flags_of(facts)),
                    accepts=self._can_deliver if route.bits & IMMEDIATE else None,
                )
            except NotRecovered as missing:
                rest = run.routes if len(run.routes) == 1 else run.routes[place:]
                left = run._replace(routes=rest, contents=run.contents[place:])
                self._defer(missing.queues, left, facts)
                return is_complete
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

    def _hold(self, run: Routed, facts: Facts) -> bool:
        """Have messages of one route wait; answers False if that must be seen one by one."""
        (route,) = run.routes
        attributes = encode_attributes(len(route.head), self._number, flags_of(facts))
        if not self._vhost.postings.hold_run(
            route.exchange, route.routing_key, route.head, run.contents, attributes
        ):
            return False
        if self.confirms is not None:
            self.confirms.publish(len(run.contents), durable=True, refused=())
            self._turn.confirm(self.confirms)
        return True

    def _can_deliver(self, queue: ClassicQueue) -> bool:
        self._turn.work_off(queue)
        return queue.can_deliver

    def _return(self, run: Routed) -> None:
        routes = run.routes if len(run.routes) > 1 else run.routes * len(run.contents)
        for route, content in zip(routes, run.contents, strict=True):
            self._return_one(route, content, ReplyCode.NO_ROUTE)

    def _return_one(self, route: Route, content: bytes, code: ReplyCode) -> None:
        message = route.head + content
        self._session.send(encode_return(self._number, code, code.name, message, len(route.head)))

    def _check_user_id(self, user_id: str) -> None:
        user = self._session.user
        assert user is not None
        if user_id != user.name and "impersonator" not in user.tags:
            raise PreconditionFailed(
                f"user_id property set to '{user_id}' but authenticated user was '{user.name}'"
            )

    def confirm_select(self) -> None:
        """Enter confirm mode; once is enough."""
        if self.confirms is None:
            self.confirms = ConfirmTracker(
                self._number, send=self._send_confirm, fail=self._session.fail
            )


def _properties(content: bytes) -> PropertyView:
    size = int.from_bytes(content[3:7], "big")
    return PropertyView(content[7 : 7 + size], is_checked=True)


def flags_of(facts: Facts) -> int:
    """The flags in the attributes of messages with these facts."""
    return (0 if facts.persistent else TRANSIENT) | (EXPIRES if facts.expires else 0)
