"""The key log: what a start finds after a stop, a kill and a stop of the machine."""

from collections import OrderedDict
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.storage.errors import UnsupportedFormat
from leveret.storage.key_log import DURABLE, FORGOTTEN, KeyLog, read_boot_id

THIS_BOOT, NEXT_BOOT = b"1" * 16, b"2" * 16
HEADER = b"LVKY\0\2\0\0"


def key(number: int) -> bytes:
    return b"%016d" % number


def written(path: Path, *blocks: dict[int, int]) -> KeyLog:
    """A log with blocks of number of a key -> stamp."""
    log = KeyLog(path, THIS_BOOT)
    for block in blocks:
        log.append({key(number): stamp for number, stamp in block.items()})
    log.close()
    return log


def found(path: Path, boot_id: bytes = THIS_BOOT) -> list[tuple[int, int]]:
    return [(int(name), stamp) for name, stamp in KeyLog(path, boot_id).recover().items()]


def test_the_file_is_as_described(tmp_path: Path) -> None:
    written(tmp_path / "keys", {1: 8, 2: FORGOTTEN})
    rest = (8).to_bytes(8, "big") + bytes(8) + key(1) + key(2)
    block = (2).to_bytes(4, "big") + crc32(rest).to_bytes(4, "big") + rest
    assert (tmp_path / "keys").read_bytes() == HEADER + THIS_BOOT + block


def test_what_was_written_is_found_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "new" / "keys"
    log = written(path, {3: 8, 1: 10}, {2: 6}, {1: 10 | DURABLE})
    assert found(path) == [(3, 8), (1, 11), (2, 6)]
    assert log.entries == 4


def test_a_key_that_was_forgotten_and_came_again_is_the_last(tmp_path: Path) -> None:
    written(tmp_path / "keys", {1: 8, 2: 8, 3: 8}, {3: FORGOTTEN, 9: FORGOTTEN}, {1: 12})
    assert found(tmp_path / "keys") == [(2, 8), (1, 12)]


def test_no_file_and_a_file_without_a_whole_start_hold_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    assert found(path) == []
    for size in range(24):
        path.write_bytes((HEADER + THIS_BOOT)[:size])
        assert found(path) == []
    path.write_bytes(bytes(100))
    assert found(path) == []


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keys").write_bytes(b"LVKY\0\3\0\0" + THIS_BOOT)
    with pytest.raises(UnsupportedFormat):
        found(tmp_path / "keys")


def test_a_tail_torn_at_any_byte_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    written(path, {1: 8, 2: 8})
    start = path.stat().st_size
    written(path, {1: 8, 2: 8}, {1: FORGOTTEN, 3: 8, 4: 8})
    data = path.read_bytes()
    for size in range(start, len(data)):
        path.write_bytes(data[:size])
        assert found(path) == [(1, 8), (2, 8)]
        path.write_bytes(data[:size] + bytes(len(data) - size))
        assert found(path) in ([(1, 8), (2, 8)], [(2, 8), (3, 8), (4, 8)])


def test_blocks_from_a_damaged_one_on_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    written(path, {1: 8}, {2: 8}, {3: 8})
    data = path.read_bytes()
    for position in range(24 + 32, 24 + 64):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        assert found(path) == [(1, 8)]


def test_after_a_stop_of_the_machine_only_keys_of_durable_messages_count(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    written(path, {1: 8, 2: 8, 3: 8}, {1: 9, 3: 9}, {4: 8, 3: 12})
    assert found(path) == [(1, 9), (2, 8), (4, 8), (3, 12)]
    assert found(path, NEXT_BOOT) == [(1, 9)]


@pytest.mark.parametrize("method", [KeyLog.rewrite, KeyLog.replace])
def test_a_rewritten_file_is_continued(tmp_path: Path, method) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "new" / "keys"
    log = KeyLog(path, NEXT_BOOT)
    if method is KeyLog.replace:
        log = written(path, dict.fromkeys(range(100), 8))
    method(log, OrderedDict({key(7): 8, key(5): 9}))
    assert log.entries == 2
    log.append({key(6): 8, key(7): FORGOTTEN})
    assert log.entries == 4
    log.close()
    boot_id = THIS_BOOT if method is KeyLog.replace else NEXT_BOOT
    assert found(path, boot_id) == [(5, 9), (6, 8)]
    assert [file.name for file in path.parent.iterdir()] == ["keys"]


def test_replacing_by_nothing_leaves_no_bytes_for_what_comes(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    written(path, {1: 8, 2: 8})
    log = KeyLog(path, NEXT_BOOT)
    assert log.recover() == {}
    log.replace({})
    assert not path.exists()
    log.append({key(3): 8})
    log.close()
    assert found(path, NEXT_BOOT) == [(3, 8)]


@given(st.lists(st.dictionaries(st.integers(0, 9), st.integers(0, 2**63), min_size=1)))
def test_the_last_stamp_of_a_key_counts(tmp_path_factory, blocks) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path_factory.mktemp("log") / "keys"
    written(path, *blocks)
    last = {number: stamp for block in blocks for number, stamp in block.items()}
    assert dict(found(path)) == {number: stamp for number, stamp in last.items() if stamp}


def test_the_boot_id_is_that_of_this_run_of_the_machine(tmp_path: Path) -> None:
    assert len(read_boot_id()) == 16
    assert read_boot_id(tmp_path / "none") != read_boot_id(tmp_path / "none")
    (tmp_path / "id").write_text("6e8bc430-9c3a-11d9-9669-0800200c9a66\n")
    assert read_boot_id(tmp_path / "id") == bytes.fromhex("6e8bc4309c3a11d996690800200c9a66")
