"""DeadLetters: sends the dead messages of a vhost's queues to their dead letter exchanges.

At most once: the dead letter is appended before its source is settled, in one turn; a missing
exchange or queue, or one that refuses it, loses it. At least once: the source is settled only when
the dead letter is on disk in a queue; until then it is tried again.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from leveret.amqp.errors import AmqpError
from leveret.amqp.message import DEAD_LETTERED
from leveret.broker.postings import Posted, Postings
from leveret.broker.turn import Turn
from leveret.exchanges.exchange import Exchange
from leveret.queues.arguments import DeadLetterStrategy, Overflow
from leveret.queues.classic import ClassicQueue
from leveret.queues.death import DeathReason, dead_letter, would_cycle
from leveret.storage.batch import Batch

logger = logging.getLogger(__name__)

RETRY_MS = 5_000
"""Between two tries of a dead letter that must not be lost."""


class Funeral(NamedTuple):
    """Messages of one queue that died together."""

    queue: ClassicQueue
    batch: Batch
    offsets: Sequence[int]
    reason: DeathReason
    is_safe: bool


class DeadLetters:
    """Implements `TurnQueue` for the tries that are to be repeated."""

    def __init__(
        self,
        find_exchange: Callable[[str], Exchange | None],
        postings: Postings,
        turn: Turn,
    ) -> None:
        self._find_exchange = find_exchange
        self._postings = postings
        self._turn = turn
        self._pending: deque[Funeral] = deque()
        self._is_busy = False
        self._failed: list[Funeral] = []
        self._retry_at_ms = 0

    def bury(
        self, queue: ClassicQueue, batch: Batch, offsets: Sequence[int], reason: DeathReason
    ) -> bool:
        """Send the messages of *batch* to the dead letter exchange of *queue*.

        Answers whether they may be settled now; otherwise `queue.buried` is called later.
        """
        arguments = queue.arguments
        is_safe = (
            arguments.dead_letter_strategy is DeadLetterStrategy.AT_LEAST_ONCE
            and arguments.overflow is Overflow.REJECT_PUBLISH
            and bool(offsets)
        )
        self._pending.append(Funeral(queue, batch, offsets, reason, is_safe))
        # A dead letter may kill others where it arrives: one after the other, not one in another.
        if not self._is_busy:
            self._is_busy = True
            try:
                while self._pending:
                    self._hold(self._pending.popleft())
            finally:
                self._is_busy = False
        return not is_safe

    def forget(self, queue: ClassicQueue) -> None:
        """*queue* is deleted, and with it what waits for its dead letters to be safe."""
        self._failed = [funeral for funeral in self._failed if funeral.queue is not queue]

    def _hold(self, funeral: Funeral) -> None:
        queue, batch = funeral.queue, funeral.batch
        if not funeral.is_safe:
            for message in batch.payloads:
                self._send(queue, message, batch.attributes, funeral.reason)
            return
        done: list[int] = []
        failed: list[int] = []
        for place, message in enumerate(batch.payloads):
            posted = self._send(queue, message, batch.attributes, funeral.reason)
            arrived = posted is not None and posted.is_routed and not posted.is_refused
            (done if arrived else failed).append(place)
        if done:
            offsets = [funeral.offsets[place] for place in done]
            self._turn.wait_for_logs(partial(self._safe, queue, offsets))
        if failed:
            payloads = [batch.payloads[place] for place in failed]
            rest = Batch(0, batch.timestamp_ms, batch.attributes, payloads, 0)
            self._failed.append(
                funeral._replace(batch=rest, offsets=[funeral.offsets[place] for place in failed])
            )
            self._retry_at_ms = self._turn.now_ms + RETRY_MS
            self._turn.wake_at(self, self._retry_at_ms)

    def _safe(self, queue: ClassicQueue, offsets: list[int], error: Exception | None) -> None:
        if error is None and not queue.stopped:
            queue.buried(offsets)
            self._turn.touch(queue)

    def _send(
        self, queue: ClassicQueue, message: bytes, attributes: int, reason: DeathReason
    ) -> Posted | None:
        arguments = queue.arguments
        name = arguments.dead_letter_exchange
        exchange = None if name is None else self._find_exchange(name)
        if exchange is None:
            return None
        letter = dead_letter(
            message,
            attributes,
            queue=queue.name,
            reason=reason,
            exchange=exchange.name,
            routing_key=arguments.dead_letter_routing_key,
            now_s=self._turn.now_ms // 1000,
        )
        key_at = 3 + letter.message[1]
        key = letter.message[key_at : key_at + letter.message[key_at - 1]].decode()

        def goes_round(target: ClassicQueue) -> bool:
            if not would_cycle(
                letter.history,
                has_history=bool(letter.attributes & DEAD_LETTERED),
                queue=target.name,
                reason=reason,
            ):
                return False
            logger.warning(
                "message dropped that goes round: it died in %s before, now of %s in %s",
                target.name,
                reason,
                queue.name,
            )
            return True

        try:
            return self._postings.post(
                exchange, key, letter.message, letter.attributes, avoids=goes_round
            )
        except AmqpError as error:  # of the target: its source goes on
            logger.warning("dead letter of queue %s lost: %s", queue.name, error)
            return None

    # ---- TurnQueue

    def flush(self) -> None:
        """Nothing is kept here that is not in its queue's log."""

    def dispatch(self, now_ms: int) -> int | None:
        """Try again what could not be sent."""
        if self._failed and now_ms >= self._retry_at_ms:
            failed, self._failed = self._failed, []
            for funeral in failed:
                if not funeral.queue.stopped:
                    self._hold(funeral)
        return self._retry_at_ms if self._failed else None

    def flush_state(self) -> None:
        """Nothing is kept here."""
