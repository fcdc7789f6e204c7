"""The few file idioms of the storage layer: headers, appending, replacing, syncing.

Every file of a log begins with 8 bytes, big endian:
    4 bytes magic, u16 format version, u16 flags

Version 1 had no flags. What the flags mean is up to the kind of file; one that it does not know
makes a file unreadable just as a newer version does.
"""

import contextlib
import errno
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from leveret.storage.errors import DiskFull, UnsupportedFormat

FORMAT_VERSION = 2
HEADER = struct.Struct(">4sHH")
HEADER_SIZE = HEADER.size
MAX_CHUNKS = os.sysconf("SC_IOV_MAX")
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def file_header(magic: bytes, flags: int = 0) -> bytes:
    """Return the first 8 bytes of a file of this kind."""
    return HEADER.pack(magic, FORMAT_VERSION, flags)


def check_header(path: Path, found: bytes, magic: bytes, known_flags: int = 0) -> int:
    """Return the flags of *found*, which may say more than the header.

    Raises UnsupportedFormat unless it is of this kind, of a version up to this one, and has no
    flags but *known_flags*.
    """
    if len(found) >= HEADER_SIZE:
        kind, version, flags = HEADER.unpack_from(found)
        if kind == magic and 1 <= version <= FORMAT_VERSION and not flags & ~known_flags:
            return int(flags)
    expected = f"{magic.decode()} of format version up to {FORMAT_VERSION}"
    raise UnsupportedFormat(path, expected, found[:HEADER_SIZE])


def is_unwritten(found: bytes, magic: bytes) -> bool:
    """Whether *found*, the start of a file of this kind, may never have reached the disk.

    After a power failure a new file can have its length, but zeros in place of its bytes.
    """
    start = file_header(magic).rstrip(b"\0")
    bytes_found = found[:HEADER_SIZE].rstrip(b"\0")
    is_part = len(bytes_found) < len(start) and start.startswith(bytes_found)
    return len(found) < HEADER_SIZE or is_part


class LogFile:
    """An append-only file with a header, opened when first needed.

    `size` is the length in bytes that is known to be good, 0 before the first append.
    `dirty` says that bytes were written that no sync has been asked for. A file that is used again
    holds old bytes behind `size` until it is trimmed. `flags` are those of the header.
    """

    __slots__ = ("_fd", "_is_reused", "dirty", "flags", "magic", "path", "size")

    def __init__(self, path: Path, magic: bytes, size: int = 0) -> None:
        self.path = path
        self.magic = magic
        self.size = size
        self.dirty = False
        self.flags = 0
        self._fd = -1
        self._is_reused = False

    @property
    def is_open(self) -> bool:
        """Whether the file holds a descriptor."""
        return self._fd >= 0

    def append(self, chunks: Sequence[bytes | bytearray]) -> int:
        """Write *chunks* at the end in one system call and return the bytes written.

        Raises DiskFull or OSError after the file was cut back to what it was, and OSError if
        that failed too: recovery then cuts the torn tail.
        """
        if self.size == 0:
            chunks = [file_header(self.magic, self.flags), *chunks]
        descriptor = self._descriptor()
        try:
            written = _write_all(descriptor, chunks, self.size)
        except OSError as error:
            try:
                self.truncate(self.size)
            except OSError:
                raise error from None
            if error.errno in NO_SPACE:
                raise _disk_full(self.path, error) from error
            raise
        self.size += written
        self.dirty = True
        return written

    def read(self, position: int, length: int) -> bytes:
        """Return up to *length* bytes at *position*, none past the end."""
        return os.pread(self._descriptor(), length, position)

    def overwrite(self, position: int, data: bytes) -> None:
        """Put *data* in the place of what is at *position*, durably. Raises OSError."""
        descriptor = self._descriptor()
        _write_all(descriptor, [data], position)
        os.fsync(descriptor)

    def truncate(self, size: int) -> None:
        """Cut the file to *size* bytes."""
        os.ftruncate(self._descriptor(), size)
        self.size = size
        self.dirty = True

    def set_aside(self, path: Path) -> "LogFile":
        """Move the file to *path*, out of use; return it. Raises OSError."""
        spare = LogFile(path, self.magic)
        spare._fd = self._descriptor()
        self.path.rename(path)
        self._fd = -1
        self.size = 0
        self.dirty = False
        return spare

    def share(self) -> "LogFile":
        """Return the same file with a descriptor of its own, for a reader in another thread."""
        shared = LogFile(self.path, self.magic, self.size)
        shared.flags = self.flags
        shared._fd = os.dup(self._descriptor())
        return shared

    def replace(self, path: Path, size: int) -> int:
        """Put the file at *path*, durable and of *size* bytes, in the place of this one.

        Returns the last descriptor of the old one, whose blocks go when it is closed. Raises
        OSError, and nothing has changed.
        """
        descriptor = self._descriptor()
        path.replace(self.path)
        self._fd = -1
        self.size = size
        self.dirty = False
        return descriptor

    def reuse(self, spare: "LogFile") -> None:
        """Write over the file that was set aside, from its beginning on.

        Raises DiskFull, OSError.
        """
        with needing_space(self.path):
            spare.path.rename(self.path)
        self._fd, spare._fd = spare._descriptor(), -1
        self._is_reused = True

    def trim(self) -> None:
        """Cut off the old bytes of a file that is used again. Raises OSError."""
        if self._is_reused:
            self.truncate(self.size)
            self._is_reused = False

    def take_handle(self) -> int:
        """Return a descriptor of the caller's own for syncing what was written so far."""
        self.dirty = False
        return os.dup(self._descriptor())

    def close(self) -> None:
        """Give the descriptor back. The next use opens the file again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def delete(self) -> None:
        """Close and remove the file."""
        descriptor = self.remove()
        if descriptor is not None:
            os.close(descriptor)

    def remove(self) -> int | None:
        """Remove the file; return the last descriptor of it, or None if there was no file.

        Removing is quick. What takes time with a large file is that its blocks are given back,
        which happens when the descriptor is closed: the caller chooses where.
        """
        descriptor: int | None = None
        if self._fd >= 0 or self.path.exists():
            descriptor, self._fd = self._descriptor(), -1
            self.path.unlink(missing_ok=True)
        self.size = 0
        self.dirty = False
        return descriptor

    def _descriptor(self) -> int:
        if self._fd < 0:
            with needing_space(self.path):
                self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        return self._fd


def _write_all(fd: int, chunks: Sequence[bytes | bytearray], position: int) -> int:
    total = sum(map(len, chunks))
    written = os.pwritev(fd, chunks[:MAX_CHUNKS], position)
    if written < total:
        rest = memoryview(b"".join(chunks))[written:]
        while rest:
            rest = rest[os.pwrite(fd, rest, position + total - len(rest)) :]
    return total


@contextlib.contextmanager
def needing_space(path: Path) -> Iterator[None]:
    """Raise DiskFull for *path* if the one system call within fails for lack of space."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise _disk_full(path, error) from error
        raise


def _disk_full(path: Path, error: OSError) -> DiskFull:
    return DiskFull(f"{path}: {error.strerror}")


def make_directory(directory: Path) -> list[Path]:
    """Create *directory* with its parents; return the directories that gained an entry."""
    changed = parents_of_missing(directory)
    directory.mkdir(parents=True, exist_ok=True)
    return changed


def parents_of_missing(directory: Path) -> list[Path]:
    """Return the directories that gain an entry when *directory* is made with its parents."""
    return [path.parent for path in (directory, *directory.parents) if not path.exists()]


def replace_file(path: Path, data: bytes) -> None:
    """Put *data* in the place of *path*, durable when this returns."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


def sync_file(path: Path) -> None:
    """Make the bytes of the file *path* durable. Raises OSError.

    With a descriptor of its own: the kernel tells each open file of a failed write once, and this
    must not hear of it in place of the log that waits for the same bytes.
    """
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_directory(directory: Path) -> None:
    """Make the entries of *directory* durable. A directory that is gone needs nothing."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
