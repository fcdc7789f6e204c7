"""Repairs: what recovery finds wrong with a log, and the one way in which it changes files.

The same recovery runs for a start, for a look at a stopped directory that changes nothing, and for
a repair that keeps what it removes.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from leveret.storage.files import LogFile, replace_file, sync_directory


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with a file.

    *offset* is the first message that it is about, *position* the byte in the file if it is known.
    *repair* says what was done, or would be, and what was dropped. It is *harmless* if a crash
    leaves it behind and no confirmed message is gone.
    """

    path: Path
    offset: int
    wrong: str
    repair: str
    is_harmless: bool = False
    position: int | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.wrong}; {self.repair}"


class Repairs:
    """Notes what is found and repairs it.

    A *dry* one changes nothing on disk. With *keep*, a directory, what is removed is copied there
    first, under the path that it has below *root*.
    """

    __slots__ = ("_keep", "_root", "findings", "is_dry")

    def __init__(
        self, *, dry: bool = False, keep: Path | None = None, root: Path = Path("/")
    ) -> None:
        self.findings: list[Finding] = []
        self.is_dry = dry
        self._keep = keep
        self._root = root

    def note(self, finding: Finding) -> None:
        """Remember what was found."""
        self.findings.append(finding)

    def cut(self, file: LogFile, size: int, finding: Finding | None = None) -> None:
        """Cut *file* to *size* bytes. Raises OSError."""
        self._note(finding)
        if self.is_dry:
            file.size = size
            return
        self._preserve(file.path, f".from-{size}", size)
        file.truncate(size)

    def overwrite(
        self, file: LogFile, pieces: Sequence[tuple[int, bytes]], finding: Finding
    ) -> None:
        """Write *pieces*, each to its position, and each durable before the next. Raises OSError.

        The last one is the one for which others are lost.
        """
        self._note(finding)
        if self.is_dry:
            return
        position = pieces[-1][0]
        self._preserve(file.path, f".from-{position}", position)
        for piece in pieces:
            file.overwrite(*piece)

    def remove(self, path: Path, finding: Finding | None = None) -> None:
        """Remove the file *path*. Raises OSError."""
        self._note(finding)
        if not self.is_dry:
            self._preserve(path)
            path.unlink()

    def replace(self, path: Path, data: bytes, finding: Finding | None = None) -> None:
        """Put *data* in the place of *path*, durably. Raises OSError."""
        self._note(finding)
        if not self.is_dry:
            self._preserve(path)
            replace_file(path, data)

    def exchange(self, path: Path, new: Path, finding: Finding | None = None) -> None:
        """Put the file *new*, which is durable, in the place of *path*, durably. Raises OSError."""
        self._note(finding)
        if not self.is_dry:
            self._preserve(path)
            new.replace(path)
            sync_directory(path.parent)

    def sync(self, directory: Path) -> None:
        """Make what was removed from *directory* durable. Raises OSError."""
        if not self.is_dry:
            sync_directory(directory)

    def derive(self, write: Callable[[], object]) -> None:
        """Do *write*, which changes only what can be made again from the log."""
        if not self.is_dry:
            write()

    def _note(self, finding: Finding | None) -> None:
        if finding is not None:
            self.findings.append(finding)

    def _preserve(self, path: Path, suffix: str = "", start: int = 0) -> None:
        if self._keep is None or not path.exists():
            return
        target = self._keep / path.relative_to(self._root)
        target = target.with_name(target.name + suffix)
        if target.exists():  # what it was before the first repair
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as source, target.open("wb") as copy:
            source.seek(start)
            shutil.copyfileobj(source, copy)
