"""DelayedMessages: the messages of a vhost that wait for their time, and their way on.

A message that is due is posted to its exchange and settled once it is safe in its queues: a kill
in between sends it again rather than not at all.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby
from typing import Protocol

from leveret.amqp.errors import AmqpError, InternalError
from leveret.amqp.message import decode_head, head_length
from leveret.broker.turn import Turn
from leveret.queues.delay import DelayStore, Due
from leveret.storage.due_run import DueEntry
from leveret.storage.errors import DiskFull, StorageError
from leveret.storage.log import SegmentLog

logger = logging.getLogger(__name__)

TURN_MESSAGES = 2048
"""Messages that go on in one turn; others are served in between."""


class PostDue(Protocol):
    """How messages whose time has come go on."""

    def __call__(
        self, exchange_name: str, routing_key: str, messages: list[bytes], attributes: int
    ) -> None:
        """Post *messages*. Raises AmqpError."""


class DelayedMessages:
    """Implements `TurnQueue`, and `Delays` for those who post."""

    def __init__(self, store: DelayStore, turn: Turn, post: PostDue) -> None:
        self._store = store
        self._turn = turn
        self._post = post
        self.stopped = ""

    def __len__(self) -> int:
        return len(self._store)

    def start(self) -> None:
        """See to what a restart brought back."""
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
        if self.stopped:
            return None
        posted: list[int] = []
        for (attributes, _), run in groupby(self._store.take_due(now_ms, TURN_MESSAGES), _address):
            posted += self._send(attributes, list(run))
        if posted:
            self._turn.wait_for_logs(partial(self._safe, posted))
        return self._store.next_due_ms

    def flush_state(self) -> SegmentLog | None:
        """Write what was settled in this turn."""
        return None if self.stopped else self._store.flush_state()

    def _send(self, attributes: int, dues: list[Due]) -> list[int]:
        """Post messages that go the same way; answers the offsets of those that went."""
        messages = [due.message for due in dues]
        try:
            self._post(*decode_head(messages[0]), messages, attributes)
        except AmqpError as error:  # they come again after a restart
            logger.error("delayed messages not sent: offset=%s: %s", dues[0].offset, error)
            return []
        return [due.offset for due in dues]

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
