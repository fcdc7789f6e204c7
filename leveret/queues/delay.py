"""DelayStore: holds messages until they are due.

It is composed of a `DelayLog` (where the messages lie) and a `DueIndex` (which is due when). A
message is in exactly one state:

    Held --flush--> Pending --take_due--> Taken --settle--> Settled
                    Pending --cancel--> Settled      Taken --restart--> Pending

The caller has the clock: times are arguments, in milliseconds, u64.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from leveret.queues.delay_log import Content, DelayLog
from leveret.queues.ready import ranges_of
from leveret.storage.disk_space import DiskSpace
from leveret.storage.due_index import RUN_ENTRIES, DueIndex
from leveret.storage.due_run import DueEntry
from leveret.storage.files import NO_SPACE
from leveret.storage.log import KIB, MIB, LogOptions, SegmentLog
from leveret.storage.recovery import recover
from leveret.storage.state_log import State

logger = logging.getLogger(__name__)

SEGMENT_BYTES = 8 * MIB
"""A segment is kept for as long as one of its messages waits, so it should not hold many."""
INDEX_INTERVAL_BYTES = 2 * KIB
OPEN_SEGMENTS = 64
"""What is due at one time lies anywhere; each open segment takes some 40 KB of memory."""
TAKE_BYTES = 4 * MIB
"""About what `take_due` and `pending` answer at most."""
AHEAD_MS = 1000
"""How long before its time a message may be read, on the way to others."""
AHEAD_BYTES = 512 * KIB
"""About what is read ahead."""
TAIL_BYTES = 32 * MIB
"""About what a restart has to read of the log to know the due times."""


class Due(NamedTuple):
    """A message, with the attributes it was held with, and when it is due."""

    offset: int
    due_ms: int
    attributes: int
    message: bytes


class DelayStore:
    """Messages that wait for their time; `len()` is the number of those that are pending.

    They leave in the order of their due times; what is due at the same time, in the order it came.
    After an error of any method the store must be failed.
    """

    __slots__ = ("_ahead", "_index", "_log", "_messages")

    def __init__(self, log: SegmentLog, messages: DelayLog, index: DueIndex) -> None:
        self._log = log
        self._messages = messages
        self._index = index
        # Pending messages that were read before their time.
        self._ahead: dict[int, Content] = {}

    @classmethod
    def open(
        cls,
        directory: Path,
        options: LogOptions,
        clock_ms: Callable[[], int],
        *,
        space: DiskSpace,
        run_entries: int = RUN_ENTRIES,
    ) -> "DelayStore":
        """Open the store in *directory*, which is created when there is something to write.

        New segments are smaller than *options* say, and easier to read from. *run_entries* is the
        length at which a part of the index is written. Blocks. Raises StorageError, OSError.
        """
        options = replace(
            options,
            segment_bytes=min(options.segment_bytes, SEGMENT_BYTES),
            index_interval_bytes=min(options.index_interval_bytes, INDEX_INTERVAL_BYTES),
            open_segments=OPEN_SEGMENTS,
            compact_bytes=0,
        )
        log, found = recover(directory, options, clock_ms, space=space)
        messages = DelayLog(log, options, clock_ms)
        index = DueIndex(directory, run_entries)
        with ExitStack() as on_error:
            on_error.callback(log.close)
            index.restore(found.ready, found.next_offset, messages.read_due, found.report)
            on_error.pop_all()
        for line in found.report:
            logger.warning("recovered: %s", line)
        log.watch()
        return cls(log, messages, index)

    def __len__(self) -> int:
        return len(self._index)

    @property
    def next_due_ms(self) -> int | None:
        """When the first pending message is due; None if there is none."""
        return self._index.next_due_ms

    def hold(self, messages: list[bytes], attributes: int, due_ms: list[int]) -> None:
        """Take *messages*, each due at its time in *due_ms*; they are pending after `flush`."""
        self._messages.hold(messages, attributes, due_ms)

    def flush(self) -> SegmentLog | None:
        """Write what was held in this turn.

        Answers the log that must be synced before it is confirmed. Raises LogFailed and DiskFull.
        """
        first_offset, due_ms = self._messages.flush()
        if not due_ms:
            return None
        try:
            self._index.add(first_offset, due_ms)
            if self._index.tail_length * self._messages.record_bytes > TAIL_BYTES:
                self._index.seal()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise self._log.fail(error) from error
            # All of it is in the log and in memory.
            logger.warning("index of delayed messages not written yet: %s", error)
        return self._log

    def flush_state(self) -> SegmentLog | None:
        """Write what was settled and cancelled in this turn.

        Answers the log whose states wait for a sync. Raises LogFailed.
        """
        return self._log if self._log.flush_state() else None

    def take_due(self, now_ms: int, limit: int) -> list[Due]:
        """Take up to *limit* messages that are due at *now_ms*, in the order of their times.

        They stay on disk until they are settled, and come again after a restart before that. Fewer
        may come if they are large: more are due as long as `next_due_ms` says so. Raises
        LogFailed, CorruptRecord.
        """
        with self._ends_with_the_log():
            entries = self._index.take(now_ms, min(limit, self._most_taken))
            self._load([offset for _, offset in entries], now_ms)
        ahead = self._ahead
        return [Due(offset, due_ms, *ahead.pop(offset)) for due_ms, offset in entries]

    def settle(self, offsets: list[int]) -> None:
        """Messages that were taken are safe elsewhere, or not wanted any more."""
        if offsets:
            self._index.settle(offsets)
            self._log.mark(State.ACKED, ranges_of(offsets.copy()))

    def cancel(self, offset: int) -> bool:
        """Drop the message at *offset*; answers whether it was pending.

        Raises LogFailed, CorruptRecord.
        """
        with self._ends_with_the_log():
            due_ms = self._messages.due_ms(offset)
            if due_ms is None or not self._index.discard((due_ms, offset)):
                return False
        self._ahead.pop(offset, None)
        self._log.mark(State.ACKED, [(offset, offset + 1)])
        return True

    def pending(self, after: DueEntry | None, limit: int) -> list[Due]:
        """The first *limit* pending messages, in the order of their times; fewer if they are large.

        They come behind the due time and offset *after*: those of the last message of the page
        before. Raises LogFailed, CorruptRecord.
        """
        since = (after[0], after[1] + 1) if after else (0, 0)
        with self._ends_with_the_log():
            entries = list(islice(self._index.entries(since), min(limit, self._most_taken)))
            found = self._messages.read([offset for _, offset in entries])
        return [Due(offset, due_ms, *found[offset]) for due_ms, offset in entries]

    def close(self) -> None:
        """Let go of files; what was flushed stays on disk. Raises LogFailed."""
        self._log.close()

    def fail(self, error: Exception) -> None:
        """Give up because of *error*; what was flushed stays on disk."""
        self._log.fail(error)
        self._log.close()

    def delete(self) -> None:
        """Remove every message."""
        self._log.delete()

    @property
    def _most_taken(self) -> int:
        return TAKE_BYTES // self._messages.record_bytes or 1

    def _load(self, offsets: list[int], now_ms: int) -> None:
        """Have the messages at *offsets* in memory, and some that are due soon.

        What lies close in time may lie far apart in the log: one way through it serves many.
        """
        ahead = self._ahead
        missing = [offset for offset in offsets if offset not in ahead]
        if not missing:
            return
        room = AHEAD_BYTES // self._messages.record_bytes - len(ahead) - len(missing)
        if room > 0:
            soon = self._index.peek(now_ms + AHEAD_MS, room)
            missing += [offset for _, offset in soon if offset not in ahead]
        ahead |= self._messages.read(missing)

    @contextmanager
    def _ends_with_the_log(self) -> Iterator[None]:
        """A file that cannot be read or written ends the log, too."""
        try:
            yield
        except OSError as error:
            raise self._log.fail(error) from error
