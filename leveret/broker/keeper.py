"""Keeper: what the queues of a vhost ask for: burials, caches of keys, and their own removal."""

from collections.abc import Callable, Sequence

from leveret.broker.dead_letters import DeadLetters
from leveret.broker.duplicates import Duplicates
from leveret.broker.turn import Turn
from leveret.queues.classic import ClassicQueue
from leveret.queues.death import DeathReason
from leveret.queues.dedup import Deduplicator
from leveret.queues.queue_duplicates import DEFAULT_CACHE_SIZE
from leveret.storage.batch import Batch


class Keeper:
    """Implements `QueueKeeper`. *remove* takes a queue out of its vhost."""

    __slots__ = ("_dead_letters", "_duplicates", "_remove", "_turn")

    def __init__(
        self,
        dead_letters: DeadLetters,
        duplicates: Duplicates,
        turn: Turn,
        remove: Callable[[ClassicQueue], None],
    ) -> None:
        self._dead_letters = dead_letters
        self._duplicates = duplicates
        self._turn = turn
        self._remove = remove

    def bury(
        self, queue: ClassicQueue, batch: Batch, offsets: Sequence[int], reason: DeathReason
    ) -> bool:
        """Send dead messages to the dead letter exchange."""
        return self._dead_letters.bury(queue, batch, offsets, reason)

    def open_cache(self, queue: ClassicQueue) -> Deduplicator:
        """The keys of a queue that deduplicates."""
        arguments = queue.arguments
        return self._duplicates.add(
            _cache_name(queue),
            arguments.cache_size or DEFAULT_CACHE_SIZE,
            arguments.cache_ttl_ms,
            queue.declaration.is_durable,
        )

    def remembered(self) -> None:
        """A queue remembers new keys."""
        self._turn.touch(self._duplicates)

    def remove_unused(self, queue: ClassicQueue) -> None:
        """Its x-expires has passed."""
        self._remove(queue)

    def forget(self, queue: ClassicQueue) -> None:
        """*queue* is gone, and what was kept for it goes too."""
        self._duplicates.drop(_cache_name(queue))
        self._dead_letters.forget(queue)


def _cache_name(queue: ClassicQueue) -> str:
    return f"queues/{queue.id}/duplicates" if queue.id else f"transient {id(queue)}"
