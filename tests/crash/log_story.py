"""A log that is written to at random, and what its user was promised at each point of it."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from leveret.storage.batch import Batch
from leveret.storage.disk_space import DiskSpace, Work
from leveret.storage.key_ring import KeyRing, KeyTable, fingerprint_of
from leveret.storage.log import LogOptions, SegmentLog
from leveret.storage.recovery import Recovered, recover
from leveret.storage.retention import Retention
from leveret.storage.state_log import State
from leveret.storage.sync_work import SyncWork
from tests.crash.recording import Recording
from tests.storage.log_files import read_all

OPTIONS = LogOptions(segment_bytes=4096, index_interval_bytes=200)
NOTHING: frozenset[int] = frozenset()
KEYS = [bytes([number]) * 32 for number in (1, 2)]
SALT = bytes(16)


def keys_of(directory: Path, current: int) -> KeyRing:
    """Two keys, of which new segments of the log in *directory* get the one called *current*."""
    fingerprints = {number: fingerprint_of(key, SALT) for number, key in enumerate(KEYS, 1)}
    return KeyRing(directory.parent, KeyTable(SALT, fingerprints, current), KEYS)


@dataclass(frozen=True)
class Facts:
    """What is known of a log: its payloads by offset, and sets of offsets.

    `written` may be there; `confirmed` must be, but for `marked`, which may be settled or not;
    `settled` must not come back. `earlier` are payloads that a former life wrote.
    """

    written: dict[int, bytes] = field(default_factory=dict)
    confirmed: frozenset[int] = NOTHING
    marked: frozenset[int] = NOTHING
    settled: frozenset[int] = NOTHING


class LogStory:
    """Random operations on the log in *directory*, from *seed*, noted in *recording*."""

    def __init__(
        self, directory: Path, recording: Recording, seed: int, facts: Facts | None = None
    ) -> None:
        self.choice = random.Random(seed)
        self._sweeps: list[Iterator[None]] = []
        self._recording = recording
        self.facts = facts or Facts()
        self._now_ms = 1
        self._note()
        keys = [keys_of(directory, current) for current in (1, 2)]
        options = replace(
            OPTIONS,
            segment_age_ms=self.choice.choice((0, 0, 5)),
            snapshot_bytes=self.choice.choice((0, 200, 1500)),
            compact_bytes=self.choice.choice((0, 500)),
            keys=self.choice.choice(keys if facts else [None, *keys]),
        )
        retention = self.choice.choice((None, None, Retention(age_ms=30, size=20_000)))
        space = DiskSpace(self._sweep, spares=self.choice.choice((0, 1)))
        self.log, self.found = recover(
            directory, options, lambda: self._now_ms, space=space, retention=retention
        )
        check_contents(self.log, self.found, self.facts)
        ready = frozenset(flat(self.found.ready))
        # What is there now was on the disk, and what is not there is gone for good.
        payloads = {offset: self.facts.written[offset] for offset in ready}
        gone = (self.facts.settled | self.facts.marked) - ready
        gone -= frozenset(range(self.found.next_offset, max(gone, default=0) + 1))
        self._note(written=payloads, confirmed=ready, marked=NOTHING, settled=gone)
        self._ready = set(ready)
        self._marked: dict[int, None] = {}
        self._flushed_marks: set[int] = set()
        self._works: list[tuple[SyncWork, frozenset[int], frozenset[int]]] = []

    def _sweep(self, work: Work) -> None:
        self._sweeps.append(iter(work))

    def _note(self, **changes: object) -> None:
        self.facts = replace(self.facts, **changes)  # type: ignore[arg-type]
        self._recording.note(self.facts)

    def run(self, steps: int) -> None:
        acts = [self.append, self.flush, self.ack, self.ack_oldest, self.mark, self.take_sync]
        acts += [self.append, self.run_sync, self.run_sync, self.tidy, self.tidy, self.tidy]
        acts += [self.ack_most, self.look_after]
        for _ in range(steps):
            self._now_ms += 1
            self.choice.choice(acts)()

    def append(self) -> None:
        most = self.choice.choice((2, 60))
        first = self.log.next_offset
        size = self.choice.choice((0, 10, 76, 200))
        payloads = [
            b"%d:%d:" % (offset, self.choice.randrange(1000)) + b"x" * size
            for offset in range(first, first + self.choice.randint(1, most))
        ]
        lengths = set(map(len, payloads))
        length = lengths.pop() if len(lengths) == 1 else 0
        self.log.append(Batch(first, self._now_ms, 5, payloads, length))
        self._note(written=self.facts.written | dict(enumerate(payloads, first)))

    def flush(self) -> None:
        self.log.flush()
        end = self.log.flushed_offset
        self._ready |= {
            offset
            for offset in self.facts.written
            if offset < end and offset not in self.facts.marked
        }

    def _settle(self, offsets: list[int]) -> None:
        self._ready.difference_update(offsets)
        self._note(marked=self.facts.marked | frozenset(offsets))
        self.log.mark(State.ACKED, [(offset, offset + 1) for offset in offsets])
        if self.choice.random() < 0.7:
            self.flush_state()

    def ack(self) -> None:
        ready = sorted(self._ready)
        self._settle(self.choice.sample(ready, min(len(ready), self.choice.randint(1, 30))))

    def ack_oldest(self) -> None:
        self._settle(sorted(self._ready)[: self.choice.choice((5, 40, 150))])

    def ack_most(self) -> None:
        """So that a segment is worth a compaction."""
        ready = sorted(self._ready)[:150]
        self._settle(self.choice.sample(ready, len(ready) * 9 // 10))

    def look_after(self) -> None:
        """What the tick of the broker does."""
        self.log.look_after(self._now_ms)

    def flush_state(self) -> None:
        self.log.flush_state()
        self._flushed_marks = set(self.facts.marked)

    def mark(self) -> None:
        offsets = sorted(self._ready)[: self.choice.randint(0, 20)]
        states = (State.DELIVERED, State.RETURNED, State.FAILED)
        self.log.mark(self.choice.choice(states), [(offset, offset + 1) for offset in offsets])

    def take_sync(self) -> None:
        include_state = self.choice.random() < 0.5
        confirmed = frozenset(
            offset for offset in self.facts.written if offset < self.log.flushed_offset
        )
        settled = frozenset(self._flushed_marks) if include_state else NOTHING
        work = self.log.take_sync(include_state)
        if work is not None:
            self._works.append((work, confirmed, settled))

    def run_sync(self) -> None:
        if self._works:
            work, confirmed, settled = self._works.pop(0)
            work.run()
            work.close()
            self._note(
                confirmed=self.facts.confirmed | confirmed, settled=self.facts.settled | settled
            )

    def tidy(self) -> None:
        """A step of what gives space back."""
        if self._sweeps:
            sweep = self.choice.choice(self._sweeps)
            if next(sweep, self) is self:
                self._sweeps.remove(sweep)

    def confirm_all(self) -> None:
        """Append, and sync."""
        self.append()
        self.flush()
        self.take_sync()
        while self._works:
            self.run_sync()

    def stop(self) -> None:
        """Stop cleanly, or just let go of everything."""
        self.log.flush()
        self.log.flush_state()
        self.take_sync()
        while self._works:
            self.run_sync()
        while self._sweeps:
            self.tidy()
        self.log.close()
        while self._sweeps:
            self.tidy()


def flat(intervals: list[tuple[int, int]]) -> list[int]:
    return [offset for start, end in intervals for offset in range(start, end)]


def check_contents(
    log: SegmentLog, found: Recovered, facts: Facts, *, is_journaled: bool = True
) -> None:
    """Check that recovery *found* what it may after a power cut."""
    ready = flat(found.ready)
    assert ready == sorted(set(ready)), "in order, and each once"
    missing = facts.confirmed - facts.marked - facts.settled - set(ready)
    assert not missing, f"confirmed and lost: {sorted(missing)[:5]}"
    back = facts.settled & set(ready)
    # A segment can come back whose states were removed behind it.
    assert not (is_journaled and back), f"settled and back: {sorted(back)[:5]}"
    unknown = set(ready) - facts.written.keys()
    assert not unknown, f"never written: {sorted(unknown)[:5]}"
    payloads = read_all(log, found.ready)
    wrong = [o for o, found in zip(ready, payloads, strict=True) if found != facts.written[o]]
    assert not wrong, f"not what was written: {wrong[:5]}"
    assert set(flat(found.delivered)) <= set(ready)


def check_recovery(directory: Path, facts: Facts, *, is_journaled: bool = True) -> None:
    """Recover *directory* and see that it is right, and that a second recovery agrees."""
    options = replace(OPTIONS, keys=keys_of(directory, 1))
    log, found = recover(directory, options, lambda: 0)
    try:
        check_contents(log, found, facts, is_journaled=is_journaled)
    finally:
        log.close()
    log, again = recover(directory, options, lambda: 0)
    try:
        assert again.ready == found.ready
        assert again.next_offset == found.next_offset
        assert not again.report, again.report
    finally:
        log.close()
