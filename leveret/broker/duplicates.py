"""Duplicates: the keys that exchanges and queues of a vhost remember (x-message-deduplication).

Keys are written after the logs of their turn: a key on disk without its message would drop the
retry of a publisher that was never confirmed.
"""

import logging
from collections.abc import Callable
from hashlib import sha256
from typing import cast

from leveret.amqp.tables import INTEGER_TAGS, Table
from leveret.broker.turn import Turn
from leveret.exchanges.exchange import Exchange
from leveret.queues.dedup import Deduplicator, deduplication_key
from leveret.storage.errors import DiskFull
from leveret.storage.key_log import KeyLog

logger = logging.getLogger(__name__)

TTL_HEADER = "x-cache-ttl"
"""A message may say for itself how long it is remembered (RabbitMQ's plugin)."""


class Duplicates:
    """Implements `TurnQueue` for the files of the keys. *open_log* takes a name that is unique."""

    def __init__(self, open_log: Callable[[str], KeyLog], turn: Turn) -> None:
        self._open_log = open_log
        self._turn = turn
        self._deduplicators: dict[str, Deduplicator] = {}

    # ---- exchanges

    def open(self, exchange: Exchange) -> Deduplicator:
        """What *exchange*, which deduplicates, remembers; read from its file the first time."""
        found = self._deduplicators.get(_file_name(exchange))
        if found is not None:
            return found
        arguments = exchange.deduplication
        assert arguments is not None
        return self.add(
            _file_name(exchange), arguments.cache_size, arguments.cache_ttl_ms, exchange.durable
        )

    def is_duplicate(self, exchange: Exchange, headers: Table) -> bool:
        """Has a message of this key come to *exchange* before? If not, it is remembered."""
        assert exchange.deduplication is not None
        field = headers.get(exchange.deduplication.header)
        if field is None:
            return False
        ttl = headers.get(TTL_HEADER)
        ttl_ms = cast("int", ttl.value) if ttl and ttl.tag in INTEGER_TAGS else None
        self._turn.touch(self)
        return self.open(exchange).is_duplicate(deduplication_key(field), self._turn.now_ms, ttl_ms)

    def forget(self, exchange: Exchange, headers: Table) -> None:
        """The message with these headers was refused: it may come again."""
        assert exchange.deduplication is not None
        field = headers.get(exchange.deduplication.header)
        if field is not None:
            self._turn.touch(self)
            self.open(exchange).forget(deduplication_key(field))

    def remove(self, exchange: Exchange) -> None:
        """*exchange* is gone."""
        deduplicator = self._deduplicators.pop(_file_name(exchange), None)
        if deduplicator is not None:
            deduplicator.delete()

    # ---- anybody

    def add(
        self, name: str, cache_size: int, cache_ttl_ms: int | None, durable: bool
    ) -> Deduplicator:
        """The keys called *name*, on disk if *durable*; their user touches this in each turn."""
        log = self._open_log(name) if durable else None
        deduplicator = Deduplicator(cache_size, cache_ttl_ms, log)
        self._deduplicators[name] = deduplicator
        return deduplicator

    def drop(self, name: str) -> None:
        """The user of *name* is gone, and its file with it."""
        deduplicator = self._deduplicators.pop(name, None)
        if deduplicator is not None:
            deduplicator.close()

    # ---- TurnQueue

    def flush(self) -> None:
        """Keys are written behind the messages."""

    def dispatch(self, now_ms: int) -> None:
        """There is nothing to hand out."""
        self._turn.write_behind(self)

    def flush_state(self) -> None:
        """Write what was remembered in this turn."""
        for deduplicator in self._deduplicators.values():
            try:
                waiter = deduplicator.flush()
            except (DiskFull, OSError) as error:
                # Kept for the next turn. At worst a duplicate gets through after a crash.
                logger.warning("keys of messages not written: %s", error)
                continue
            if waiter is not None:
                self._turn.wait_for_logs(waiter)

    def close(self) -> None:
        """Let go of files."""
        for deduplicator in self._deduplicators.values():
            deduplicator.close()


def _file_name(exchange: Exchange) -> str:
    return "duplicates/" + sha256(exchange.name.encode()).hexdigest()
