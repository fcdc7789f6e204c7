"""How far named consumers of a stream have come, and the file that tells so."""

from pathlib import Path

import pytest

from leveret.queues.outcome import Outcome
from leveret.queues.stream_cursor import NamedCursor
from leveret.queues.stream_offsets import SAVE_MS, StreamOffsets, read_offsets
from leveret.storage.disk_space import DiskSpace


def test_offsets_come_back(tmp_path: Path) -> None:
    offsets = StreamOffsets(tmp_path, DiskSpace())
    offsets.set("a", 5)
    offsets.set("ä" * 100, 1 << 60)
    assert offsets.look(0) is None
    expected = {"a": 5, "ä" * 100: 1 << 60}
    assert read_offsets(tmp_path / "offsets") == expected
    again = StreamOffsets(tmp_path, DiskSpace())
    assert dict(again.items()) == expected
    again.remove("a")
    with pytest.raises(KeyError):
        again.remove("a")
    again.save()
    assert StreamOffsets(tmp_path, DiskSpace()).get("a") is None


def test_they_are_written_once_a_second(tmp_path: Path) -> None:
    offsets = StreamOffsets(tmp_path, DiskSpace())
    cursor = NamedCursor(0, "a", offsets.moved)
    cursor.delivered(range(10))
    cursor.settled([0], Outcome.ACKED)
    assert offsets.look(10) is None
    cursor.settled([1, 2], Outcome.ACKED)
    cursor.settled([3], Outcome.RETURNED)
    assert offsets.look(11) == 11 + SAVE_MS
    assert read_offsets(tmp_path / "offsets") == {"a": 1}
    assert offsets.look(11 + SAVE_MS) is None
    assert read_offsets(tmp_path / "offsets") == {"a": 3}


def test_a_damaged_file_is_as_good_as_none(tmp_path: Path) -> None:
    offsets = StreamOffsets(tmp_path, DiskSpace())
    offsets.set("reader", 1000)
    offsets.save()
    path = tmp_path / "offsets"
    data = path.read_bytes()
    for at in (0, 8, 13, len(data) - 1):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        assert read_offsets(path) == {}
        path.write_bytes(data[:at])
        assert read_offsets(path) == {}
