"""Due run: when the messages of one stretch of a log are due, sorted, in a file that never changes.

File format, big endian; the name is the first offset in 20 digits:
    8 bytes header (see files.py)
    u64 end offset, u32 crc32 of first offset, end offset and entries
    entries of 16 bytes, sorted: u64 due time in milliseconds, u64 offset

A run knows every message from its first to its end offset that was not settled when it was
written. It is read from the front, a block at a time, so what lies far ahead costs no memory.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain, starmap
from pathlib import Path
from zlib import crc32

from leveret.storage.errors import DamagedIndex
from leveret.storage.files import HEADER_SIZE, check_header, file_header

DUE_MAGIC = b"LVDU"
DUE_SUFFIX = ".due"

BLOCK_ENTRIES = 128
"""Entries in memory of a run that is being taken from."""

DueEntry = tuple[int, int]
"""Due time in milliseconds, offset. In this order messages leave."""

_BOUNDS = struct.Struct(">QQ")
_END = struct.Struct(">QI")
_ENTRY = struct.Struct(">QQ")
_START = HEADER_SIZE + _END.size


class DueRun:
    """Sorted entries of the messages from `first_offset` up to, not including, `end_offset`.

    `head` is the first entry that is pending: neither taken nor discarded; None if none is left.
    """

    __slots__ = (
        "_at",
        "_block",
        "_count",
        "_gone",
        "_next",
        "_path",
        "end_offset",
        "first_offset",
        "head",
    )

    def __init__(
        self, path: Path, first_offset: int, end_offset: int, count: int, gone: set[int]
    ) -> None:
        self._path = path
        self.first_offset = first_offset
        self.end_offset = end_offset
        self._count = count
        # Offsets of entries behind the head that are not pending.
        self._gone = gone
        self._block: list[DueEntry] = []
        self._at = 0
        # The entry in the file behind the block.
        self._next = 0
        self.head: DueEntry | None = None

    @classmethod
    def write(
        cls,
        directory: Path,
        first_offset: int,
        end_offset: int,
        entries: Sequence[DueEntry],
        gone: set[int],
    ) -> "DueRun":
        """Write sorted *entries* to a new file; those of the offsets *gone* are not pending.

        Raises OSError.
        """
        path = directory / f"{first_offset:020}{DUE_SUFFIX}"
        data = b"".join(starmap(_ENTRY.pack, entries))
        checksum = crc32(data, crc32(_BOUNDS.pack(first_offset, end_offset)))
        # Not synced: a file that a power failure left torn is known by its checksum.
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_bytes(file_header(DUE_MAGIC) + _END.pack(end_offset, checksum) + data)
        temporary.replace(path)
        run = cls(path, first_offset, end_offset, len(entries), gone)
        run._advance()
        return run

    @classmethod
    def load(cls, path: Path) -> "DueRun":
        """Check the file and return the run, of which `restore` must say what is pending.

        Raises DamagedIndex, UnsupportedFormat, OSError.
        """
        data = path.read_bytes()
        count, torn = divmod(len(data) - _START, _ENTRY.size)
        if count < 0 or torn or not data.startswith(DUE_MAGIC):
            raise DamagedIndex(f"{path}: expected a whole file, found {len(data)} bytes")
        check_header(path, data, DUE_MAGIC)
        first_offset = int(path.name.removesuffix(DUE_SUFFIX))
        end_offset, checksum = _END.unpack_from(data, HEADER_SIZE)
        actual = crc32(memoryview(data)[_START:], crc32(_BOUNDS.pack(first_offset, end_offset)))
        if actual != checksum:
            raise DamagedIndex(f"{path}: expected crc32 {checksum:08x}, found {actual:08x}")
        return cls(path, first_offset, end_offset, count, set())

    def restore(self, ready: list[tuple[int, int]]) -> None:
        """Only the entries of offsets in *ready* are pending, which lie within the run.

        Raises DamagedIndex if one of them has no entry, OSError.
        """
        pending = sum(stop - start for start, stop in ready)
        # As long as nothing was settled there is no need to look.
        if pending != self._count:
            numbers = struct.unpack(f">{2 * self._count}Q", self._path.read_bytes()[_START:])
            offsets = numbers[1::2]
            wanted = set(chain.from_iterable(starmap(range, ready)))
            self._gone = set(offsets).difference(wanted)
            if pending + len(self._gone) != self._count:
                raise DamagedIndex(f"{self._path}: expected an entry for each pending message")
            # What was settled is mostly what came first.
            while self._next < self._count and offsets[self._next] in self._gone:
                self._gone.remove(offsets[self._next])
                self._next += 1
        self._advance()

    def take(self, stop: DueEntry, limit: int) -> list[DueEntry]:
        """Remove and return pending entries in front of *stop*, at most *limit*, some at a time.

        There is at least one, as the head must be in front of *stop*. Raises OSError.
        """
        block, at = self._block, self._at
        self._at = end = min(bisect_left(block, stop, at), at + limit)
        if end < len(block):
            self.head = block[end]
        else:
            self._advance()
        return block[at:end]

    def peek(self, stop: DueEntry) -> list[DueEntry]:
        """Return the next pending entries in front of *stop*, those that are in memory."""
        return self._block[self._at : bisect_left(self._block, stop, self._at)]

    def discard(self, entry: DueEntry) -> bool:
        """Remove *entry* and return whether it was pending. Raises OSError."""
        if self.head is None or entry < self.head or entry[1] in self._gone:
            return False
        at = self._find(entry)
        if at == self._count or self._read(at, 1) != [entry]:
            return False
        self._gone.add(entry[1])
        at = bisect_left(self._block, entry, self._at)
        if at < len(self._block):
            del self._block[at]
            self._advance()
        return True

    def entries(self, since: DueEntry) -> Iterator[DueEntry]:
        """The pending entries from *since* on. Raises OSError."""
        if self.head is None:
            return
        at = self._find(max(since, self.head))
        while at < self._count:
            block = self._read(at, BLOCK_ENTRIES)
            at += len(block)
            yield from (entry for entry in block if entry[1] not in self._gone)

    def delete(self) -> None:
        """Remove the file. Raises OSError."""
        self._path.unlink()

    def _advance(self) -> None:
        """Find the head, in the next block that has one."""
        while self._at == len(self._block) and self._next < self._count:
            self._block = self._read(self._next, BLOCK_ENTRIES)
            self._next += len(self._block)
            self._at = 0
            if self._gone:
                self._block = [entry for entry in self._block if entry[1] not in self._gone]
        self.head = self._block[self._at] if self._at < len(self._block) else None

    def _read(self, first: int, count: int) -> list[DueEntry]:
        with self._path.open("rb", buffering=0) as file:
            file.seek(_START + first * _ENTRY.size)
            return list(_ENTRY.iter_unpack(file.read(count * _ENTRY.size)))

    def _find(self, entry: DueEntry) -> int:
        """The place of the first entry in the file that is not in front of *entry*."""
        with self._path.open("rb", buffering=0) as file:

            def read(at: int) -> DueEntry:
                file.seek(_START + at * _ENTRY.size)
                due_ms, offset = _ENTRY.unpack(file.read(_ENTRY.size))
                return due_ms, offset

            return bisect_left(range(self._count), entry, key=read)
