"""Time index: finds the records of one segment that are not older than a time.

File format: entries of 12 bytes, big endian, sorted by both.
    u64 timestamp in milliseconds, u32 offset relative to the segment's base
An entry is written at the same records as in the offset index. Timestamps come from publishers'
turns and may step back with the clock; an entry then repeats the highest one before it.
"""

import struct
from pathlib import Path

from leveret.storage.index_file import IndexFile

TIME_INDEX_MAGIC = b"LVTX"


class TimeIndex(IndexFile):
    """Sparse map from timestamp to relative offset."""

    __slots__ = ()

    def __init__(self, path: Path) -> None:
        super().__init__(path, TIME_INDEX_MAGIC, struct.Struct(">QI"))

    def lookup(self, timestamp_ms: int) -> int:
        """Return a relative offset before which every record is older than *timestamp_ms*."""
        found = self.find(timestamp_ms - 1)
        return found[1] if found else 0
