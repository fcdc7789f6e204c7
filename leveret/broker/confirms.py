"""ConfirmTracker: the publisher confirms of one channel, in order (RabbitMQ's confirm class).

Sequence numbers start at 1 with the first publish after confirm.select. A turn's publishes are
settled together: at its end if nothing of them must reach the disk, otherwise when the committer
has synced it; never before what was published earlier.
"""

from collections.abc import Callable
from functools import partial

from leveret.amqp.fastpath import encode_ack
from leveret.storage.committer import Waiter


class ConfirmTracker:
    """Counts publishes and sends one ack for each run of settled ones."""

    __slots__ = ("_channel", "_fail", "_send", "_settled", "_unsynced", "_waiting", "published")

    def __init__(
        self,
        channel: int,
        *,
        send: Callable[[bytes], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._channel = channel
        self._send = send
        self._fail = fail
        self.published = 0
        self._settled = 0
        self._waiting = 0
        self._unsynced = False

    def publish(self, count: int, *, durable: bool) -> None:
        """*count* messages were published; *durable*: at least one must be on disk first."""
        self.published += count
        if durable:
            self._unsynced = True

    def end_turn(self, wait: Callable[[Waiter], None]) -> None:
        """Settle what was published in this turn, now or once *wait* says it is on disk."""
        if self._unsynced or self._waiting:
            self._unsynced = False
            self._waiting += 1
            wait(partial(self._synced, self.published))
        else:
            self._settle(self.published)

    def _synced(self, sequence: int, error: Exception | None) -> None:
        self._waiting -= 1
        if error is not None:
            self._fail(error)
        else:
            self._settle(sequence)

    def _settle(self, sequence: int) -> None:
        count = sequence - self._settled
        if count > 0:
            self._settled = sequence
            self._send(encode_ack(self._channel, sequence, multiple=count > 1))
