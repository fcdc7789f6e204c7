"""StoppedStore: in the place of a store that has failed, or is not open yet."""

from collections.abc import Callable, Sequence

from leveret.amqp.errors import InternalError
from leveret.queues.ready import ReadyRange
from leveret.queues.scattered_store import Picked
from leveret.storage.batch import Batch
from leveret.storage.log import SegmentLog
from leveret.storage.state_log import State


class StoppedStore:
    """It has nothing and takes nothing, for *reason*.

    *delete* removes what is on disk.
    """

    __slots__ = ("_delete", "_reason", "next_offset")

    def __init__(self, reason: str, next_offset: int, delete: Callable[[], None]) -> None:
        self.next_offset = next_offset
        self._reason = reason
        self._delete = delete

    @property
    def log(self) -> SegmentLog | None:
        return None

    @property
    def disk_bytes(self) -> int:
        return 0

    def append(
        self, payloads: list[bytes], attributes: int, payload_length: int, now_ms: int
    ) -> None:
        raise InternalError(self._reason)

    def read(self, wanted: ReadyRange, max_bytes: int) -> list[Batch]:
        raise InternalError(self._reason)

    def peek(self, wanted: ReadyRange) -> Batch:
        raise InternalError(self._reason)

    def fetch(self, start: int, stop: int) -> list[Batch]:
        raise InternalError(self._reason)

    def pick(self, offsets: list[int], *, by_time: bool) -> list[Picked]:
        raise InternalError(self._reason)

    def look_at(self, offset: int) -> Batch:
        raise InternalError(self._reason)

    def hold(self, batch: Batch, offsets: Sequence[int]) -> None:
        """Nothing to do, here and below: there are no messages."""

    def forget(self, offsets: Sequence[int]) -> None: ...

    def discard(self, offsets: Sequence[int], state: State = State.ACKED) -> None: ...

    def note(self, state: State, offsets: list[int]) -> None: ...

    def settle(self, offsets: list[int], state: State = State.ACKED) -> None: ...

    def settle_ranges(self, ranges: list[tuple[int, int]]) -> None: ...

    def flush(self) -> None: ...

    def flush_state(self) -> None: ...

    def close(self) -> None: ...

    def fail(self, error: Exception) -> None: ...

    def delete(self) -> None:
        self._delete()
