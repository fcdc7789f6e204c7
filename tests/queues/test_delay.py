"""DelayStore against a dict of messages, with kills and closings as operations."""

import logging
import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from leveret.queues.delay import SEGMENT_BYTES, TAKE_BYTES, DelayStore, Due
from leveret.storage.disk_space import DiskSpace
from leveret.storage.errors import CorruptRecord, LogFailed
from leveret.storage.log import MIB, LogOptions
from leveret.storage.spare import SPARE_NAME

OPTIONS = LogOptions(segment_bytes=16384, index_interval_bytes=512)
NOW_MS = 1_700_000_000_000
YEAR_MS = 365 * 24 * 60 * 60 * 1000


def open_store(directory: Path, run_entries: int = 150) -> DelayStore:
    return DelayStore.open(
        directory, OPTIONS, lambda: NOW_MS, space=DiskSpace(), run_entries=run_entries
    )


def hold(store: DelayStore, due_ms: list[int], size: int = 40) -> None:
    store.hold([b"%d" % due + bytes(size) for due in due_ms], 7, due_ms)
    store.flush()


def due_times(messages: list[Due]) -> list[int]:
    return [message.due_ms for message in messages]


class DelayModel(RuleBasedStateMachine):
    """What was flushed is pending until it is taken or cancelled; marks count when flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.restarts = 0
        self.now_ms = NOW_MS
        self.store = open_store(self.root / "0")
        self.held: list[tuple[int, int, bytes]] = []
        self.appended = 0
        self.pending: dict[int, Due] = {}
        self.taken: dict[int, Due] = {}
        self.unmarked: dict[int, Due] = {}

    def teardown(self) -> None:
        self.end_turn()
        self.now_ms = NOW_MS + 2 * YEAR_MS
        while self.pending:
            self.take(1000)
        self.store.delete()
        shutil.rmtree(self.root)

    @rule(
        delays_ms=st.one_of(
            st.lists(st.integers(-10, 50), min_size=1, max_size=20),
            st.tuples(st.integers(1, 200), st.sampled_from([0, 60, 5000])).map(
                lambda pair: [pair[1]] * pair[0]
            ),
            st.tuples(st.integers(100, 300), st.integers(0, 1000)).map(
                lambda pair: random.Random(pair[1]).choices(range(2000), k=pair[0])
            ),
            st.just([YEAR_MS]),
        ),
        attributes=st.sampled_from([7, 1 << 40]),
        size=st.sampled_from([0, 1, 90, 700]),
    )
    def hold(self, delays_ms: list[int], attributes: int, size: int) -> None:
        due_ms = [self.now_ms + delay_ms for delay_ms in delays_ms]
        first = self.appended + len(self.held)
        messages = [
            b"%d." % offset * (size if offset % 7 else 1) for offset, _ in enumerate(due_ms, first)
        ]
        self.store.hold(messages, attributes, due_ms)
        self.held += [
            (due, attributes, message) for due, message in zip(due_ms, messages, strict=True)
        ]
        due_ms.clear()  # the store must not keep the caller's lists
        messages.clear()

    @rule()
    def flush(self) -> None:
        assert (self.store.flush() is not None) == bool(self.held)
        for offset, held in enumerate(self.held, self.appended):
            self.pending[offset] = Due(offset, *held)
        self.appended += len(self.held)
        self.held.clear()

    @rule()
    def end_turn(self) -> None:
        self.flush()
        self.store.flush_state()
        self.unmarked.clear()

    @rule(step_ms=st.sampled_from([-40, 1, 5, 100, 1000]))
    def tick(self, step_ms: int) -> None:
        self.now_ms += step_ms

    def in_order(self) -> list[Due]:
        return sorted(self.pending.values(), key=lambda due: (due.due_ms, due.offset))

    @rule(limit=st.sampled_from([0, 1, 10, 1000]))
    def take(self, limit: int) -> None:
        due = [message for message in self.in_order() if message.due_ms <= self.now_ms]
        taken = self.store.take_due(self.now_ms, limit)
        assert taken == due[: len(taken)]
        assert len(taken) == min(limit, len(due))
        for message in taken:
            self.taken[message.offset] = self.pending.pop(message.offset)

    @rule(share=st.sampled_from([0.2, 0.9, 1]), seed=st.integers(0, 1000))
    def settle(self, share: float, seed: int) -> None:
        rng = random.Random(seed)
        offsets = [offset for offset in self.taken if rng.random() < share]
        rng.shuffle(offsets)
        self.store.settle(offsets)
        for offset in offsets:
            self.unmarked[offset] = self.taken.pop(offset)

    @rule(place=st.floats(0, 1.1))
    def cancel(self, place: float) -> None:
        offset = int(self.appended * place)
        assert self.store.cancel(offset) == (offset in self.pending)
        if offset in self.pending:
            self.unmarked[offset] = self.pending.pop(offset)

    @rule(limit=st.sampled_from([7, 200]), pages=st.integers(1, 5))
    def list_pages(self, limit: int, pages: int) -> None:
        listed: list[Due] = []
        for _ in range(pages):
            after = (listed[-1].due_ms, listed[-1].offset) if listed else None
            listed += self.store.pending(after, limit)
        assert listed == self.in_order()[: limit * pages]

    @rule()
    def close(self) -> None:
        self.end_turn()
        self.store.close()
        self.come_back(self.root / str(self.restarts))

    @rule()
    def kill(self) -> None:
        """The files as they are, without what was not flushed."""
        self.restarts += 1
        copy = self.root / str(self.restarts)
        old = self.root / str(self.restarts - 1)
        if old.exists():
            shutil.copytree(old, copy)
        self.store.delete()
        self.pending |= self.unmarked
        self.held.clear()
        self.come_back(copy)

    def come_back(self, directory: Path) -> None:
        self.store = open_store(directory)
        self.pending |= self.taken
        self.taken.clear()
        self.unmarked.clear()

    @invariant()
    def knows_how_many_and_when(self) -> None:
        assert len(self.store) == len(self.pending)
        first = min((message.due_ms for message in self.pending.values()), default=None)
        assert self.store.next_due_ms == first


TestDelayModel = DelayModel.TestCase
TestDelayModel.settings = settings(max_examples=80, stateful_step_count=40)


def test_nothing_is_on_disk_before_the_first_message(tmp_path: Path) -> None:
    store = open_store(tmp_path / "delayed")
    assert store.flush() is None
    assert store.flush_state() is None
    assert store.take_due(NOW_MS, 10) == store.pending(None, 10) == []
    assert not store.cancel(0)
    store.settle([])
    store.close()
    store.delete()
    assert not (tmp_path / "delayed").exists()


def test_delays_of_all_lengths_leave_in_order(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    hold(store, [NOW_MS + YEAR_MS, NOW_MS, NOW_MS - 5, 2**64 - 1, 0, NOW_MS + 1, NOW_MS])
    assert due_times(store.take_due(NOW_MS, 10)) == [0, NOW_MS - 5, NOW_MS, NOW_MS]
    assert store.next_due_ms == NOW_MS + 1
    assert due_times(store.take_due(NOW_MS + YEAR_MS, 10)) == [NOW_MS + 1, NOW_MS + YEAR_MS]
    assert store.next_due_ms == 2**64 - 1
    store.close()


def test_large_messages_are_taken_a_few_at_a_time(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for _ in range(12):
        hold(store, [NOW_MS], TAKE_BYTES // 4)
    taken = []
    while (due_ms := store.next_due_ms) is not None and due_ms <= NOW_MS:
        some = store.take_due(NOW_MS, 1000)
        assert 1 <= len(some) <= 4
        taken += some
    assert [message.offset for message in taken] == list(range(12))
    assert all(len(message.message) > TAKE_BYTES // 4 for message in taken)
    store.close()


def test_what_was_settled_is_given_back(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for _ in range(200):
        hold(store, [NOW_MS] * 50)
        store.settle([message.offset for message in store.take_due(NOW_MS, 50)])
        assert store.flush_state() is not None
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2 * OPTIONS.segment_bytes
    assert not list(tmp_path.glob("*.due"))
    store.close()


def test_one_long_delay_keeps_little_of_the_disk(tmp_path: Path) -> None:
    options = LogOptions(segment_bytes=256 * MIB)
    store = DelayStore.open(tmp_path, options, lambda: NOW_MS, space=DiskSpace())
    hold(store, [NOW_MS + YEAR_MS])
    for _ in range(24):
        hold(store, [NOW_MS] * 1000, 1000)
    while taken := store.take_due(NOW_MS, 4000):
        store.settle([message.offset for message in taken])
        store.flush_state()
    files = [path for path in tmp_path.iterdir() if path.name != SPARE_NAME]
    assert sum(path.stat().st_size for path in files) < 2.1 * SEGMENT_BYTES
    assert len(store) == 1
    store.close()


def test_a_message_that_was_read_ahead_can_be_cancelled(tmp_path: Path) -> None:
    store = open_store(tmp_path, run_entries=10)
    hold(store, list(range(NOW_MS, NOW_MS + 20)))
    assert len(store.take_due(NOW_MS, 10)) == 1
    assert store.cancel(5)
    assert not store.cancel(5)
    offsets = [message.offset for message in store.take_due(NOW_MS + 20, 100)]
    assert offsets == [1, 2, 3, 4, *range(6, 20)]
    store.close()


@pytest.mark.parametrize("damage", ["removed", "emptied"])
def test_a_lost_index_is_rebuilt(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    due_ms = [NOW_MS + place * 7919 % 1009 for place in range(1000)]
    store = open_store(tmp_path)
    hold(store, due_ms[:500])
    hold(store, due_ms[500:])
    store.close()
    files = list(tmp_path.glob("*.due"))
    assert len(files) == 2
    for path in files:
        if damage == "removed":
            path.unlink()
        else:
            path.write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        store = open_store(tmp_path)
    assert len(caplog.records) == (2 if damage == "emptied" else 0)
    assert due_times(store.take_due(NOW_MS + 2000, 2000)) == sorted(due_ms)
    store.close()


def test_an_index_that_outlived_its_messages_says_nothing_of_new_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path)
    hold(store, [NOW_MS] * 50, 10)
    hold(store, [NOW_MS + 5] * 150, 10)
    store.close()
    assert len(list(tmp_path.glob("*.due"))) == 1
    assert len(list(tmp_path.glob("*.log"))) == 1
    log = tmp_path / f"{0:020}.log"
    os.truncate(log, 8 + log.stat().st_size // 2)
    for path in tmp_path.glob("*index"):
        path.unlink()
    store = open_store(tmp_path)
    assert any("expected no offset from" in record.message for record in caplog.records)
    left = len(store)
    assert 50 < left < 150
    hold(store, [NOW_MS + 9] * 100)
    store.close()
    store = open_store(tmp_path)
    assert due_times(store.take_due(NOW_MS + 8, 1000)) == [NOW_MS] * 50 + [NOW_MS + 5] * (left - 50)
    assert due_times(store.take_due(NOW_MS + 9, 1000)) == [NOW_MS + 9] * 100
    store.close()


def test_an_index_that_cannot_be_written_ends_the_store_and_loses_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    hold(store, [NOW_MS + 1] * 100)
    obstacle = tmp_path / f"{0:020}.due.tmp"
    obstacle.mkdir()
    with pytest.raises(LogFailed):
        hold(store, [NOW_MS] * 100)
    with pytest.raises(LogFailed):
        hold(store, [NOW_MS] * 100)
    store.fail(OSError("disk"))
    obstacle.rmdir()
    store = open_store(tmp_path)
    assert due_times(store.take_due(NOW_MS + 1, 1000)) == [NOW_MS] * 100 + [NOW_MS + 1] * 100
    store.close()


def test_an_index_that_cannot_be_read_ends_the_store(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    hold(store, [NOW_MS] * 300)
    for path in tmp_path.glob("*.due"):
        path.unlink()
    with pytest.raises(LogFailed):
        store.take_due(NOW_MS, 1000)
    with pytest.raises(LogFailed):
        store.flush()
    store.fail(OSError("disk"))


def test_a_bad_record_is_not_guessed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    hold(store, [NOW_MS] * 10)
    path = tmp_path / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptRecord):
        store.take_due(NOW_MS, 10)
    store.fail(OSError("disk"))


def test_a_failed_store_writes_no_more(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    hold(store, [NOW_MS] * 3)
    store.hold([b"late"], 7, [NOW_MS])
    store.fail(OSError("disk"))
    with pytest.raises(LogFailed):
        store.flush()
    store = open_store(tmp_path)
    assert len(store) == 3
    store.delete()
    assert not list(tmp_path.parent.glob(f"{tmp_path.name}/*"))
