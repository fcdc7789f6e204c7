"""Due index: which message of a log is due next.

    offsets   0 ........ 20000 ........ 40000 ........ 60000 ..... next
              [ run, sorted ][ run, sorted ][ run, sorted ][  tail  ]
                a file         a file         a file         a heap in memory

New entries join the tail. Once it is long it is sealed: written as a run (see due_run.py), which
from then on only shrinks, from its front. What is due next is a merge of the heads, so due times
may lie scattered over any span at the same cost.

The index lags behind the log, by the tail. Recovery catches it up: it reads from the log what no
run knows. A run that claims to know offsets that the log does not have is thrown away.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

from leveret.storage.due_run import DUE_SUFFIX, DueEntry, DueRun
from leveret.storage.errors import DamagedIndex, UnsupportedFormat
from leveret.storage.files import sync_directory
from leveret.storage.offset_set import clip_intervals

RUN_ENTRIES = 8192
"""Length of the tail at which it is sealed: this many entries are sorted in one go."""

DueReader = Callable[[int, int], Iterable[tuple[int, list[int]]]]
"""Reads the due times of the messages [start, stop): first offsets, and times from there on."""


class DueIndex:
    """The pending messages of a log by due time; its files lie in *directory*, beside the log's.

    `len()` is the number of pending messages. Any method may raise OSError.
    """

    __slots__ = (
        "_count",
        "_directory",
        "_heads",
        "_next_offset",
        "_run_entries",
        "_tail",
        "_tail_first",
        "_taken",
    )

    def __init__(self, directory: Path, run_entries: int = RUN_ENTRIES) -> None:
        self._directory = directory
        self._run_entries = run_entries
        # A heap of the runs that have pending entries, by their head.
        self._heads: list[tuple[DueEntry, DueRun]] = []
        self._tail: list[DueEntry] = []
        self._tail_first = 0
        self._next_offset = 0
        # Due times of what was taken and is not settled: a run must know of it.
        self._taken: dict[int, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def tail_length(self) -> int:
        """Pending entries that are in memory only."""
        return len(self._tail)

    @property
    def next_due_ms(self) -> int | None:
        """When the first pending message is due."""
        heads, tail = self._heads, self._tail
        if heads and not (tail and tail[0] < heads[0][0]):
            return heads[0][0][0]
        return tail[0][0] if tail else None

    def restore(
        self, ready: list[tuple[int, int]], next_offset: int, read: DueReader, report: list[str]
    ) -> None:
        """Start from the files: the messages *ready* of a log up to *next_offset* are pending.

        *read* is asked for what no run knows. *report* gains a line for each repair.
        """
        for run in self._load_runs(ready, next_offset, report):
            self._catch_up(clip_intervals(ready, self._tail_first, run.first_offset), read)
            self.seal()
            self._push(run)
            known = clip_intervals(ready, run.first_offset, run.end_offset)
            self._count += sum(stop - start for start, stop in known)
            self._tail_first = self._next_offset = run.end_offset
        self._catch_up(clip_intervals(ready, self._tail_first, next_offset), read)

    def add(self, first_offset: int, due_ms: list[int]) -> None:
        """The messages from *first_offset* on are due at *due_ms*; offsets never step back."""
        tail = self._tail
        next_offset = first_offset + len(due_ms)
        for entry in zip(due_ms, range(first_offset, next_offset), strict=True):
            heapq.heappush(tail, entry)
        self._next_offset = next_offset
        self._count += len(due_ms)
        if len(tail) >= self._run_entries:
            self.seal()

    def seal(self) -> None:
        """Write the tail as a run."""
        first_offset = self._tail_first
        taken = {o: due_ms for o, due_ms in self._taken.items() if o >= first_offset}
        if self._tail:
            entries = sorted(chain(self._tail, ((due_ms, o) for o, due_ms in taken.items())))
            run = DueRun.write(
                self._directory, first_offset, self._next_offset, entries, set(taken)
            )
            self._push(run)
            self._tail.clear()
        self._tail_first = self._next_offset

    def take(self, now_ms: int, limit: int) -> list[DueEntry]:
        """Remove and return, in order, up to *limit* entries that are due at *now_ms*."""
        taken: list[DueEntry] = []
        heads, tail = self._heads, self._tail
        end = (now_ms + 1, 0)
        while len(taken) < limit:
            bound = min(end, tail[0]) if tail else end
            if heads and heads[0][0] < bound:
                run = heads[0][1]
                # In a heap the second lowest is one of the two behind the lowest.
                for head, _ in heads[1:3]:
                    if head < bound:
                        bound = head
                taken += run.take(bound, limit - len(taken))
                if run.head is not None:
                    heapq.heapreplace(heads, (run.head, run))
                else:
                    heapq.heappop(heads)
                    run.delete()
            elif bound < end:
                taken.append(heapq.heappop(tail))
            else:
                break
        self._taken.update((offset, due_ms) for due_ms, offset in taken)
        self._count -= len(taken)
        return taken

    def peek(self, now_ms: int, limit: int) -> list[DueEntry]:
        """Return up to *limit* of the runs' entries that are due at *now_ms*, in order.

        There may be more: only what is in memory is looked at.
        """
        stop = (now_ms + 1, 0)
        return sorted(chain.from_iterable(run.peek(stop) for _, run in self._heads))[:limit]

    def settle(self, offsets: Iterable[int]) -> None:
        """What was taken at *offsets* will not be needed again."""
        for offset in offsets:
            self._taken.pop(offset, None)

    def discard(self, entry: DueEntry) -> bool:
        """Remove *entry* and return whether it was pending."""
        if entry[1] >= self._tail_first:
            if entry not in self._tail:
                return False
            self._tail.remove(entry)
            heapq.heapify(self._tail)
        else:
            runs = [run for _, run in self._heads]
            if not any(
                run.discard(entry) for run in runs if run.first_offset <= entry[1] < run.end_offset
            ):
                return False
            self._heads.clear()
            for run in runs:
                self._push(run)
        self._count -= 1
        return True

    def entries(self, since: DueEntry) -> Iterator[DueEntry]:
        """The pending entries from *since* on, in order. The index must not change meanwhile."""
        tail = sorted(entry for entry in self._tail if entry >= since)
        return heapq.merge(tail, *(run.entries(since) for _, run in self._heads))

    def _push(self, run: DueRun) -> None:
        if run.head is not None:
            heapq.heappush(self._heads, (run.head, run))
        else:
            run.delete()

    def _catch_up(self, ready: list[tuple[int, int]], read: DueReader) -> None:
        for start, stop in ready:
            for first_offset, due_ms in read(start, stop):
                self.add(first_offset, due_ms)

    def _load_runs(
        self, ready: list[tuple[int, int]], next_offset: int, report: list[str]
    ) -> list[DueRun]:
        """The runs that have something pending, by offset; files of others are removed."""
        for path in self._directory.glob(f"*{DUE_SUFFIX}.tmp"):
            path.unlink()
        runs: list[DueRun] = []
        damaged = len(report)
        for path in sorted(self._directory.glob(f"*{DUE_SUFFIX}")):
            try:
                run = DueRun.load(path)
                if run.end_offset > next_offset:
                    raise DamagedIndex(f"{path}: expected no offset from {next_offset} on")
                if runs and run.first_offset < runs[-1].end_offset:
                    raise DamagedIndex(f"{path}: expected no offset before {runs[-1].end_offset}")
                known = clip_intervals(ready, run.first_offset, run.end_offset)
                if known:
                    run.restore(known)
                    runs.append(run)
                else:
                    run.delete()
            except (DamagedIndex, UnsupportedFormat) as error:
                report.append(f"{error}; read the due times from the log")
                path.unlink()
        if len(report) > damaged:
            # A file that comes back after a power failure would speak of other messages by then.
            sync_directory(self._directory)
        return runs
