"""Offset index: finds the byte position of a record in one segment.

File format: entries of 8 bytes, big endian, sorted by both.
    u32 offset relative to the segment's base, u32 position in bytes
The last entry of a closed segment is its end: the number of its records and the size of its log.
The index may lag behind the log. While a segment is active, its index never runs ahead of what
is durable in the log, so recovery needs to read only what lies behind the last entry.
"""

import struct
from pathlib import Path

from leveret.storage.files import HEADER_SIZE
from leveret.storage.index_file import IndexFile

OFFSET_INDEX_MAGIC = b"LVIX"


class OffsetIndex(IndexFile):
    """Sparse map from relative offset to position."""

    __slots__ = ()

    def __init__(self, path: Path) -> None:
        super().__init__(path, OFFSET_INDEX_MAGIC, struct.Struct(">II"))

    def lookup(self, relative_offset: int) -> tuple[int, int]:
        """Return the nearest known relative offset at or before, and its position."""
        return self.find(relative_offset) or (0, HEADER_SIZE)
