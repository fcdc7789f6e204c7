"""Commands that bring the messages of a queue back, or to another place."""

from collections.abc import Callable
from typing import NamedTuple

from leveret.amqp.message import body_size
from leveret.broker.broker import Broker
from leveret.broker.errors import InvalidRequest, RequestError
from leveret.broker.queue_range import CONDITIONS, check_state, find_range
from leveret.broker.transfers import Transfer, sender
from leveret.queues.arguments import QueueType
from leveret.queues.history import Condition, Page, Piece
from leveret.storage.batch import Batch


class AfterLogs(NamedTuple):
    """An answer that holds once what this turn wrote to the logs is as durable as promised."""

    answer: dict[str, object]


def rewind_queue(
    broker: Broker,
    *,
    vhost: str = "/",
    queue: str,
    start: int | None = None,
    start_ms: int | None = None,
    stop: int | None = None,
    stop_ms: int | None = None,
    dry_run: bool = False,
) -> dict[str, object]:
    """Make the settled messages of a page ready again. Raises NoSuchObject, RequestError."""
    found = find_range(
        broker, vhost, queue, start=start, start_ms=start_ms, stop=stop, stop_ms=stop_ms
    )
    page = found.page()
    batches = [piece.batch for piece in page.pieces if piece.condition is Condition.SETTLED]
    if batches and not dry_run:
        found.queue.replay(batches)
        broker.turn.touch(found.queue)
        broker.turn.run()  # from here on a killed broker knows it
        if found.queue.stopped:
            raise RequestError(found.queue.stopped)
    return found.answer(page.next_offset, _tally(batches))


def move_messages(
    broker: Broker,
    *,
    vhost: str = "/",
    queue: str,
    to_queue: str | None = None,
    to_exchange: str | None = None,
    routing_key: str | None = None,
    start: int | None = None,
    start_ms: int | None = None,
    stop: int | None = None,
    stop_ms: int | None = None,
    limit: int | None = None,
    dry_run: bool = False,
) -> AfterLogs | dict[str, object]:
    """Move the ready messages of a page, at most *limit*, to a queue or an exchange.

    `unroutable` and `refused` ones stay. Raises InvalidRequest, NoSuchObject, RequestError.
    """
    found = find_range(
        broker, vhost, queue, start=start, start_ms=start_ms, stop=stop, stop_ms=stop_ms
    )
    if found.queue.arguments.queue_type is QueueType.STREAM:
        raise InvalidRequest(f"queue '{queue}' is a stream: its messages can only be copied")
    send = sender(found.vhost, found.queue, to_queue, to_exchange, routing_key)
    page = _limited(found.page(only_ready=True), limit)
    if dry_run:
        return found.answer(page.next_offset, _tally(_batches(page)))
    transfer = Transfer(send, page)
    transfer.withdraw(found.vhost, found.queue)
    return AfterLogs(found.answer(transfer.next_offset, _report(transfer)))


def copy_messages(
    broker: Broker,
    *,
    vhost: str = "/",
    queue: str,
    to_queue: str | None = None,
    to_exchange: str | None = None,
    routing_key: str | None = None,
    start: int | None = None,
    start_ms: int | None = None,
    stop: int | None = None,
    stop_ms: int | None = None,
    limit: int | None = None,
    state: str = "ready",
    dry_run: bool = False,
) -> AfterLogs | dict[str, object]:
    """Send the messages of a page, at most *limit*, to another queue or an exchange as well.

    Raises InvalidRequest, NoSuchObject, RequestError.
    """
    check_state(state)
    found = find_range(
        broker, vhost, queue, start=start, start_ms=start_ms, stop=stop, stop_ms=stop_ms
    )
    send = sender(found.vhost, found.queue, to_queue, to_exchange, routing_key)
    page = found.page(only_ready=state == "ready")
    wanted = CONDITIONS[state]
    pieces = [piece for piece in page.pieces if wanted in (None, piece.condition)]
    page = _limited(Page(pieces, page.next_offset), limit)
    if dry_run:
        return found.answer(page.next_offset, _tally(_batches(page)))
    transfer = Transfer(send, page)
    return AfterLogs(found.answer(transfer.next_offset, _report(transfer)))


def _limited(page: Page, limit: int | None) -> Page:
    """*page* up to its first *limit* messages."""
    if limit is None:
        return page
    pieces: list[Piece] = []
    for piece in page.pieces:
        if limit <= 0:
            return Page(pieces, piece.batch.first_offset)
        head = piece.head(limit)
        pieces.append(head)
        limit -= len(head.batch.payloads)
        if head is not piece:
            return Page(pieces, head.batch.next_offset)
    return Page(pieces, page.next_offset)


def _batches(page: Page) -> list[Batch]:
    return [piece.batch for piece in page.pieces]


def _report(transfer: Transfer) -> dict[str, object]:
    others = {"unroutable": transfer.unroutable, "refused": transfer.refused}
    return {**_tally(transfer.sent), **others}


def _tally(batches: list[Batch]) -> dict[str, object]:
    """How many messages, how many bytes in their bodies, the first and the last with its time."""
    first, last = (batches[0], batches[-1]) if batches else (None, None)
    return {
        "count": sum(len(batch.payloads) for batch in batches),
        "bytes": sum(
            body_size(message, batch.attributes) for batch in batches for message in batch.payloads
        ),
        "first": None if first is None else [first.first_offset, first.timestamp_ms],
        "last": None if last is None else [last.next_offset - 1, last.timestamp_ms],
    }


COMMANDS: dict[str, Callable[..., object]] = {
    "rewind_queue": rewind_queue,
    "move_messages": move_messages,
    "copy_messages": copy_messages,
}
