"""DelayedMessages: the messages of a vhost that wait for their time, and their way on.

A message that is due is posted to its exchange and settled once it is safe in its queues: a kill
in between sends it again rather than not at all. It has been confirmed when it was held, so a queue
that refuses it is tried again until it does not.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby
from typing import Protocol

from leveret.amqp.errors import AmqpError, InternalError
from leveret.amqp.message import decode_head, head_length
from leveret.broker.appending import Refusals, publish
from leveret.broker.turn import Turn
from leveret.queues.arguments import Overflow
from leveret.queues.classic import ClassicQueue
from leveret.queues.delay import DelayStore, Due
from leveret.storage.due_run import DueEntry
from leveret.storage.errors import DiskFull, StorageError
from leveret.storage.log import SegmentLog

logger = logging.getLogger(__name__)

TURN_MESSAGES = 2048
"""Messages that go on in one turn; others are served in between."""
RETRY_MS = 1000
"""Between two tries of what a full queue (x-overflow reject-publish) refuses."""
MOST_REFUSED = 1000
"""Refused messages in memory; while there are so many the others wait on disk."""


class PostDue(Protocol):
    """How messages whose time has come go on."""

    def __call__(
        self, exchange_name: str, routing_key: str, messages: list[bytes], attributes: int
    ) -> Refusals:
        """Post *messages*; answers the places of those that queues refuse. Raises AmqpError."""


class DelayedMessages:
    """Implements `TurnQueue`, and `Delays` for those who post."""

    def __init__(self, store: DelayStore, turn: Turn, post: PostDue) -> None:
        self._store = store
        self._turn = turn
        self._post = post
        self.stopped = ""
        self._is_started = False
        # Refused by a full queue; by how many in all, by offset.
        self._refused: list[tuple[ClassicQueue, Due]] = []
        self._refusals: Counter[int] = Counter()
        self._retry_at_ms = 0

    def __len__(self) -> int:
        return len(self._store)

    def start(self) -> None:
        """The queues are there: messages may go on when they are due."""
        self._is_started = True
        if len(self._store):
            self._turn.touch(self)

    def hold(self, messages: list[bytes], attributes: int, due_ms: list[int]) -> None:
        """Post *messages* to their exchanges, each at its time in *due_ms*.

        Raises InternalError after a failure.
        """
        if self.stopped:
            raise InternalError(self.stopped)
        self._store.hold(messages, attributes, due_ms)
        self._turn.touch(self)

    def pending(self, after: DueEntry | None, limit: int) -> list[Due]:
        """Up to *limit* waiting messages, as `DelayStore.pending` lists them.

        Raises InternalError after a failure, or because of it.
        """
        with self._sound():
            return self._store.pending(after, limit)

    def cancel(self, offsets: Iterable[int]) -> list[int]:
        """Drop the messages at *offsets*; answers those that were waiting.

        They do not come back after a kill. Raises InternalError after a failure, or because of it.
        """
        with self._sound():
            cancelled = [offset for offset in offsets if self._store.cancel(offset)]
            self._turn.touch(self)
            with suppress(DiskFull):  # tried again at the end of the turn
                self._store.flush_state()
        return cancelled

    # ---- TurnQueue

    def flush(self) -> SegmentLog | None:
        """Write what was held in this turn."""
        return None if self.stopped else self._store.flush()

    def dispatch(self, now_ms: int) -> int | None:
        """Post what is due; answers when the next one is."""
        if self.stopped or not self._is_started:
            return None
        arrived = self._try_again(now_ms)
        is_held_up = len(self._refused) >= MOST_REFUSED
        if not is_held_up:
            dues = self._store.take_due(now_ms, TURN_MESSAGES)
            for (attributes, _), run in groupby(dues, _address):
                arrived += self._send(attributes, list(run), now_ms)
        if arrived:
            self._turn.wait_for_logs(partial(self._safe, arrived))
        looks = [None if is_held_up else self._store.next_due_ms]
        if self._refused:
            looks.append(self._retry_at_ms)
        return min((look for look in looks if look is not None), default=None)

    def flush_state(self) -> SegmentLog | None:
        """Write what was settled in this turn."""
        return None if self.stopped else self._store.flush_state()

    def _send(self, attributes: int, dues: list[Due], now_ms: int) -> list[int]:
        """Post messages that go the same way; answers the offsets of those that went."""
        messages = [due.message for due in dues]
        try:
            refusals = self._post(*decode_head(messages[0]), messages, attributes)
        except AmqpError as error:  # they come again after a restart
            logger.error("delayed messages not sent: offset=%s: %s", dues[0].offset, error)
            return []
        for queue, places in refusals.items():
            if _buries_refused(queue):
                continue
            self._refused += [(queue, dues[place]) for place in places]
            self._refusals.update(dues[place].offset for place in places)
            self._retry_at_ms = now_ms + RETRY_MS
        return [due.offset for due in dues if due.offset not in self._refusals]

    def _try_again(self, now_ms: int) -> list[int]:
        """Send what full queues refused; answers the offsets of what is in all its queues now."""
        if not self._refused or now_ms < self._retry_at_ms:
            return []
        refused, self._refused = self._refused, []
        arrived = []
        for queue, due in refused:
            if self._is_refused(queue, due):
                self._refused.append((queue, due))
                continue
            self._refusals[due.offset] -= 1
            if not self._refusals[due.offset]:
                del self._refusals[due.offset]
                arrived.append(due.offset)
        self._retry_at_ms = now_ms + RETRY_MS
        return arrived

    def _is_refused(self, queue: ClassicQueue, due: Due) -> bool:
        try:
            return bool(publish(queue, [due.message], due.attributes, 0, self._turn))
        except AmqpError:  # the queue has stopped
            return True

    def _safe(self, offsets: list[int], error: Exception | None) -> None:
        if error is None and not self.stopped:
            self._store.settle(offsets)
            self._turn.touch(self)

    @contextmanager
    def _sound(self) -> Iterator[None]:
        """For work outside of a turn: what it meets is the end of the store."""
        if self.stopped:
            raise InternalError(self.stopped)
        try:
            yield
        except (OSError, StorageError) as error:
            logger.error("delayed messages stopped: %s", error)
            self.stop(error)
            raise InternalError(self.stopped) from error

    # ---- end

    def stop(self, error: Exception) -> None:
        """Give up a store that cannot be trusted any more; what it left on disk stays."""
        self.stopped = "the store of delayed messages has stopped: its storage failed"
        self._store.fail(error)

    def close(self) -> None:
        """Let go of files."""
        self._store.close()

    def delete(self) -> None:
        """Remove every message."""
        self._store.delete()


def _address(due: Due) -> tuple[int, bytes]:
    """What is equal in messages that go the same way: their attributes and their head."""
    return due.attributes, due.message[: head_length(due.attributes)]


def _buries_refused(queue: ClassicQueue) -> bool:
    """Does what *queue* refuses go on to its dead letter exchange?"""
    arguments = queue.arguments
    return (
        arguments.overflow is Overflow.REJECT_PUBLISH_DLX
        and arguments.dead_letter_exchange is not None
    )
