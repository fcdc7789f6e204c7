"""Commands that look at the messages of a queue: where they are, what became of them."""

import base64
import math
from collections.abc import Callable, Iterator
from decimal import Decimal

from leveret.amqp.frames import FRAME_HEADER_SIZE
from leveret.amqp.message import (
    body_size,
    decode_head,
    head_length,
    header_payload,
    split_content,
)
from leveret.amqp.properties import PropertyView, plain_properties, read_message_ids
from leveret.amqp.tables import PlainValue, plain
from leveret.broker.broker import Broker
from leveret.broker.errors import NoSuchObject
from leveret.broker.queue_range import Range, check_state, find_range, reading
from leveret.queues.classic import ClassicQueue
from leveret.queues.history import Condition, Piece, fate
from leveret.queues.message_ids import MessageIds
from leveret.storage.batch import Batch
from leveret.storage.state_log import State

PREVIEW_BYTES = 256
"""Of a body, unless more is asked for."""
SEARCH_MESSAGES = 4000
"""Messages whose ids are read for one answer, if a page's bytes hold so many."""
MAX_CANDIDATES = 64
"""Messages read for one answer because the index of ids has them."""

Holders = dict[int, dict[str, object]]
"""Who has what is unacknowledged, by offset."""


def show_message(
    broker: Broker, *, vhost: str = "/", queue: str, offset: int, body_bytes: int = PREVIEW_BYTES
) -> dict[str, object]:
    """The message at *offset* with all its properties, and what became of it.

    The first *body_bytes* of the body are in base64. Raises NoSuchObject, RequestError.
    """
    found = find_range(broker, vhost, queue)
    if not 0 <= offset < found.end:
        raise NoSuchObject(f"queue '{queue}' has no message at offset {offset}")
    with reading(found.queue):
        piece = found.history.one(offset)
        states = [] if piece is None else found.history.states(offset)
    if piece is None:
        reason = "it is not on disk any more: it was settled, as was all that lay beside it"
        return {"offset": offset, "state": "gone", "where": reason}
    message = piece.batch.payloads[0]
    header, body = split_content(message, head_length(piece.batch.attributes))
    properties = PropertyView(header, is_checked=True)
    holders = _holders(broker, found.queue, [piece])
    return {
        **_summary(offset, message, piece, holders),
        **_whereabouts(found.queue, offset, piece, states, holders.get(offset)),
        "deliveries": states.count(State.DELIVERED),
        "properties": plain_properties(properties),
        "headers": _readable(plain(properties.headers or {})),
        "body": _encode(body, body_bytes),
    }


def browse_queue(
    broker: Broker,
    *,
    vhost: str = "/",
    queue: str,
    start: int | None = None,
    start_ms: int | None = None,
    stop: int | None = None,
    stop_ms: int | None = None,
    state: str = "all",
    limit: int = 100,
    body_bytes: int = PREVIEW_BYTES,
) -> dict[str, object]:
    """A page of `messages`, at most *limit*, each with the first *body_bytes* in base64.

    They stay as they are.
    Raises InvalidRequest, NoSuchObject, RequestError.
    """
    check_state(state)
    found = find_range(
        broker, vhost, queue, start=start, start_ms=start_ms, stop=stop, stop_ms=stop_ms
    )
    page = found.page(only_ready=state == "ready")
    holders = _holders(broker, found.queue, page.pieces)
    rows: list[dict[str, object]] = []
    for piece in page.pieces:
        for offset, message in enumerate(piece.batch.payloads, piece.batch.first_offset):
            row = _summary(offset, message, piece, holders)
            if state not in ("all", row["state"]):
                continue
            if len(rows) == limit:
                return found.answer(offset, {"messages": rows})
            _, body = split_content(message, head_length(piece.batch.attributes))
            rows.append({**row, "body": _encode(body, body_bytes)})
    return found.answer(page.next_offset, {"messages": rows})


def find_message(
    broker: Broker,
    *,
    vhost: str = "/",
    queue: str,
    message_id: str,
    start: int | None = None,
    stop: int | None = None,
) -> dict[str, object]:
    """A page of the `offsets` of the messages with this id. Raises NoSuchObject, RequestError."""
    found = find_range(broker, vhost, queue, start=start, stop=stop)
    with reading(found.queue):
        index = found.queue.index_ids(broker.id_budget)
        offsets, following = _search(found, index, message_id.encode())
    return found.answer(following, {"offsets": offsets})


def _search(found: Range, index: MessageIds, message_id: bytes) -> tuple[list[int], int]:
    """The offsets of the messages with this id, and how far they were looked for."""
    begin, end, history = found.begin, found.end, found.history
    index.forget_before(history.first)
    following = min(index.covered(begin), end)
    if following > begin:
        candidates = index.find(message_id, begin, following)
        if len(candidates) > MAX_CANDIDATES:
            candidates = candidates[:MAX_CANDIDATES]
            following = candidates[-1] + 1
        batches = [batch for offset in candidates for batch in history.read(offset, offset + 1)]
    else:
        stop = index.uncovered(begin, end)
        batches = history.read(begin, stop, SEARCH_MESSAGES)
        for batch in batches:
            index.add_page(batch.first_offset, batch.payloads, batch.attributes)
        following = batches[-1].next_offset if batches else stop
    return [offset for batch in batches for offset in _with_id(batch, message_id)], following


def _with_id(batch: Batch, message_id: bytes) -> Iterator[int]:
    ids = read_message_ids(batch.payloads, head_length(batch.attributes) + FRAME_HEADER_SIZE)
    for offset, own in enumerate(ids, batch.first_offset):
        if own == message_id:
            yield offset


# ---- what is answered


def _summary(offset: int, message: bytes, piece: Piece, holders: Holders) -> dict[str, object]:
    attributes = piece.batch.attributes
    exchange, routing_key = decode_head(message)
    properties = PropertyView(header_payload(message, attributes), is_checked=True)
    state = piece.condition.value
    if piece.condition is Condition.HELD:
        state = "delivered" if offset in holders else "waiting"
    return {
        "offset": offset,
        "time_ms": piece.batch.timestamp_ms,
        "size": body_size(message, attributes),
        "exchange": exchange,
        "routing_key": routing_key,
        "message_id": properties.message_id,
        "state": state,
        "redelivered": piece.redelivered,
    }


def _whereabouts(
    queue: ClassicQueue,
    offset: int,
    piece: Piece,
    states: list[State],
    holder: dict[str, object] | None,
) -> dict[str, object]:
    """Where the message at *offset* is, or went: a word, a sentence, and who has it."""
    if piece.condition is Condition.SETTLED:
        state, where = fate(queue, states)
        return {"state": state, "where": where}
    if piece.condition is Condition.READY:
        where = "it waits for a consumer"
        if State.REPLAYED in states:
            where += ", once more: it was settled and made ready again"
        return {"where": where}
    if holder is not None:
        consumer = holder["consumer_tag"]
        who = "a basic.get" if consumer is None else f"consumer '{consumer}'"
        where = f"unacknowledged by {who} on channel {holder['channel']} of {holder['peer']}"
        return {"where": where, "holder": holder}
    next_try_ms = queue.next_try_ms(offset)
    if next_try_ms is not None:
        return {"where": "it came back and waits for its next try", "next_try_ms": next_try_ms}
    return {"where": "on its way to another queue, which has not confirmed it yet"}


def _holders(broker: Broker, queue: ClassicQueue, pieces: list[Piece]) -> Holders:
    """Who has the messages of *pieces* that are with consumers."""
    wanted = {
        offset
        for piece in pieces
        if piece.condition is Condition.HELD
        for offset in range(piece.batch.first_offset, piece.batch.next_offset)
    }
    if not wanted or not queue.unacked:
        return {}
    return {
        offset: {"peer": client.peer, "channel": number, "consumer_tag": consumer_tag}
        for client, _, _ in broker.connections
        for offset, number, consumer_tag in client.deliveries(queue)
        if offset in wanted
    }


def _encode(body: bytes, count: int) -> str:
    return base64.b64encode(body[: max(count, 0)]).decode()


def _readable(value: PlainValue) -> object:
    """A value of a field table as JSON has it.

    Bytes are in hexadecimal digits; decimals, and floats that are no number, are text.
    """
    if isinstance(value, dict):
        return {name: _readable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_readable(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    is_text = isinstance(value, Decimal) or (isinstance(value, float) and not math.isfinite(value))
    return str(value) if is_text else value


COMMANDS: dict[str, Callable[..., object]] = {
    "show_message": show_message,
    "browse_queue": browse_queue,
    "find_message": find_message,
}
