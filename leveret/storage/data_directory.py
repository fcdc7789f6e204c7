"""The data directory as a whole: one process at a time, one format.

Files of the directory that belong to this module:
    lock         held with flock by the one process that uses the directory; its pid in decimal
    format.json  {"format": 2}, the newest version of anything else in the directory

Formats:
    1  the first one
    2  flags in the headers of files, more states, snapshots; all of format 1 is read as it is
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from leveret.storage.errors import StorageError
from leveret.storage.files import make_directory, replace_file, sync_directory

FORMAT = 2


class DataDirectoryError(StorageError):
    """The data directory cannot be used; the message is one line for the operator."""


class DirectoryLocked(DataDirectoryError):
    """Another process uses the data directory."""


class UnsupportedDataFormat(DataDirectoryError):
    """The data directory is of a format that this version does not read."""


class DirectoryLock:
    """The right to use a data directory, from construction to `release` or the end of the process.

    Makes the directory if it is missing. Raises DirectoryLocked if another holder has it, and
    DataDirectoryError if it cannot be made or written.
    """

    def __init__(self, directory: Path) -> None:
        with _explained(directory):
            for parent in make_directory(directory):
                sync_directory(parent)
            self._descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o640)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)
            except BlockingIOError:
                refusal = _locked(directory, self._descriptor)
                os.close(self._descriptor)
                raise refusal from None
            except OSError:
                os.close(self._descriptor)
                raise

    def release(self) -> None:
        """Let the next process in."""
        # The file stays: one made anew could be locked beside a holder of the old one.
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


@contextlib.contextmanager
def unused(directory: Path) -> Iterator[None]:
    """Hold the lock of *directory* without a change to anything in it.

    Raises DirectoryLocked, and DataDirectoryError if the directory cannot be read.
    """
    path = directory / "lock"
    with _explained(directory):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # no broker has used it since it was copied here
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with _explained(directory):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _locked(directory, descriptor) from None
        yield
    finally:
        os.close(descriptor)


def _locked(directory: Path, descriptor: int) -> DirectoryLocked:
    holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
    return DirectoryLocked(f"data directory {directory} is in use by process {holder or 'unknown'}")


def check_format(data_dir: Path) -> None:
    """Make sure that this version reads *data_dir*, and mark it with the current format.

    An older format is read as it is, so the mark is all there is to migrate. It comes first: the
    version that wrote the directory must not read what this one writes.

    Raises UnsupportedDataFormat, or DataDirectoryError if the mark cannot be read or written.
    """
    found = read_format(data_dir)
    if found is None or found < FORMAT:
        with _explained(data_dir):
            _mark(data_dir / "format.json")


def read_format(data_dir: Path) -> int | None:
    """Return the format of *data_dir*, which this version reads; None if nothing is there yet.

    Raises UnsupportedDataFormat, or DataDirectoryError if the mark cannot be read.
    """
    path = data_dir / "format.json"
    with _explained(data_dir):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            if (data_dir / "metadata.sqlite").exists():
                raise UnsupportedDataFormat(f"{path} is missing beside existing data") from None
            return None
    try:
        found = json.loads(content)["format"]
    except (ValueError, TypeError, KeyError):
        found = None
    if type(found) is not int or found < 1:
        raise UnsupportedDataFormat(f'{path} is damaged: expected {{"format": {FORMAT}}}')
    if found > FORMAT:
        raise UnsupportedDataFormat(
            f"data directory {data_dir} has format {found} of a newer leveret; "
            f"this one reads up to {FORMAT}"
        )
    return found


def _mark(path: Path) -> None:
    replace_file(path, json.dumps({"format": FORMAT}).encode() + b"\n")


@contextlib.contextmanager
def _explained(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataDirectoryError(f"data directory {directory} cannot be used: {error}") from error
