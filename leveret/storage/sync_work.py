"""Sync work: what one sync of a log has to make durable.

It is taken in the loop and run in the storage thread. It owns its descriptors, so the log may close
or delete the files meanwhile.
"""

import ctypes
import os
import platform
import re
from collections.abc import Iterable
from pathlib import Path

from leveret.storage.files import sync_directory


class SyncWork:
    """Descriptors of files, oldest first, and directories whose entries changed.

    `is_done` turns true, once, when everything is durable.
    """

    __slots__ = ("_directories", "_handles", "is_done")

    def __init__(self, handles: list[int], directories: Iterable[Path]) -> None:
        self._handles = handles
        self._directories = tuple(directories)
        self.is_done = False

    def run(self) -> None:
        """Sync the files, then the directories. Blocks. Raises OSError.

        Files are synced in the order they were written in, so that a segment is never durable
        before the one in front of it.
        """
        for handle in self._handles:
            os.fdatasync(handle)
        for directory in self._directories:
            sync_directory(directory)
        self.is_done = True

    @property
    def handle(self) -> int | None:
        """One of the descriptors, if there is any."""
        return self._handles[0] if self._handles else None

    def settle(self) -> None:
        """All of it has become durable together with others."""
        self.is_done = True

    def close(self) -> None:
        """Give the descriptors back, whether or not the work was run."""
        while self._handles:
            os.close(self._handles.pop())


def reports_file_system_errors() -> bool:
    """Does `sync_file_system` tell of writes that failed? It does from Linux 5.8 on: syncfs(2)."""
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    is_new = release is not None and (int(release[1]), int(release[2])) >= (5, 8)
    return platform.system() == "Linux" and is_new


def sync_file_system(handle: int) -> None:
    """Make everything durable that is on the file system of the file *handle*.

    Blocks, for what other programs have written too. Raises OSError.
    """
    if _LIBC.syncfs(handle):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


_LIBC = ctypes.CDLL(None, use_errno=True)
