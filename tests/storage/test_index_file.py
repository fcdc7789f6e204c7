from pathlib import Path

import pytest

from leveret.storage.errors import DamagedIndex, UnsupportedFormat
from leveret.storage.offset_index import OffsetIndex
from leveret.storage.time_index import TimeIndex


def filled(path: Path) -> OffsetIndex:
    index = OffsetIndex(path)
    for offset, position in [(10, 100), (20, 300), (35, 700)]:
        index.append(offset, position)
    return index


def test_lookup_finds_the_entry_at_or_before(tmp_path: Path) -> None:
    index = filled(tmp_path / "i")
    assert [index.lookup(offset) for offset in (0, 9, 10, 19, 34, 35, 99)] == [
        *((0, 8), (0, 8), (10, 100), (10, 100), (20, 300), (35, 700), (35, 700))
    ]


def test_an_unloaded_index_loads_itself(tmp_path: Path) -> None:
    index = filled(tmp_path / "i")
    index.write(2)
    assert (tmp_path / "i").stat().st_size == 8 + 2 * 8
    index.write(3)
    index.unload()
    assert index.lookup(25) == (20, 300)
    assert OffsetIndex.lookup(index, 40) == (35, 700)


def test_cutting_shortens_the_file_too(tmp_path: Path) -> None:
    index = filled(tmp_path / "i")
    index.write(3)
    index.cut(index.count_below(700))
    index.trim()
    index.append(50, 900)
    index.write(3)
    again = OffsetIndex(tmp_path / "i")
    again.load()
    assert [again.lookup(offset)[1] for offset in (10, 20, 35, 50)] == [100, 300, 300, 900]


def test_a_torn_entry_is_ignored_and_overwritten(tmp_path: Path) -> None:
    index = filled(tmp_path / "i")
    index.write(3)
    with (tmp_path / "i").open("ab") as file:
        file.write(b"\xff" * 7)
    again = OffsetIndex(tmp_path / "i")
    again.load()
    again.append(50, 900)
    again.write(4)
    again.load()
    assert again.last() == (50, 900)


@pytest.mark.parametrize(
    "data", [b"", b"LVIX", b"garbage!garbage!", b"LVIX\0\1\0\0" + b"\0\0\0\5\0\0\0\5" * 2]
)
def test_a_damaged_file_is_said_to_be_so(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "i").write_bytes(data)
    with pytest.raises(DamagedIndex):
        OffsetIndex(tmp_path / "i").load()


def test_a_missing_file_is_damage(tmp_path: Path) -> None:
    with pytest.raises(DamagedIndex, match="missing"):
        OffsetIndex(tmp_path / "i").load()


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "i").write_bytes(b"LVIX\0\3\0\0")
    with pytest.raises(UnsupportedFormat, match="expected LVIX of format version up to 2"):
        OffsetIndex(tmp_path / "i").load()


def test_times_never_fall(tmp_path: Path) -> None:
    times = TimeIndex(tmp_path / "t")
    for timestamp_ms, offset in [(1000, 10), (900, 20), (1200, 30)]:
        times.append(timestamp_ms, offset)
    times.write(3)
    times.unload()
    assert [times.lookup(ms) for ms in (0, 1000, 1001, 1200, 1201)] == [0, 0, 20, 20, 30]
