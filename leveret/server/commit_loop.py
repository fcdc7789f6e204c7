"""CommitLoop: runs the committer's batches in the one storage thread, one after the other."""

import queue
import threading
from collections.abc import Callable
from typing import Protocol

from leveret.storage.committer import CommitBatch, Committer


class Loop(Protocol):
    """The event loop, as far as another thread may use it."""

    def call_soon_threadsafe(
        self, callback: Callable[[CommitBatch], object], batch: CommitBatch
    ) -> object:
        """Call *callback* in the loop's thread."""


class CommitLoop:
    """Hands batches to the storage thread and settles them in the loop.

    At most one batch is under way; what comes meanwhile makes the next one.
    """

    def __init__(
        self,
        committer: Committer,
        loop: Loop,
        *,
        settled: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._committer = committer
        self._loop = loop
        self._settled = settled
        self._failed = failed
        self._under_way: CommitBatch | None = None
        self._sync_state = False
        self._work: queue.SimpleQueue[CommitBatch | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="storage")

    def start(self) -> None:
        """Start the storage thread."""
        self._thread.start()

    def wake(self) -> None:
        """Somebody waits: sync now, or as soon as the sync under way is done."""
        if self._under_way is None:
            self._under_way = self._committer.take(include_state=self._sync_state)
            self._sync_state = False
            self._work.put(self._under_way)

    def sync_all(self) -> None:
        """Sync also what nobody waits for, the state logs among it."""
        self._sync_state = True
        self.wake()

    def stop(self) -> None:
        """Finish the batch under way, sync all that is left, end the thread. Blocks."""
        self._work.put(None)
        self._thread.join()
        if self._under_way is not None:
            self._settle(self._under_way)
        last = self._committer.take(include_state=True)
        last.run()
        last.close()
        self._settle(last)

    def _run(self) -> None:
        while (batch := self._work.get()) is not None:
            batch.run()
            self._loop.call_soon_threadsafe(self._done, batch)
            batch.close()  # those who wait have been told

    def _done(self, batch: CommitBatch) -> None:
        if batch is not self._under_way:
            return  # `stop` has settled it
        self._settle(batch)
        self._settled()
        if self._committer.is_waited_for or self._sync_state:
            self.wake()

    def _settle(self, batch: CommitBatch) -> None:
        self._under_way = None
        for error in batch.settle():
            self._failed(error)
