"""Deduplication: what is a duplicate, and against a model that stops, is killed and loses power."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leveret.amqp.tables import Field, read_table
from leveret.queues.dedup import MIN_REWRITTEN, Deduplicator, deduplication_key
from leveret.storage.committer import Waiter
from leveret.storage.key_log import KeyLog

FIRST_BOOT, SECOND_BOOT = b"1" * 16, b"2" * 16


def test_a_key_is_a_duplicate_until_cache_size_others_came() -> None:
    seen = Deduplicator(3)
    assert [seen.is_duplicate(key, 0) for key in (b"a", b"b", b"a", b"c", b"a")] == [
        *(False, False, True, False, True)
    ]
    assert not seen.is_duplicate(b"d", 0)
    assert len(seen) == 3
    assert [seen.is_duplicate(key, 0) for key in (b"b", b"c", b"d")] == [True, True, True]
    assert not seen.is_duplicate(b"a", 0)


def test_a_key_expires_however_often_it_comes() -> None:
    seen = Deduplicator(9, 100)
    assert [seen.is_duplicate(b"a", now) for now in (1000, 1050, 1099, 1100, 1199, 1200)] == [
        *(False, True, True, False, True, False)
    ]


def test_a_message_may_bring_a_time_of_its_own() -> None:
    seen = Deduplicator(9, 100)
    assert not seen.is_duplicate(b"long", 0, 1000)
    assert not seen.is_duplicate(b"short", 0, 10)
    assert not seen.is_duplicate(b"short", 10)
    assert seen.is_duplicate(b"short", 109)
    assert seen.is_duplicate(b"long", 999)


def test_expired_keys_give_their_memory_back() -> None:
    seen = Deduplicator(1000, 100)
    for number in range(1000):
        seen.is_duplicate(b"%d" % number, number)
    assert len(seen) == 100


def test_a_clock_that_was_set_back_lengthens_nothing() -> None:
    seen = Deduplicator(9, 100)
    assert not seen.is_duplicate(b"a", 10_000)
    assert not seen.is_duplicate(b"b", 5_000)
    assert seen.is_duplicate(b"a", 5_000)
    assert not seen.is_duplicate(b"b", 5_100)


def test_a_forgotten_key_may_come_again() -> None:
    seen = Deduplicator(9)
    assert not seen.is_duplicate(b"a", 0)
    seen.forget(b"a")
    seen.forget(b"never")
    assert len(seen) == 0
    assert not seen.is_duplicate(b"a", 0)
    assert seen.is_duplicate(b"a", 0)


def test_integers_of_any_width_are_the_same_key() -> None:
    fives = {deduplication_key(Field(letter, 5)) for letter in "bBsuIilL"}
    others = [Field("t", True), Field("T", 5), Field("d", 5.0), Field("S", "5"), Field("x", b"5")]
    assert len(fives | {deduplication_key(field) for field in others}) == 1 + len(others)
    raw = b"\0\0\0\x08\x01kS\0\0\0\1\xff"
    assert deduplication_key(read_table(raw, 0, len(raw))[0]["k"]) == deduplication_key(
        Field("S", b"\xff")
    )


def test_long_keys_that_differ_at_their_end_differ() -> None:
    seen = Deduplicator(9)
    assert not seen.is_duplicate(b"k" * 10_000, 0)
    assert not seen.is_duplicate(b"k" * 10_000 + b"x", 0)
    assert seen.is_duplicate(b"k" * 10_000, 0)


class Cache:
    """A deduplicator whose machine and process stop and start."""

    def __init__(self, path: Path, size: int = 9) -> None:
        self._path, self._size = path, size
        self.start(FIRST_BOOT)

    def start(self, boot_id: bytes = FIRST_BOOT) -> "Cache":
        self.log = KeyLog(self._path, boot_id)
        self.seen = Deduplicator(self._size, None, self.log)
        return self

    def remember(self, *keys: bytes) -> None:
        for key in keys:
            assert not self.seen.is_duplicate(key, 0)

    def flush(self) -> Waiter:
        waiter = self.seen.flush()
        assert waiter is not None
        return waiter

    def kill(self, boot_id: bytes = FIRST_BOOT) -> "Cache":
        self.log.close()
        return self.start(boot_id)

    def known(self, *keys: bytes) -> list[bytes]:
        """Which of *keys* are remembered; ends the use of this cache."""
        known = [key for key in keys if self.seen.is_duplicate(key, 0)]
        self.log.close()
        return known


def test_only_flushed_keys_outlive_a_kill(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "keys")
    cache.remember(b"a", b"b")
    cache.flush()
    cache.remember(b"c")
    assert cache.kill().known(b"a", b"b", b"c") == [b"a", b"b"]


def test_only_keys_of_durable_messages_outlive_a_stop_of_the_machine(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "keys")
    cache.remember(b"a")
    cache.flush()(None)
    cache.remember(b"b")
    cache.flush()
    assert cache.kill(SECOND_BOOT).known(b"a", b"b") == [b"a"]


def test_what_a_kill_left_does_not_count_as_durable_later(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "keys")
    cache.remember(b"a")
    cache.flush()
    cache.kill().remember(b"b")
    cache.flush()(None)
    assert cache.kill(SECOND_BOOT).known(b"a", b"b") == [b"b"]


def test_keys_of_lost_messages_are_forgotten(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "keys")
    cache.remember(b"a")
    cache.flush()(OSError("no disk"))
    cache.remember(b"a")
    assert cache.kill().known(b"a") == []


def test_settling_does_not_write_what_is_not_flushed(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "keys")
    cache.remember(b"a", b"b")
    settle = cache.flush()
    cache.seen.forget(b"b")
    cache.remember(b"c")
    settle(None)
    assert cache.kill(SECOND_BOOT).known(b"a", b"b", b"c") == [b"a"]


def test_a_log_that_cannot_be_written_is_written_by_the_next_flush(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "here" / "keys")
    cache.remember(b"a")
    (tmp_path / "here").write_bytes(b"a file where the directory should be")
    for _ in range(2):
        with pytest.raises(OSError):
            cache.seen.flush()
    (tmp_path / "here").unlink()
    cache.flush()
    assert cache.kill().known(b"a") == [b"a"]


def test_what_cannot_be_written_when_it_settles_is_written_by_the_next_flush(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = Cache(tmp_path / "here" / "keys")
    cache.remember(b"a")
    settle = cache.flush()
    cache.log.delete()
    (tmp_path / "here").rmdir()
    (tmp_path / "here").write_bytes(b"")
    settle(None)
    assert "the next flush tries again" in caplog.text
    (tmp_path / "here").unlink()
    cache.remember(b"b")
    cache.flush()
    assert cache.kill(SECOND_BOOT).known(b"a", b"b") == [b"a"]


def test_a_deleted_log_is_gone(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "keys")
    cache.remember(b"a")
    cache.flush()
    cache.seen.delete()
    assert not (tmp_path / "keys").exists()


def test_without_a_log_nothing_is_written() -> None:
    seen = Deduplicator(9)
    seen.is_duplicate(b"a", 0)
    assert seen.flush() is None
    seen.close()
    seen.delete()


def test_a_smaller_cache_takes_the_last_keys(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "keys")
    cache.remember(*b"a b c d".split())
    cache.flush()
    cache.log.close()
    assert Cache(tmp_path / "keys", 2).known(b"c", b"d", b"a", b"b") == [b"c", b"d"]


def test_the_file_stays_within_twice_its_keys(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "keys", 3000)
    for number in range(20_000):
        cache.remember(b"%d" % number)
        if number % 100 == 99:
            cache.flush()(None)
            assert cache.log.entries <= max(MIN_REWRITTEN, 2 * len(cache.seen)) + 100
    keys = [b"%d" % number for number in range(17_000, 20_000)]
    assert cache.kill().known(*keys) == keys


def test_a_million_keys(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "keys", 1_000_000)
    for number in range(1_000_000):
        cache.seen.is_duplicate(number.to_bytes(4, "big"), number)
    cache.flush()
    cache.kill()
    assert len(cache.seen) == 1_000_000
    assert cache.known(*(n.to_bytes(4, "big") for n in (0, 999_999, 1_000_000))) == [
        *((0).to_bytes(4, "big"), (999_999).to_bytes(4, "big"))
    ]


SIZE, TTL_MS = 5, 50
KEYS = st.sampled_from([b"%d" % number for number in range(9)])


class DeduplicatorModel(RuleBasedStateMachine):
    """`live` is what is remembered, `written` what a kill leaves, `durable` what a power cut does.

    All are key -> time of expiry, oldest first.
    """

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.now_ms = 1000
        self.boots = 1
        self.live: dict[bytes, int] = {}
        self.written: dict[bytes, int] = {}
        self.durable: dict[bytes, int] = {}
        self.waiters: list[tuple[Callable[[Exception | None], None], dict[bytes, int]]] = []
        self.start()

    def teardown(self) -> None:
        if hasattr(self, "root"):
            self.log.close()
            shutil.rmtree(self.root)

    def start(self) -> None:
        self.log = KeyLog(self.root / "keys", b"%016d" % self.boots)
        self.seen = Deduplicator(SIZE, TTL_MS, self.log)
        self.waiters = []
        self.written = self.live.copy()

    @rule(key=KEYS, later_ms=st.sampled_from([0, 0, 0, 1, 20]))
    def come(self, key: bytes, later_ms: int) -> None:
        self.now_ms += later_ms
        is_known = self.live.get(key, 0) > self.now_ms
        assert self.seen.is_duplicate(key, self.now_ms) == is_known
        if not is_known:
            self.live.pop(key, None)
            self.live[key] = self.now_ms + TTL_MS
            if len(self.live) > SIZE:
                del self.live[next(iter(self.live))]

    @rule(key=KEYS)
    def forget(self, key: bytes) -> None:
        self.seen.forget(key)
        self.live.pop(key, None)

    @rule()
    def flush(self) -> None:
        waiter = self.seen.flush()
        news = {k: v for k, v in self.live.items() if self.written.get(k) != v}
        self.written = self.live.copy()
        self.durable = {k: v for k, v in self.durable.items() if self.live.get(k) == v}
        if waiter:
            self.waiters.append((waiter, news))

    @rule(fails=st.sampled_from([False, False, True]))
    def settle(self, fails: bool) -> None:
        if not self.waiters:
            return
        waiter, news = self.waiters.pop(0)
        waiter(OSError("lost") if fails else None)
        for key, expiry in news.items():
            if self.live.get(key) != expiry or key in self.durable:
                continue
            if fails:
                del self.live[key]
                self.written.pop(key, None)
            else:
                self.durable[key] = expiry

    @rule()
    def kill(self) -> None:
        self.log.close()
        self.live = self.written.copy()
        self.start()

    @rule()
    def lose_power(self) -> None:
        self.log.close()
        self.boots += 1
        self.live = {k: v for k, v in self.written.items() if k in self.durable}
        self.start()

    @rule(reboots=st.booleans())
    def stop(self, reboots: bool) -> None:
        self.flush()
        while self.waiters:
            self.settle(False)
        self.seen.close()
        if reboots:  # what a killed process wrote is not known to be durable
            self.boots += 1
            self.live = {k: v for k, v in self.live.items() if k in self.durable}
        self.start()

    @invariant()
    def is_bounded(self) -> None:
        if hasattr(self, "root"):
            assert len(self.seen) <= SIZE


DeduplicatorModel.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestDeduplicatorModel = DeduplicatorModel.TestCase
