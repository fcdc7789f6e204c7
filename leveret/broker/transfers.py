"""Transfers: messages of a queue on their way to another queue or an exchange.

A queue gets them as they are, with the exchange and the routing key that they were published with;
an exchange routes them anew, as if they had just been published to it. They count as new in either
case: their time to live begins again.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from leveret.amqp.errors import AmqpError, SoftError
from leveret.amqp.message import (
    HAS_BCC,
    decode_head,
    encode_head,
    head_length,
    header_payload,
    with_header,
)
from leveret.amqp.properties import PropertyView
from leveret.broker.errors import InvalidRequest, NoSuchObject, RequestError
from leveret.broker.recovery import NotRecovered
from leveret.broker.vhost import VHost
from leveret.exchanges.exchange import Exchange
from leveret.queues.classic import ClassicQueue
from leveret.queues.history import Page
from leveret.storage.batch import Batch


class Sent(NamedTuple):
    """What of some messages went: the places of those that did, and how many of the others.

    Of all messages the first `tried` were tried. A refusal or an `error` ends it.
    """

    places: list[int]
    tried: int
    unroutable: int = 0
    refused: int = 0
    error: AmqpError | None = None


Send = Callable[[Batch], Sent]
"""Sends the messages of a batch."""


def sender(
    vhost: VHost,
    source: ClassicQueue,
    to_queue: str | None,
    to_exchange: str | None,
    routing_key: str | None,
) -> Send:
    """What sends messages of *source* where it is said.

    Raises InvalidRequest, NoSuchObject, NotRecovered.
    """
    if (to_queue is None) is (to_exchange is None):
        raise InvalidRequest("either to_queue or to_exchange says where to")
    if to_queue is not None:
        if routing_key is not None:
            raise InvalidRequest("a routing key goes with an exchange")
        target = vhost.queues.get(to_queue)
        if target is None:
            raise NoSuchObject(f"queue '{to_queue}' does not exist in vhost '{vhost.name}'")
        if target is source:
            raise InvalidRequest("a queue cannot be its own target")
        if target in vhost.recovering:
            raise NotRecovered([target])
        return partial(_to_queue, vhost, target)
    exchange = vhost.exchanges.get(to_exchange or "")
    if exchange is None:
        raise NoSuchObject(f"exchange '{to_exchange}' does not exist in vhost '{vhost.name}'")
    if vhost.recovering:  # which of them it routes to is known message by message
        raise NotRecovered(list(vhost.recovering))
    return partial(_to_exchange, vhost, source, exchange, routing_key)


def _to_queue(vhost: VHost, target: ClassicQueue, batch: Batch) -> Sent:
    try:
        refused = target.publish(
            batch.payloads, batch.attributes, batch.payload_length, vhost.turn.now_ms, in_order=True
        )
    except AmqpError as error:
        return Sent([], 0, error=error)
    vhost.turn.touch(target)
    left = set(refused)
    count = len(batch.payloads)
    places = [place for place in range(count) if place not in left]
    return Sent(places, count, refused=len(left))


def _to_exchange(
    vhost: VHost, source: ClassicQueue, exchange: Exchange, routing_key: str | None, batch: Batch
) -> Sent:
    places: list[int] = []
    unroutable = 0
    for place, message in enumerate(batch.payloads):
        key = decode_head(message)[1] if routing_key is None else routing_key
        attributes, message = _readdressed(message, batch.attributes, exchange.name, routing_key)
        try:
            posted = vhost.postings.post(
                exchange, key, message, attributes, avoids=lambda target: target is source
            )
        except SoftError:  # its headers are not what they must be
            unroutable += 1
            continue
        except AmqpError as error:
            return Sent(places, place, unroutable, error=error)
        if posted.refused_by:
            return Sent(places, place + 1, unroutable, refused=1)
        if posted.is_routed:
            places.append(place)
        else:
            unroutable += 1
    return Sent(places, len(batch.payloads), unroutable)


def _readdressed(
    message: bytes, attributes: int, exchange: str, routing_key: str | None
) -> tuple[int, bytes]:
    """Attributes and bytes of *message* as published to *exchange*.

    With a *routing_key* of its own it goes by that alone: CC and BCC are removed.
    """
    if routing_key is not None:
        properties = PropertyView(header_payload(message, attributes), is_checked=True)
        headers = properties.headers or {}
        if "CC" in headers or "BCC" in headers:
            headers = {name: headers[name] for name in headers if name not in ("CC", "BCC")}
            payload = properties.with_changes(headers=headers)
            message = with_header(message, attributes, payload)
            attributes &= ~HAS_BCC
    key = decode_head(message)[1] if routing_key is None else routing_key
    head = encode_head(exchange.encode(), key.encode())
    start = head_length(attributes)
    return attributes & ~start | len(head), head + message[start:]


class Transfer:
    """The messages of one page on their way, up to the first that a full queue refuses.

    It ends before one that cannot be sent at all as well, or raises RequestError if that is the
    first one. `next_offset` is behind what was tried.
    """

    def __init__(self, send: Send, page: Page) -> None:
        self.sent: list[Batch] = []
        self.unroutable = self.refused = 0
        self.next_offset = page.next_offset
        for piece in page.pieces:
            sent = send(piece.batch)
            self.sent += _pick(piece.batch, sent.places)
            self.unroutable += sent.unroutable
            self.refused += sent.refused
            if sent.refused or sent.error is not None:
                self.next_offset = piece.batch.first_offset + sent.tried
                if sent.error is not None and self.next_offset == page.pieces[0].batch.first_offset:
                    raise RequestError(f"the target takes no messages: {sent.error}")
                break

    def withdraw(self, vhost: VHost, source: ClassicQueue) -> None:
        """Take what was sent out of *source*, where it is settled once its target is on disk."""
        offsets: list[int] = []
        for batch in self.sent:
            source.withdraw(batch)
            offsets += range(batch.first_offset, batch.next_offset)
        if offsets:
            vhost.turn.wait_for_logs(partial(_arrived, vhost, source, offsets))


def _arrived(
    vhost: VHost, source: ClassicQueue, offsets: list[int], error: Exception | None
) -> None:
    if source.stopped or vhost.queues.get(source.name) is not source:
        return
    if error is None:
        source.moved(offsets)
    else:  # which of them have arrived is not known
        source.give_back(offsets)
    vhost.turn.touch(source)


def _pick(batch: Batch, places: list[int]) -> list[Batch]:
    """The messages of *batch* at *places*, in runs of neighbours."""
    if len(places) == len(batch.payloads):
        return [batch]
    runs: list[Batch] = []
    for place in places:
        offset = batch.first_offset + place
        if runs and runs[-1].next_offset == offset:
            runs[-1].payloads.append(batch.payloads[place])
        else:
            payloads = [batch.payloads[place]]
            runs.append(
                Batch(offset, batch.timestamp_ms, batch.attributes, payloads, batch.payload_length)
            )
    return runs
