"""Spill: transient messages that memory has no room for, on disk until they are delivered.

Each queue that holds too much has runs of messages in segment logs of their own, which are never
synced and never read by a later start:

    <directory>/<number>/    the log of one run
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from leveret.queues.batch_cache import BatchCache, CacheBudget, extend_batch
from leveret.storage.batch import Batch
from leveret.storage.disk_space import DiskSpace, Sweep, remove_directory
from leveret.storage.errors import LogFailed
from leveret.storage.log import LogOptions, SegmentLog
from leveret.storage.record import Picked
from leveret.storage.segment import Segment
from leveret.storage.state_log import State

READ_BYTES = 256 * 1024
"""One read of a run."""
SPARSE_READ_BYTES = 16 * 1024
"""The same while memory is short."""
LIKELY_MESSAGE_BYTES = 1024
"""What to read for one message that is read by itself."""


class SpillArea:
    """Where transient queues write to once they take more memory than *budget* has for them."""

    __slots__ = ("_clock_ms", "_directory", "_numbers", "_options", "_space", "budget")

    def __init__(
        self,
        directory: Path,
        budget: CacheBudget,
        options: LogOptions,
        clock_ms: Callable[[], int],
        sweep: Sweep,
    ) -> None:
        self.budget = budget
        self._directory = directory
        self._options = replace(options, compact_bytes=0, snapshot_bytes=0)
        self._clock_ms = clock_ms
        # Its logs are not to be looked after, and synced, as those of durable queues.
        self._space = DiskSpace(sweep)
        self._numbers = count(1)

    def clear(self) -> None:
        """Have removed what an earlier process left. Raises OSError."""
        if self._directory.is_dir():
            left = [path for path in self._directory.iterdir() if path.name.isdecimal()]
            # New runs get other names, so nobody has to wait until the old ones are gone.
            self._numbers = count(max((int(path.name) for path in left), default=0) + 1)
            if left:
                self._space.sweep(_remove_directories(left))

    def run_from(self, offset: int) -> "SpilledRun":
        """A new run, whose first message will be at *offset*."""
        directory = self._directory / str(next(self._numbers))
        first = Segment(directory, offset, self._options.index_interval_bytes)
        log = SegmentLog(directory, self._options, self._clock_ms, [first], space=self._space)
        return SpilledRun(log)

    @property
    def read_bytes(self) -> int:
        """How much to read at a time of what is next in a queue."""
        return SPARSE_READ_BYTES if self.budget.used > self.budget.limit else READ_BYTES


class SpilledRun:
    """Messages of one queue from offset `start` up to, not including, `stop`.

    `left` is how many of them are not settled. Appending, reading and settling raise the errors of
    the log.
    """

    __slots__ = ("_log", "_new", "_settled", "left", "start", "stop")

    def __init__(self, log: SegmentLog) -> None:
        self._log = log
        self.start = self.stop = log.next_offset
        self.left = 0
        self._new: list[Batch] = []
        self._settled: list[tuple[int, int]] = []

    @property
    def disk_bytes(self) -> int:
        """Bytes of its files, about."""
        return self._log.disk_bytes

    def append(
        self, payloads: list[bytes], attributes: int, payload_length: int, now_ms: int
    ) -> None:
        """Add messages behind the last one; they can be read after `flush`."""
        if not (
            self._new and extend_batch(self._new[-1], payloads, attributes, payload_length, now_ms)
        ):
            self._new.append(Batch(self.stop, now_ms, attributes, payloads.copy(), payload_length))
        self.stop += len(payloads)
        self.left += len(payloads)

    def flush(self) -> None:
        """Write what was appended. Raises DiskFull: to be called again; LogFailed."""
        log = self._log
        for batch in self._new:
            log.append(batch)
        self._new.clear()
        if log.flush() and (work := log.take_sync(include_state=True)) is not None:
            # Nobody will ask whether it is durable.
            work.settle()
            work.close()

    def read(self, start: int, max_bytes: int) -> list[Batch]:
        """Messages from offset *start* on in about *max_bytes*, at least one."""
        return self._log.read(start, max_bytes)

    def read_range(self, start: int, stop: int, max_bytes: int) -> list[Batch]:
        """The same, but none at *stop* or behind it."""
        found = BatchCache(start)
        likely_bytes = (stop - start) * LIKELY_MESSAGE_BYTES
        for batch in self._log.read(start, min(max_bytes, READ_BYTES, likely_bytes)):
            found.add(batch)
        return found.take(stop, max_bytes)

    def pick(self, offsets: Sequence[int]) -> Iterator[Picked]:
        """The messages at *offsets*, which are sorted."""
        return self._log.pick(offsets)

    def settle(self, ranges: list[tuple[int, int]]) -> None:
        """The messages in *ranges* are done with."""
        self._settled += ranges
        self.left -= sum(stop - start for start, stop in ranges)

    def flush_state(self) -> None:
        """Give back the disk space of what was settled. Raises DiskFull, LogFailed."""
        if self._settled:
            self._log.mark(State.ACKED, self._settled)
            self._settled = []
        self._log.flush_state()

    def close(self) -> None:
        """Let go of the files as they are: the next start removes them."""
        self.fail(LogFailed("closed"))

    def fail(self, error: Exception) -> None:
        """Write nothing more."""
        self._log.fail(error)
        self._log.close()

    def delete(self) -> None:
        """Remove the files."""
        self._log.delete()


def _remove_directories(directories: list[Path]) -> Iterator[None]:
    for directory in directories:
        yield from remove_directory(directory)
