"""The log against a dictionary, with kills and syncs as operations."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from leveret.storage.batch import Batch
from leveret.storage.disk_space import DiskSpace
from leveret.storage.errors import OffsetOutOfRange
from leveret.storage.files import HEADER_SIZE
from leveret.storage.record import RECORD_HEADER_SIZE
from leveret.storage.recovery import Recovered
from leveret.storage.state_log import SETTLED, State
from leveret.storage.sync_work import SyncWork
from tests.storage.log_files import new_log, read_all, reopen

UNIFORM = st.tuples(st.integers(1, 60), st.integers(0, 200))
MIXED = st.lists(st.integers(0, 300), min_size=1, max_size=20)

MARKS = sorted(set(State) - {State.REPLAYED})


class LogModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.log = new_log(self.root / "0", space=DiskSpace(spares=1))
        self.restarts = 0
        self.work: SyncWork | None = None
        self.pending: dict[int, bytes] = {}
        self.payloads: dict[int, bytes] = {}
        self.acked: set[int] = set()
        self.delivered: set[int] = set()
        self.volatile: set[int] = set()
        self.forgotten: set[int] = set()
        self.replayed: set[int] = set()

    def teardown(self) -> None:
        if self.work:
            self.work.close()
        self.log.delete()
        shutil.rmtree(self.root)

    def append(self, sizes: list[int], timestamp_ms: int) -> None:
        first = self.log.next_offset
        payloads = [bytes([(first + i) % 251]) * size for i, size in enumerate(sizes)]
        length = sizes[0] if len(set(sizes)) == 1 else 0
        self.log.append(Batch(first, timestamp_ms, 3, payloads, length))
        self.pending |= dict(enumerate(payloads, first))

    @rule(shape=UNIFORM, timestamp_ms=st.integers(0, 2))
    def append_uniform(self, shape: tuple[int, int], timestamp_ms: int) -> None:
        self.append([shape[1]] * shape[0], timestamp_ms)

    @rule(sizes=MIXED, timestamp_ms=st.integers(0, 2))
    def append_mixed(self, sizes: list[int], timestamp_ms: int) -> None:
        self.append(sizes, timestamp_ms)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.payloads |= self.pending
        self.pending = {}

    @precondition(lambda self: self.ready())
    @rule(data=st.data(), state=st.sampled_from(MARKS), length=st.integers(1, 150))
    def mark(self, data: st.DataObject, state: State, length: int) -> None:
        start = data.draw(st.sampled_from(sorted(self.ready())))
        marked = {offset for offset in range(start, start + length) if offset in self.ready()}
        self.log.mark(state, [(offset, offset + 1) for offset in marked])
        self.log.flush_state()
        states = dict.fromkeys(SETTLED, self.acked)
        states |= {State.DELIVERED: self.delivered, State.VOLATILE: self.volatile}
        states.get(state, set()).update(marked)  # the others only count

    @precondition(lambda self: self.acked)
    @rule(data=st.data(), length=st.integers(1, 50), is_acked=st.booleans())
    def replay(self, data: st.DataObject, length: int, is_acked: bool) -> None:
        """Make settled messages ready again, those that are still there, perhaps for a moment."""
        start = data.draw(st.sampled_from(sorted(self.acked)))
        settled = {offset for offset in range(start, start + length) if self.is_there(offset)}
        settled &= self.acked
        ranges = [(offset, offset + 1) for offset in settled]
        if ranges:
            self.log.mark(State.REPLAYED, ranges)
            self.acked -= settled
            self.delivered |= settled
            if is_acked:
                self.log.mark(State.ACKED, ranges)
                self.acked |= settled
            else:
                self.replayed |= settled
            self.log.flush_state()

    def is_there(self, offset: int) -> bool:
        try:
            return bool(self.log.read(offset, 1))
        except OffsetOutOfRange:
            return False

    @rule(include_state=st.booleans())
    def take_sync(self, include_state: bool) -> None:
        if self.work:
            self.work.run()
            self.work.close()
        self.work = self.log.take_sync(include_state)

    @precondition(lambda self: self.payloads)
    @rule()
    def take_snapshot(self) -> None:
        self.log.take_snapshot()

    @rule(torn=st.integers(0, 400))
    def kill(self, torn: int) -> None:
        """The process dies; what was flushed stays, and perhaps part of a further record."""
        self.restarts += 1
        directory = self.root / str(self.restarts)
        if self.log.directory.exists():
            shutil.copytree(self.log.directory, directory)
            with max(directory.glob("*.log")).open("ab") as file:
                file.write(b"\0\0\1\xff" + b"\7" * torn)
        if self.work:
            self.work.close()
            self.work = None
        self.log.delete()
        self.restart(directory)

    @rule()
    def stop(self) -> None:
        directory = self.log.directory
        self.flush()
        self.log.close()
        self.restart(directory)

    def restart(self, directory: Path) -> None:
        alone = self.root / "alone"
        if directory.exists():
            shutil.copytree(directory, alone)
            for snapshot in alone.glob("snapshot*"):
                snapshot.unlink()
        log, expected = reopen(alone)
        log.close()
        shutil.rmtree(alone, ignore_errors=True)
        self.log, recovered = reopen(directory, DiskSpace(spares=1))
        expected.report = recovered.report  # other paths
        assert recovered == expected, "a snapshot says what the log says"
        self.pending = {}
        self.forgotten |= self.volatile
        self.acked -= self.volatile
        self.volatile = set()
        self.check(recovered)

    def check(self, recovered: Recovered) -> None:
        assert recovered.next_offset == len(self.payloads)
        assert offsets(recovered.ready) == sorted(self.ready())
        assert offsets(recovered.delivered) == sorted(self.ready() & self.delivered)
        assert offsets(recovered.replayed) == sorted(self.ready() & self.replayed)

    def ready(self) -> set[int]:
        return self.payloads.keys() - self.acked - self.forgotten

    @invariant()
    def everything_is_there(self) -> None:
        assert self.log.flushed_offset == len(self.payloads)
        assert self.log.next_offset == len(self.payloads) + len(self.pending)
        ready = sorted(self.ready())
        assert read_all(self.log, [(offset, offset + 1) for offset in ready[::37]], 1) == [
            self.payloads[offset] for offset in ready[::37]
        ]

    @rule()
    def read_everything(self) -> None:
        ready = sorted(self.ready())
        starts = [offset for offset in ready if offset - 1 not in self.ready()]
        ends = [offset + 1 for offset in ready if offset + 1 not in self.ready()]
        assert read_all(self.log, zip(starts, ends, strict=True)) == [
            self.payloads[offset] for offset in ready
        ]

    @invariant()
    def bytes_on_disk_is_right(self) -> None:
        logs = sorted(self.log.directory.glob("*.log"))
        files = [*logs[:-1], *self.log.directory.glob("*.state")]
        expected = sum(path.stat().st_size for path in files)
        if logs:  # the last one may have bytes of a spent segment behind its records
            records = range(int(logs[-1].stem), len(self.payloads))
            expected += HEADER_SIZE + sum(
                RECORD_HEADER_SIZE + len(self.payloads[offset]) for offset in records
            )
        assert self.log.bytes_on_disk == expected


def offsets(intervals: list[tuple[int, int]]) -> list[int]:
    return [offset for start, end in intervals for offset in range(start, end)]


LogModel.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestLogModel = LogModel.TestCase
