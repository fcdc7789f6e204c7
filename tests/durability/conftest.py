"""A broker inside the test's process, whose disk can be made to fail."""

import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from leveret.server.config import Config
from leveret.server.launcher import Server
from leveret.storage.committer import SyncPolicy


class LocalBroker:
    """A broker in a thread of this process."""

    def __init__(self, config: Config, portal: BlockingPortal) -> None:
        self.data_dir = config.data_dir
        self._config = config
        self._portal = portal
        self._ready = threading.Event()
        self._stop = anyio.Event()
        self._running = portal.start_task_soon(self._run)
        assert self._ready.wait(10)

    async def _run(self) -> None:
        async with Server(self._config).running() as self.port:
            self._ready.set()
            await self._stop.wait()

    def halt(self) -> None:
        """Stop it as SIGTERM does."""
        self._portal.call(self._stop.set)
        self._running.result(10)


@pytest.fixture
def local_broker(tmp_path: Path) -> Iterator[Callable[..., LocalBroker]]:
    """Starts a broker on the test's directory; one that ran before is stopped first."""
    brokers: list[LocalBroker] = []

    def start(sync: str = "always", **options: int) -> LocalBroker:
        for broker in brokers:
            broker.halt()
        config = Config(port=0, data_dir=tmp_path, sync=SyncPolicy(sync), **options)
        brokers.append(LocalBroker(config, portal))
        return brokers[-1]

    with start_blocking_portal("asyncio") as portal:
        yield start
        for broker in brokers:
            broker.halt()
    gc.unfreeze()  # a broker freezes what it has made, and here all that the tests have made


class Disk:
    """Sees each fdatasync, by the path of the file, and fails those that it is told to fail."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        self.failing = ""
        self._fdatasync = os.fdatasync

    def fdatasync(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if self.failing and self.failing in path:
            raise OSError(5, "Input/output error")
        self._fdatasync(fd)
        self.synced.append(path)

    def has_synced(self, text: str) -> bool:
        return any(text in path for path in self.synced)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(os, "fdatasync", disk.fdatasync)
    return disk
