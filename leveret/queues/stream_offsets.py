"""StreamOffsets: how far the named consumers of a stream have come, and the file that tells so.

File format, big endian: the header of 8 bytes, u32 crc32 of the rest, then for each name
    u16 length of the name in bytes, the name in UTF-8, u64 offset
The offset is that of the first message which is not known to be settled. The file is replaced as
a whole, about once a second while somebody settles, beside the work; after a kill it may lag, and
messages come again.
"""

import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from leveret.queues.stream_cursor import NamedCursor
from leveret.storage.disk_space import DiskSpace
from leveret.storage.errors import UnsupportedFormat
from leveret.storage.files import HEADER_SIZE, check_header, file_header, replace_file

logger = logging.getLogger(__name__)

FILE_NAME = "offsets"
FILE_MAGIC = b"LVSO"
SAVE_MS = 1000
"""Between two writes."""

_CHECKSUM = struct.Struct(">I")
_NAME = struct.Struct(">H")
_OFFSET = struct.Struct(">Q")


class StreamOffsets:
    """Offsets by consumer name, in *directory*; *space* has the file written."""

    __slots__ = (
        "_directory",
        "_is_dirty",
        "_is_saving",
        "_moved",
        "_offsets",
        "_save_at",
        "_space",
    )

    def __init__(self, directory: Path, space: DiskSpace) -> None:
        self._directory = directory
        self._space = space
        self._offsets = read_offsets(directory / FILE_NAME)
        self._moved: dict[str, NamedCursor] = {}
        self._is_dirty = False
        self._is_saving = False
        self._save_at = 0

    def get(self, name: str) -> int | None:
        """Where the consumer called *name* goes on; None if that is not known."""
        self._collect()
        return self._offsets.get(name)

    def items(self) -> list[tuple[str, int]]:
        """Names and offsets, by name."""
        self._collect()
        return sorted(self._offsets.items())

    def set(self, name: str, offset: int) -> None:
        """The consumer called *name* goes on at *offset*, whatever it has settled so far."""
        self._moved.pop(name, None)
        self._offsets[name] = offset
        self._is_dirty = True

    def remove(self, name: str) -> None:
        """Forget the consumer called *name*. Raises KeyError."""
        self._collect()
        del self._offsets[name]
        self._is_dirty = True

    def moved(self, cursor: NamedCursor) -> None:
        """The consumer of *cursor* has settled something."""
        self._moved[cursor.name] = cursor

    def look(self, now_ms: int) -> int | None:
        """Have what has changed written if it is time; answers when to look again."""
        if not (self._moved or self._is_dirty):
            return None
        if now_ms >= self._save_at and not self._is_saving:
            self._save_at = now_ms + SAVE_MS
            if self._directory.exists():
                self._is_saving = True
                self._space.sweep(self._saving(self._encode()))
                return None
        return max(self._save_at, now_ms + SAVE_MS)

    def save(self) -> None:
        """Have what has changed written, behind what is being written."""
        if (self._moved or self._is_dirty) and self._directory.exists():
            self._space.sweep(self._saving(self._encode()))

    def _collect(self) -> None:
        for name, cursor in self._moved.items():
            self._offsets[name] = cursor.settled_up_to
        self._is_dirty |= bool(self._moved)
        self._moved.clear()

    def _encode(self) -> bytes:
        self._collect()
        self._is_dirty = False
        entries: list[bytes] = []
        for name, offset in self._offsets.items():
            raw = name.encode()
            entries += (_NAME.pack(len(raw)), raw, _OFFSET.pack(offset))
        data = b"".join(entries)
        return file_header(FILE_MAGIC) + _CHECKSUM.pack(crc32(data)) + data

    def _saving(self, data: bytes) -> Iterator[None]:
        """Perhaps in another thread."""
        try:
            replace_file(self._directory / FILE_NAME, data)
        except OSError as error:
            self._is_dirty = True
            logger.warning("offsets of consumers not written: %s", error)
        finally:
            self._is_saving = False
        yield


def read_offsets(path: Path) -> dict[str, int]:
    """The offsets in a file; none if it is missing or damaged. Raises OSError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        check_header(path, data[:HEADER_SIZE], FILE_MAGIC)
        (checksum,) = _CHECKSUM.unpack_from(data, HEADER_SIZE)
        entries = data[HEADER_SIZE + _CHECKSUM.size :]
        if crc32(entries) != checksum:
            raise ValueError("wrong checksum")
        return dict(_decode(entries))
    except (UnsupportedFormat, ValueError, struct.error) as error:
        logger.warning("offsets of consumers begin anew: %s: %s", path, error)
        return {}


def _decode(entries: bytes) -> Iterator[tuple[str, int]]:
    position = 0
    while position < len(entries):
        start = position + _NAME.size
        stop = start + _NAME.unpack_from(entries, position)[0]
        yield entries[start:stop].decode(), _OFFSET.unpack_from(entries, stop)[0]
        position = stop + _OFFSET.size
