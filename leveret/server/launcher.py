"""Launcher: the composition root. Builds the broker, runs it until a signal, takes it down.

Start: data directory, definitions, threads, listener, control socket, ready line; the messages in
the queues come back meanwhile.
Stop: control socket, listener, connections (320), what they left behind, threads, files.
"""

import asyncio
import gc
import logging
import resource
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import uvloop

from leveret import __version__
from leveret.amqp.properties import FactsReader
from leveret.amqp.publish_shape import ShapeBook
from leveret.amqp.tuning import Tuning
from leveret.broker.alarms import Alarm, Level
from leveret.broker.broker import Broker
from leveret.broker.limits import NodeLimits
from leveret.broker.queue_pool import StorageSettings
from leveret.broker.session import Session
from leveret.broker.turn import Turn, TurnQueue
from leveret.queues.batch_cache import CacheBudget
from leveret.queues.spill import SpillArea
from leveret.server.commit_loop import CommitLoop
from leveret.server.config import Config, ConfigError
from leveret.server.control import ControlSocket
from leveret.server.encryption import load_key_ring
from leveret.server.recovery_loop import RecoveryLoop
from leveret.server.resource_monitor import ResourceLimits, ResourceMonitor
from leveret.server.resources import (
    available_memory_bytes,
    free_disk_bytes,
    keep_heap,
    resident_bytes,
    trim_heap,
)
from leveret.server.sweeper import Sweeper
from leveret.server.transport import TICK_S, AmqpTransport
from leveret.storage.committer import Committer, SyncPolicy
from leveret.storage.data_directory import DataDirectoryError, DirectoryLock, check_format
from leveret.storage.disk_space import DiskSpace
from leveret.storage.errors import StorageError
from leveret.storage.key_ring import KeyRing
from leveret.storage.log import LogOptions
from leveret.storage.metadata import MetadataStore

logger = logging.getLogger(__name__)

BACKLOG = 4096
REPORT_S = 2.0
"""Between two lines of the log on how far the recovery is."""
GC_THRESHOLD = (10_000, 20, 50)
"""The hot path makes no cycles: look for them less often than every 700 objects."""
SPARE_FILES = 4
"""Queues that may keep the file of a spent segment for their next one."""
CLOSE_TIMEOUT_S = 2.0
"""How long a stopping broker waits for its clients to answer its close."""


class StartError(Exception):
    """The broker cannot start; the message is one line for the operator."""


def run(config: Config, environment: Mapping[str, str]) -> None:
    """Run a broker until SIGINT or SIGTERM. Raises StartError."""
    _raise_descriptor_limit()
    keep_heap()
    try:
        with DirectoryLock(config.data_dir):
            check_format(config.data_dir)
            keys = load_key_ring(config, environment)
            anyio.run(
                _serve,
                config,
                keys,
                backend_options={"use_uvloop": True, "loop_factory": uvloop.new_event_loop},
            )
    except (ConfigError, DataDirectoryError, StorageError) as error:
        raise StartError(str(error)) from error


async def _serve(config: Config, keys: KeyRing | None) -> None:
    # The receiver outlives the server: a second signal must not cut its shutdown short.
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with Server(config, keys).running() as port:
            print(
                f"leveret {__version__} ready: amqp://{_address(config.host, port)} "
                f"data {config.data_dir}",
                flush=True,
            )
            async for number in signals:
                logger.info("stopping: %s", number.name)
                break


class Server:
    """One broker with its listener and threads, in the running event loop."""

    def __init__(self, config: Config, keys: KeyRing | None = None) -> None:
        self._config = config
        loop = asyncio.get_running_loop()
        self._metadata = MetadataStore(config.data_dir / "metadata.sqlite")
        self._committer = Committer(config.sync, self._metadata)
        self._turn = Turn(
            self._committer,
            schedule=loop.call_soon,
            wake_committer=self._wake_committer,
            on_failure=self._queue_failed,
            on_full=self._disk_filled,
            clock_ms=_now_ms,
            call_later=loop.call_later,
        )
        self._sweeper = Sweeper()
        self._space = DiskSpace(self._sweeper.sweep, spares=SPARE_FILES)
        log_options = LogOptions(
            segment_bytes=config.segment_bytes,
            segment_age_ms=config.segment_age_s * 1000,
            keys=keys,
        )
        self._spills = SpillArea(
            config.data_dir / "transient",
            CacheBudget(config.transient_bytes, config.transient_bytes_per_queue),
            log_options,
            _now_ms,
            self._sweeper.sweep,
        )
        settings = StorageSettings(
            log_options,
            CacheBudget(config.cache_bytes, config.cache_bytes_per_queue),
            _now_ms,
            self._space,
            spills=self._spills,
            message_id_bytes=config.message_id_index_bytes,
        )
        limits = NodeLimits(
            connections=config.connection_max,
            channels=config.channel_max_per_node,
            consumers_per_channel=config.consumer_max_per_channel,
            exchanges=config.exchange_max,
        )
        self.broker = Broker(config.data_dir, settings, self._committer, self._turn, limits)
        self._control = ControlSocket(self.broker, config.data_dir, _now_ms)
        self._monitor = ResourceMonitor(
            self.broker.alarms,
            ResourceLimits.of(config, available_memory_bytes()),
            free_disk=lambda: free_disk_bytes(config.data_dir),
            used_memory=resident_bytes,
            give_back=trim_heap,
        )
        self._commits = CommitLoop(
            self._committer, loop, settled=self._turn.run, failed=self.broker.log_failed
        )
        self._recovery = RecoveryLoop(
            self.broker.recovery, loop, enter=self._begin_turn, done=gc.freeze
        )
        self._tuning = Tuning(config.channel_max, config.frame_max, config.heartbeat_s)
        self._facts_reader = FactsReader()
        self._shapes = ShapeBook()
        self._connections: set[AmqpTransport] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[int]:
        """Serve for as long as the context lasts; answers the port."""
        config = self._config
        self._spills.clear()
        self.broker.open(self._metadata.load())
        self._commits.start()
        self._sweeper.start()
        self._recovery.start()
        try:
            self._turn.wait_for_commit()
            self._monitor.check()
            loop = asyncio.get_running_loop()
            try:
                server = await loop.create_server(
                    self._accept, config.host, config.port, backlog=BACKLOG
                )
            except OSError as error:
                reason = error.strerror or str(error)
                raise StartError(
                    f"cannot listen on {_address(config.host, config.port)}: {reason}"
                ) from error
            # What the start made lives on: keep the collector from going through it again.
            gc.collect()
            gc.freeze()
            gc.set_threshold(*GC_THRESHOLD)
            try:
                async with self._control.listening(), anyio.create_task_group() as tasks:
                    tasks.start_soon(self._tick)
                    tasks.start_soon(self._sync)
                    tasks.start_soon(self._monitor.run)
                    tasks.start_soon(self._report_recovery)
                    yield server.sockets[0].getsockname()[1]
                    tasks.cancel_scope.cancel()
            finally:
                server.close()
                with anyio.CancelScope(shield=True):
                    await self._close_connections()
        finally:
            self._recovery.stop()
            self._turn.run()
            self._commits.stop()
            self.broker.close()
            self._metadata.close()
            self._sweeper.stop()

    def _accept(self) -> AmqpTransport:
        return AmqpTransport(self._make_session, self._connections, self._turn, _now_ms)

    def _make_session(self, transport: AmqpTransport, *, peer: str, is_loopback: bool) -> Session:
        return Session(
            transport,
            self.broker,
            self._turn,
            tuning=self._tuning,
            facts_reader=self._facts_reader,
            shapes=self._shapes,
            max_message_size=self._config.max_message_size,
            peer=peer,
            is_loopback=is_loopback,
            advertise=self._config.advertise,
            timestamping=self._config.timestamping,
        )

    def _begin_turn(self) -> None:
        self._turn.now_ms = _now_ms()

    async def _report_recovery(self) -> None:
        while self.broker.recovery:
            await anyio.sleep(REPORT_S)
            self._recovery.report()

    def _wake_committer(self) -> None:
        self._commits.wake()

    def _queue_failed(self, queue: TurnQueue, error: Exception) -> None:
        self.broker.queue_failed(queue, error)

    def _disk_filled(self, is_full: bool) -> None:
        self.broker.alarms.set(Alarm.DISK_FULL, Level.HARD if is_full else Level.OFF)

    async def _tick(self) -> None:
        while True:
            await anyio.sleep(TICK_S)
            now = time.monotonic()
            for connection in list(self._connections):
                connection.tick(now, self._config.handshake_timeout_s)
            self._space.expire(_now_ms())
            for log in self._space.look_after(_now_ms()):
                self._committer.touch(log)
                self._committer.touch_state(log)

    async def _sync(self) -> None:
        """Sync what nobody waits for: states, and unless confirms do wait, messages."""
        is_interval = self._config.sync is SyncPolicy.INTERVAL
        interval_s = self._config.sync_interval_ms / 1000 if is_interval else TICK_S
        while True:
            await anyio.sleep(interval_s)
            self._commits.sync_all()

    async def _close_connections(self) -> None:
        for connection in list(self._connections):
            connection.shut_down("broker forced connection closure with reason 'shutdown'")
        self._turn.run()
        with anyio.move_on_after(CLOSE_TIMEOUT_S):
            while self._connections:  # noqa: ASYNC110  # once in a life: not worth an event
                await anyio.sleep(0.01)
        for connection in list(self._connections):
            connection.abort()
        while self._connections:
            await anyio.lowlevel.checkpoint()


def _raise_descriptor_limit() -> None:
    """Connections and logs hold descriptors: take as many as the system lets us have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
