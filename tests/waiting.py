"""Waiting for a condition with a deadline, in place of sleeping."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PAUSE_S = 0.01


def _pause() -> None:
    time.sleep(PAUSE_S)


def eventually(
    condition: Callable[[], T], *, pump: Callable[[], object] = _pause, within: float = 15
) -> T:
    """Call *condition* until what it answers is true, and answer that; fails at the deadline.

    *pump* runs between two looks: a client that works only while it is called is called there.
    """
    deadline = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not so within {within} s"
        pump()
    return value


async def eventually_async(condition: Callable[[], T], *, within: float = 15) -> T:
    """The same for a condition that comes true while the event loop runs."""
    deadline = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not so within {within} s"
        await asyncio.sleep(PAUSE_S)
    return value
