"""Commands on delayed messages: which ones wait, and not to send them."""

from collections.abc import Callable

from leveret.amqp.errors import InternalError
from leveret.amqp.message import body_size, decode_head, header_payload
from leveret.amqp.properties import PropertyView
from leveret.broker.broker import Broker
from leveret.broker.commands_vhosts import find_vhost
from leveret.broker.errors import InvalidRequest, RequestError
from leveret.queues.delay import Due

PAGE = 1000
"""Messages looked at for one answer; connections are served in between."""


def list_delayed(
    broker: Broker,
    *,
    vhost: str = "/",
    exchange: str | None = None,
    limit: int = PAGE,
    after: list[int] | None = None,
) -> dict[str, object]:
    """A page of the messages that wait in a vhost, by due time: those of *exchange*, or all.

    It begins behind the due time and id *after*: `next` of the page before, which is None at the
    end. A page may hold fewer than *limit* messages, or none, and still not be the last.
    Raises InvalidRequest, NoSuchObject, RequestError.
    """
    if limit < 1:
        raise InvalidRequest("limit is at least 1")
    if after is not None and (len(after) != 2 or min(after) < 0):
        raise InvalidRequest("after is the due time and the id of a message")
    delays = find_vhost(broker, vhost).delays
    try:
        looked_at = delays.pending((after[0], after[1]) if after else None, min(limit, PAGE))
    except InternalError as error:
        raise RequestError(str(error)) from error
    rows = (_message(due, broker.turn.now_ms) for due in looked_at)
    return {
        "messages": [row for row in rows if exchange in (None, row["exchange"])],
        "waiting": len(delays),
        "next": [looked_at[-1].due_ms, looked_at[-1].offset] if looked_at else None,
    }


def cancel_delayed(broker: Broker, *, vhost: str = "/", ids: list[int]) -> dict[str, object]:
    """Drop waiting messages; those that do not wait, or not any more, are `unknown`.

    Raises NoSuchObject, RequestError.
    """
    delays = find_vhost(broker, vhost).delays
    try:
        cancelled = delays.cancel(ids)
    except InternalError as error:
        raise RequestError(str(error)) from error
    return {"cancelled": cancelled, "unknown": sorted(set(ids).difference(cancelled))}


def _message(due: Due, now_ms: int) -> dict[str, object]:
    exchange, routing_key = decode_head(due.message)
    properties = PropertyView(header_payload(due.message, due.attributes), is_checked=True)
    return {
        "id": due.offset,
        "due_ms": due.due_ms,
        "remaining_ms": max(due.due_ms - now_ms, 0),
        "size": body_size(due.message, due.attributes),
        "exchange": exchange,
        "routing_key": routing_key,
        "message_id": properties.message_id,
    }


COMMANDS: dict[str, Callable[..., object]] = {
    "list_delayed": list_delayed,
    "cancel_delayed": cancel_delayed,
}
