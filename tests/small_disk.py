"""A disk that is full soon: a tmpfs of its own size, seen through the process that mounted it.

No root is needed where users may make namespaces; elsewhere the tests that want one are skipped.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MOUNT = 'mount -t tmpfs -o size=$0,nr_inodes=$1 none "$2" && echo mounted && exec cat'


class SmallDisk:
    """An empty file system of a few KiB at `path`.

    The path has a link in it that only the kernel can follow. A program that resolves links itself,
    as SQLite does, is run with the command `inside` in front of it and finds the disk at `place`.
    """

    def __init__(self, holder: int, place: Path) -> None:
        self.place = place
        self.path = Path(f"/proc/{holder}/root{place}")
        self.inside = ["nsenter", f"--target={holder}", "--user", "--mount"]
        self._filler = self.path / "filler"

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self, *, leave: int = 0) -> None:
        """Take all the space but about *leave* bytes."""
        with self._filler.open("ab", buffering=0) as file:
            file.write(bytes(max(self.free_bytes - leave, 0)))

    def clear(self) -> None:
        """Remove everything."""
        for path in self.path.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def free(self, size: int | None = None) -> None:
        """Give back *size* bytes of what `fill` took, or all of it."""
        found = self._filler.stat().st_size
        os.truncate(self._filler, 0 if size is None else max(found - size, 0))


@contextmanager
def mounted(place: Path, size_kib: int, *, files: int = 1000) -> Iterator[SmallDisk]:
    """A small disk over the directory *place*, with room for so many *files* and directories.

    Skips the test where none can be had.
    """
    place.mkdir(exist_ok=True)
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT]
    try:
        holder = subprocess.Popen(
            [*command, f"{size_kib}k", str(files + 1), str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        pytest.skip("no unshare here")
    with holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        if not holder.stdout.readline():
            pytest.skip("this user may not mount a tmpfs")
        yield SmallDisk(holder.pid, place)
        holder.stdin.close()
