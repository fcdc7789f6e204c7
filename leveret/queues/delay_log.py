"""Delay log: messages with their due times, in a segment log, in the order they came.

The payload of a record is

    u64 due time in milliseconds, big endian | message

so that the due times are as durable as the messages, and messages of different due times still
make up one batch, which is encoded and written in one go.
"""

import struct
from collections.abc import Callable, Iterator
from operator import add

from leveret.queues.ready import ranges_of
from leveret.storage.batch import Batch
from leveret.storage.errors import OffsetOutOfRange
from leveret.storage.log import LogOptions, SegmentLog

READ_BYTES = 256 * 1024
"""One read of the log."""

Content = tuple[int, bytes]
"""Attributes, message."""

_DUE = struct.Struct(">Q")
_SLACK_BYTES = 64
_RUN = 4
"""From so many neighbours on they are read as a run."""


class DelayLog:
    """Writes held messages to *log*, whose options are *options*, and reads them.

    `record_bytes` is a guess at the size of a record, from the last ones written.
    """

    __slots__ = (
        "_attributes",
        "_batch_bytes",
        "_clock_ms",
        "_due_ms",
        "_log",
        "_payloads",
        "record_bytes",
    )

    def __init__(self, log: SegmentLog, options: LogOptions, clock_ms: Callable[[], int]) -> None:
        self._log = log
        # The log finds a record by the batch that it is in.
        self._batch_bytes = options.index_interval_bytes
        self._clock_ms = clock_ms
        self._attributes = 0
        # What was held and is not with the log, and the due times of what is not flushed.
        self._payloads: list[bytes] = []
        self._due_ms: list[int] = []
        self.record_bytes = 512

    def hold(self, messages: list[bytes], attributes: int, due_ms: list[int]) -> None:
        """Take *messages* for the next flush. Raises LogFailed."""
        if attributes != self._attributes:
            self._append()
            self._attributes = attributes
        self._payloads += map(add, map(_DUE.pack, due_ms), messages)
        self._due_ms += due_ms

    def flush(self) -> tuple[int, list[int]]:
        """Write what was held; return its first offset and its due times.

        Raises LogFailed, and DiskFull: all of it then waits for the next call.
        """
        self._append()
        written = self._log.flush()
        due_ms, self._due_ms = self._due_ms, []
        first_offset = self._log.flushed_offset - len(due_ms)
        if due_ms:
            self.record_bytes = (self.record_bytes + written // len(due_ms)) // 2
        return first_offset, due_ms

    def read(self, offsets: list[int]) -> dict[int, Content]:
        """Return the messages at *offsets*, which are distinct; sorts them in place.

        Raises CorruptRecord, OSError.
        """
        found: dict[int, Content] = {}
        single: list[int] = []
        for start, stop in ranges_of(offsets) if offsets else ():
            if stop - start < _RUN:
                single += range(start, stop)
                continue
            for first_offset, attributes, payloads in self._records(start, stop):
                for offset, payload in enumerate(payloads, first_offset):
                    found[offset] = attributes, payload[_DUE.size :]
        for offset, _, attributes, payload in self._log.pick(single):
            found[offset] = attributes, payload[_DUE.size :]
        return found

    def read_due(self, start: int, stop: int) -> Iterator[tuple[int, list[int]]]:
        """Read the due times of the messages [start, stop): first offsets, and times from there on.

        Raises CorruptRecord, OSError.
        """
        for first_offset, _, payloads in self._records(start, stop):
            yield first_offset, [_DUE.unpack_from(payload)[0] for payload in payloads]

    def due_ms(self, offset: int) -> int | None:
        """Return the due time of the message at *offset*, None if the log has none there.

        Raises CorruptRecord, OSError.
        """
        try:
            found = self._log.read(offset, 1)
        except OffsetOutOfRange:
            return None
        if not found:
            return None
        due_ms: int = _DUE.unpack_from(found[0].payloads[0])[0]
        return due_ms

    def _append(self) -> None:
        payloads, self._payloads = self._payloads, []
        if not payloads:
            return
        log, now_ms = self._log, self._clock_ms()
        step = len(payloads) * self._batch_bytes // sum(map(len, payloads)) or 1
        for at in range(0, len(payloads), step):
            piece = payloads[at : at + step]
            lengths = set(map(len, piece))
            length = lengths.pop() if len(lengths) == 1 else 0
            log.append(Batch(log.next_offset, now_ms, self._attributes, piece, length))

    def _records(self, start: int, stop: int) -> Iterator[tuple[int, int, list[bytes]]]:
        """Read the records [start, stop): first offsets, attributes and payloads."""
        while start < stop:
            size = min((stop - start) * self.record_bytes + _SLACK_BYTES, READ_BYTES)
            for batch in self._log.read(start, size):
                if batch.first_offset < stop:
                    payloads = batch.payloads[: stop - batch.first_offset]
                    yield batch.first_offset, batch.attributes, payloads
                start = batch.next_offset
