"""StreamQueue: a queue that keeps its messages, for as many consumers as want each of them.

Every consumer has a cursor of its own. An acknowledgement, or a refusal of any kind, is no more
than room for another delivery; nothing is noted of it, so there is nothing to recover but the log.
The oldest segments go, as a whole, when the stream is longer or older than it may be.
"""

from collections.abc import Sequence

from leveret.amqp.tables import INTEGER_TAGS, Field
from leveret.queues.arguments import InvalidArgument, QueueArguments, interval
from leveret.queues.classic import ClassicQueue
from leveret.queues.consumers import Consumer
from leveret.queues.declaration import QueueDeclaration
from leveret.queues.history import QueueHistory
from leveret.queues.ready import ReadyList
from leveret.queues.rules import QueueKeeper
from leveret.queues.stopped_store import StoppedStore
from leveret.queues.stream_cursor import NamedCursor, StreamCursor
from leveret.queues.stream_offsets import StreamOffsets
from leveret.queues.stream_store import StreamStore
from leveret.storage.batch import Batch
from leveret.storage.log import SegmentLog
from leveret.storage.state_log import State

TURN_MESSAGES = 2048
TURN_BYTES = 256 * 1024
"""Messages for one consumer before the others are looked at again."""
TURN_ROUNDS = 16
"""As often in one turn; other queues are served in between."""
LOOK_MS = 60_000
"""Between two looks at the age of the oldest segment."""


class StreamQueue(ClassicQueue):
    """A ClassicQueue that gives nothing away; `ready` is all that it has.

    `offsets` tell how far its named consumers have come.
    """

    __slots__ = ("_look_at_ms", "_looked_at", "_stream", "offsets")

    ready: ReadyList

    def __init__(
        self,
        declaration: QueueDeclaration,
        store: StreamStore | StoppedStore,
        ready: ReadyList,
        *,
        queue_id: int,
        offsets: StreamOffsets | None = None,
    ) -> None:
        super().__init__(declaration, store, ready, queue_id=queue_id)
        self.offsets = offsets
        self._may_expire = False
        self._stream = store if isinstance(store, StreamStore) else None
        self._look_at_ms = 0
        self._looked_at: tuple[int, int] | None = None

    def configure(self, arguments: QueueArguments, keeper: QueueKeeper, now_ms: int) -> None:
        """Go by *arguments* from now on."""
        self.arguments = arguments
        self._look_at_ms = 0
        if self.log is not None:
            self.log.cut_for(arguments.max_length_bytes)

    def publish(
        self,
        payloads: list[bytes],
        attributes: int,
        payload_length: int,
        now_ms: int,
        *,
        in_order: bool = False,
    ) -> Sequence[int]:
        """Append *payloads*; they can be read once `flush` has been called. Refuses none."""
        self._append(payloads, attributes, payload_length, now_ms)
        return ()

    # ---- where consumers begin

    def open_cursor(self, field: Field | None, name: str, now_ms: int) -> StreamCursor:
        """Where a new consumer begins: as *field* says, else where the last one of its name was.

        Raises as `place_of` does.
        """
        offsets = self.offsets
        if not name or offsets is None:
            return StreamCursor(self.place_of(field, now_ms))
        known = offsets.get(name) if field is None else None
        offset = self.place_of(field, now_ms) if known is None else known
        if field is None and known is None:
            offsets.set(name, offset)
        return NamedCursor(offset, name, offsets.moved)

    def place_of(self, field: Field | None, now_ms: int) -> int:
        """The offset that a consumer's x-stream-offset means. Raises InvalidArgument, log errors.

        A number, negative from the end; a timestamp; "first", "last", "next", or an interval such
        as "1h". Without one only what comes from now on is wanted.
        """
        end = self._store.next_offset
        if field is None:
            return end
        value = field.value
        if field.tag in INTEGER_TAGS and isinstance(value, int):
            return value if value >= 0 else max(end + value, 0)
        if field.tag == "T" and isinstance(value, int):
            return self._at_time(value * 1000)
        if value == "next":
            return end
        if value == "first":
            return 0
        if value == "last":
            return 0 if self._stream is None else self._stream.last_written
        reason = f"{{invalid_offset_arg,{value!r}}}"
        if field.tag != "S":
            raise InvalidArgument(reason)
        return self._at_time(now_ms - interval(field, reason))

    def _at_time(self, time_ms: int) -> int:
        if self.log is None:
            return 0
        if self.log.flushed_offset == self.log.first_offset:
            return self._store.next_offset
        return QueueHistory(self, self.log).at_time(max(time_ms, 0))

    # ---- out

    def dispatch(self, now_ms: int) -> int | None:
        """Hand messages to consumers, and drop the oldest if there are too many.

        Answers when this is to be done again though nothing happens meanwhile.
        """
        due_ms = self._trim(now_ms)
        if self.offsets is not None:
            due_ms = _earlier(due_ms, self.offsets.look(now_ms))
        stream = self._stream
        if stream is None:
            return due_ms
        stream.keep_tail(is_read=len(self.consumers) > 0)
        for _ in range(TURN_ROUNDS):
            if not self._serve_all(stream):
                return due_ms
        return now_ms

    def _serve_all(self, stream: StreamStore) -> bool:
        """Serve every consumer once; answers whether any of them may want more."""
        is_moving = False
        end = self.ready.end
        for consumer in list(self.consumers):
            cursor = consumer.cursor
            if cursor is None or cursor.next_offset >= end:
                continue
            credit = consumer.credit()
            if credit <= 0:
                continue
            before = cursor.next_offset
            for batch in cursor.take(min(credit, TURN_MESSAGES), TURN_BYTES, stream.read_on):
                self._deliver(consumer, batch)
            is_moving |= cursor.next_offset > before
        return is_moving

    def _deliver(self, consumer: Consumer, batch: Batch) -> None:
        offsets = range(batch.first_offset, batch.next_offset)
        self.unacked += len(offsets)
        if consumer.cursor is not None:
            consumer.cursor.delivered(offsets)
        consumer.outlet.deliver(consumer, batch, offsets, redelivered=False)

    @property
    def length(self) -> int:
        """How many messages it has; those with consumers are still there."""
        return self.ready.count

    @property
    def can_deliver(self) -> bool:
        """Would a message published now go to a consumer at once?"""
        return bool(self.consumers.in_turn())

    # ---- after delivery

    def settle(self, offsets: list[int]) -> None:
        """These deliveries were acknowledged."""
        self.unacked -= len(offsets)

    def reject(self, offsets: list[int]) -> None:
        """These deliveries were refused: as good as acknowledged."""
        self.unacked -= len(offsets)

    def requeue(self, offsets: list[int], *, failed: bool, now_ms: int) -> None:
        """The same: whoever wants them again consumes again from where they lie."""
        self.unacked -= len(offsets)

    # ---- retention

    def _trim(self, now_ms: int) -> int | None:
        """Drop the oldest segments if they are too much; answers when to look again."""
        log = self.log
        max_age_ms = self.arguments.max_age_ms
        limits = (self.arguments.max_length_bytes, self.arguments.max_length, max_age_ms)
        if log is None or limits == (None, None, None):
            return None
        place = (log.first_offset, len(log.sealed))
        if place != self._looked_at or now_ms >= self._look_at_ms:
            self._looked_at = place
            self._look_at_ms = now_ms + LOOK_MS
            self._drop(log, log.first_offset, _first_to_keep(log, self.arguments, now_ms))
        return None if max_age_ms is None or not log.sealed else self._look_at_ms

    def _drop(self, log: SegmentLog, start: int, stop: int) -> None:
        if start == stop:
            return
        log.mark(State.DROPPED, [(start, stop)])
        while (oldest := self.ready.peek(stop - start)) is not None and oldest.start < stop:
            self.ready.take(min(oldest.stop, stop))

    def close(self) -> None:
        """Let go of files; what is durable stays on disk. Raises OSError, the log's errors."""
        super().close()
        if self.offsets is not None:
            self.offsets.save()

    def stop(self, reason: str, error: Exception) -> None:
        """Give up a store that cannot be trusted any more; what it left on disk stays."""
        super().stop(reason, error)
        self._stream = self.offsets = None

    def delete(self) -> None:
        """Remove every message."""
        super().delete()
        self._stream = self.offsets = None


def _first_to_keep(log: SegmentLog, arguments: QueueArguments, now_ms: int) -> int:
    """The offset up to which the oldest segments are too much; the newest one always stays."""
    size, length = log.bytes_on_disk, log.next_offset - log.first_offset
    offset = log.first_offset
    for segment in log.sealed:
        if not (
            _is_over(size, arguments.max_length_bytes)
            or _is_over(length, arguments.max_length)
            or _is_over(now_ms - segment.last_timestamp_ms, arguments.max_age_ms)
        ):
            break
        size -= segment.bytes_on_disk
        length -= segment.next_offset - segment.base_offset
        offset = segment.next_offset
    return offset


def _earlier(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _is_over(value: int, limit: int | None) -> bool:
    return limit is not None and value > limit
