"""ConfirmTracker: the publisher confirms of one channel, in order (RabbitMQ's confirm class).

Sequence numbers start at 1 with the first publish after confirm.select. A turn's publishes are
settled together: at its end if nothing of them must reach the disk, otherwise when the committer
has synced it; never before what was published earlier. Each run of accepted or refused messages is
one ack or nack: all before it is settled, so `multiple` covers nothing else.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from leveret.amqp.fastpath import encode_ack, encode_nack
from leveret.storage.committer import Waiter


class ConfirmTracker:
    """Counts publishes and sends one ack for each run of settled ones."""

    __slots__ = (
        "_channel",
        "_fail",
        "_refused",
        "_send",
        "_settled",
        "_unsynced",
        "_waiting",
        "published",
    )

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
        self._refused: deque[int] = deque()

    def publish(self, count: int, *, durable: bool, refused: Iterable[int] = ()) -> None:
        """*count* messages were published; *durable*: at least one must be on disk first.

        *refused* are the places (from 0, rising) of those that no queue may keep.
        """
        self._refused += [self.published + 1 + place for place in refused]
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
        refused = self._refused
        while refused and refused[0] <= sequence:
            self._send_run(encode_ack, refused[0] - 1)
            last = refused.popleft()
            while refused and refused[0] == last + 1 <= sequence:
                last = refused.popleft()
            self._send_run(encode_nack, last)
        self._send_run(encode_ack, sequence)

    def _send_run(self, encode: Callable[..., bytes], sequence: int) -> None:
        count = sequence - self._settled
        if count > 0:
            self._settled = sequence
            self._send(encode(self._channel, sequence, multiple=count > 1))
