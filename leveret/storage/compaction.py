"""Compaction: a closed segment is written again without its settled messages; offsets stay.

It happens in another thread, from what the loop saw when it began, into files beside the others:
    .log.tmp, .index.tmp, .timeindex.tmp
All of them, and the states that say what is settled, are durable before the loop renames them, the
log first. An index that does not end where its log does is built anew by recovery, so that a crash
in between leaves the old segment or the new one.
"""

import logging
import os
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

from leveret.storage.batch import Batch
from leveret.storage.errors import DiskFull, StorageError
from leveret.storage.files import file_header, needing_space, sync_file
from leveret.storage.offset_index import OffsetIndex
from leveret.storage.offset_set import OffsetSet
from leveret.storage.record import encode_batch, encode_gap
from leveret.storage.segment import HAS_GAPS, LOG_MAGIC, Segment, temporary
from leveret.storage.time_index import TimeIndex

logger = logging.getLogger(__name__)

_READ_BYTES = 64 * 1024


class Compaction:
    """One try to rewrite *segment*, which is closed and whose states are written.

    Once `is_done`, the new files are there and `size` is that of the log; or it is 0, and there are
    none: the try failed, was cancelled or did not pay. `gone` are the offsets that the new log
    lacks. With `may_retry` another try can do better though nothing more is settled.
    """

    def __init__(self, segment: Segment, interval_bytes: int) -> None:
        self.segment = segment
        self.live_count = segment.live_count
        self.revivals = segment.revivals
        self.gone = OffsetSet()
        self.is_done = False
        self.may_retry = False
        self.size = 0
        self._live = segment.acked.gaps(segment.base_offset, segment.next_offset)
        self._interval_bytes = interval_bytes
        self._is_cancelled = False
        self._reader = segment.reader()

    def cancel(self) -> None:
        """Make nothing of it, and leave no files."""
        self._is_cancelled = True
        if self.is_done:
            self._discard()

    def run(self) -> Iterator[None]:
        """Write the new files, in steps. Not for the loop's thread."""
        size = 0
        try:
            sync_file(self.segment.state.path)
            size = yield from self._write()
        except (OSError, StorageError) as error:
            self.may_retry = isinstance(error, DiskFull)
            if not self._is_cancelled:
                logger.warning("segment not compacted: %s", error)
        finally:
            self._reader.close()
            if self._is_cancelled or not size:
                self._discard()
            else:
                self.size = size
            self.is_done = True

    def _write(self) -> Generator[None, None, int]:
        """Write and sync the files; the result is the size of the log, 0 if it does not pay."""
        reader = self._reader
        index = OffsetIndex(temporary(reader.index.path))
        times = TimeIndex(temporary(reader.times.path))
        most = reader.size // 2
        indexed_position = -self._interval_bytes
        offset = reader.base_offset
        timestamp_ms = reader.first_timestamp_ms
        path = temporary(reader.log.path)
        with path.open("wb", buffering=0) as file:
            size = _put(path, file.fileno(), file_header(LOG_MAGIC, reader.log.flags | HAS_GAPS))
            for piece in self._pieces():
                if self._is_cancelled or size > most:
                    return 0
                if piece is None:
                    yield
                    continue
                if piece.first_offset > offset:
                    size += self._put_gap(
                        path, file.fileno(), offset, piece.first_offset, timestamp_ms
                    )
                if size - indexed_position >= self._interval_bytes:
                    relative_offset = piece.first_offset - reader.base_offset
                    index.append(relative_offset, size)
                    times.append(piece.timestamp_ms, relative_offset)
                    indexed_position = size
                size += _put(path, file.fileno(), encode_batch(piece))
                offset, timestamp_ms = piece.next_offset, piece.timestamp_ms
            if offset < reader.next_offset:
                size += self._put_gap(path, file.fileno(), offset, reader.next_offset, timestamp_ms)
            os.fsync(file.fileno())
        index.append(reader.next_offset - reader.base_offset, size)
        for written in (index, times):
            yield
            written.write(len(written))
            sync_file(written.path)
        return size

    def _put_gap(self, path: Path, fd: int, start: int, end: int, timestamp_ms: int) -> int:
        self.gone.add(start, end)
        return _put(path, fd, encode_gap(start, end - start, timestamp_ms))

    def _pieces(self) -> Iterator[Batch | None]:
        """The unsettled messages, and None after each read."""
        live, reader = self._live, self._reader
        at = 0
        done = reader.base_offset
        while at < len(live):
            batches = reader.read(max(done, live[at][0]), _READ_BYTES)
            for batch in batches:
                while at < len(live) and live[at][0] < batch.next_offset:
                    yield from _part(batch, *live[at])
                    if live[at][1] > batch.next_offset:
                        break
                    at += 1
            if not batches:
                return
            done = batches[-1].next_offset
            yield None

    def _discard(self) -> None:
        self.size = 0
        for path in (self._reader.log.path, self._reader.index.path, self._reader.times.path):
            with suppress(OSError):  # recovery removes what is left
                temporary(path).unlink(missing_ok=True)


def _part(batch: Batch, start: int, end: int) -> Iterator[Batch]:
    """What of *batch* lies in [start, end)."""
    first = batch.first_offset
    low, high = max(start, first), min(end, batch.next_offset)
    if low < high:
        payloads = batch.payloads[low - first : high - first]
        yield Batch(low, batch.timestamp_ms, batch.attributes, payloads, batch.payload_length)


def _put(path: Path, fd: int, data: bytes | bytearray) -> int:
    view = memoryview(data)
    while view:
        with needing_space(path):
            view = view[os.write(fd, view) :]
    return len(data)
