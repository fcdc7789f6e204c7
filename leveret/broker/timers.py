"""Timers: who wants to be looked at when; one timer of the event loop serves them all."""

import heapq
from collections.abc import Callable
from itertools import count
from typing import Generic, TypeVar

Target = TypeVar("Target")

LONGEST_SLEEP_S = 10.0
"""The loop's clock does not follow when the clock of the day is set: look at it now and then."""
SLACK = 64
"""Stale entries that the heap may have, besides one for each that is waited for."""


class Timers(Generic[Target]):
    """Due times in milliseconds since 1970, each target at most once.

    *call_later* calls back after a number of seconds; *fire* is called with the targets due.
    """

    __slots__ = ("_armed_ms", "_call_later", "_clock_ms", "_due_ms", "_fire", "_heap", "_rank")

    def __init__(
        self,
        clock_ms: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], object],
        fire: Callable[[list[Target]], None],
    ) -> None:
        self._clock_ms = clock_ms
        self._call_later = call_later
        self._fire = fire
        self._heap: list[tuple[int, int, Target]] = []
        self._due_ms: dict[Target, int] = {}
        self._rank = count()
        self._armed_ms: int | None = None

    def set(self, target: Target, due_ms: int) -> None:
        """Fire *target* at *due_ms*, or at the time it already waits for if that is earlier."""
        earlier = self._due_ms.get(target)
        if earlier is not None and earlier <= due_ms:
            return
        if len(self._heap) > 2 * len(self._due_ms) + SLACK:
            self._compact()
        self._due_ms[target] = due_ms
        heapq.heappush(self._heap, (due_ms, next(self._rank), target))
        if self._armed_ms is None or due_ms < self._armed_ms:
            self._arm(due_ms)

    def forget(self, target: Target) -> None:
        """*target* is gone."""
        self._due_ms.pop(target, None)

    def _compact(self) -> None:
        """Let go of the targets that are gone, and of times that are not waited for any more."""
        due_ms = self._due_ms
        waiting = {
            target: (due, rank, target)
            for due, rank, target in self._heap
            if due_ms.get(target) == due
        }
        self._heap = list(waiting.values())
        heapq.heapify(self._heap)

    def _arm(self, due_ms: int) -> None:
        self._armed_ms = due_ms
        delay_s = max(due_ms - self._clock_ms(), 0) / 1000
        self._call_later(min(delay_s, LONGEST_SLEEP_S), lambda: self._expired(due_ms))

    def _expired(self, armed_ms: int) -> None:
        if armed_ms != self._armed_ms:
            return  # an earlier one was set meanwhile
        self._armed_ms = None
        now_ms = self._clock_ms()
        heap, due_ms = self._heap, self._due_ms
        fired = []
        while heap and (heap[0][0] <= now_ms or due_ms.get(heap[0][2]) != heap[0][0]):
            due, _, target = heapq.heappop(heap)
            if due_ms.get(target) == due:
                del due_ms[target]
                fired.append(target)
        if heap:
            self._arm(heap[0][0])
        if fired:
            self._fire(fired)
