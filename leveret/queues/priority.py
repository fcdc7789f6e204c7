"""PriorityQueue: a queue whose messages leave by their priority, and by age within one.

One log, one ready list for each level (x-max-priority). A higher priority than the highest level
counts as that level, none as 0. The head of each level is looked at for expiry; what is too much
is dropped from the highest level first, as RabbitMQ does.
"""

from collections.abc import Mapping, Sequence

from leveret.amqp.frames import FRAME_HEADER_SIZE
from leveret.amqp.message import head_length
from leveret.amqp.properties import read_priorities
from leveret.queues.classic import ClassicQueue, Served
from leveret.queues.death import DeathReason
from leveret.queues.declaration import QueueDeclaration
from leveret.queues.priority_ready import PriorityReady, ReadyPick
from leveret.queues.ready import ReadyRange
from leveret.queues.scattered_store import ScatteredMemoryStore, ScatteredStore
from leveret.storage.batch import Batch
from leveret.storage.state_log import State


class PriorityQueue(ClassicQueue):
    """A ClassicQueue with levels."""

    __slots__ = ("_scattered",)

    ready: PriorityReady

    def __init__(
        self,
        declaration: QueueDeclaration,
        store: ScatteredStore,
        ready: PriorityReady,
        *,
        queue_id: int = 0,
        owner: object | None = None,
        tries: Mapping[int, tuple[int, int]] | None = None,
        replayed: Sequence[tuple[int, int]] = (),
    ) -> None:
        super().__init__(
            declaration,
            store,
            ready,
            queue_id=queue_id,
            owner=owner,
            tries=tries,
            replayed=replayed,
        )
        self._scattered = store

    def restore(self, ready: list[tuple[int, int]], delivered: list[tuple[int, int]]) -> None:
        """Find the levels of the *ready* messages of a recovered log; *delivered* came back.

        Reads them all. Raises the errors of the log.
        """
        redelivered = {offset for start, stop in delivered for offset in range(start, stop)}
        for start, stop in ready:
            for batch in self._store.fetch(start, stop):
                levels = self._levels(batch.payloads, batch.attributes)
                for place, offset in enumerate(range(batch.first_offset, batch.next_offset)):
                    self.ready.restore(
                        (offset,),
                        levels[place : place + 1],
                        redelivered=offset in redelivered,
                    )
        self._may_expire = self.ready.count > 0

    def _append(
        self, payloads: list[bytes], attributes: int, payload_length: int, now_ms: int
    ) -> None:
        super()._append(payloads, attributes, payload_length, now_ms)
        self.ready.expect(self._levels(payloads, attributes))

    def _levels(self, payloads: list[bytes], attributes: int) -> bytes:
        start = head_length(attributes) + FRAME_HEADER_SIZE
        highest = self.ready.max_priority
        levels = read_priorities(payloads, start)
        if max(levels) > highest:
            return bytes([min(level, highest) for level in levels])
        return levels

    def _take(self, wanted: ReadyRange | ReadyPick) -> Sequence[Served]:
        assert isinstance(wanted, ReadyPick)
        offsets = self.ready.take(wanted)
        return self._scattered.pick(offsets, by_time=self._looks_at_time)

    def _expire(self) -> int | None:
        room = self._room_for_deaths
        while room > 0:
            heads = [(pick, self._head_due_ms(offset)) for pick, offset in self.ready.heads()]
            dead = [pick for pick, due in heads if due is not None and due <= self._now_ms]
            if not dead:
                return min((due for _, due in heads if due is not None), default=None)
            for pick in dead:
                self._bury_ready(pick, DeathReason.EXPIRED)
            room -= len(dead)
        return self._now_ms

    def _head_due_ms(self, offset: int) -> int | None:
        ttl_ms = None if self._rules is None else self._rules.ttl_ms
        return self._due_ms(self._scattered.look_at(offset), 0, ttl_ms)

    def replay(self, batches: Sequence[Batch]) -> None:
        """Settled messages, read from the log, are ready again at their old place."""
        for batch in batches:
            offsets = range(batch.first_offset, batch.next_offset)
            self.ready.know(offsets, self._levels(batch.payloads, batch.attributes))
        super().replay(batches)

    def withdraw(self, batch: Batch) -> None:
        """These messages, all of them ready, are on their way to another place."""
        self._scattered.forget(range(batch.first_offset, batch.next_offset))
        super().withdraw(batch)

    def _settle(self, offsets: list[int], state: State = State.ACKED) -> None:
        self.ready.forget(offsets)
        super()._settle(offsets, state)

    def _discard(self, offsets: Sequence[int], state: State = State.ACKED) -> None:
        self.ready.forget(offsets)
        super()._discard(offsets, state)

    def delete(self) -> None:
        """Remove every message."""
        highest = self.ready.max_priority
        super().delete()
        self._store = self._scattered = ScatteredMemoryStore()
        self.ready = PriorityReady(0, highest)
