"""DeliveryCounts: how often a message was handed out, and how often that failed.

Kept for messages that came back and only in queues that count. `x-acquired-count` is every earlier
hand-out; `x-delivery-count` those that ended by basic.reject with requeue or the loss of a channel
or connection, as RabbitMQ counts from 4.3 on. Consumers see both on redelivery.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from leveret.amqp.message import header_payload, with_header
from leveret.amqp.properties import PropertyView
from leveret.amqp.tables import Field
from leveret.queues.ready import within
from leveret.storage.batch import Batch


class Count(NamedTuple):
    """Earlier hand-outs of a message, and how many of them failed."""

    acquired: int
    failed: int


_UNKNOWN = Count(0, 0)


class DeliveryCounts:
    """Counts of the messages that came back, by offset."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[int, Count] = {}

    def restore(self, tries: Mapping[int, tuple[int, int]]) -> None:
        """Go on from what the log says: hand-outs and failures by offset."""
        self._counts.update((offset, Count(*count)) for offset, count in tries.items())

    def returned(self, offset: int, *, failed: bool) -> Count:
        """The message at *offset* came back; answers its count now."""
        before = self._counts.get(offset, _UNKNOWN)
        count = Count(before.acquired + 1, before.failed + failed)
        self._counts[offset] = count
        return count

    def failures(self, offset: int) -> int:
        """How often it failed."""
        return self._counts.get(offset, _UNKNOWN).failed

    def forget(self, offsets: Iterable[int]) -> None:
        """These messages are done with."""
        for offset in offsets:
            self._counts.pop(offset, None)

    def forget_ranges(self, ranges: list[tuple[int, int]]) -> None:
        """All messages in *ranges*, which are sorted, are done with."""
        self.forget(within(self._counts, ranges))

    def stamp(self, batch: Batch, offsets: Sequence[int]) -> Batch:
        """*batch* with the counts among the headers of its messages."""
        payloads = [
            _stamp(payload, batch.attributes, self._counts.get(offset, _UNKNOWN))
            for payload, offset in zip(batch.payloads, offsets, strict=True)
        ]
        return Batch(batch.first_offset, batch.timestamp_ms, batch.attributes, payloads, 0)


def _stamp(payload: bytes, attributes: int, count: Count) -> bytes:
    properties = PropertyView(header_payload(payload, attributes), is_checked=True)
    headers = dict(properties.headers or {})
    headers["x-acquired-count"] = Field("l", count.acquired)
    headers["x-delivery-count"] = Field("l", count.failed)
    return with_header(payload, attributes, properties.with_changes(headers=headers))
