"""A broker without sockets and threads: its loop and its storage thread run when they are told."""

import shutil
from pathlib import Path

from leveret.broker.broker import NO_LIMITS, Broker
from leveret.broker.limits import NodeLimits
from leveret.broker.queue_pool import StorageSettings
from leveret.broker.timestamps import Timestamping
from leveret.broker.turn import Turn
from leveret.broker.vhost import VHost
from leveret.queues.batch_cache import CacheBudget
from leveret.queues.spill import SpillArea
from leveret.storage.committer import Committer, SyncPolicy
from leveret.storage.disk_space import DiskSpace, sweep_now
from leveret.storage.log import LogOptions
from leveret.storage.metadata import MetadataStore
from tests.fakes import FakeLoop

OPTIONS = LogOptions(segment_bytes=4096)


class World:
    """One broker on *directory*.

    *cache_bytes* is what durable queues keep in memory, and what transient ones keep there before
    they use the disk; each of them and all together.
    """

    def __init__(
        self, directory: Path, *, cache_bytes: int = 1 << 20, limits: NodeLimits = NO_LIMITS
    ) -> None:
        self.directory = directory
        self._limits = limits
        self.budget = CacheBudget(cache_bytes, cache_bytes)
        self.transient_budget = CacheBudget(cache_bytes, cache_bytes)
        self.loop = FakeLoop()
        self.now_ms = 1_000_000
        self.full: list[bool] = []
        self.timestamping = Timestamping.NEVER
        self.recovers = True  # at its start, and not when it is told to
        self._open()

    def _open(self) -> None:
        self._metadata = MetadataStore(self.directory / "metadata.sqlite")
        self.committer = Committer(SyncPolicy.ALWAYS, self._metadata)
        self.turn = Turn(
            self.committer,
            schedule=self.loop.call_soon,
            wake_committer=lambda: self.loop.call_soon(self._commit),
            on_failure=lambda queue, error: self.broker.queue_failed(queue, error),
            on_full=lambda is_full: self.full.append(is_full),
            clock_ms=lambda: self.now_ms,
            call_later=self.loop.call_later,
        )
        spills = SpillArea(
            self.directory / "transient",
            self.transient_budget,
            OPTIONS,
            lambda: self.now_ms,
            sweep_now,
        )
        spills.clear()
        settings = StorageSettings(
            OPTIONS, self.budget, lambda: self.now_ms, DiskSpace(), spills=spills
        )
        self.broker = Broker(self.directory, settings, self.committer, self.turn, self._limits)
        self.broker.open(self._metadata.load())
        if self.recovers:
            self.recover()
        self.commit()

    def recover(self, *, only_wanted: bool = False) -> None:
        """Recover all queues, or those that somebody waits for."""
        recovery = self.broker.recovery
        while recovery.work(only_wanted=only_wanted):
            recovery.finish()

    @property
    def vhost(self) -> VHost:
        vhost = self.broker.vhost("/")
        assert vhost is not None
        return vhost

    def wait(self, milliseconds: int) -> None:
        """Let time pass, and what is due happen."""
        self.now_ms += milliseconds
        self.loop.expire()
        self.run()

    def run(self) -> None:
        """Let the loop and the storage thread finish what they have to do."""
        self.loop.run()

    def commit(self) -> None:
        """One batch of the storage thread."""
        self.loop.call_soon(self._commit)
        self.run()

    def _commit(self) -> None:
        batch = self.committer.take(include_state=True)
        batch.run()
        batch.close()
        batch.settle()
        self.turn.run()

    def close(self) -> None:
        self.run()
        self.broker.close()
        self._metadata.close()
        self.loop.timers.clear()

    def restart(self) -> None:
        self.close()
        assert self.budget.used == self.transient_budget.used == 0
        self._open()

    def crash(self) -> None:
        """End without a word, and start again from the files as they are now."""
        files = self.directory.with_name(f"{self.directory.name}-left")
        shutil.copytree(self.directory, files)
        self.close()
        shutil.rmtree(self.directory)
        files.rename(self.directory)
        self._open()
