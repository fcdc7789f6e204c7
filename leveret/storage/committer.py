"""Committer: the one point where things become durable, for many waiters at once.

The loop thread notes what was written and who waits for it; the storage thread syncs it in
batches. While one batch is being synced the next one collects (group commit), so the number of
syncs does not grow with the number of messages.

How far a log is synced is the policy's choice. The definitions always are, and a confirm under any
policy comes after the definitions that it builds upon: a queue that a kill can undo would take its
confirmed messages along.
"""

import logging
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from leveret.storage.errors import DiskFull, StorageError
from leveret.storage.sync_work import reports_file_system_errors, sync_file_system

if TYPE_CHECKING:
    from leveret.storage.changes import Change

logger = logging.getLogger(__name__)

Waiter = Callable[[Exception | None], None]
"""Called in the loop thread once all is durable, or with the error that prevents it."""


class SyncPolicy(StrEnum):
    """When the logs are forced to the disk, and so what a confirm promises."""

    ALWAYS = "always"
    INTERVAL = "interval"
    NEVER = "never"


MANY_LOGS = 32 if reports_file_system_errors() else sys.maxsize
"""Logs to sync from which on the whole file system is synced: one call in place of hundreds."""
SYNC_BYTES = 16 * 1024 * 1024
"""Bytes written that are synced though nobody waits for them."""
BEHIND_BYTES = 64 * 1024 * 1024
"""Bytes written and not synced above which publishers wait for the disk."""


class Syncable(Protocol):
    """A log with bytes that the disk may not have yet."""

    def take_written(self) -> int:
        """Bytes written since this was last asked."""

    def take_sync(self, include_state: bool) -> "SyncJob | None":
        """What must be synced now; None if nothing. Raises OSError, StorageError."""

    def fail(self, error: Exception) -> object:
        """A sync failed with *error*: what the disk has of this log is not known any more."""


class SyncJob(Protocol):
    """Files to sync, in the storage thread."""

    def run(self) -> None:
        """Sync them. Raises OSError."""

    @property
    def handle(self) -> int | None:
        """A descriptor on their file system, if there is one."""

    def settle(self) -> None:
        """The file system was synced, and they with it."""

    def close(self) -> None:
        """Let go of them, synced or not."""


class ChangeSink(Protocol):
    """The definitions database."""

    def apply(self, changes: Sequence["Change"]) -> None:
        """Make *changes* durable in one transaction. Raises DiskFull if that may work later."""


class CommitBatch:
    """One sync: what to make durable, and who is told.

    `changes` are those that are not known to be durable: none are left once they have been applied.
    `waiters` are those who have not been told, `size` the bytes of messages that are being synced.
    """

    __slots__ = ("_error", "_failed", "_jobs", "_sink", "changes", "size", "waiters")

    def __init__(
        self,
        jobs: list[tuple[Syncable, SyncJob]],
        failed: list[tuple[Syncable, Exception]],
        changes: list["Change"],
        sink: ChangeSink,
        waiters: list[Waiter],
        size: int = 0,
    ) -> None:
        self._jobs = jobs
        self._failed = failed
        self._sink = sink
        self.waiters = waiters
        self.changes = changes
        self.size = size
        self._error: Exception | None = failed[0][1] if failed else None

    def close(self) -> None:
        """Give back the descriptors of what was synced. Storage thread, after `run`.

        Those of many logs are given back by `settle`: the storage thread would have to wait for the
        interpreter for each.
        """
        if len(self._jobs) < MANY_LOGS:
            self._close()

    def _close(self) -> None:
        for _, job in self._jobs:
            job.close()

    def run(self) -> None:
        """Sync everything; errors are kept for `settle`. Storage thread."""
        if len(self._jobs) < MANY_LOGS or not self._sync_together():
            self._sync_each()
        if self.changes:
            try:
                self._sink.apply(self.changes)
                self.changes = []
            except DiskFull as error:
                logger.warning("definitions wait for disk space: %s", error)
            except Exception as error:  # whatever SQLite says, the waiters must hear of it
                self._error = error

    def _sync_each(self) -> None:
        for log, job in self._jobs:
            try:
                job.run()
            except OSError as error:
                self._failed.append((log, error))
                self._error = error

    def _sync_together(self) -> bool:
        """Sync the file system; answers whether that did it for all.

        An error does not say which file it is of, nor whether it is ours: syncing each then tells,
        for a descriptor hears of each failed write of its file once, whoever had it written.
        """
        handle = next((job.handle for _, job in self._jobs if job.handle is not None), None)
        if handle is None:
            return False
        try:
            sync_file_system(handle)
        except OSError as error:
            logger.warning("sync of the file system failed, syncing each log: %s", error)
            return False
        for _, job in self._jobs:
            job.settle()
        return True

    def settle(self) -> list[Exception]:
        """Stop the logs that failed and tell the waiters; answers the errors of logs. Loop thread.

        One failed file fails every waiter of the batch: which of them could do without it is not
        known, and a confirm must not be a guess. While there is no room for the definitions, all
        wait for the next batch.
        """
        self.size = 0
        if len(self._jobs) >= MANY_LOGS:
            self._close()
        for log, error in self._failed:
            log.fail(error)
        if self._error is not None or not self.changes:
            waiters, self.waiters = self.waiters, []
            for waiter in waiters:
                waiter(self._error)
        return [error for _, error in self._failed]


class Committer:
    """Collects what the next `CommitBatch` will make durable."""

    def __init__(self, policy: SyncPolicy, sink: ChangeSink) -> None:
        self._policy = policy
        self._sink = sink
        self._logs: dict[Syncable, None] = {}
        self._states: dict[Syncable, None] = {}
        self._changes: list[Change] = []
        self._waiters: list[Waiter] = []
        self._due: list[Waiter] = []
        self._unsynced_bytes = 0
        self._last = CommitBatch([], [], [], sink, [])

    def touch(self, log: Syncable) -> None:
        """*log* has new messages."""
        self._logs[log] = None
        if self._policy is not SyncPolicy.NEVER:
            self._unsynced_bytes += log.take_written()

    def touch_state(self, log: Syncable) -> None:
        """*log* has new states, which nobody waits for."""
        self._states[log] = None

    def change(self, change: "Change") -> None:
        """A definition changed."""
        self._changes.append(change)

    def wait_for_changes(self, waiter: Waiter) -> None:
        """Tell *waiter* once the changes so far are durable, whatever the policy."""
        self._waiters.append(waiter)

    def wait(self, waiter: Waiter) -> None:
        """Tell *waiter* once the logs touched so far are as durable as the policy promises."""
        if self._policy is SyncPolicy.ALWAYS or self.has_changes:
            self._waiters.append(waiter)
        else:
            self._due.append(waiter)

    @property
    def has_changes(self) -> bool:
        """Is there a definition that is not known to be durable?"""
        return bool(self._changes or self._last.changes)

    def take_due(self) -> list[Waiter]:
        """Those whom the policy lets go as soon as the bytes are written."""
        due, self._due = self._due, []
        return due

    @property
    def is_waited_for(self) -> bool:
        """Should the next batch be taken: for a waiter, a definition, or much that is unsynced?"""
        return bool(self._waiters or self._changes) or self._unsynced_bytes > SYNC_BYTES

    @property
    def is_behind(self) -> bool:
        """Is so much written and not synced that publishers should wait for the disk?"""
        return self._unsynced_bytes + self._last.size > BEHIND_BYTES

    def take(self, *, include_state: bool = False) -> CommitBatch:
        """Everything noted so far, to be synced. Loop thread.

        The batch before must have been settled. Changes that it could not apply are tried again:
        what was declared is in use by now, and must be durable before a confirm relies on it.
        """
        logs, self._logs = self._logs, {}
        if include_state:
            logs |= self._states
            self._states = {}
        jobs: list[tuple[Syncable, SyncJob]] = []
        failed: list[tuple[Syncable, Exception]] = []
        for log in logs:
            try:
                job = log.take_sync(include_state)
            except (OSError, StorageError) as error:
                failed.append((log, error))
                continue
            if job is None:
                continue
            if self._policy is SyncPolicy.NEVER:
                job.close()  # only now may the log give back descriptors of its own
            else:
                jobs.append((log, job))
        changes = self._last.changes + self._changes
        waiters = self._last.waiters + self._waiters
        self._last = CommitBatch(jobs, failed, changes, self._sink, waiters, self._unsynced_bytes)
        self._unsynced_bytes = 0
        self._changes = []
        self._waiters = []
        return self._last
