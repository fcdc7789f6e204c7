"""Timers: what they fire, and that they let go of what is gone."""

from collections.abc import Callable
from weakref import WeakSet

from leveret.broker.timers import SLACK, Timers
from tests.fakes import FakeLoop


class Target:
    """Something to look at in time."""


class Clock:
    """Timers with a clock and a loop of their own."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.fired: list[Target] = []
        self._loop = FakeLoop()
        self.timers: Timers[Target] = Timers(lambda: self.now_ms, self._call_later, self._fire)

    def _call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._loop.call_later(delay_s, callback)

    def _fire(self, targets: list[Target]) -> None:
        self.fired += targets

    def wait(self, milliseconds: int) -> list[Target]:
        """What is fired within the next *milliseconds*."""
        self.fired = []
        self.now_ms += milliseconds
        self._loop.expire()
        return self.fired


def test_each_target_is_fired_at_its_earliest_time_only() -> None:
    clock = Clock()
    early, late = Target(), Target()
    for target, due_ms in ((late, 30), (early, 20), (late, 40), (early, 10)):
        clock.timers.set(target, due_ms)
    assert [clock.wait(10) for _ in range(4)] == [[early], [], [late], []]


def test_targets_that_are_gone_are_let_go_long_before_their_time() -> None:
    clock = Clock()
    kept = Target()
    clock.timers.set(kept, 1_000_000)
    alive: WeakSet[Target] = WeakSet()
    for _ in range(10 * SLACK):
        target = Target()
        alive.add(target)
        clock.timers.set(target, 1_000_000)
        clock.timers.forget(target)
    del target
    assert len(alive) <= 2 * SLACK
    assert clock.wait(1_000_000) == [kept]


def test_a_time_that_was_set_often_fires_once() -> None:
    clock = Clock()
    target, other = Target(), Target()
    for _ in range(10 * SLACK):
        clock.timers.set(target, 1_000_000)
        clock.timers.set(target, clock.now_ms + 1)
        assert clock.wait(1) == [target]
    clock.timers.set(target, 1_000_000)
    clock.timers.set(other, 1_000_000)
    assert clock.wait(1_000_000) == [target, other]
