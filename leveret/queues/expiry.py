"""Expiry: when messages die of age: by the TTL of their queue or their own, whichever is shorter.

Only the head of a queue is looked at, as in RabbitMQ: a message behind one that lives longer is
counted until it gets to the head, but is never delivered once its time is over.
"""

from leveret.amqp.frames import FRAME_HEADER_SIZE
from leveret.amqp.message import EXPIRES, head_length
from leveret.amqp.properties import read_expiration_ms
from leveret.storage.batch import Batch


def due_ms(batch: Batch, place: int, ttl_ms: int | None) -> int | None:
    """When the message at *place* of *batch* expires; None if never. *ttl_ms* is its queue's."""
    lifetime_ms = ttl_ms
    if batch.attributes & EXPIRES:
        start = head_length(batch.attributes) + FRAME_HEADER_SIZE
        own_ms = read_expiration_ms(batch.payloads[place], start)
        if own_ms is not None and (ttl_ms is None or own_ms < ttl_ms):
            lifetime_ms = own_ms
    return None if lifetime_ms is None else batch.timestamp_ms + lifetime_ms


def live_from(batch: Batch, place: int, ttl_ms: int | None, now_ms: int) -> int:
    """The place of the first message from *place* on that is not due at *now_ms*."""
    if not batch.attributes & EXPIRES:
        is_due = ttl_ms is not None and batch.timestamp_ms + ttl_ms <= now_ms
        return len(batch.payloads) if is_due else place
    for at in range(place, len(batch.payloads)):
        due = due_ms(batch, at, ttl_ms)
        if due is None or due > now_ms:
            return at
    return len(batch.payloads)


def due_from(batch: Batch, place: int, ttl_ms: int | None, now_ms: int) -> int:
    """The place of the first message from *place* on that is due at *now_ms*."""
    if not batch.attributes & EXPIRES:
        is_due = ttl_ms is not None and batch.timestamp_ms + ttl_ms <= now_ms
        return place if is_due else len(batch.payloads)
    for at in range(place, len(batch.payloads)):
        due = due_ms(batch, at, ttl_ms)
        if due is not None and due <= now_ms:
            return at
    return len(batch.payloads)
