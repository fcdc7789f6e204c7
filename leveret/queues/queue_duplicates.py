"""QueueDuplicates: messages that a queue drops because one like it came before.

With a cache (x-cache-size, x-cache-ttl) the last keys are remembered, whatever becomes of their
messages. Without one a key is taken only as long as its message is in the queue.
"""

from collections.abc import Iterable, Sequence

from leveret.amqp.message import header_payload
from leveret.amqp.properties import PropertyView
from leveret.queues.arguments import QueueArguments
from leveret.queues.dedup import Deduplicator, deduplication_key
from leveret.queues.ready import within
from leveret.storage.batch import Batch

DEFAULT_HEADER = "x-deduplication-header"
DEFAULT_CACHE_SIZE = 128
UNLIMITED = 1 << 62


def has_cache(arguments: QueueArguments) -> bool:
    """Are keys remembered beyond their messages?"""
    return arguments.cache_size is not None or arguments.cache_ttl_ms is not None


class QueueDuplicates:
    """Finds duplicates by the value of a header."""

    __slots__ = ("_deduplicator", "_header", "_keys")

    def __init__(self, arguments: QueueArguments, deduplicator: Deduplicator | None) -> None:
        """*deduplicator* is the cache, if the arguments ask for one."""
        self._header = arguments.deduplication_header or DEFAULT_HEADER
        # Without a cache: the keys of the messages in the queue, by offset.
        self._keys: dict[int, bytes] | None = None
        if deduplicator is None:
            deduplicator = Deduplicator(UNLIMITED)
            self._keys = {}
        self._deduplicator = deduplicator

    @property
    def follows_messages(self) -> bool:
        """Is a key free again once its message leaves?"""
        return self._keys is not None

    def new_places(self, payloads: list[bytes], attributes: int, now_ms: int) -> list[int]:
        """The places of those that are no duplicates; they are remembered."""
        places = []
        for place, payload in enumerate(payloads):
            key = self._key(payload, attributes)
            if key is None or not self._deduplicator.is_duplicate(key, now_ms):
                places.append(place)
        return places

    def forget(self, payload: bytes, attributes: int) -> None:
        """A message remembered just now was refused."""
        key = self._key(payload, attributes)
        if key is not None:
            self._deduplicator.forget(key)

    def appended(self, payloads: Sequence[bytes], attributes: int, first_offset: int) -> None:
        """These, which are remembered, lie at *first_offset* and behind it."""
        if self._keys is None:
            return
        for offset, payload in enumerate(payloads, first_offset):
            key = self._key(payload, attributes)
            if key is not None:
                self._keys[offset] = key

    def found(self, batch: Batch, now_ms: int) -> None:
        """These are in the queue from before."""
        self.new_places(batch.payloads, batch.attributes, now_ms)
        self.appended(batch.payloads, batch.attributes, batch.first_offset)

    def settled(self, offsets: Iterable[int]) -> None:
        """These are done with."""
        if self._keys is None:
            return
        for offset in offsets:
            key = self._keys.pop(offset, None)
            if key is not None:
                self._deduplicator.forget(key)

    def settled_ranges(self, ranges: list[tuple[int, int]]) -> None:
        """Everything in *ranges*, which are sorted, is done with."""
        if self._keys:
            self.settled(within(self._keys, ranges))

    def _key(self, payload: bytes, attributes: int) -> bytes | None:
        headers = PropertyView(header_payload(payload, attributes), is_checked=True).headers or {}
        field = headers.get(self._header)
        return None if field is None else deduplication_key(field)
