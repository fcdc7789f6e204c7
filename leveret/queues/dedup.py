"""Deduplication: which messages came before, told by the value of a header.

A key is remembered until it expires, until *cache_size* others came after it, or, in a queue,
until its message leaves. That it comes again does not keep it any longer.

Keys are remembered as digests of 16 bytes, whatever their length; that two among a million of them
are alike is as likely as 1 to 10^26. A key takes some 220 bytes of memory, 260 once the cache was
full for long, and 24 to 48 bytes of the file, which is rewritten after as many new keys as a third
of the cache: in 0.2 s for a million.
"""

import logging
from collections import OrderedDict
from functools import partial
from hashlib import blake2b

from leveret.amqp.tables import INTEGER_TAGS, Field, encode_table
from leveret.storage.committer import Waiter
from leveret.storage.errors import DiskFull
from leveret.storage.key_log import DURABLE, FORGOTTEN, KEY_SIZE, KeyLog

logger = logging.getLogger(__name__)

MIN_REWRITTEN = 4096
"""Entries below which a key log is left as long as it is."""

_NEVER = 1 << 62


def deduplication_key(field: Field) -> bytes:
    """The key that *field*, the value of the header, stands for.

    Integers of any width are the same key; other letters and values are different ones.
    """
    if field.tag in INTEGER_TAGS:
        field = Field("l", field.value)
    return encode_table({"": field})


class Deduplicator:
    """Finds keys that came before, among the last *cache_size* of them.

    Each is remembered for *cache_ttl_ms* (None or 0: no limit). With a *log* it outlives the
    process. What was remembered and forgotten is collected, and `flush` writes it, behind the flush
    of the logs that have the messages.
    """

    __slots__ = ("_cache_size", "_cache_ttl_ms", "_changes", "_keys", "_log")

    def __init__(
        self,
        cache_size: int,
        cache_ttl_ms: int | None = None,
        log: KeyLog | None = None,
    ) -> None:
        self._cache_size = cache_size
        self._cache_ttl_ms = cache_ttl_ms
        self._log = log
        # Key -> stamp, as in the log; the oldest first.
        self._keys: OrderedDict[bytes, int] = OrderedDict()
        # What the log does not know yet.
        self._changes: dict[bytes, int] = {}
        if log is not None:
            self._recover(log)

    def __len__(self) -> int:
        return len(self._keys)

    def is_duplicate(self, key: bytes, now_ms: int, ttl_ms: int | None = None) -> bool:
        """Did *key* come before? If not, it is remembered, for *ttl_ms* if given."""
        digest = _digest(key)
        keys = self._keys
        stamp = keys.get(digest)
        if stamp is not None:
            if now_ms < stamp >> 1:
                return True
            del keys[digest]
        while keys and next(iter(keys.values())) >> 1 <= now_ms:
            keys.popitem(last=False)
        if len(keys) >= self._cache_size:
            self._note(keys.popitem(last=False)[0], FORGOTTEN)
        ttl_ms = ttl_ms or self._cache_ttl_ms
        keys[digest] = stamp = (now_ms + ttl_ms if ttl_ms else _NEVER) << 1
        self._note(digest, stamp)
        return False

    def forget(self, key: bytes) -> None:
        """Let *key* come again: its message was refused, or left the queue."""
        digest = _digest(key)
        if self._keys.pop(digest, None) is not None:
            self._note(digest, FORGOTTEN)

    def flush(self) -> Waiter | None:
        """Write what changed. Raises DiskFull or OSError; the next flush then tries again.

        The answer is who waits until the messages are as durable as the policy
        promises. If they never will be, their keys are forgotten.
        """
        log = self._log
        if log is None or not self._changes:
            return None
        if log.entries + len(self._changes) > max(MIN_REWRITTEN, 2 * len(self._keys)):
            log.rewrite(self._keys)
        else:
            log.append(self._changes)
        changes, self._changes = self._changes, {}
        return partial(self._settle, changes)

    def close(self) -> None:
        """Give the descriptor of the log back."""
        if self._log is not None:
            self._log.close()

    def delete(self) -> None:
        """Remove the log."""
        if self._log is not None:
            self._log.delete()

    def _recover(self, log: KeyLog) -> None:
        self._keys = log.recover()
        while len(self._keys) > self._cache_size:
            self._keys.popitem(last=False)
        log.replace(self._keys)

    def _note(self, digest: bytes, stamp: int) -> None:
        if self._log is not None:
            self._changes.pop(digest, None)  # what changed last goes last
            self._changes[digest] = stamp

    def _settle(self, written: dict[bytes, int], error: Exception | None) -> None:
        """The messages that brought the keys *written* are durable, or lost with *error*."""
        assert self._log is not None
        settled = {}
        for key, stamp in written.items():
            if stamp == FORGOTTEN or self._keys.get(key) != stamp:
                continue
            if error is None:
                self._keys[key] = settled[key] = stamp | DURABLE
            else:
                del self._keys[key]
                settled[key] = FORGOTTEN
        if not settled:
            return
        # Not what changed since: those messages may not be written yet.
        try:
            self._log.append(settled)
        except (DiskFull, OSError) as failure:
            logger.warning("%s; the next flush tries again", failure)
            self._changes = settled | self._changes


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=KEY_SIZE).digest()
