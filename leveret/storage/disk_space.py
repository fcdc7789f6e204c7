"""Disk space: how the files of spent segments are given back, or used again.

A fast queue makes and drops segments all the time. Freeing one takes the kernel as long as many
syncs, and a new file makes each sync write the file's new length too. So a log may keep the file
of one spent segment as its spare and write its next segment over it. Spares are few, and given
back when they are not used soon.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Protocol

from leveret.storage.committer import Syncable

logger = logging.getLogger(__name__)

STEP_BYTES = 4 * 1024 * 1024
LOOK_MS = 60_000
"""Between two looks at a log that may have something to give back, about."""
_LOOKS_AT_ONCE = 1000

Work = Iterable[None]
"""Work in steps, between which others may use the disk."""

Sweep = Callable[[Work], None]
"""Does work that may take long at a place where nobody waits for it."""


class SpareHolder(Protocol):
    """A log with a spare file."""

    def drop_spare(self) -> None:
        """Give the spare file back."""


class Tenant(Syncable, Protocol):
    """A log that may have something to give back though nobody uses it."""

    def look_after(self, now_ms: int) -> int | None:
        """Give it back; return when to look again, None if there is nothing to look at."""


def sweep_now(work: Work) -> None:
    """The sweep of those who have the time."""
    for _ in work:
        pass


def give_back(descriptor: int) -> Iterator[None]:
    """Free the blocks of a removed file, a few at a time, and close it.

    Freed in one go, they would keep the file system's journal from the syncs of others.
    """
    try:
        size = os.fstat(descriptor).st_size
        while size > 0:
            size = max(0, size - STEP_BYTES)
            os.ftruncate(descriptor, size)
            yield
    finally:
        os.close(descriptor)


def remove_directory(directory: Path) -> Iterator[None]:
    """Remove a directory of files and give their space back. Nobody else may use it any more."""
    for path in list(directory.iterdir()):
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        path.unlink()
        yield from give_back(descriptor)
    directory.rmdir()


class DiskSpace:
    """What the logs of a broker share to give space back.

    At most *spares* logs hold a spare, each for *keep_ms* milliseconds.
    """

    __slots__ = ("_holders", "_keep_ms", "_spares", "_tenants", "sweep")

    def __init__(self, sweep: Sweep = sweep_now, *, spares: int = 0, keep_ms: int = 10_000) -> None:
        self.sweep = sweep
        self._spares = spares
        self._keep_ms = keep_ms
        self._holders: dict[SpareHolder, int] = {}
        self._tenants: dict[Tenant, int] = {}

    def watch(self, tenant: Tenant, due_ms: int) -> None:
        """Look after *tenant* from *due_ms* on, or when it is due already."""
        self._tenants.setdefault(tenant, due_ms)

    def forget(self, tenant: Tenant) -> None:
        """*tenant* is closed."""
        self._tenants.pop(tenant, None)

    def look_after(self, now_ms: int) -> list[Tenant]:
        """Look after those who are due, a number of them at a time, and return them."""
        # A clock that was set back must not put it off.
        overdue = (
            tenant
            for tenant, due_ms in list(self._tenants.items())
            if not now_ms < due_ms <= now_ms + LOOK_MS
        )
        due = list(islice(overdue, _LOOKS_AT_ONCE))
        for tenant in due:
            try:
                next_ms = tenant.look_after(now_ms)
            except Exception:  # a fault of ours in one log; the others are looked after
                logger.exception("not looked after any more: %s", tenant)
                next_ms = None
            if next_ms is None:
                self.forget(tenant)
            else:
                self._tenants[tenant] = next_ms
        return due

    def admits_spare(self, holder: SpareHolder, now_ms: int) -> bool:
        """Whether *holder* may keep a file; if so it counts from now on."""
        if len(self._holders) >= self._spares or holder in self._holders:
            return False
        self._holders[holder] = now_ms
        return True

    def spare_gone(self, holder: SpareHolder) -> None:
        """The spare of *holder* is in use or given back."""
        self._holders.pop(holder, None)

    def expire(self, now_ms: int) -> None:
        """Have the spares given back that were not used."""
        for holder, since_ms in list(self._holders.items()):
            if now_ms - since_ms > self._keep_ms:
                holder.drop_spare()
