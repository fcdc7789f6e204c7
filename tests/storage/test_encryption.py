"""A log whose records are encrypted, against the same log without; and what its files give away."""

import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.storage.batch import Batch
from leveret.storage.cipher import Cipher
from leveret.storage.disk_space import DiskSpace
from leveret.storage.errors import CorruptRecord, MissingKey, NotAuthentic
from leveret.storage.files import HEADER_SIZE
from leveret.storage.key_ring import (
    OVERHEAD,
    KeyRing,
    UnusableKeys,
    open_key_ring,
    parse_keys,
    read_key_table,
)
from leveret.storage.log import SegmentLog
from leveret.storage.record import ENCRYPTED, RECORD_HEADER_SIZE, read_batches
from leveret.storage.recovery import Recovered, recover
from leveret.storage.retention import Retention
from leveret.storage.state_log import State
from tests.storage.log_files import (
    SMALL,
    append,
    batch_at,
    crash,
    mark,
    names,
    payload_at,
    read_all,
    sync,
)

OLD, NEW, OTHER = (bytes([number]) * 32 for number in (1, 2, 3))
PATH = Path("some.log")
SIZE = 76
META = 5 | ENCRYPTED
"""The attributes of `batch_at`, encrypted."""


class Home:
    """A data directory with one log, started with some keys or others."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.directory = data_dir / "queues" / "1"
        self.now_ms = 1

    def ring(self, *keys: bytes) -> KeyRing | None:
        return open_key_ring(self.data_dir, keys, "the test")

    def start(
        self, *keys: bytes, retention: Retention | None = None
    ) -> tuple[SegmentLog, Recovered]:
        options = replace(SMALL, keys=self.ring(*keys), compact_bytes=1)
        return recover(
            self.directory, options, lambda: self.now_ms, space=DiskSpace(), retention=retention
        )

    def content(self) -> bytes:
        files = (path for path in self.data_dir.rglob("*") if path.is_file())
        return b"".join(path.read_bytes() for path in files)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def payloads(start: int, end: int) -> list[bytes]:
    return [payload_at(offset, SIZE) for offset in range(start, end)]


# ---- one batch


@given(
    st.lists(st.binary(max_size=40), min_size=1, max_size=6),
    st.integers(0, 2**64 - 10),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**62 - 1),
)
def test_what_was_encrypted_comes_back(
    messages: list[bytes], first_offset: int, timestamp_ms: int, attributes: int
) -> None:
    lengths = set(map(len, messages))
    length = lengths.pop() if len(lengths) == 1 else 0
    batch = Batch(first_offset, timestamp_ms, attributes, messages, length)
    cipher = Cipher(OLD)
    encrypted = cipher.encrypt(batch)
    assert [len(one) - OVERHEAD for one in encrypted.payloads] == [len(one) for one in messages]
    if encrypted.payload_length:
        assert encrypted.payload_length == len(encrypted.payloads[0])
    assert cipher.decrypt(encrypted, PATH) == batch
    for offset, payload in enumerate(encrypted.payloads, first_offset):
        picked = offset, timestamp_ms, encrypted.attributes, payload
        plain = messages[offset - first_offset]
        assert cipher.decrypt_one(picked, PATH) == (offset, timestamp_ms, attributes, plain)


def test_no_nonce_comes_twice() -> None:
    cipher = Cipher(OLD)
    batch = batch_at(0, 500)
    once, again = cipher.encrypt(batch), cipher.encrypt(batch)
    assert len({payload[:12] for payload in once.payloads + again.payloads}) == 1000


def test_every_changed_byte_is_found() -> None:
    cipher = Cipher(OLD)
    (payload,) = cipher.encrypt(batch_at(7, 1)).payloads
    for at in range(len(payload)):
        changed = payload[:at] + bytes([payload[at] ^ 1 << at % 8]) + payload[at + 1 :]
        with pytest.raises(NotAuthentic, match="record 7: not authentic"):
            cipher.decrypt_one((7, 1, META, changed), PATH)
    for size in range(len(payload)):
        with pytest.raises(NotAuthentic):
            cipher.decrypt_one((7, 1, META, payload[:size]), PATH)


def test_a_record_counts_only_in_its_place() -> None:
    cipher = Cipher(OLD)
    (payload,) = cipher.encrypt(batch_at(7, 1)).payloads
    assert cipher.decrypt_one((7, 1, META, payload), PATH) == (7, 1, 5, payload_at(7))
    for meta in ((8, 1, META), (7, 2, META), (7, 1, META - 1), (7, 1, 5)):
        with pytest.raises(NotAuthentic):
            cipher.decrypt_one((*meta, payload), PATH)
    with pytest.raises(NotAuthentic):
        Cipher(NEW).decrypt_one((7, 1, META, payload), PATH)


def test_messages_in_front_of_a_forged_one_are_read() -> None:
    cipher = Cipher(OLD)
    encrypted = cipher.encrypt(batch_at(0, 4))
    encrypted.payloads[2], encrypted.payloads[3] = encrypted.payloads[3], encrypted.payloads[2]
    assert cipher.decrypt(encrypted, PATH).payloads == payloads(0, 2)
    with pytest.raises(NotAuthentic, match="record 0"):
        cipher.decrypt(Batch(0, 1, META, encrypted.payloads[2:], SIZE + OVERHEAD), PATH)


def test_segments_have_keys_of_their_own(home: Home) -> None:
    ring = home.ring(OLD)
    assert ring is not None
    here, there = (home.directory / f"{base:020}.log" for base in (0, 100))
    encrypted = ring.cipher(1, here).encrypt(batch_at(0, 1))
    assert ring.cipher(1, here).decrypt(encrypted, here).payloads == payloads(0, 1)
    with pytest.raises(NotAuthentic):
        ring.cipher(1, there).decrypt(encrypted, there)


# ---- the keys


def test_keys_are_read_from_lines() -> None:
    text = f"# new\n{NEW.hex().upper()}\n\n  {'AQEB' * 10}AQE=  # old\n"
    assert parse_keys(text, "keys") == [NEW, OLD]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "keys: no key in it"),
        ("# nothing\n\n", "keys: no key in it"),
        ("01" * 31, "keys, line 1: expected 64 hexadecimal digits, or 32 bytes in base64"),
        (f"{OLD.hex()}\nsecret", "keys, line 2: expected 64 hexadecimal digits, or 32 "),
        (f"{OLD.hex()} {NEW.hex()}", "keys, line 1: expected 64 hexadecimal digits"),
        ("A" * 44, "keys, line 1: expected 64 hexadecimal digits"),
    ],
)
def test_what_is_no_key_is_refused_and_not_shown(text: str, message: str) -> None:
    with pytest.raises(UnusableKeys) as error:
        parse_keys(text, "keys")
    assert str(error.value).startswith(message)
    assert "secret" not in str(error.value)


def test_keys_keep_their_numbers(home: Home) -> None:
    for keys, current in (((OLD,), 1), ((NEW, OLD), 2), ((NEW,), 2), ((OLD, NEW), 1)):
        ring = home.ring(*keys)
        assert ring is not None
        assert ring.current == current
    table = read_key_table(home.data_dir)
    assert table is not None
    assert sorted(table.fingerprints) == [1, 2]


def test_a_wrong_key_is_refused(home: Home) -> None:
    home.ring(OLD)
    table = read_key_table(home.data_dir)
    assert table is not None
    with pytest.raises(UnusableKeys, match=r"^wrong key: ") as error:
        home.ring(NEW, OTHER)
    assert table.fingerprints[1] in str(error.value)
    assert NEW.hex() not in str(error.value)
    with pytest.raises(UnusableKeys, match="no key is given: set encryption_key_file"):
        home.ring()
    assert read_key_table(home.data_dir) == table


def test_data_directories_without_keys_stay_without(home: Home) -> None:
    assert home.ring() is None
    assert os.listdir(home.data_dir) == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"version": 1, "salt": "00", "keys": {"1": "ab"}, "current": 1}',
        b'{"version": 1, "salt": "' + b"00" * 16 + b'", "keys": {"1": "ab"}, "current": 2}',
        b'{"version": 1, "salt": "' + b"00" * 16 + b'", "keys": {"256": "ab"}, "current": 256}',
        b'{"version": 1, "salt": "' + b"00" * 16 + b'", "keys": ["ab"], "current": 0}',
    ],
)
def test_a_damaged_table_is_refused(home: Home, content: bytes) -> None:
    (home.data_dir / "keys.json").write_bytes(content)
    with pytest.raises(UnusableKeys, match=r"keys\.json is damaged"):
        home.ring(OLD)


def test_a_newer_table_is_refused(home: Home) -> None:
    home.ring(OLD)
    path = home.data_dir / "keys.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(UnusableKeys, match="version 2 of a newer leveret"):
        home.ring(OLD)


def test_there_are_no_more_numbers_than_a_header_has_room_for(home: Home) -> None:
    keys = [number.to_bytes(32, "big") for number in range(257)]
    home.ring(keys[0])
    for before, key in pairwise(keys[:255]):
        home.ring(key, before)
    with pytest.raises(UnusableKeys, match="255 keys"):
        home.ring(keys[255], keys[254])


# ---- a log


def test_a_log_reads_back_what_it_encrypted(home: Home) -> None:
    log, _ = home.start(OLD)
    append(log, 1, 100, 3)
    append(log, 60)
    assert len(names(home.directory)) > 3
    assert read_all(log, [(0, 164)]) == payloads(0, 164)
    assert [picked[-1] for picked in log.pick([0, 1, 77, 163])] == [
        payload_at(offset, SIZE) for offset in (0, 1, 77, 163)
    ]
    log.close()
    log, found = home.start(OLD)
    assert found.ready == [(0, 164)]
    assert read_all(log, found.ready) == payloads(0, 164)
    log.close()
    assert b"xxxx" not in home.content()


def test_no_segment_is_longer_than_it_may_be(home: Home) -> None:
    log, _ = home.start(OLD)
    for count in (1, 7, 40, 100, 33):
        append(log, count)
    append(log, 1, size=5000)
    append(log, 2)
    log.close()
    sizes = {path.stat().st_size for path in home.directory.glob("*.log")}
    record = RECORD_HEADER_SIZE + OVERHEAD
    assert max(sizes) == HEADER_SIZE + record + 5000
    assert max(sizes - {max(sizes)}) <= SMALL.segment_bytes
    assert SMALL.segment_bytes - (record + SIZE) < max(sizes - {max(sizes)})


def test_a_killed_log_comes_back(home: Home, tmp_path_factory: pytest.TempPathFactory) -> None:
    log, _ = home.start(OLD)
    append(log, 30)
    sync(log)
    append(log, 30)
    mark(log, State.ACKED, (3, 9))
    left = Home(crash(home.data_dir, tmp_path_factory.mktemp("crash") / "copy"))
    log.close()
    newest = max(left.directory.glob("*.log"))
    with newest.open("ab") as file:
        file.write(b"torn")
    log, found = left.start(OLD)
    assert found.ready == [(0, 3), (9, 60)]
    assert read_all(log, found.ready) == payloads(0, 3) + payloads(9, 60)
    append(log, 1)
    assert read_all(log, [(60, 61)]) == payloads(60, 61)
    log.close()


def test_recovery_needs_no_key(home: Home) -> None:
    log, _ = home.start(OLD)
    append(log, 100)
    log.close()
    for path in home.directory.glob("*.*index"):
        path.unlink()
    log, found = recover(home.directory, SMALL, lambda: 0)
    assert found.ready == [(0, 100)]
    with pytest.raises(MissingKey, match="encrypted with key 1, and no key was given"):
        log.read(0, 500)
    log.close()


def test_whole_records_that_are_not_ours_stop_a_read(home: Home) -> None:
    log, _ = home.start(OLD)
    append(log, 20)
    log.close()
    ring = home.ring(OTHER, OLD)
    assert ring is not None
    (path,) = home.directory.glob("*.log")
    data = path.read_bytes()
    path.write_bytes(data[:6] + bytes([ring.current]) + data[7:])
    log, found = home.start(OTHER, OLD)
    assert found.ready == [(0, 20)]
    with pytest.raises(NotAuthentic, match="record 0: not authentic"):
        log.read(0, 500)
    with pytest.raises(NotAuthentic, match="record 4: not authentic"):
        list(log.pick([4]))
    log.close()


def test_a_header_that_forgot_its_key_makes_no_messages(home: Home) -> None:
    log, _ = home.start(OLD)
    append(log, 20)
    log.close()
    (path,) = home.directory.glob("*.log")
    data = path.read_bytes()
    path.write_bytes(data[:6] + b"\0" + data[7:])
    log, _ = home.start(OLD)
    with pytest.raises(MissingKey, match="encrypted with a key that its header does not name"):
        log.read(0, 500)
    with pytest.raises(MissingKey):
        list(log.pick([4]))
    log.close()


def test_every_changed_byte_of_a_file_is_noticed(home: Home) -> None:
    log, _ = home.start(OLD)
    append(log, 3)
    log.close()
    (path,) = home.directory.glob("*.log")
    data = path.read_bytes()
    ring = home.ring(OLD)
    assert ring is not None
    cipher = ring.cipher(1, path)
    for at in range(HEADER_SIZE, len(data)):
        changed = data[HEADER_SIZE:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        plain: list[bytes] = []
        try:
            batches, _, _ = read_batches(changed, 0, path=path, position=HEADER_SIZE)
            for batch in batches:
                plain += cipher.decrypt(batch, path).payloads
        except (CorruptRecord, NotAuthentic):
            pass
        assert len(plain) < 3
        assert plain == payloads(0, len(plain))


# ---- keys that change


def test_messages_from_before_the_first_key_stay_readable(home: Home) -> None:
    log, _ = home.start()
    append(log, 10)
    log.close()
    log, _ = home.start(OLD)
    append(log, 10)
    assert read_all(log, [(0, 20)]) == payloads(0, 20)
    log.close()
    assert names(home.directory) == [0, 10]


def test_old_segments_are_read_with_the_old_key(home: Home) -> None:
    log, _ = home.start(OLD)
    append(log, 10)
    log.close()
    log, _ = home.start(NEW, OLD)
    assert names(home.directory) == [0]
    append(log, 10)
    assert names(home.directory) == [0, 10]
    log.close()
    log, _ = home.start(OLD, NEW)
    append(log, 10)
    assert names(home.directory) == [0, 10, 20]
    log.close()
    log, found = home.start(NEW, OLD)
    assert read_all(log, found.ready) == payloads(0, 30)
    assert [picked[-1] for picked in log.pick([9, 10, 29])] == [
        payload_at(offset, SIZE) for offset in (9, 10, 29)
    ]
    log.close()


def test_an_old_key_can_go_with_its_last_message(home: Home) -> None:
    log, _ = home.start(OLD)
    append(log, 10)
    log.close()
    log, _ = home.start(NEW, OLD)
    append(log, 10)
    log.close()
    with pytest.raises(MissingKey, match=r"encrypted with key 1, fingerprint [0-9a-f]{16}, which"):
        home.start(NEW)
    log, _ = home.start(NEW, OLD)
    mark(log, State.ACKED, (0, 10))
    log.close()
    log, found = home.start(NEW)
    assert read_all(log, found.ready) == payloads(10, 20)
    log.close()


def test_settled_messages_alone_need_no_key(home: Home) -> None:
    log, _ = home.start(OLD)
    append(log, 10)
    mark(log, State.ACKED, (0, 10))
    log.close()
    home.start(NEW, OLD)[0].close()
    log, found = home.start(NEW)
    assert found.ready == []
    append(log, 5)
    assert read_all(log, [(10, 15)]) == payloads(10, 15)
    log.close()


def test_an_empty_segment_takes_the_new_key(home: Home) -> None:
    log, _ = home.start(OLD)
    append(log, 30)
    sync(log)
    mark(log, State.ACKED, (0, 30))
    home.now_ms = 10**9
    for _ in range(3):
        log.look_after(home.now_ms)
    sync(log)
    log.close()
    newest = max(home.directory.glob("*.log"))
    assert newest.stat().st_size == HEADER_SIZE
    base = int(newest.stem)
    log, _ = home.start(NEW, OLD)
    append(log, 3)
    log.close()
    assert names(home.directory) == [base]
    log, found = home.start(NEW)
    assert read_all(log, found.ready) == payloads(base, base + 3)
    log.close()


def test_a_key_of_an_unknown_number_is_missing(home: Home) -> None:
    log, _ = home.start(OLD)
    append(log, 3)
    log.close()
    (path,) = home.directory.glob("*.log")
    data = path.read_bytes()
    path.write_bytes(data[:6] + b"\x09" + data[7:])
    with pytest.raises(MissingKey, match=r"key 9, which keys\.json does not know"):
        home.start(OLD)


# ---- what else is written


def test_compacted_segments_stay_readable(home: Home) -> None:
    log, _ = home.start(OLD)
    append(log, 30, 30, 40)
    kept = [(offset, offset + 1) for offset in range(0, 100, 9)]
    gone = [(offset + 1, min(offset + 9, 100)) for offset in range(0, 100, 9)]
    append(log, 1)
    sync(log)
    mark(log, State.ACKED, *[one for one in gone if one[0] < one[1]])
    before = sum(path.stat().st_size for path in home.directory.glob("*.log"))
    for _ in range(20):
        log.look_after(home.now_ms)
    assert sum(path.stat().st_size for path in home.directory.glob("*.log")) < before // 2
    expected = [payload_at(start, SIZE) for start, _ in kept]
    assert [picked[-1] for picked in log.pick([start for start, _ in kept])] == expected
    log.close()
    log, found = home.start(NEW, OLD)
    assert found.ready == [*kept[:-1], (99, 101)]
    assert read_all(log, found.ready) == [*expected, payload_at(100, SIZE)]
    log.close()


def test_retained_messages_stay_readable(home: Home) -> None:
    retention = Retention(age_ms=None, size=1 << 20)
    log, _ = home.start(OLD, retention=retention)
    append(log, 60)
    mark(log, State.ACKED, (0, 60))
    log.close()
    log, _ = home.start(NEW, OLD, retention=retention)
    assert read_all(log, [(0, 60)]) == payloads(0, 60)
    log.close()


def test_a_file_that_is_written_over_gets_a_header_of_its_own(home: Home) -> None:
    options = replace(SMALL, keys=home.ring(OLD))
    log, _ = recover(home.directory, options, lambda: home.now_ms, space=DiskSpace(spares=1))
    for start in range(0, 400, 20):
        append(log, 20)
        sync(log)
        if start:
            mark(log, State.ACKED, (start - 20, start))
    assert read_all(log, [(380, 400)]) == payloads(380, 400)
    log.close()
    log, found = home.start(OLD)
    assert read_all(log, found.ready) == payloads(380, 400)
    log.close()
