"""RecoveryLoop: has the queues recovered by threads while the broker serves.

One goes through the line, the other takes only what clients wait for: a small queue need not wait
for the end of a large one.
"""

import logging
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Protocol

import click

from leveret.broker.recovery import Recovery

logger = logging.getLogger(__name__)

STOP_S = 0.2
"""How long a stop waits for what is being recovered. Cut off it is as sound as after a kill."""


class Loop(Protocol):
    """The event loop, as far as another thread may use it."""

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> object:
        """Call *callback* in the loop's thread."""


class RecoveryLoop:
    """Runs a `Recovery`; *enter* is called before what it does in the loop, *done* at its end."""

    def __init__(
        self,
        recovery: Recovery,
        loop: Loop,
        *,
        enter: Callable[[], None],
        done: Callable[[], None],
    ) -> None:
        self._recovery = recovery
        self._loop = loop
        self._enter = enter
        self._done = done
        self._stopping = False
        self._wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._began_at = 0.0
        self._threads = [
            threading.Thread(target=target, name="recovery", daemon=True)
            for target in (self._run, self._run_wanted)
        ]

    def start(self) -> None:
        """Start, if there is anything to recover."""
        if not self._recovery:
            self._threads.clear()
            return
        logger.info("recovering: queues=%s", len(self._recovery))
        self._began_at = time.monotonic()
        self._recovery.on_wanted = self._wake
        for thread in self._threads:
            thread.start()

    def report(self) -> None:
        """Tell how far it is, if it is not at its end: in the log, or else to a terminal."""
        self._finish()
        recovery = self._recovery
        if not recovery:
            return
        line = (
            f"recovering: queues={recovery.done} of {recovery.total} "
            f"messages={recovery.messages} bytes={recovery.bytes}"
        )
        if logger.isEnabledFor(logging.INFO):
            logger.info(line)
        elif sys.stderr.isatty():
            click.echo(line, err=True)

    def stop(self) -> None:
        """Recover no more. Blocks, but not for long."""
        self._stopping = True
        self._wanted.put(False)
        for thread in self._threads:
            thread.join(STOP_S)

    def _wake(self) -> None:
        self._wanted.put(True)
        self._loop.call_soon_threadsafe(self._finish)

    def _run(self) -> None:
        self._work(only_wanted=False)

    def _run_wanted(self) -> None:
        while self._wanted.get():
            self._work(only_wanted=True)

    def _work(self, *, only_wanted: bool) -> None:
        while self._recovery.work(only_wanted=only_wanted) and not self._stopping:
            self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if self._stopping or not self._recovery:
            return
        self._enter()
        self._recovery.finish()
        if not self._recovery:
            self._wanted.put(False)
            logger.info(
                "recovered: queues=%s messages=%s bytes=%s seconds=%.1f",
                self._recovery.total,
                self._recovery.messages,
                self._recovery.bytes,
                time.monotonic() - self._began_at,
            )
            self._done()
