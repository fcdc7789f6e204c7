"""QueueHistory: the messages of a queue that are on disk, whatever became of them.

Looking changes nothing. It is done page by page, so that others are served in between.
"""

from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

from leveret.queues.classic import ClassicQueue, piece_of
from leveret.storage.batch import Batch
from leveret.storage.log import SegmentLog
from leveret.storage.state_log import SETTLED, State

PAGE_MESSAGES = 500
PAGE_BYTES = 1024 * 1024
"""Messages and bytes of one page, about."""
READ_BYTES = 64 * 1024
READ_BYTES_EACH = 4096
"""One read of it, and of a few messages for each."""
SEARCH_BYTES = 4 * 1024 * 1024
"""Read at most for the exact place of a time: more is asked for only where a clock was set back."""


class Condition(StrEnum):
    """What a queue knows of a message at once."""

    READY = "ready"
    HELD = "held"
    """With a consumer, or waiting for its dead letter or its next try."""
    SETTLED = "settled"


class Piece(NamedTuple):
    """Messages that are alike. `redelivered` are ready ones that were handed out before."""

    batch: Batch
    condition: Condition
    redelivered: bool

    def head(self, count: int) -> "Piece":
        """The first *count* of them, or all if they are no more."""
        if len(self.batch.payloads) <= count:
            return self
        return self._replace(batch=_part(self.batch, 0, count))


class Page(NamedTuple):
    """Messages in their order, and where the next page begins."""

    pieces: list[Piece]
    next_offset: int


class QueueHistory:
    """The past of *queue* in its *log*."""

    def __init__(self, queue: ClassicQueue, log: SegmentLog) -> None:
        self._queue = queue
        self._log = log

    @property
    def first(self) -> int:
        """The oldest offset on disk."""
        return self._log.first_offset

    @property
    def end(self) -> int:
        """The offset behind the newest message."""
        return self._log.flushed_offset

    def at_time(self, time_ms: int) -> int:
        """The offset of the first message that is not older than *time_ms*."""
        offset = self._log.find(time_ms)
        room = SEARCH_BYTES
        while room > 0 and (batches := self.read(offset, self.end)):
            for batch in batches:
                if batch.timestamp_ms >= time_ms:
                    return batch.first_offset
                room -= sum(map(len, batch.payloads))
            offset = batches[-1].next_offset
        return min(offset, self.end)

    def read(self, offset: int, stop: int, limit: int = PAGE_MESSAGES) -> list[Batch]:
        """The next messages from *offset* on, below *stop*: at most *limit*, or a page's bytes."""
        batches: list[Batch] = []
        room = PAGE_BYTES
        while limit > 0 and room > 0:
            offset = self._log.present(offset)
            size = min(READ_BYTES, limit * READ_BYTES_EACH)
            found = self._log.read(offset, size) if offset < stop else []
            if not found:
                break
            for batch in found:
                count = min(len(batch.payloads), stop - batch.first_offset, limit)
                if count <= 0:
                    return batches
                batches.append(_part(batch, 0, count))
                limit -= count
                room -= sum(map(len, batches[-1].payloads))
            offset = found[-1].next_offset
        return batches

    def page(self, start: int, stop: int, *, only_ready: bool = False) -> Page:
        """The next messages from *start* on, below *stop*; with *only_ready* no others."""
        ready = self._queue.ready
        if only_ready:
            first = ready.next_from(start)
            start = stop if first is None else min(first, stop)
        batches = self.read(start, stop)
        if not batches:
            return Page([], max(start, stop))
        next_offset = batches[-1].next_offset
        first_offset = batches[0].first_offset
        marks = bytearray(next_offset - first_offset)
        for piece in ready.within(first_offset, next_offset):
            mark = _REDELIVERED if piece.redelivered else _READY
            begin, end = piece.start - first_offset, piece.stop - first_offset
            marks[begin:end] = bytes([mark]) * (end - begin)

        def mark_of(offset: int) -> int:
            mark = marks[offset - first_offset]
            return mark or (_SETTLED if self._log.is_settled(offset) else _HELD)

        pieces = []
        for batch in batches:
            place = 0
            for mark, run in groupby(range(batch.first_offset, batch.next_offset), mark_of):
                following = place + sum(1 for _ in run)
                piece_batch = _part(batch, place, following)
                pieces.append(Piece(piece_batch, _CONDITIONS[mark], mark == _REDELIVERED))
                place = following
        if only_ready:
            pieces = [piece for piece in pieces if piece.condition is Condition.READY]
        return Page(pieces, next_offset)

    def one(self, offset: int) -> Piece | None:
        """The message at *offset*; None if it is gone, or yet to come."""
        pieces = self.page(offset, min(offset + 1, self.end)).pieces
        return pieces[0] if pieces else None

    def states(self, offset: int) -> list[State]:
        """What became of the message at *offset*, first things first."""
        return self._log.history(offset)


def fate(queue: ClassicQueue, states: list[State]) -> tuple[str, str]:
    """In a word and a sentence what became of a settled message of *queue*."""
    for state in reversed(states):
        if state in SETTLED:
            word, sentence = _FATES[state]
            return word, sentence + (_dead_letter(queue) if state in _DEATHS else "")
    if State.VOLATILE in states:
        return "forgotten", "it was transient, and the broker started anew"
    return "settled", "it is done with"


def _dead_letter(queue: ClassicQueue) -> str:
    """Where dead messages of *queue* go."""
    exchange = queue.arguments.dead_letter_exchange
    if exchange is None:
        return "; the queue has no dead letter exchange"
    key = queue.arguments.dead_letter_routing_key
    suffix = "" if key is None else f" with routing key '{key}'"
    name = f"exchange '{exchange}'" if exchange else "the default exchange"
    return f"; dead letters of the queue go to {name}{suffix}"


def _part(batch: Batch, start: int, stop: int) -> Batch:
    return piece_of(batch, range(batch.first_offset, batch.next_offset), start, stop)[0]


_READY, _REDELIVERED, _HELD, _SETTLED = 1, 2, 3, 4
_CONDITIONS = {
    _READY: Condition.READY,
    _REDELIVERED: Condition.READY,
    _HELD: Condition.HELD,
    _SETTLED: Condition.SETTLED,
}
_FATES = {
    State.ACKED: ("acknowledged", "a consumer acknowledged it, or needed not to"),
    State.EXPIRED: ("expired", "its time to live had passed"),
    State.DROPPED: ("dropped", "the queue was longer than it may be"),
    State.REJECTED: ("rejected", "a consumer refused it, or it failed too often"),
    State.PURGED: ("purged", "the queue was emptied"),
    State.MOVED: ("moved", "an operator moved it elsewhere"),
}
_DEATHS = frozenset((State.EXPIRED, State.DROPPED, State.REJECTED))
