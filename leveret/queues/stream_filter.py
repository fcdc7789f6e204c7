"""StreamFilter: which messages of a stream a consumer wants, by their x-stream-filter-value."""

from collections.abc import Iterable
from functools import partial
from itertools import groupby

from leveret.amqp.message import header_payload
from leveret.amqp.properties import PropertyView
from leveret.storage.batch import Batch

HEADER = "x-stream-filter-value"

_NAME = bytes([len(HEADER)]) + HEADER.encode()


class StreamFilter:
    """Messages with one of *values*, and with *match_unfiltered* those that have none."""

    __slots__ = ("_match_unfiltered", "_values")

    def __init__(self, values: Iterable[str], *, match_unfiltered: bool) -> None:
        self._values = frozenset(values)
        self._match_unfiltered = match_unfiltered

    def pick(self, batches: Iterable[Batch]) -> list[Batch]:
        """The messages of *batches* that are wanted, in runs of neighbours."""
        picked: list[Batch] = []
        for batch in batches:
            place = 0
            wants = partial(self._wants, batch.attributes)
            for is_wanted, run in groupby(batch.payloads, wants):
                payloads = list(run)
                if is_wanted:
                    picked.append(
                        Batch(
                            batch.first_offset + place,
                            batch.timestamp_ms,
                            batch.attributes,
                            payloads,
                            batch.payload_length,
                        )
                    )
                place += len(payloads)
        return picked

    def _wants(self, attributes: int, payload: bytes) -> bool:
        if _NAME not in payload:
            return self._match_unfiltered
        properties = PropertyView(header_payload(payload, attributes), is_checked=True)
        field = (properties.headers or {}).get(HEADER)
        return self._match_unfiltered if field is None else field.value in self._values
