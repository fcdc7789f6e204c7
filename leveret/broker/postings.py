"""Postings: one message at a time, for whatever its exchange and its headers ask for.

The way of what a run of publishes cannot do: copies by CC and BCC, routing by properties, delays,
duplicates, exchanges that keep a history; and of messages that the broker itself sends: dead
letters and those whose delay is over.
"""

from collections.abc import Callable, Container, Sequence
from typing import NamedTuple, Protocol, cast

from leveret.amqp.delay_header import asked_delay_ms, begin_delays, with_delay_over
from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.message import (
    HAS_BCC,
    HAS_COPIES,
    TRANSIENT,
    decode_head,
    header_payload,
    with_header,
)
from leveret.amqp.properties import NO_PROPERTIES, PropertyView, may_instruct
from leveret.amqp.tables import Table, type_name
from leveret.broker.appending import Refusals, publish
from leveret.broker.duplicates import Duplicates
from leveret.broker.recovery import NotRecovered
from leveret.broker.turn import Turn
from leveret.exchanges.delayed import DelayedExchange
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange import Exchange
from leveret.exchanges.recent_history import RecentHistoryExchange
from leveret.exchanges.router import Router
from leveret.queues.classic import ClassicQueue


class Posted(NamedTuple):
    """What became of one message.

    `is_routed`: it went somewhere, be it only to wait. `refused_by`: queues that would not have it.
    `is_durable`: it must be on disk before it is confirmed. `lacks_consumers`: none can take it at
    once, as `immediate` wants.
    """

    is_routed: bool
    refused_by: Sequence[ClassicQueue] = ()
    is_durable: bool = False
    lacks_consumers: bool = False


# Its confirm waits like that of the first: if that one cannot be stored, neither is confirmed.
DUPLICATE = Posted(is_routed=True, is_durable=True)


class Posting(NamedTuple):
    """A message on its way, and what decides where to."""

    exchange: Exchange
    keys: list[str]
    properties: PropertyView
    headers: Table
    message: bytes
    attributes: int


class Delays(Protocol):
    """Where messages wait for their time."""

    def hold(self, messages: list[bytes], attributes: int, due_ms: list[int]) -> None:
        """Post *messages* to their exchanges, each at its time in *due_ms*."""


class Postings:
    """Sends single messages on their way through one vhost, past queues that are *recovering*."""

    __slots__ = ("_delays", "_duplicates", "_recovering", "_router", "_turn")

    def __init__(
        self,
        router: Router,
        turn: Turn,
        delays: Delays,
        duplicates: Duplicates,
        recovering: Container[ClassicQueue],
    ) -> None:
        self._recovering = recovering
        self._router = router
        self._turn = turn
        self._delays = delays
        self._duplicates = duplicates

    def post(
        self,
        exchange: Exchange,
        routing_key: str,
        message: bytes,
        attributes: int,
        *,
        is_due: bool = False,
        avoids: Callable[[ClassicQueue], bool] | None = None,
        accepts: Callable[[ClassicQueue], bool] | None = None,
    ) -> Posted:
        """Send *message* to *exchange*.

        With *is_due* it has been held and checked before. Queues that *avoids* are left out. It
        is unroutable unless one of its queues *accepts*. Raises PreconditionFailed for headers
        that are not what they must be, and NotRecovered if it may have to go to a queue that is
        being recovered.
        """
        payload = header_payload(message, attributes)
        properties = PropertyView(payload, is_checked=True)
        headers: Table = {}
        if exchange.deduplication or may_instruct(payload):
            headers = properties.headers or {}
        keys = routing_keys(routing_key, headers)
        if "BCC" in headers:
            attributes |= HAS_BCC
        posting = Posting(exchange, keys, properties, headers, message, attributes)
        if is_due:
            return self._send(posting, avoids, accepts)
        if not exchange.deduplication:
            return self._hold(posting) or self._send(posting, avoids, accepts)
        if self._duplicates.is_duplicate(exchange, headers):
            return DUPLICATE
        is_lost = True
        try:
            posted = self._hold(posting) or self._send(posting, avoids, accepts)
            is_lost = not posted.is_routed or bool(posted.refused_by)
            return posted
        finally:
            if is_lost:  # its publisher knows, and may send it again
                self._duplicates.forget(exchange, headers)

    def _hold(self, posting: Posting) -> Posted | None:
        """Hold the message if it asks for a delay, and goes anywhere."""
        delay_ms = asked_delay_ms(posting.headers)
        if not delay_ms or not (posting.exchange.delays or self._route(posting)):
            return None
        attributes = posting.attributes | (HAS_COPIES if len(posting.keys) > 1 else 0)
        message = with_delay_over(posting.message, attributes)
        self._delays.hold([message], attributes, [self._turn.now_ms + delay_ms])
        return Posted(is_routed=True, is_durable=True)

    def hold_run(
        self,
        exchange: Exchange,
        routing_key: str,
        head: bytes,
        contents: Sequence[bytes],
        attributes: int,
    ) -> bool:
        """Hold messages without CC and BCC until their delays are over.

        Answers False if they are to be posted one by one instead.
        """
        if exchange.deduplication or not (
            exchange.delays or self._route_by_key(exchange, routing_key)
        ):
            return False
        begun = begin_delays(contents)
        if begun is None:
            return False
        delays_ms, contents = begun
        now_ms = self._turn.now_ms
        messages = [head + content for content in contents]
        self._delays.hold(messages, attributes, [now_ms + delay_ms for delay_ms in delays_ms])
        return True

    def post_due(
        self, exchange: Exchange, routing_key: str, messages: list[bytes], attributes: int
    ) -> Refusals:
        """Send *messages* that have one routing key and whose delay is over.

        Answers the places of those that queues refuse.
        """
        queues = None
        if not attributes & HAS_COPIES and history_of(exchange) is None:
            queues = self._route_by_key(exchange, routing_key)
        if queues is None:
            refusals: Refusals = {}
            for place, message in enumerate(messages):
                posted = self.post(exchange, routing_key, message, attributes, is_due=True)
                for queue in posted.refused_by:
                    refusals.setdefault(queue, []).append(place)
            return refusals
        lengths = set(map(len, messages))
        length = lengths.pop() if len(lengths) == 1 else 0
        tried = {
            queue: publish(queue, messages, attributes, length, self._turn) for queue in queues
        }
        return {queue: places for queue, places in tried.items() if places}

    def _route_by_key(
        self, exchange: Exchange, routing_key: str
    ) -> tuple[ClassicQueue, ...] | None:
        """The queues of the messages with this key; None if that does not depend on it alone."""
        if not self._router.is_cacheable(exchange):
            return None
        found = self._router.route(exchange, routing_key, NO_PROPERTIES)
        return cast("tuple[ClassicQueue, ...]", found)

    def _send(
        self,
        posting: Posting,
        avoids: Callable[[ClassicQueue], bool] | None,
        accepts: Callable[[ClassicQueue], bool] | None,
    ) -> Posted:
        queues = self._route(posting)
        if self._recovering:
            awaited = [queue for queue in queues if queue in self._recovering]
            if awaited:
                raise NotRecovered(awaited)
        history = history_of(posting.exchange)
        if history is not None:
            history.keep(posting.attributes, posting.message, posting.properties)
        if accepts is not None and queues and not any(map(accepts, queues)):
            return Posted(is_routed=False, lacks_consumers=True)
        if avoids is not None:
            queues = tuple(queue for queue in queues if not avoids(queue))
        return self._append(queues, posting.message, posting.attributes)

    def _route(self, posting: Posting) -> tuple[ClassicQueue, ...]:
        found = self._router.route_keys(posting.exchange, posting.keys, posting.properties)
        return cast("tuple[ClassicQueue, ...]", found)

    def replay(self, destination: Destination, history: list[tuple[int, bytes]]) -> None:
        """Send the *history* of an exchange to what has been bound to it."""
        for attributes, message in history:
            queues: tuple[Destination, ...] = (destination,)
            if isinstance(destination, Exchange):
                queues = self._router.route(destination, decode_head(message)[1], NO_PROPERTIES)
            self._append(cast("tuple[ClassicQueue, ...]", queues), message, attributes)

    def _append(self, queues: tuple[ClassicQueue, ...], message: bytes, attributes: int) -> Posted:
        turn = self._turn
        refused_by: list[ClassicQueue] = []
        is_durable = False
        for queue in queues:
            if publish(queue, [message], attributes, len(message), turn):
                refused_by.append(queue)
            elif queue.declaration.is_durable and not attributes & TRANSIENT:
                is_durable = True
        return Posted(bool(queues), refused_by, is_durable)


def history_of(exchange: Exchange) -> RecentHistoryExchange | None:
    """The history that *exchange* keeps, or the one it wraps."""
    if isinstance(exchange, DelayedExchange):
        exchange = exchange.inner
    return exchange if isinstance(exchange, RecentHistoryExchange) else None


def routing_keys(routing_key: str, headers: Table) -> list[str]:
    """The routing key of a message and those in its headers CC and BCC.

    What is no string in these is no key. Raises PreconditionFailed if one is not an array.
    """
    keys = [routing_key]
    for name in ("CC", "BCC"):
        field = headers.get(name)
        if field is None:
            continue
        if not isinstance(field.value, list):
            raise PreconditionFailed(
                f'invalid message: {{unacceptable_type_in_header,"{name}",{type_name(field)}}}'
            )
        keys += [item.value for item in field.value if isinstance(item.value, str)]
    return keys


def without_bcc(message: bytes, attributes: int) -> bytes:
    """The message as consumers see it: without the header BCC."""
    properties = PropertyView(header_payload(message, attributes), is_checked=True)
    headers = {name: field for name, field in (properties.headers or {}).items() if name != "BCC"}
    return with_header(message, attributes, properties.with_changes(headers=headers))
