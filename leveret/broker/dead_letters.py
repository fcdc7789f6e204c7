"""DeadLetters: sends the dead messages of a vhost's queues to their dead letter exchanges.

At most once: the dead letter is appended before its source is settled, in one turn; a missing
exchange or queue, or one that refuses it, loses it. At least once: the source is settled only when
the dead letter is on disk in a queue; until then it is tried again. One whose queue is being
recovered waits for that either way.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from leveret.amqp.errors import AmqpError
from leveret.amqp.message import DEAD_LETTERED, decode_head
from leveret.broker.postings import Posted, Postings
from leveret.broker.recovery import NotRecovered
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


class Letter(NamedTuple):
    """A message whose dead letter must not be lost, and the queues that have got it.

    `offset` is None for one that its queue has never taken.
    """

    queue: ClassicQueue
    offset: int | None
    message: bytes
    attributes: int
    reason: DeathReason
    reached: set[ClassicQueue]


class DeadLetters:
    """Implements `TurnQueue` for the tries that are to be repeated.

    Queues that are *recovering* are asked for by *want*, with what is to be called then.
    """

    def __init__(
        self,
        find_exchange: Callable[[str], Exchange | None],
        postings: Postings,
        turn: Turn,
        recovering: Collection[ClassicQueue],
        want: Callable[[Iterable[ClassicQueue], Callable[[], None]], None],
    ) -> None:
        self._find_exchange = find_exchange
        self._postings = postings
        self._turn = turn
        self._recovering = recovering
        self._want = want
        self._pending: deque[Funeral] = deque()
        self._is_busy = False
        self._failed: list[Letter] = []
        self._retry_at_ms = 0

    def bury(
        self, queue: ClassicQueue, batch: Batch, offsets: Sequence[int], reason: DeathReason
    ) -> bool:
        """Send the messages of *batch* to the dead letter exchange of *queue*.

        Answers whether they may be settled now; otherwise `queue.buried` is called later.
        """
        is_safe = bool(offsets) and (_must_arrive(queue) or bool(self._recovering))
        self._turn.write_behind(queue)
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
        self._failed = [letter for letter in self._failed if letter.queue is not queue]

    def _hold(self, funeral: Funeral) -> None:
        queue, batch, offsets, reason, is_safe = funeral
        if is_safe:
            self._try(
                Letter(queue, offset, message, batch.attributes, reason, set())
                for offset, message in zip(offsets, batch.payloads, strict=True)
            )
        else:
            for message in batch.payloads:
                try:
                    self._send(queue, message, batch.attributes, reason)
                except NotRecovered as missing:
                    letter = Letter(queue, None, message, batch.attributes, reason, set())
                    self._try_later([letter])
                    self._want(missing.queues, self._try_again)

    def _try_again(self) -> None:
        self._retry_at_ms = 0
        self._turn.touch(self)

    def _try(self, letters: Iterable[Letter]) -> None:
        done: dict[tuple[ClassicQueue, DeathReason], list[Letter]] = {}
        failed: list[Letter] = []
        for letter in letters:
            if self._arrives(letter):
                done.setdefault((letter.queue, letter.reason), []).append(letter)
            else:
                failed.append(letter)
        for (queue, reason), sent in done.items():
            self._turn.wait_for_logs(partial(self._sent, queue, reason, sent))
        if failed:
            self._try_later(failed)

    def _try_later(self, letters: list[Letter]) -> None:
        self._failed += letters
        self._retry_at_ms = self._turn.now_ms + RETRY_MS
        self._turn.wake_at(self, self._retry_at_ms)

    def _arrives(self, letter: Letter) -> bool:
        """Send *letter* to the queues that have not got it; answers whether all have now."""
        queue, _, message, attributes, reason, reached = letter
        if queue.arguments.dead_letter_exchange is None:
            return True  # there is nowhere to send it any more
        tried: list[ClassicQueue] = []

        def leaves_out(target: ClassicQueue) -> bool:
            if target not in reached:
                tried.append(target)
            return target in reached or bool(target.stopped)

        try:
            posted = self._send(queue, message, attributes, reason, leaves_out)
        except NotRecovered as absent:
            self._want(absent.queues, self._try_again)
            return False
        if not _must_arrive(queue):
            return True  # be it lost
        if posted is None:
            return False
        missing = {target for target in tried if target.stopped}.union(posted.refused_by)
        reached.update(target for target in tried if target not in missing)
        return (posted.is_routed or bool(reached)) and not missing

    def _sent(
        self,
        queue: ClassicQueue,
        reason: DeathReason,
        letters: list[Letter],
        error: Exception | None,
    ) -> None:
        if queue.stopped:
            return
        if error is not None:  # which of them have it is not known
            self._try_later([letter._replace(reached=set()) for letter in letters])
            return
        offsets = [letter.offset for letter in letters if letter.offset is not None]
        queue.buried(offsets, reason)
        self._turn.touch(queue)

    def _send(
        self,
        queue: ClassicQueue,
        message: bytes,
        attributes: int,
        reason: DeathReason,
        leaves_out: Callable[[ClassicQueue], bool] | None = None,
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

        def avoids(target: ClassicQueue) -> bool:
            if not would_cycle(
                letter.history,
                has_history=bool(letter.attributes & DEAD_LETTERED),
                queue=target.name,
                reason=reason,
            ):
                return leaves_out is not None and leaves_out(target)
            logger.warning(
                "message dropped that goes round: it died in %s before, now of %s in %s",
                target.name,
                reason,
                queue.name,
            )
            return True

        try:
            _, key = decode_head(letter.message)
            return self._postings.post(
                exchange, key, letter.message, letter.attributes, avoids=avoids
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
            self._try(letter for letter in failed if not letter.queue.stopped)
        return self._retry_at_ms if self._failed else None

    def flush_state(self) -> None:
        """Nothing is kept here."""


def _must_arrive(queue: ClassicQueue) -> bool:
    arguments = queue.arguments
    return (
        arguments.dead_letter_strategy is DeadLetterStrategy.AT_LEAST_ONCE
        and arguments.overflow is Overflow.REJECT_PUBLISH
    )
