"""RetryDelay: returned messages are held back for a growing time (x-delayed-retry-...).

The delay is the minimum times the number of hand-outs that count, at most the maximum. What is held
back is neither ready nor unacked; after a restart it is ready at once.
"""

import heapq

from leveret.queues.arguments import QueueArguments, RetryType
from leveret.queues.delivery_counts import Count

DEFAULT_MAX_MS = 24 * 60 * 60 * 1000


class RetryDelay:
    """Messages of one queue that wait for their next try."""

    __slots__ = ("_heap", "_max_ms", "_min_ms", "_type")

    def __init__(self, arguments: QueueArguments) -> None:
        self._type = arguments.delayed_retry_type or RetryType.ALL
        self._min_ms = arguments.delayed_retry_min_ms or 0
        maximum = arguments.delayed_retry_max_ms
        self._max_ms = DEFAULT_MAX_MS if maximum is None else maximum
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def hold(self, offset: int, count: Count, now_ms: int, *, failed: bool) -> bool:
        """Hold the message at *offset* back, if messages returned like this are."""
        if self._type is RetryType.DISABLED or not self._min_ms:
            return False
        if self._type is RetryType.FAILED and not failed:
            return False
        if self._type is RetryType.RETURNED and failed:
            return False
        tries = count.failed if self._type is RetryType.FAILED else count.acquired
        delay_ms = min(self._min_ms * tries, self._max_ms)
        if not delay_ms:
            return False
        heapq.heappush(self._heap, (now_ms + delay_ms, offset))
        return True

    def due_of(self, offset: int) -> int | None:
        """When the message at *offset* is ready again, if it is held back."""
        return next((due_ms for due_ms, held in self._heap if held == offset), None)

    def take_over(self, before: "RetryDelay") -> None:
        """Hold back what *before* did."""
        self._heap = before._heap

    def release(self, now_ms: int) -> list[int]:
        """The offsets whose time has come."""
        heap = self._heap
        released = []
        while heap and heap[0][0] <= now_ms:
            released.append(heapq.heappop(heap)[1])
        return released

    @property
    def due_ms(self) -> int | None:
        """When the next one is ready."""
        return self._heap[0][0] if self._heap else None


def retry_delay(arguments: QueueArguments, before: RetryDelay | None) -> RetryDelay | None:
    """The retry delay that *arguments* ask for, if any; what *before* holds back stays so."""
    is_off = arguments.delayed_retry_type is RetryType.DISABLED
    if (is_off or not arguments.delayed_retry_min_ms) and not before:
        return None
    delay = RetryDelay(arguments)
    if before is not None:
        delay.take_over(before)
    return delay
