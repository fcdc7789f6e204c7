"""QueueRules: what the arguments of a queue ask for beyond first in, first out.

Made from `QueueArguments`, and anew when a policy changes them; a plain queue has none.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from leveret.queues.arguments import Overflow, QueueArguments
from leveret.queues.death import DeathReason
from leveret.queues.dedup import Deduplicator
from leveret.queues.delivery_counts import DeliveryCounts
from leveret.queues.overflow import QueueLimit
from leveret.queues.queue_duplicates import QueueDuplicates, has_cache
from leveret.queues.retry_delay import RetryDelay, retry_delay
from leveret.storage.batch import Batch

if TYPE_CHECKING:
    from leveret.queues.classic import ClassicQueue


class QueueKeeper(Protocol):
    """What a queue asks of its vhost."""

    def bury(
        self, queue: "ClassicQueue", batch: Batch, offsets: Sequence[int], reason: DeathReason
    ) -> bool:
        """Send the messages of *batch* to the dead letter exchange.

        Answers whether that is all; otherwise `queue.buried` is called once they are safe.
        """

    def open_cache(self, queue: "ClassicQueue") -> Deduplicator:
        """The keys that *queue* remembers, as its arguments say."""

    def remembered(self) -> None:
        """A cache got new keys in this turn."""

    def remove_unused(self, queue: "ClassicQueue") -> None:
        """Nobody has used the queue for as long as its x-expires says."""


class QueueRules:
    """The parts that a queue with arguments is made of, and its keeper."""

    __slots__ = (
        "_delivery_limit",
        "_expires_ms",
        "_keeper",
        "counts",
        "dead_letters",
        "duplicates",
        "limit",
        "limits_intake",
        "looks_back",
        "retry",
        "ttl_ms",
        "used_at_ms",
    )

    def __init__(
        self,
        queue: "ClassicQueue",
        arguments: QueueArguments,
        keeper: QueueKeeper,
        before: "QueueRules | None",
        now_ms: int,
    ) -> None:
        self._keeper = keeper
        self.ttl_ms = arguments.message_ttl_ms
        self.dead_letters = arguments.dead_letter_exchange is not None
        self._expires_ms = arguments.expires_ms
        self._delivery_limit = arguments.delivery_limit
        self.used_at_ms: int = now_ms if before is None else before.used_at_ms
        self.limit: QueueLimit | None = _limit(arguments, before)
        self.duplicates: QueueDuplicates | None = before.duplicates if before else None
        if arguments.deduplicates and self.duplicates is None:
            cache = keeper.open_cache(queue) if has_cache(arguments) else None
            self.duplicates = QueueDuplicates(arguments, cache)
        had_limit = None if before is None else before.limit
        counts_bytes = self.limit is not None and self.limit.counts_bytes
        # Must be told what is in the queue already.
        self.looks_back = (
            counts_bytes and not (had_limit is not None and had_limit.counts_bytes)
        ) or (before is None and self.duplicates is not None and self.duplicates.follows_messages)
        self.limits_intake = (
            counts_bytes
            or self.duplicates is not None
            or (self.limit is not None and self.limit.overflow is not Overflow.DROP_HEAD)
        )
        self.retry: RetryDelay | None = retry_delay(
            arguments, None if before is None else before.retry
        )
        self.counts: DeliveryCounts | None = None
        if arguments.counts_tries or self.retry is not None:
            self.counts = before.counts if before and before.counts else DeliveryCounts()

    # ---- in

    def admit(
        self,
        payloads: list[bytes],
        attributes: int,
        waiting: int,
        now_ms: int,
        *,
        in_order: bool,
    ) -> tuple[list[bytes], Sequence[int]]:
        """Those of *payloads* that the queue takes, and the places of those that it refuses.

        Duplicates are neither. *waiting* messages are ready, or will be at the end of the turn.
        With *in_order* nothing overtakes one that will fit once there is room.
        """
        limit = self.limit
        places = list(range(len(payloads)))
        if self.duplicates is not None:
            places = self.duplicates.new_places(payloads, attributes, now_ms)
            self._keeper.remembered()
        refused: list[int] = []
        if limit is not None and limit.overflow is not Overflow.DROP_HEAD:
            new = [payloads[place] for place in places]
            full_for = limit.refused(new, attributes, waiting, in_order=in_order)
            refused = [places[at] for at in full_for]
            if refused:
                self._forget([payloads[place] for place in refused], attributes)
                without = set(refused)
                places = [place for place in places if place not in without]
        admitted = payloads if len(places) == len(payloads) else [payloads[at] for at in places]
        if limit is not None and limit.counts_bytes:
            limit.added(admitted, attributes)
        return admitted, refused

    def _forget(self, payloads: list[bytes], attributes: int) -> None:
        if self.duplicates is not None:
            for payload in payloads:
                self.duplicates.forget(payload, attributes)

    def refuse(
        self, queue: "ClassicQueue", payloads: list[bytes], attributes: int, now_ms: int
    ) -> None:
        """These were not admitted, and are not tried again."""
        is_buried = self.limit is not None and self.limit.overflow is Overflow.REJECT_PUBLISH_DLX
        if is_buried and self.dead_letters:
            batch = Batch(0, now_ms, attributes, payloads, 0)
            self._keeper.bury(queue, batch, (), DeathReason.MAX_LENGTH)

    def appended(self, payloads: list[bytes], attributes: int, first_offset: int) -> None:
        """These were admitted and lie at *first_offset* and behind it."""
        if self.duplicates is not None:
            self.duplicates.appended(payloads, attributes, first_offset)

    def look_back(self, batch: Batch, now_ms: int) -> None:
        """These messages are in the queue already."""
        if self.limit is not None and self.limit.counts_bytes:
            self.limit.added(batch.payloads, batch.attributes)
        if self.duplicates is not None and self.duplicates.follows_messages:
            self.duplicates.found(batch, now_ms)

    # ---- out

    def taken(self, batch: Batch, offsets: Sequence[int]) -> None:
        """These messages are not ready any more."""
        if self.limit is not None and self.limit.counts_bytes:
            self.limit.taken(batch, offsets)

    def settled(self, offsets: Sequence[int]) -> None:
        """These messages are done with."""
        if self.counts is not None:
            self.counts.forget(offsets)
        if self.limit is not None and self.limit.counts_bytes:
            self.limit.settled(offsets)
        if self.duplicates is not None:
            self.duplicates.settled(offsets)

    def returned(
        self, offsets: list[int], now_ms: int, *, failed: bool
    ) -> tuple[list[int], list[int]]:
        """Deliveries came back: which are ready again now, and which died of it."""
        assert self.counts is not None
        ready, dead = [], []
        for offset in offsets:
            count = self.counts.returned(offset, failed=failed)
            if self.is_over_limit(offset):
                dead.append(offset)
            elif self.retry is None or not self.retry.hold(offset, count, now_ms, failed=failed):
                ready.append(offset)
        return ready, dead

    def is_over_limit(self, offset: int) -> bool:
        """Has the message at *offset* failed too often?"""
        assert self.counts is not None
        limit = self._delivery_limit
        return limit is not None and self.counts.failures(offset) > limit

    def purged(self, ranges: list[tuple[int, int]]) -> None:
        """Nothing is ready any more; *ranges* were."""
        if self.counts is not None:
            self.counts.forget_ranges(ranges)
        if self.duplicates is not None:
            self.duplicates.settled_ranges(ranges)
        if self.limit is not None:
            self.limit.ready_bytes = 0

    # ---- death

    def bury(
        self, queue: "ClassicQueue", batch: Batch, offsets: Sequence[int], reason: DeathReason
    ) -> bool:
        """Hand dead messages to the keeper; answers as it does."""
        return self._keeper.bury(queue, batch, offsets, reason)

    def next_look_ms(
        self, queue: "ClassicQueue", head_due_ms: int | None, now_ms: int
    ) -> int | None:
        """When the queue must be looked at again; removes it if it is unused for too long."""
        dues = [head_due_ms, None if self.retry is None else self.retry.due_ms]
        if self._expires_ms is not None and not len(queue.consumers):
            unused_at_ms = self.used_at_ms + self._expires_ms
            if unused_at_ms <= now_ms:
                self._keeper.remove_unused(queue)
                return None
            dues.append(unused_at_ms)
        return min((due for due in dues if due is not None), default=None)


def _limit(arguments: QueueArguments, before: QueueRules | None) -> QueueLimit | None:
    if arguments.max_length is None and arguments.max_length_bytes is None:
        return None
    limit = QueueLimit(arguments.max_length, arguments.max_length_bytes, arguments.overflow)
    if before is not None and before.limit is not None:
        limit.go_on_from(before.limit)
    return limit
