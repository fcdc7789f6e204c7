"""Key log: the keys that a deduplicator remembers, in a file.

File format, big endian: the header of 8 bytes, a boot id of 16 bytes, then blocks in the order of
events, each of
    u32 count, u32 crc32 of the rest, count stamps of 8 bytes, count keys of 16 bytes
    stamp   0: the key is forgotten; otherwise the time in ms at which it expires, times two, plus
            one if the message that brought the key is known to be durable
A key comes again when its message turned out to be durable. Blocks from the first damaged one on
do not count.

A key must not be there without its message: the publisher would send the message again, and it
would be dropped. Keys are written behind their messages, which holds when the process is killed.
When the machine stops, what reached the disk has no order; then, told by another boot id, only the
keys of durable messages count. A key that is lost lets a duplicate through, no more.
"""

import sys
from array import array
from collections import OrderedDict
from pathlib import Path
from struct import Struct
from uuid import UUID, uuid4
from zlib import crc32

from leveret.storage.files import HEADER_SIZE, LogFile, check_header, file_header, replace_file

KEY_LOG_MAGIC = b"LVKY"
KEY_SIZE = 16
FORGOTTEN = 0
DURABLE = 1
"""Bit of a stamp: the message is known to be durable."""

BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")
_BOOT_ID_SIZE = 16
_START = HEADER_SIZE + _BOOT_ID_SIZE
_BLOCK = Struct(">II")
_STAMP_SIZE = 8


def read_boot_id(path: Path = BOOT_ID_PATH) -> bytes:
    """16 bytes that tell one run of the machine from the next; where there are none, new ones."""
    try:
        return UUID(path.read_text().strip()).bytes
    except FileNotFoundError:
        return uuid4().bytes


class KeyLog:
    """Keys of `KEY_SIZE` bytes with their stamps, in the file *path*, created when first needed.

    `entries` counts what is in the file, repeated and forgotten keys included.
    """

    __slots__ = ("_boot_id", "_file", "entries")

    def __init__(self, path: Path, boot_id: bytes) -> None:
        self._boot_id = boot_id
        self._file = LogFile(path, KEY_LOG_MAGIC)
        self.entries = 0

    def recover(self) -> OrderedDict[bytes, int]:
        """Read the file: the keys that count with their stamps, those first remembered first.

        To be followed by `replace`. Raises UnsupportedFormat for a file of a newer version.
        """
        known: OrderedDict[bytes, int] = OrderedDict()
        path = self._file.path
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return known
        if len(data) < _START or not data.startswith(KEY_LOG_MAGIC):
            return known
        check_header(path, data[:HEADER_SIZE], KEY_LOG_MAGIC)
        position = _START
        while block := _read_block(data, position):
            keys, stamps, position = block
            _apply(known, keys, stamps)
        if data[HEADER_SIZE:_START] == self._boot_id:
            return known
        return OrderedDict((key, stamp) for key, stamp in known.items() if stamp & DURABLE)

    def append(self, stamps: dict[bytes, int]) -> None:
        """Write *stamps* behind what is there. Raises DiskFull or OSError, and nothing changed."""
        chunks = _encode_block(stamps)
        if self._file.size == 0:
            self._file.path.parent.mkdir(parents=True, exist_ok=True)
            chunks.insert(0, self._boot_id)
        self._file.append(chunks)
        self.entries += len(stamps)

    def rewrite(self, stamps: dict[bytes, int]) -> None:
        """Put a file with no more than *stamps* in place. Does not sync. Raises OSError."""
        path = self._file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(path.name + ".tmp")
        data = self._encode_file(stamps)
        temporary.write_bytes(data)
        temporary.replace(path)
        self._continue(len(data), len(stamps))

    def replace(self, stamps: dict[bytes, int]) -> None:
        """Do as `rewrite`, durably: for start and stop, because it blocks. Raises OSError."""
        if not stamps:
            self.delete()
            return
        data = self._encode_file(stamps)
        replace_file(self._file.path, data)
        self._continue(len(data), len(stamps))

    def close(self) -> None:
        """Give the descriptor back."""
        self._file.close()

    def delete(self) -> None:
        """Close and remove the file."""
        self._file.delete()
        self.entries = 0

    def _encode_file(self, stamps: dict[bytes, int]) -> bytes:
        return b"".join([file_header(KEY_LOG_MAGIC), self._boot_id, *_encode_block(stamps)])

    def _continue(self, size: int, entries: int) -> None:
        self._file.close()
        self._file = LogFile(self._file.path, KEY_LOG_MAGIC, size)
        self.entries = entries


def blocks_end(data: bytes) -> int:
    """Return where the good blocks of a key log end, 0 if *data* is too short to have any."""
    if len(data) < _START:
        return 0
    position = _START
    while block := _read_block(data, position):
        position = block[2]
    return position


def find_block(data: bytes, position: int) -> int | None:
    """Return where in *data* the first good block from *position* on begins."""
    last = len(data) - _BLOCK.size - _STAMP_SIZE - KEY_SIZE
    return next((at for at in range(position, last + 1) if _read_block(data, at)), None)


def _apply(known: OrderedDict[bytes, int], keys: list[bytes], stamps: "array[int]") -> None:
    for key, stamp in zip(keys, stamps, strict=True):
        if stamp == FORGOTTEN:
            known.pop(key, None)
            continue
        if not stamp & DURABLE or known.get(key) != stamp - DURABLE:
            known.pop(key, None)
        known[key] = stamp


def _encode_block(stamps: dict[bytes, int]) -> list[bytes]:
    # An OrderedDict is read five times faster as the dict it is, and in the same order as long as
    # entries are only added and removed.
    column = array("Q", dict.values(stamps))
    if sys.byteorder == "little":
        column.byteswap()
    keys: list[bytes] = list(dict.keys(stamps))
    rest = column.tobytes() + b"".join(keys)
    return [_BLOCK.pack(len(stamps), crc32(rest)), rest]


def _read_block(data: bytes, position: int) -> "tuple[list[bytes], array[int], int] | None":
    """Keys, stamps and end of the block at *position*, None if there is no sound one."""
    start = position + _BLOCK.size
    if start > len(data):
        return None
    count, checksum = _BLOCK.unpack_from(data, position)
    middle = start + count * _STAMP_SIZE
    end = middle + count * KEY_SIZE
    # A block is never empty: zeros are a hole that a stop of the machine left.
    if count == 0 or end > len(data) or crc32(memoryview(data)[start:end]) != checksum:
        return None
    stamps = array("Q", data[start:middle])
    if sys.byteorder == "little":
        stamps.byteswap()
    return [data[at : at + KEY_SIZE] for at in range(middle, end, KEY_SIZE)], stamps, end
