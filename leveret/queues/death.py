"""Death: what a dead letter's headers tell of the queues that gave it up.

    x-death         array of tables, the newest death first, one for each (queue, reason)
        original-expiration   S  the message's expiration, if it had one
        count                 l  deaths in this queue for this reason
        reason, queue         S
        time                  T  of the first of these deaths, in seconds
        exchange              S  where the message was published, then
        routing-keys          A  of S: its key and its CC, not its BCC, then
    x-first-death-{exchange,queue,reason}   S  set once
    x-last-death-{exchange,queue,reason}    S  set each time

Letters and order are those of RabbitMQ. A publisher may send headers of these names, say by
publishing again what it consumed; they are no history, and the first death replaces them. The
attribute DEAD_LETTERED of a message says that its history is ours.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, cast

from leveret.amqp.message import (
    DEAD_LETTERED,
    EXPIRES,
    HAS_BCC,
    decode_head,
    encode_head,
    head_length,
    header_payload,
    with_header,
)
from leveret.amqp.properties import checked_extents
from leveret.amqp.tables import Field, Table, encode_table, read_table
from leveret.storage.state_log import State

HISTORY = "x-death"

_NO_HEADERS = b"\0\0\0\0"
# Where the flags of a content header's payload stand, and two of them (§4.2.6.1).
_FLAGS = slice(12, 14)
_HEADERS_FLAG = 0x2000
_EXPIRATION_FLAG = 0x0100
# Where none of these bytes are, there is neither a header that a death sets nor CC or BCC.
_SIGNS = (b"-death", b"CC")


class DeathReason(StrEnum):
    """Why a queue gives up a message."""

    REJECTED = "rejected"
    EXPIRED = "expired"
    MAX_LENGTH = "maxlen"
    DELIVERY_LIMIT = "delivery_limit"


ENDS: Mapping[DeathReason, State] = {
    DeathReason.REJECTED: State.REJECTED,
    DeathReason.EXPIRED: State.EXPIRED,
    DeathReason.MAX_LENGTH: State.DROPPED,
    DeathReason.DELIVERY_LIMIT: State.REJECTED,
}
"""How a death is written down in the log of the queue."""


class DeadLetter(NamedTuple):
    """A message made of one that died. `history` are the headers that `would_cycle` looks at."""

    attributes: int
    message: bytes
    history: Table


def dead_letter(
    message: bytes,
    attributes: int,
    *,
    queue: str,
    reason: str,
    exchange: str,
    routing_key: str | None,
    now_s: int,
) -> DeadLetter:
    """What is published to *exchange* in place of *message*, which died in *queue*.

    Without *routing_key* it keeps its keys; with it, they are replaced and CC and BCC are removed.
    It lacks an expiration; all else is as it was.
    """
    payload = header_payload(message, attributes)
    extents = checked_extents(payload)
    origin = decode_head(message)
    expires = extents.get("expiration")
    expiration = None if expires is None else payload[expires[0] + 1 : expires[1]].decode()
    raw = payload[slice(*extents["headers"])] if "headers" in extents else _NO_HEADERS

    if attributes & DEAD_LETTERED or any(sign in raw for sign in _SIGNS):
        headers = read_table(raw, 0, len(raw))[0]
        headers = record_death(
            headers,
            has_history=bool(attributes & DEAD_LETTERED),
            queue=queue,
            reason=reason,
            exchange=origin[0],
            routing_keys=[origin[1], *_copied_keys(headers)],
            expiration=expiration,
            now_s=now_s,
        )
        if routing_key is not None:
            headers.pop("CC", None)
            headers.pop("BCC", None)
            attributes &= ~HAS_BCC
        raw = encode_table(headers)
        history = {HISTORY: headers[HISTORY]}
    else:
        entries, history = _first_history(queue, reason, origin, expiration, now_s)
        raw = b"%b%b%b" % ((len(raw) - 4 + len(entries)).to_bytes(4, "big"), raw[4:], entries)

    key = origin[1] if routing_key is None else routing_key
    head = encode_head(exchange.encode(), key.encode())
    start = head_length(attributes)
    attributes = attributes & ~(EXPIRES | start) | DEAD_LETTERED | len(head)
    payload = _replace_headers(payload, extents, raw)
    return DeadLetter(attributes, with_header(head + message[start:], attributes, payload), history)


def record_death(
    headers: Table,
    *,
    has_history: bool,
    queue: str,
    reason: str,
    exchange: str,
    routing_keys: list[str],
    expiration: str | None,
    now_s: int,
) -> Table:
    """The headers of a message that died in *queue* for *reason*, *now_s* seconds after 1970.

    *exchange*, *routing_keys* (CC included, BCC not) and *expiration* are what it was published
    with. Headers that do not speak of deaths keep their order and their letters.
    """
    history = _history(headers) if has_history else []
    queue_field = Field("S", queue)
    reason_field = Field("S", reason)
    exchange_field = Field("S", exchange)
    for death in history:
        if death["queue"] == queue_field and death["reason"] == reason_field:
            history.remove(death)
            count = cast("int", death["count"].value) + 1
            death = {**death, "count": Field("l", count)}
            break
    else:
        death = {} if expiration is None else {"original-expiration": Field("S", expiration)}
        death["count"] = Field("l", 1)
        death["reason"] = reason_field
        death["queue"] = queue_field
        death["time"] = Field("T", now_s)
        death["exchange"] = exchange_field
        death["routing-keys"] = Field("A", [Field("S", key) for key in routing_keys])
    headers = headers.copy()
    headers[HISTORY] = Field("A", [Field("F", entry) for entry in (death, *history)])
    if not has_history:
        headers["x-first-death-exchange"] = exchange_field
        headers["x-first-death-queue"] = queue_field
        headers["x-first-death-reason"] = reason_field
    headers["x-last-death-exchange"] = exchange_field
    headers["x-last-death-queue"] = queue_field
    headers["x-last-death-reason"] = reason_field
    return headers


def would_cycle(headers: Table, *, has_history: bool, queue: str, reason: str) -> bool:
    """Must the message not enter *queue*, because only the broker sends it round?

    *headers* are those with the death for *reason* that brings it there. It goes round if it died
    in *queue* before and no consumer rejected it then or later. A delivery limit is no rejection.
    """
    if reason == DeathReason.REJECTED or not has_history:
        return False
    for death in _history(headers):
        if death["reason"].value == DeathReason.REJECTED:
            return False
        if death["queue"].value == queue:
            return True
    return False


def _history(headers: Table) -> list[Table]:
    """The entries of a history of ours."""
    entries = cast("list[Field]", headers[HISTORY].value)
    return [cast("Table", entry.value) for entry in entries]


def _copied_keys(headers: Table) -> list[str]:
    """The routing keys in the header CC."""
    copied = headers.get("CC")
    if copied is None or not isinstance(copied.value, list):
        return []
    return [item.value for item in copied.value if isinstance(item.value, str)]


# Messages die in numbers: of one queue, for one reason, within a second.
@lru_cache(maxsize=256)
def _first_history(
    queue: str, reason: str, origin: tuple[str, str], expiration: str | None, now_s: int
) -> tuple[bytes, Table]:
    """The encoded headers that a first death adds, and these headers."""
    exchange, routing_key = origin
    history = record_death(
        {},
        has_history=False,
        queue=queue,
        reason=reason,
        exchange=exchange,
        routing_keys=[routing_key],
        expiration=expiration,
        now_s=now_s,
    )
    return encode_table(history)[4:], history


def _replace_headers(payload: bytes, extents: dict[str, tuple[int, int]], raw: bytes) -> bytes:
    """The payload of a content header with the table *raw* as headers, without an expiration."""
    flags = int.from_bytes(payload[_FLAGS], "big") & ~_EXPIRATION_FLAG | _HEADERS_FLAG
    before = extents.get("content_encoding") or extents.get("content_type") or (0, _FLAGS.stop)
    start, stop = extents.get("headers", (before[1], before[1]))
    expiration_start, expiration_stop = extents.get("expiration", (stop, stop))
    return b"%b%b%b%b%b%b" % (
        payload[: _FLAGS.start],
        flags.to_bytes(2, "big"),
        payload[_FLAGS.stop : start],
        raw,
        payload[stop:expiration_start],
        payload[expiration_stop:],
    )
