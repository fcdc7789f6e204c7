"""QueueLimit: how many messages, or bytes of their bodies, may be ready in a queue.

Bytes are counted only where they are limited; `ready_bytes` then includes what was published in
this turn.
"""

from collections.abc import Iterable, Sequence

from leveret.amqp.message import body_size
from leveret.queues.arguments import Overflow
from leveret.storage.batch import Batch


class QueueLimit:
    """The limits of one queue, and what gives way."""

    __slots__ = ("_held", "_max_bytes", "_max_length", "overflow", "ready_bytes")

    def __init__(
        self, max_length: int | None, max_bytes: int | None, overflow: Overflow | None
    ) -> None:
        self._max_length = max_length
        self._max_bytes = max_bytes
        self.overflow = overflow or Overflow.DROP_HEAD
        self.ready_bytes = 0
        # Sizes of what was handed out: offset -> bytes. It may come back.
        self._held: dict[int, int] = {}

    @property
    def counts_bytes(self) -> bool:
        """Must the queue tell of every message that comes and goes?"""
        return self._max_bytes is not None

    def go_on_from(self, before: "QueueLimit") -> None:
        """Take over what *before* counted, if it did."""
        if self.counts_bytes:
            self.ready_bytes = before.ready_bytes
            self._held = before._held

    def excess(self, ready: int) -> int:
        """How many of *ready* messages must go, or 1 if it takes a look at the bytes."""
        if self._max_length is not None and ready > self._max_length:
            return ready - self._max_length
        if self._max_bytes is not None and ready and self.ready_bytes > self._max_bytes:
            return 1
        return 0

    def refused(
        self, payloads: list[bytes], attributes: int, ready: int, *, in_order: bool
    ) -> list[int]:
        """The places of *payloads* that do not fit any more behind *ready* messages.

        With *in_order* nothing overtakes one that will fit once there is room.
        """
        refused: list[int] = []
        size = self.ready_bytes
        for place, payload in enumerate(payloads):
            own_size = 0 if self._max_bytes is None else body_size(payload, attributes)
            if self._has_room(ready + 1, size + own_size):
                ready += 1
                size += own_size
            elif in_order and self._has_room(1, own_size):
                return [*refused, *range(place, len(payloads))]
            else:
                refused.append(place)
        return refused

    def _has_room(self, length: int, size: int) -> bool:
        return (self._max_length is None or length <= self._max_length) and (
            self._max_bytes is None or size <= self._max_bytes
        )

    def added(self, payloads: Iterable[bytes], attributes: int) -> None:
        """These were published, or found in the queue."""
        self.ready_bytes += sum(body_size(payload, attributes) for payload in payloads)

    def taken(self, batch: Batch, offsets: Sequence[int]) -> None:
        """These are not ready any more."""
        sizes = [body_size(payload, batch.attributes) for payload in batch.payloads]
        self.ready_bytes -= sum(sizes)
        self._held.update(zip(offsets, sizes, strict=True))

    def settled(self, offsets: Iterable[int]) -> None:
        """These are done with."""
        for offset in offsets:
            self._held.pop(offset, None)

    def returned(self, offsets: Iterable[int]) -> list[int]:
        """These are ready again; answers those to be `added`: handed out before bytes counted."""
        unknown = []
        for offset in offsets:
            size = self._held.pop(offset, None)
            if size is None:
                unknown.append(offset)
            else:
                self.ready_bytes += size
        return unknown
