import os
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.storage.data_directory import (
    DataDirectoryError,
    DirectoryLock,
    DirectoryLocked,
    UnsupportedDataFormat,
    check_format,
)

HOLD_LOCK = """
import sys
from pathlib import Path
from leveret.storage.data_directory import DirectoryLock

with DirectoryLock(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_lock_makes_the_directory_and_names_its_holder(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    with DirectoryLock(directory):
        assert (directory / "lock").read_text() == f"{os.getpid()}\n"


def test_second_process_is_told_the_pid_of_the_first(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(DirectoryLocked) as refused:
            DirectoryLock(tmp_path)
        assert str(refused.value) == (
            f"data directory {tmp_path} is in use by process {holder.pid}"
        )
        holder.kill()
    # The kernel released the lock of the killed process, whatever its file says.
    with DirectoryLock(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_released_lock_can_be_taken_again(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path), pytest.raises(DirectoryLocked):
        DirectoryLock(tmp_path)
    with DirectoryLock(tmp_path):
        pass


def test_refused_lock_leaves_no_descriptor_behind(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path):
        before = os.listdir("/proc/self/fd")
        with pytest.raises(DirectoryLocked):
            DirectoryLock(tmp_path)
        assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.parametrize("below", ["", "deeper"])
def test_data_directory_that_is_a_file_is_one_line(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(DataDirectoryError) as refused:
        DirectoryLock(file / below)
    message = str(refused.value)
    assert message.startswith(f"data directory {file / below} cannot be used: ")
    assert "\n" not in message


def test_new_directory_is_marked_and_accepted_from_then_on(tmp_path: Path) -> None:
    check_format(tmp_path)
    assert (tmp_path / "format.json").read_text() == '{"format": 2}\n'
    check_format(tmp_path)
    assert os.listdir(tmp_path) == ["format.json"]


def test_newer_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "format.json").write_text('{"format": 3}')
    with pytest.raises(UnsupportedDataFormat) as refused:
        check_format(tmp_path)
    assert str(refused.value) == (
        f"data directory {tmp_path} has format 3 of a newer leveret; this one reads up to 2"
    )


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"[]", b"1", b"{}", b'{"format": "1"}', b'{"format": true}', b'{"format": 0}'],
)
def test_damaged_format_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "format.json").write_bytes(content)
    with pytest.raises(UnsupportedDataFormat, match=r"format\.json is damaged"):
        check_format(tmp_path)


def test_data_without_a_format_is_not_taken_for_new(tmp_path: Path) -> None:
    (tmp_path / "metadata.sqlite").touch()
    with pytest.raises(UnsupportedDataFormat, match="is missing beside existing data"):
        check_format(tmp_path)
    assert os.listdir(tmp_path) == ["metadata.sqlite"]


def test_format_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "format.json").mkdir()
    with pytest.raises(DataDirectoryError, match=r"cannot be used: .*Is a directory"):
        check_format(tmp_path)
