"""ClassicQueue: messages leave in the order they came, each to one consumer.

It is composed of a `MessageStore` (where the messages lie), a `ReadyList` (which of them wait) and
a `ConsumerList` (for whom). A message is in exactly one state:

    Ready --deliver--> Delivered --ack--> Acked         Delivered --requeue--> Ready
    Ready --deliver without ack, purge--> Acked

Ready, unacked and acked together are all that was ever appended.
"""

from leveret.queues.consumers import Consumer, ConsumerList
from leveret.queues.declaration import QueueDeclaration
from leveret.queues.memory_store import MemoryStore
from leveret.queues.ready import ReadyList, ReadyRange
from leveret.queues.stopped_store import StoppedStore
from leveret.queues.store import MessageStore
from leveret.storage.batch import Batch
from leveret.storage.log import SegmentLog

TURN_MESSAGES = 2048
"""Messages handed to one consumer before the others are looked at again."""
TURN_BYTES = 1024 * 1024


class ClassicQueue:
    """A queue with competing consumers; durable or transient by its store.

    `id` names its directory and its definition, if it has any; `owner` is the connection that an
    exclusive queue belongs to. `stopped` says why the queue has stopped; it is empty if it has not.
    """

    __slots__ = (
        "_store",
        "consumers",
        "declaration",
        "id",
        "name",
        "owner",
        "ready",
        "stopped",
        "unacked",
    )

    def __init__(
        self,
        declaration: QueueDeclaration,
        store: MessageStore,
        ready: ReadyList,
        *,
        queue_id: int = 0,
        owner: object | None = None,
    ) -> None:
        self.declaration = declaration
        self.name = declaration.name
        self.id = queue_id
        self.owner = owner
        self._store = store
        self.ready = ready
        self.consumers = ConsumerList()
        self.unacked = 0
        self.stopped = ""

    # ---- in

    def publish(
        self, payloads: list[bytes], attributes: int, payload_length: int, now_ms: int
    ) -> None:
        """Append *payloads*; they are ready once `flush` has been called in the same turn."""
        self._store.append(payloads, attributes, payload_length, now_ms)

    def flush(self) -> SegmentLog | None:
        """Write what was published in this turn and make it ready.

        Answers the log that must be synced before it is confirmed. Raises the log's errors.
        """
        log = self._store.flush()
        self.ready.extend(self._store.next_offset)
        return log

    # ---- out

    def dispatch(self) -> None:
        """Hand ready messages to the consumers in turn, while any of them has credit."""
        ready = self.ready
        while ready.count:
            turns = self.consumers.in_turn()
            if not turns:
                return
            if len(turns) == 1:
                consumer, credit = turns[0]
                wanted = ready.peek(min(credit, TURN_MESSAGES))
                if wanted is None:
                    return
                self._serve(consumer, wanted)
            else:
                self._serve_round_robin(turns)

    def _serve(self, consumer: Consumer, wanted: ReadyRange) -> None:
        for batch in self._read(wanted):
            offsets = range(batch.first_offset, batch.next_offset)
            if consumer.no_ack:
                self._store.discard(batch)
            else:
                self._store.hold(batch)
                self.unacked += len(offsets)
            consumer.outlet.deliver(consumer, batch, offsets, redelivered=wanted.redelivered)
        self.consumers.served(consumer)

    def _serve_round_robin(self, turns: list[tuple[Consumer, int]]) -> None:
        """One message each in turn, as many rounds as everybody has credit for."""
        rounds = min(credit for _, credit in turns)
        if any(consumer.outlet.has_shared_limit for consumer, _ in turns):
            rounds = 1
            turns = turns[:1]
        wanted = self.ready.peek(min(rounds * len(turns), TURN_MESSAGES))
        if wanted is None:
            return
        place = 0
        for batch in self._read(wanted):
            count = len(batch.payloads)
            if any(not consumer.no_ack for consumer, _ in turns):
                self._store.hold(batch)
            for step in range(min(len(turns), count)):
                consumer = turns[(place + step) % len(turns)][0]
                offsets = range(batch.first_offset + step, batch.next_offset, len(turns))
                share = Batch(
                    offsets.start,
                    batch.timestamp_ms,
                    batch.attributes,
                    batch.payloads[step :: len(turns)],
                    batch.payload_length,
                )
                if consumer.no_ack:
                    self._store.settle(list(offsets))
                else:
                    self.unacked += len(offsets)
                consumer.outlet.deliver(consumer, share, offsets, redelivered=wanted.redelivered)
            place = (place + count) % len(turns)
        self.consumers.served(turns[place - 1][0])

    def get(self, *, no_ack: bool) -> tuple[Batch, bool] | None:
        """Take one message (basic.get): a batch of one and whether it was delivered before."""
        wanted = self.ready.peek(1)
        if wanted is None:
            return None
        batch = self._read(wanted)[0]
        if no_ack:
            self._store.discard(batch)
        else:
            self._store.hold(batch)
            self.unacked += 1
        return batch, wanted.redelivered

    def _read(self, wanted: ReadyRange) -> list[Batch]:
        batches = self._store.read(wanted, TURN_BYTES)
        self.ready.take(batches[-1].next_offset)
        return batches

    # ---- after delivery

    def settle(self, offsets: list[int]) -> None:
        """These deliveries were acknowledged, or rejected for good."""
        self.unacked -= len(offsets)
        self._store.settle(offsets)

    def requeue(self, offsets: list[int]) -> None:
        """These deliveries are ready again, at their old place."""
        self.unacked -= len(offsets)
        self.ready.put_back(offsets)

    def flush_state(self) -> SegmentLog | None:
        """Write down what was delivered and settled in this turn.

        Answers the log whose states wait for a sync. Raises the log's errors.
        """
        return self._store.flush_state()

    def purge(self) -> int:
        """Settle everything that is ready; answers how many messages that were."""
        count = self.ready.count
        self._store.settle_ranges(self.ready.clear())
        return count

    # ---- end

    def close(self) -> None:
        """Let go of files; what is durable stays on disk."""
        self._store.close()

    def stop(self, reason: str, error: Exception) -> None:
        """Give up a store that cannot be trusted any more; what it left on disk stays.

        Publishing then raises InternalError with *reason*.
        """
        store = self._store
        store.fail(error)
        self.stopped = reason
        self.ready.clear()
        self._store = StoppedStore(reason, self.ready.end, store.delete)

    def delete(self) -> None:
        """Remove every message."""
        self._store.delete()
        # What a transaction routed here before may still come, and goes nowhere.
        self._store = MemoryStore()
        self.ready = ReadyList(0)
