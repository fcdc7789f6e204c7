"""Expiry: when messages die of age: by the TTL of their queue or their own, whichever is shorter.

Only the head of a queue is looked at, as in RabbitMQ: a message behind one that lives longer is
counted until it gets to the head, but is never delivered once its time is over.
"""

from collections.abc import Iterator
from itertools import groupby

from leveret.amqp.frames import FRAME_HEADER_SIZE
from leveret.amqp.message import EXPIRES, head_length
from leveret.amqp.properties import read_expirations_ms
from leveret.storage.batch import Batch


def due_ms(batch: Batch, place: int, ttl_ms: int | None) -> int | None:
    """When the message at *place* of *batch* expires; None if never. *ttl_ms* is its queue's."""
    lifetime_ms = ttl_ms
    if batch.attributes & EXPIRES:
        lifetime_ms = _lifetimes_ms(batch, place, place + 1, ttl_ms)[0]
    return None if lifetime_ms is None else batch.timestamp_ms + lifetime_ms


def live_from(batch: Batch, place: int, stop: int, ttl_ms: int | None, now_ms: int) -> int:
    """The place of the first of the messages *place* to *stop* that is not due at *now_ms*."""
    age_ms = now_ms - batch.timestamp_ms
    if not batch.attributes & EXPIRES:
        return stop if ttl_ms is not None and ttl_ms <= age_ms else place
    for lifetime_ms in _lifetimes_ms(batch, place, stop, ttl_ms):
        if lifetime_ms > age_ms:
            return place
        place += 1
    return place


def split(batch: Batch, ttl_ms: int | None, now_ms: int) -> Iterator[tuple[bool, int, int]]:
    """*batch* in runs of messages that are due at *now_ms*, or are not: is it, from, to."""
    age_ms = now_ms - batch.timestamp_ms
    count = len(batch.payloads)
    if not batch.attributes & EXPIRES:
        yield ttl_ms is not None and ttl_ms <= age_ms, 0, count
        return
    lifetimes_ms = _lifetimes_ms(batch, 0, count, ttl_ms)
    if min(lifetimes_ms) > age_ms:
        yield False, 0, count
        return
    place = 0
    for is_due, run in groupby(lifetimes_ms, age_ms.__ge__):
        stop = place + sum(1 for _ in run)
        yield is_due, place, stop
        place = stop


def _lifetimes_ms(batch: Batch, start: int, stop: int, ttl_ms: int | None) -> list[int]:
    """How long messages with the flag EXPIRES live."""
    at = head_length(batch.attributes) + FRAME_HEADER_SIZE
    own = read_expirations_ms(batch.payloads[start:stop], at)
    longest = _FOREVER if ttl_ms is None else ttl_ms
    return [longest if ms is None or ms > longest else ms for ms in own]


_FOREVER = 1 << 62
