"""Range: the part of a queue's past that a command is about.

Such a command answers for a page only: who asks names a place to begin and one to end, as an
offset or as a time in milliseconds; the answer says what they are in offsets, as `begin` and
`end`, and in `next` where the next page begins, None behind the last. Between pages others are
served: what is published or settled meanwhile may or may not be seen.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypedDict, Unpack

from leveret.broker.broker import Broker
from leveret.broker.commands_vhosts import find_vhost
from leveret.broker.errors import InvalidRequest, NoSuchObject, RequestError
from leveret.broker.recovery import NotRecovered
from leveret.broker.vhost import VHost
from leveret.queues.classic import ClassicQueue
from leveret.queues.history import Condition, Page, QueueHistory
from leveret.storage.errors import StorageError


class Bounds(TypedDict, total=False):
    """Where a range begins and ends; the whole queue without any of these."""

    start: int | None
    start_ms: int | None
    stop: int | None
    stop_ms: int | None


class Range(NamedTuple):
    """Offsets [begin, end) of a queue, and its past."""

    vhost: VHost
    queue: ClassicQueue
    history: QueueHistory
    begin: int
    end: int

    def page(self, *, only_ready: bool = False) -> Page:
        """The first messages of it. Raises RequestError."""
        with reading(self.queue):
            return self.history.page(self.begin, self.end, only_ready=only_ready)

    def answer(self, next_offset: int, found: dict[str, object]) -> dict[str, object]:
        """What every command answers, and what it *found*."""
        following = next_offset if next_offset < self.end else None
        return {"begin": self.begin, "end": self.end, "next": following, **found}


def find_range(broker: Broker, vhost_name: str, name: str, **bounds: Unpack[Bounds]) -> Range:
    """The part of the queue called *name* that *bounds* say.

    Raises InvalidRequest for a queue without a past, NoSuchObject, RequestError, NotRecovered.
    """
    vhost = find_vhost(broker, vhost_name)
    queue = vhost.queues.get(name)
    if queue is None:
        raise NoSuchObject(f"queue '{name}' does not exist in vhost '{vhost_name}'")
    if queue in vhost.recovering:
        raise NotRecovered([queue])
    broker.turn.run()  # its log knows what has happened then
    if queue.stopped:
        raise RequestError(f"queue '{name}' has stopped: {queue.stopped}")
    log = queue.log
    if log is None:
        raise InvalidRequest(f"queue '{name}' keeps its messages in memory: it has no history")
    history = QueueHistory(queue, log)
    with reading(queue):
        begin = _place(history, bounds.get("start"), bounds.get("start_ms"), history.first)
        end = _place(history, bounds.get("stop"), bounds.get("stop_ms"), history.end)
    return Range(vhost, queue, history, min(begin, end), end)


def _place(history: QueueHistory, offset: int | None, time_ms: int | None, default: int) -> int:
    if time_ms is not None:
        return history.at_time(time_ms)
    return default if offset is None else min(max(offset, history.first), history.end)


@contextmanager
def reading(queue: ClassicQueue) -> Iterator[None]:
    """Turn errors of storage into RequestError: they are told to who asks, the queue goes on."""
    try:
        yield
    except (StorageError, OSError) as error:
        raise RequestError(f"queue '{queue.name}' cannot be read: {error}") from error


CONDITIONS = {
    "ready": Condition.READY,
    "delivered": Condition.HELD,
    "settled": Condition.SETTLED,
    "all": None,
}
"""What the argument `state` of a command means; None is any."""


def check_state(state: str) -> None:
    """Raise InvalidRequest for what is none of `CONDITIONS`."""
    if state not in CONDITIONS:
        raise InvalidRequest(f"state is one of {', '.join(CONDITIONS)}")
