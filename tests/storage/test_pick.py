"""Single messages of a log, wherever they lie."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leveret.storage.errors import CorruptRecord, OffsetOutOfRange
from leveret.storage.log import LogOptions
from leveret.storage.state_log import State
from tests.storage.log_files import SMALL, append, batch_at, mark, new_log, payload_at


@given(
    sizes=st.lists(st.sampled_from([20, 76, 900, 5000]), min_size=1, max_size=25),
    data=st.data(),
    open_segments=st.sampled_from([1, 2, 50]),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_message_is_found(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    data: st.DataObject,
    open_segments: int,
) -> None:
    options = LogOptions(segment_bytes=4096, index_interval_bytes=200, open_segments=open_segments)
    log = new_log(tmp_path_factory.mktemp("log"), options)
    expected = []
    for size in sizes:
        first = log.next_offset
        expected += [(first + at, 1, 5, payload_at(first + at, size)) for at in range(3)]
        append(log, 3, size=size)
    for _ in range(3):
        offsets = data.draw(st.sets(st.integers(0, len(expected) - 1)))
        picked = list(log.pick(sorted(offsets)))
        assert picked == [expected[offset] for offset in sorted(offsets)]
    log.delete()


@pytest.mark.usefixtures("no_descriptor_left")
def test_read_segments_stay_open_up_to_a_number(tmp_path: Path) -> None:
    options = LogOptions(segment_bytes=4096, index_interval_bytes=200, open_segments=3)
    log = new_log(tmp_path, options)
    for _ in range(10):
        append(log, 40)
    before = len(os.listdir("/proc/self/fd"))
    log.close()
    for offset in range(0, 400, 40):
        assert [offset for offset, *_ in log.pick([offset, offset + 39])] == [offset, offset + 39]
    assert len(os.listdir("/proc/self/fd")) <= before + 3
    log.delete()


@pytest.mark.usefixtures("no_descriptor_left")
def test_a_deleted_segment_is_closed(tmp_path: Path) -> None:
    options = LogOptions(segment_bytes=4096, index_interval_bytes=200, open_segments=9)
    log = new_log(tmp_path, options)
    append(log, 40)
    append(log, 40)
    assert len(list(log.pick([0, 50]))) == 2
    mark(log, State.ACKED, (0, 40))
    with pytest.raises(OffsetOutOfRange):
        list(log.pick([5]))
    assert [picked[0] for picked in log.pick([41])] == [41]
    log.delete()


def test_what_was_not_flushed_is_not_there(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, 2)
    log.append(batch_at(2, 1))
    with pytest.raises(OffsetOutOfRange):
        list(log.pick([2]))
    log.delete()


@pytest.mark.parametrize("size", [76, 3000])
def test_damage_is_told(tmp_path: Path, size: int) -> None:
    log = new_log(tmp_path, SMALL)
    append(log, 1, size=size)
    path = tmp_path / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptRecord, match=r"record 0 at byte 8: expected crc32"):
        list(log.pick([0]))
    os.truncate(path, 8 + 30)
    with pytest.raises(CorruptRecord):
        list(log.pick([0]))
    os.truncate(path, 8 + 10)
    with pytest.raises(CorruptRecord, match="a record, not the end"):
        list(log.pick([0]))
    log.delete()
