"""StreamStore: the messages of a stream, in a segment log that nobody takes them out of."""

from leveret.queues.batch_cache import CacheBudget
from leveret.queues.durable_store import READ_BYTES, DurableStore
from leveret.queues.stream_stamp import stamp
from leveret.queues.stream_tail import StreamTail
from leveret.storage.batch import Batch
from leveret.storage.log import SegmentLog


class StreamStore(DurableStore):
    """A DurableStore whose messages carry their offset and are all persistent.

    `last_written` is the first offset of what was last written together. The newest messages stay
    in memory while somebody reads them as they come.
    """

    __slots__ = ("_is_read", "_tail", "last_written")

    def __init__(self, log: SegmentLog, budget: CacheBudget) -> None:
        super().__init__(log, budget, log.next_offset)
        self._tail = StreamTail(budget)
        self._is_read = False
        self.last_written = max(log.next_offset - 1, log.first_offset)

    def append(
        self, payloads: list[bytes], attributes: int, payload_length: int, now_ms: int
    ) -> None:
        """Give the next offsets to *payloads*, and write them into these."""
        stamped, length = stamp(payloads, attributes, self.next_offset)
        super().append(stamped, attributes, length, now_ms)

    def flush(self) -> SegmentLog | None:
        """What was appended may be read from now on; answers the log that must be synced for it.

        Raises the errors of the log.
        """
        if not self._new and not self._unwritten:
            return None
        batches = self._write()
        self.last_written = batches[0].first_offset
        if self._is_read:
            self._tail.add(batches)
        self._is_lasting = True
        return self._log

    def keep_tail(self, *, is_read: bool) -> None:
        """Keep the newest messages in memory from now on, or forget them."""
        if not is_read and self._is_read:
            self._tail.clear()
        self._is_read = is_read

    def read_on(self, offset: int) -> list[Batch]:
        """Some messages from *offset* on, or from the oldest that is still there."""
        offset = self._log.present(offset)
        return self._tail.read(offset, READ_BYTES) or self._log.read(offset, READ_BYTES)

    def _forget(self) -> None:
        self._tail.clear()
        super()._forget()
