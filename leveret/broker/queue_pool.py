"""QueuePool: makes the queues of one vhost and hands each its store and path.

A durable queue lies in `<vhost directory>/queues/<queue id>`; ids are never reused, so what is
left of a deleted queue can never be taken for a new one of the same name.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from leveret.broker.definitions import decode_arguments
from leveret.queues.arguments import QueueArguments, QueueType
from leveret.queues.batch_cache import CacheBudget
from leveret.queues.classic import ClassicQueue
from leveret.queues.declaration import QueueDeclaration
from leveret.queues.delay import DelayStore
from leveret.queues.durable_store import DurableStore
from leveret.queues.memory_store import MemoryStore
from leveret.queues.priority import PriorityQueue
from leveret.queues.priority_ready import PriorityReady
from leveret.queues.ready import ReadyList
from leveret.queues.scattered_store import ScatteredDurableStore, ScatteredMemoryStore
from leveret.queues.spill import SpillArea
from leveret.queues.stopped_store import StoppedStore
from leveret.queues.stream import StreamQueue
from leveret.queues.stream_offsets import StreamOffsets
from leveret.queues.stream_store import StreamStore
from leveret.storage.disk_space import DiskSpace, remove_directory
from leveret.storage.key_log import KeyLog, read_boot_id
from leveret.storage.log import MAX_SEGMENT_BYTES, MIN_SEGMENT_BYTES, LogOptions, SegmentLog
from leveret.storage.offset_set import merge_intervals
from leveret.storage.recovery import Recovered, recover
from leveret.storage.rows import QueueRow

logger = logging.getLogger(__name__)

STREAM_SEGMENTS = 4
"""Sealed segments of a stream that stay open: its consumers may be in different ones."""


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """What the stores of all queues share. Without *spills* transient queues are in memory."""

    log_options: LogOptions
    budget: CacheBudget
    clock_ms: Callable[[], int]
    space: DiskSpace
    boot_id: bytes = field(default_factory=read_boot_id)
    message_id_bytes: int = 64 * 1024 * 1024
    spills: SpillArea | None = None


class QueuePool:
    """Makes new queues, and those that the definitions name."""

    __slots__ = ("_directory", "_next_id", "_queues", "_settings")

    def __init__(
        self, directory: Path, settings: StorageSettings, next_id: Callable[[], int]
    ) -> None:
        self._directory = directory
        self._queues = directory / "queues"
        self._settings = settings
        self._next_id = next_id

    def create(
        self, declaration: QueueDeclaration, arguments: QueueArguments, owner: object | None
    ) -> ClassicQueue:
        """A new, empty queue; durable if it is to outlive the broker."""
        levels = arguments.max_priority
        if not declaration.is_durable:
            spills = self._settings.spills
            if levels is None:
                return ClassicQueue(declaration, MemoryStore(spills), ReadyList(0), owner=owner)
            ready = PriorityReady(0, levels)
            return PriorityQueue(declaration, ScatteredMemoryStore(spills), ready, owner=owner)
        queue_id = self._next_id()
        log = self._new_log(queue_id, arguments)
        return self._with_log(declaration, arguments, queue_id, log, Recovered())

    def restore(
        self, row: QueueRow, arguments: QueueArguments, effective: QueueArguments
    ) -> ClassicQueue:
        """The queue of *row*, with the messages that its log holds.

        *arguments* are those it was declared with, *effective* those with the policies: they say
        which settled messages stay, and whether it must be known how often each was delivered.
        Raises OSError, StorageError.
        """
        settings = self._settings
        log, found = recover(
            self._path(row.id),
            self._log_options(effective),
            settings.clock_ms,
            space=settings.space,
            counts_tries=effective.counts_tries,
            retention=effective.retention,
        )
        for line in found.report:
            logger.warning("recovered: queue=%s: %s", row.name, line)
        return self._with_log(_declaration(row), arguments, row.id, log, found)

    def _with_log(
        self,
        declaration: QueueDeclaration,
        arguments: QueueArguments,
        queue_id: int,
        log: SegmentLog,
        found: Recovered,
    ) -> ClassicQueue:
        budget = self._settings.budget
        redelivered = merge_intervals(iter(sorted(found.delivered + found.replayed)))
        levels = arguments.max_priority
        if levels is None:
            ready = ReadyList(log.next_offset)
            ready.restore(found.ready, redelivered)
            if arguments.queue_type is QueueType.STREAM:
                offsets = StreamOffsets(log.directory, self._settings.space)
                stream = StreamStore(log, budget)
                return StreamQueue(declaration, stream, ready, queue_id=queue_id, offsets=offsets)
            store = DurableStore(log, budget, ready.cursor)
            classic = ClassicQueue(
                declaration,
                store,
                ready,
                queue_id=queue_id,
                tries=found.tries,
                replayed=found.replayed,
            )
            if found.first is not None:
                classic.knows(*found.first)
            return classic
        queue = PriorityQueue(
            declaration,
            ScatteredDurableStore(log, budget),
            PriorityReady(log.next_offset, levels),
            queue_id=queue_id,
            tries=found.tries,
            replayed=found.replayed,
        )
        queue.restore(found.ready, redelivered)
        return queue

    def _new_log(self, queue_id: int, arguments: QueueArguments) -> SegmentLog:
        settings = self._settings
        options = self._log_options(arguments)
        return SegmentLog(self._path(queue_id), options, settings.clock_ms, space=settings.space)

    def _log_options(self, arguments: QueueArguments) -> LogOptions:
        options = self._settings.log_options
        if arguments.queue_type is not QueueType.STREAM:
            return options
        size = arguments.segment_bytes or options.segment_bytes
        age_ms = arguments.max_age_ms
        return replace(
            options,
            segment_bytes=min(max(size, MIN_SEGMENT_BYTES), MAX_SEGMENT_BYTES),
            segment_age_ms=options.segment_age_ms if age_ms is None else max(age_ms // 4, 1),
            open_segments=STREAM_SEGMENTS,
        )

    def unopened(self, row: QueueRow, arguments: QueueArguments) -> ClassicQueue:
        """The queue of *row* without its messages, until it is restored."""
        levels = arguments.max_priority
        store = StoppedStore(
            f"queue '{row.name}' is being recovered", 0, partial(self._remove_queue, row.id)
        )
        if levels is None:
            kind = StreamQueue if arguments.queue_type is QueueType.STREAM else ClassicQueue
            return kind(_declaration(row), store, ReadyList(0), queue_id=row.id)
        ready = PriorityReady(0, levels)
        return PriorityQueue(_declaration(row), store, ready, queue_id=row.id)

    def open_delays(self) -> DelayStore:
        """The delayed messages of the vhost. Raises OSError, StorageError."""
        settings = self._settings
        return DelayStore.open(
            self._directory / "delayed",
            settings.log_options,
            settings.clock_ms,
            space=settings.space,
        )

    def open_key_log(self, name: str) -> KeyLog:
        """The file of the keys called *name*, a path in the directory of the vhost."""
        return KeyLog(self._directory / f"{name}.keys", self._settings.boot_id)

    def sweep(self, known: Iterable[int]) -> None:
        """Remove the directories of queues that the definitions do not name any more."""
        if not self._queues.is_dir():
            return
        names = {str(queue_id) for queue_id in known}
        for path in self._queues.iterdir():
            if path.name not in names:
                logger.info("removing what is left of a deleted queue: %s", path.name)
                self._remove(path)

    def _remove_queue(self, queue_id: int) -> None:
        self._remove(self._path(queue_id))

    def _remove(self, directory: Path) -> None:
        if directory.is_dir():
            self._settings.space.sweep(remove_directory(directory))

    def _path(self, queue_id: int) -> Path:
        return self._queues / str(queue_id)


def _declaration(row: QueueRow) -> QueueDeclaration:
    return QueueDeclaration(
        row.name,
        durable=row.durable,
        exclusive=row.exclusive,
        auto_delete=row.auto_delete,
        arguments=decode_arguments(row.arguments),
    )
