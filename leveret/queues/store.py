"""MessageStore: where a queue keeps its messages, by offset; in memory or in a segment log.

Messages come and go in batches. A message that is read for delivery leaves the store's cache; the
queue then says what becomes of it: `hold` (it will be settled later), or `discard`.
"""

from collections.abc import Sequence
from typing import Protocol

from leveret.queues.ready import ReadyRange
from leveret.storage.batch import Batch
from leveret.storage.log import SegmentLog
from leveret.storage.state_log import State


class MessageStore(Protocol):
    """What a queue needs of its storage."""

    next_offset: int

    @property
    def log(self) -> SegmentLog | None:
        """The log that they lie in, if any."""

    @property
    def disk_bytes(self) -> int:
        """Bytes of its files, about."""

    def append(
        self, payloads: list[bytes], attributes: int, payload_length: int, now_ms: int
    ) -> None:
        """Give the next offsets to *payloads*; the list itself is not kept."""

    def read(self, wanted: ReadyRange, max_bytes: int) -> list[Batch]:
        """The messages of *wanted*, from its start, about *max_bytes* of them but at least one."""

    def peek(self, wanted: ReadyRange) -> Batch:
        """Some of the messages of *wanted*, from its start, at least one; all stay where they are.

        The first of them is at `wanted.start - first_offset` in the batch.
        """

    def fetch(self, start: int, stop: int) -> list[Batch]:
        """The messages of a range, delivered or not but none of them settled; they stay there."""

    def hold(self, batch: Batch, offsets: Sequence[int]) -> None:
        """These messages, just read from *offsets*, were delivered and wait to be settled."""

    def discard(self, offsets: Sequence[int], state: State = State.ACKED) -> None:
        """The messages at *offsets*, just read, are done with; *state* says why."""

    def note(self, state: State, offsets: list[int]) -> None:
        """Write down that these deliveries came back (FAILED or RETURNED)."""

    def settle(self, offsets: list[int], state: State = State.ACKED) -> None:
        """These messages are done with; *state* says why."""

    def settle_ranges(self, ranges: list[tuple[int, int]]) -> None:
        """Every message in *ranges* is purged, and was not read."""

    def flush(self) -> SegmentLog | None:
        """What was appended may be read from now on; answers the log that must be synced for it.

        Raises the errors of the log.
        """

    def flush_state(self) -> SegmentLog | None:
        """Write down what was delivered and settled; answers the log whose states wait for a sync.

        Raises the errors of the log.
        """

    def close(self) -> None:
        """Let go of files."""

    def fail(self, error: Exception) -> None:
        """Let go of files as they are, and write nothing more to them."""

    def delete(self) -> None:
        """Let go of everything, on disk too."""
