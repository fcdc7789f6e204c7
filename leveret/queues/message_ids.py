"""MessageIds: finds the messages of a queue by their message_id, in memory.

A message that has an id takes 8 bytes, in a run that covers neighbouring offsets:
    u32 crc32 of the id, u32 offset relative to the base of the run
A run is sorted once it is full. Other ids may have the same hash, so what is found here are
candidates: reading the message decides. What no run covers has to be read through.

A clean stop saves the runs in the directory of the queue, big endian, as the file `message-ids`:
    8 bytes header, magic LVID; u32 crc32 of all that follows; for each run:
    u64 base, u64 end, u32 number of entries, the entries as above, 8 bytes each
At a clean stop all that the runs cover is durable, so whatever comes later, a kill among it, the
file stays true of these offsets.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from zlib import crc32

from leveret.amqp.frames import FRAME_HEADER_SIZE
from leveret.amqp.message import head_length
from leveret.amqp.properties import read_message_ids
from leveret.storage.errors import UnsupportedFormat
from leveret.storage.files import HEADER_SIZE, check_header, file_header, replace_file

RUN_IDS = 16 * 1024
"""Ids in a full run."""
ENTRY_BYTES = 8
RUN_BYTES = 256
"""What a run takes beside its entries, about."""

FILE_NAME = "message-ids"
FILE_MAGIC = b"LVID"

_CHECKSUM = struct.Struct(">I")
_RUN = struct.Struct(">QQI")
_LOW_32 = 0xFFFFFFFF
_BASE = attrgetter("base")


class IdBudget:
    """The bytes that the ids of all queues may take together; the oldest runs give way."""

    __slots__ = ("_runs", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._runs: dict[IdRun, MessageIds] = {}

    def has_room(self, count: int) -> bool:
        """May the ids of *count* messages be kept without dropping anything?"""
        return self.used + RUN_BYTES + ENTRY_BYTES * count <= self.limit

    def grow(self, index: "MessageIds", run: "IdRun", size: int) -> None:
        """A *run* of *index* takes *size* bytes more; others go if that is too much."""
        self._runs.setdefault(run, index)
        self.used += size
        while self.used > self.limit:
            oldest = next(iter(self._runs))
            self._runs[oldest].drop(oldest)

    def release(self, run: "IdRun") -> None:
        """A run is gone."""
        del self._runs[run]
        self.used -= run.size


class IdRun:
    """The ids of the messages from offset `base` up to, not including, `end`."""

    __slots__ = ("_entries", "base", "end")

    def __init__(self, base: int) -> None:
        self.base = base
        self.end = base
        self._entries = array("Q")

    @classmethod
    def decode(cls, data: memoryview) -> tuple["IdRun", int]:
        """The run that *data* begins with, and its bytes. Raises ValueError, struct.error."""
        base, end, count = _RUN.unpack_from(data)
        size = _RUN.size + count * ENTRY_BYTES
        run = cls(base)
        run.end = end
        run._entries.frombytes(data[_RUN.size : size])
        if len(run._entries) != count or end <= base:
            raise ValueError
        if sys.byteorder == "little":
            run._entries.byteswap()
        return run, size

    def encode(self) -> bytes:
        """The run as in a file."""
        entries = array("Q", self._entries)
        if sys.byteorder == "little":
            entries.byteswap()
        return _RUN.pack(self.base, self.end, len(entries)) + entries.tobytes()

    @property
    def size(self) -> int:
        """Bytes, about."""
        return RUN_BYTES + ENTRY_BYTES * len(self._entries)

    @property
    def is_full(self) -> bool:
        """Does the next message begin another run?"""
        return len(self._entries) >= RUN_IDS or self.end - self.base > _LOW_32 // 2

    def extend(self, ids: Sequence[bytes | None]) -> None:
        """Cover the next messages, which have these ids."""
        relative = self.end - self.base
        self._entries.extend(
            crc32(message_id) << 32 | place
            for place, message_id in enumerate(ids, relative)
            if message_id is not None
        )
        self.end += len(ids)
        if self.is_full:
            self._entries = array("Q", sorted(self._entries))

    def find(self, digest: int) -> list[int]:
        """The offsets of the messages whose ids have this hash."""
        entries: Sequence[int] = self._entries
        if self.is_full:
            low = bisect_left(entries, digest << 32)
            entries = entries[low : bisect_right(entries, digest << 32 | _LOW_32)]
        return [self.base + (entry & _LOW_32) for entry in entries if entry >> 32 == digest]


class MessageIds:
    """The ids of the messages of one queue, as far as there is room for them."""

    __slots__ = ("_budget", "_runs")

    def __init__(self, budget: IdBudget) -> None:
        self._budget = budget
        self._runs: list[IdRun] = []  # by base; they do not overlap

    def save(self, directory: Path) -> None:
        """Write the file in *directory*. Raises OSError."""
        runs = b"".join(run.encode() for run in self._runs)
        data = file_header(FILE_MAGIC) + _CHECKSUM.pack(crc32(runs)) + runs
        replace_file(directory / FILE_NAME, data)

    def load(self, directory: Path) -> None:
        """Cover what the file in *directory* does, if it is there and sound. Raises OSError."""
        for run in read_ids(directory / FILE_NAME):
            if self._budget.used + run.size <= self._budget.limit:
                self._runs.append(run)
                self._budget.grow(self, run, run.size)

    def add(self, first_offset: int, messages: Sequence[bytes], attributes: int) -> None:
        """Cover *messages*, which lie at *first_offset* and behind it and are not covered yet."""
        ids = read_message_ids(messages, head_length(attributes) + FRAME_HEADER_SIZE)
        done = 0
        while done < len(ids):
            run = self._run_at(first_offset + done)
            before = run.size if run.end > run.base else 0
            count = min(len(ids) - done, RUN_IDS)
            run.extend(ids[done : done + count])
            self._budget.grow(self, run, run.size - before)
            done += count

    def add_page(self, first_offset: int, messages: Sequence[bytes], attributes: int) -> None:
        """The same for messages found in the log: nothing that is known gives way to them."""
        if self._budget.has_room(len(messages)):
            self.add(first_offset, messages, attributes)

    def _run_at(self, offset: int) -> IdRun:
        """The run that the message at *offset* joins: the one that ends there, or a new one."""
        place = bisect_right(self._runs, offset, key=_BASE)
        if place and self._runs[place - 1].end == offset and not self._runs[place - 1].is_full:
            return self._runs[place - 1]
        run = IdRun(offset)
        self._runs.insert(place, run)
        return run

    def find(self, message_id: bytes, start: int, stop: int) -> list[int]:
        """The offsets in [start, stop) of messages that may have this id, oldest first."""
        digest = crc32(message_id)
        found = [
            offset
            for run in self._runs
            if run.base < stop and start < run.end
            for offset in run.find(digest)
            if start <= offset < stop
        ]
        return sorted(found)

    def covered(self, offset: int) -> int:
        """The end of what is covered from *offset* on; *offset* itself if it is not."""
        place = max(bisect_right(self._runs, offset, key=_BASE) - 1, 0)
        for run in self._runs[place:]:
            if not run.base <= offset < run.end:
                break
            offset = run.end
        return offset

    def uncovered(self, offset: int, stop: int) -> int:
        """The end of what is not covered from *offset* on, at most *stop*."""
        place = bisect_right(self._runs, offset, key=_BASE)
        return min(self._runs[place].base, stop) if place < len(self._runs) else stop

    def forget_before(self, offset: int) -> None:
        """The messages before *offset* are gone."""
        for run in [run for run in self._runs if run.end <= offset]:
            self.drop(run)

    def drop(self, run: IdRun) -> None:
        """Give up what *run* covers."""
        self._runs.remove(run)
        self._budget.release(run)

    def clear(self) -> None:
        """Give up everything."""
        for run in self._runs.copy():
            self.drop(run)


def read_ids(path: Path) -> list[IdRun]:
    """The runs in a file; none if it is missing or damaged. Raises OSError."""
    try:
        data = path.read_bytes()
        check_header(path, data[:HEADER_SIZE], FILE_MAGIC)
        (checksum,) = _CHECKSUM.unpack_from(data, HEADER_SIZE)
        runs = memoryview(data)[HEADER_SIZE + _CHECKSUM.size :]
        return list(_decode_runs(runs)) if crc32(runs) == checksum else []
    except (FileNotFoundError, UnsupportedFormat, ValueError, struct.error):
        return []


def _decode_runs(data: memoryview) -> Iterator[IdRun]:
    while data:
        run, size = IdRun.decode(data)
        yield run
        data = data[size:]
