"""Small stand-ins, each written against one of our protocols."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from leveret.queues.consumers import UNLIMITED, Consumer
from leveret.storage.batch import Batch
from leveret.storage.committer import Waiter


@dataclass(eq=False)
class FakeOutlet:
    """A channel that notes what it is to deliver (`Outlet`). `shared_prefetch` 0 is no limit."""

    shared_prefetch: int = 0
    is_blocked: bool = False
    unacked: int = 0
    delivered: list[tuple[Consumer, int, bytes, bool]] = field(default_factory=list)
    cancellations: list[Consumer] = field(default_factory=list)

    def credit(self) -> int:
        if self.is_blocked:
            return 0
        return self.shared_prefetch - self.unacked if self.shared_prefetch else UNLIMITED

    @property
    def has_shared_limit(self) -> bool:
        return self.shared_prefetch > 0

    def deliver(
        self, consumer: Consumer, batch: Batch, offsets: Sequence[int], *, redelivered: bool
    ) -> None:
        for offset, payload in zip(offsets, batch.payloads, strict=True):
            self.delivered.append((consumer, offset, payload, redelivered))
        if not consumer.no_ack:
            consumer.unacked += len(offsets)
            self.unacked += len(offsets)

    def cancelled(self, consumer: Consumer) -> None:
        self.cancellations.append(consumer)

    def take(self) -> list[tuple[Consumer, int, bytes, bool]]:
        """What was delivered since this was last asked."""
        delivered, self.delivered = self.delivered, []
        return delivered


class FakeCommitter:
    """Keeps the waiters of confirms until the test settles them."""

    def __init__(self) -> None:
        self.waiters: list[Waiter] = []

    def wait(self, waiter: Waiter) -> None:
        self.waiters.append(waiter)

    def settle(self, error: Exception | None = None) -> None:
        """Settle the oldest waiter."""
        self.waiters.pop(0)(error)


class FakeLoop:
    """Callbacks of an event loop that the test runs (`Turn`'s schedule)."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []
        self.timers: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.timers.append(callback)

    def expire(self) -> None:
        """All timers go off."""
        timers, self.timers = self.timers, []
        for callback in timers:
            callback()

    def run(self) -> None:
        """Run what is scheduled, and what that schedules."""
        while self.callbacks:
            self.callbacks.pop(0)()
