"""Committer: the one point where things become durable, for many waiters at once.

The loop thread notes what was written and who waits for it; the storage thread syncs it in
batches. While one batch is being synced the next one collects (group commit), so the number of
syncs does not grow with the number of messages.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

from leveret.storage.metadata import Change

Waiter = Callable[[Exception | None], None]
"""Called in the loop thread once all is durable, or with the error that prevents it."""


class SyncPolicy(Enum):
    """When a confirm may be sent."""

    ALWAYS = "always"
    INTERVAL = "interval"
    NEVER = "never"


class Syncable(Protocol):
    """A log with bytes that the disk may not have yet."""

    def take_sync(self, include_state: bool) -> "SyncJob | None":
        """What must be synced now; None if nothing."""


class SyncJob(Protocol):
    """Files to sync, in the storage thread."""

    def run(self) -> None:
        """Sync them. Raises OSError."""


class ChangeSink(Protocol):
    """The definitions database."""

    def apply(self, changes: Sequence[Change]) -> None:
        """Make *changes* durable in one transaction."""


class CommitBatch:
    """One sync: what to make durable, and who is told."""

    __slots__ = ("_changes", "_error", "_failed", "_jobs", "_sink", "_waiters")

    def __init__(
        self,
        jobs: list[tuple[Syncable, SyncJob]],
        changes: list[Change],
        sink: ChangeSink,
        waiters: list[Waiter],
    ) -> None:
        self._jobs = jobs
        self._changes = changes
        self._sink = sink
        self._waiters = waiters
        self._error: Exception | None = None
        self._failed: list[tuple[Syncable, Exception]] = []

    def run(self) -> None:
        """Sync everything; errors are kept for `settle`. Storage thread."""
        for log, job in self._jobs:
            try:
                job.run()
            except OSError as error:
                self._failed.append((log, error))
                self._error = error
        if self._changes:
            try:
                self._sink.apply(self._changes)
            except Exception as error:  # whatever SQLite says, the waiters must hear of it
                self._error = error

    def settle(self) -> list[tuple[Syncable, Exception]]:
        """Tell the waiters; answers the logs that failed. Loop thread.

        One failed file fails every waiter of the batch: which of them could do without it is not
        known, and a confirm must not be a guess.
        """
        for waiter in self._waiters:
            waiter(self._error)
        return self._failed


class Committer:
    """Collects what the next `CommitBatch` will make durable."""

    def __init__(self, policy: SyncPolicy, sink: ChangeSink) -> None:
        self._policy = policy
        self._sink = sink
        self._logs: dict[Syncable, None] = {}
        self._changes: list[Change] = []
        self._waiters: list[Waiter] = []
        self._due: list[Waiter] = []

    def touch(self, log: Syncable) -> None:
        """*log* has new bytes."""
        self._logs[log] = None

    def forget(self, log: Syncable) -> None:
        """*log* is being deleted."""
        self._logs.pop(log, None)

    def change(self, change: Change) -> None:
        """A definition changed."""
        self._changes.append(change)

    def wait_for_changes(self, waiter: Waiter) -> None:
        """Tell *waiter* once the changes so far are durable, whatever the policy."""
        self._waiters.append(waiter)

    def wait(self, waiter: Waiter) -> None:
        """Tell *waiter* once the logs touched so far are as durable as the policy promises."""
        if self._policy is SyncPolicy.ALWAYS:
            self._waiters.append(waiter)
        else:
            self._due.append(waiter)

    def take_due(self) -> list[Waiter]:
        """Those whom the policy lets go as soon as the bytes are written."""
        due, self._due = self._due, []
        return due

    @property
    def is_waited_for(self) -> bool:
        """Does anybody wait for the next batch, or a definition to be written?"""
        return bool(self._waiters or self._changes)

    def take(self, *, include_state: bool = False) -> CommitBatch:
        """Everything noted so far, to be synced. Loop thread."""
        jobs = [
            (log, job) for log in self._logs if (job := log.take_sync(include_state)) is not None
        ]
        batch = CommitBatch(jobs, self._changes, self._sink, self._waiters)
        self._logs = {}
        self._changes = []
        self._waiters = []
        return batch
