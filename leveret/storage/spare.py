"""Spare: the file of a spent segment, which a log keeps to write its next one over."""

from collections.abc import Iterator
from pathlib import Path

from leveret.storage.disk_space import DiskSpace, give_back
from leveret.storage.files import LogFile, sync_directory
from leveret.storage.segment import Segment

SPARE_NAME = "spare"


class Spare:
    """At most one file in *directory*, if *space* admits it."""

    __slots__ = ("_directory", "_file", "_ready", "_space")

    def __init__(self, directory: Path, space: DiskSpace) -> None:
        self._directory = directory
        self._space = space
        self._file: LogFile | None = None
        self._ready: LogFile | None = None

    def take(self, segment: Segment, now_ms: int) -> bool:
        """Remove *segment*, but keep the file of its log; answers False if it is not wanted.

        Raises OSError.
        """
        if not self._space.admits_spare(self, now_ms):
            return False
        self._file = segment.set_aside(self._directory / SPARE_NAME, self._space.sweep)
        self._space.sweep(self._shelve(self._file))
        return True

    def _shelve(self, file: LogFile) -> Iterator[None]:
        # Written over while a power failure could still bring its old name back, the file would
        # be a segment full of damage. May run in another thread.
        sync_directory(self._directory)
        self._ready = file
        yield

    def give_to(self, log: LogFile) -> None:
        """Have *log* write over the file, if there is one. Raises DiskFull, OSError."""
        file = self._file
        if file is not None and file is self._ready:
            log.reuse(file)
            self._file = self._ready = None
            self._space.spare_gone(self)

    def drop_spare(self) -> None:
        """Give the file back."""
        file, self._file = self._file, None
        self._space.spare_gone(self)
        descriptor = file.remove() if file is not None else None
        if descriptor is not None:
            self._space.sweep(give_back(descriptor))
