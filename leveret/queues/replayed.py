"""Replayed: messages that an operator made ready again after they were settled.

Consumers see the header x-replayed on them. They do not expire: most would be gone at once.
"""

from collections.abc import Iterable, Sequence

from leveret.amqp.message import header_payload, with_header
from leveret.amqp.properties import PropertyView
from leveret.amqp.tables import Field
from leveret.storage.batch import Batch
from leveret.storage.offset_set import OffsetSet

HEADER = "x-replayed"


class Replayed:
    """The offsets of these messages in one queue."""

    __slots__ = ("_offsets",)

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._offsets = OffsetSet()
        self.add(ranges)

    def __contains__(self, offset: int) -> bool:
        return offset in self._offsets

    def add(self, ranges: Iterable[tuple[int, int]]) -> None:
        """The messages in *ranges* are ready again."""
        for start, stop in ranges:
            self._offsets.add(start, stop)

    def first_in(self, start: int, stop: int) -> int:
        """The first of them in [start, stop); *stop* if there is none."""
        return next((offset for offset in range(start, stop) if offset in self._offsets), stop)

    def stamp(self, batch: Batch, offsets: Sequence[int]) -> Batch:
        """*batch* with the header on those of its messages that were replayed."""
        if not any(map(self._offsets.__contains__, offsets)):
            return batch
        payloads = [
            _stamp(payload, batch.attributes) if offset in self._offsets else payload
            for payload, offset in zip(batch.payloads, offsets, strict=True)
        ]
        return Batch(batch.first_offset, batch.timestamp_ms, batch.attributes, payloads, 0)


def _stamp(payload: bytes, attributes: int) -> bytes:
    properties = PropertyView(header_payload(payload, attributes), is_checked=True)
    headers = {**(properties.headers or {}), HEADER: Field("t", True)}
    return with_header(payload, attributes, properties.with_changes(headers=headers))
