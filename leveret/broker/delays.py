"""DelayedMessages: the messages of a vhost that wait for their time, and their way on.

A message that is due is posted to its exchange and settled once it is safe in its queues: a kill
in between sends it again rather than not at all. On the way its header x-delay turns negative, as
RabbitMQ's plugin does it, so that it waits only once.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Protocol, cast

from leveret.amqp.errors import AmqpError, InternalError
from leveret.amqp.message import decode_head, header_payload, with_header
from leveret.amqp.properties import PropertyView
from leveret.amqp.tables import Field
from leveret.broker.turn import Turn
from leveret.queues.delay import DelayStore, Due
from leveret.storage.due_run import DueEntry
from leveret.storage.errors import DiskFull, StorageError
from leveret.storage.log import SegmentLog

logger = logging.getLogger(__name__)

DELAY_HEADER = "x-delay"
TURN_MESSAGES = 2048
"""Messages that go on in one turn; others are served in between."""


class PostDue(Protocol):
    """How a message whose time has come goes on."""

    def __call__(
        self, exchange_name: str, routing_key: str, message: bytes, attributes: int
    ) -> None:
        """Post *message*. Raises AmqpError."""


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

    def hold(self, message: bytes, attributes: int, due_ms: int) -> None:
        """Post *message* to its exchange at *due_ms*. Raises InternalError after a failure."""
        if self.stopped:
            raise InternalError(self.stopped)
        self._store.hold([message], attributes, [due_ms])
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
        dues = self._store.take_due(now_ms, TURN_MESSAGES)
        posted = [due.offset for due in dues if self._send(due)]
        if posted:
            self._turn.wait_for_logs(partial(self._safe, posted))
        return self._store.next_due_ms

    def flush_state(self) -> SegmentLog | None:
        """Write what was settled in this turn."""
        return None if self.stopped else self._store.flush_state()

    def _send(self, due: Due) -> bool:
        message = _has_waited(due.message, due.attributes)
        try:
            self._post(*decode_head(message), message, due.attributes)
        except AmqpError as error:  # it comes again after a restart
            logger.error("delayed message not sent: offset=%s: %s", due.offset, error)
            return False
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


def _has_waited(message: bytes, attributes: int) -> bytes:
    properties = PropertyView(header_payload(message, attributes), is_checked=True)
    headers = dict(properties.headers or {})
    delay = headers[DELAY_HEADER]
    headers[DELAY_HEADER] = Field("l", -abs(cast("int", delay.value)))
    return with_header(message, attributes, properties.with_changes(headers=headers))
