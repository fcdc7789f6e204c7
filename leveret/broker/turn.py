"""Turn: what one iteration of the event loop touched, worked off once at its end.

The order keeps the promises of the broker:

    1. what was published is written to the logs, so that a delivery can be read and a confirm
       never precedes its write
    2. ready messages go to consumers, and dead ones to other queues: 1 and 2 again for these
    3. deliveries and acks are written to the state logs, behind the messages they speak of and
       behind the dead letters that replace them
    4. confirms wait for the committer, or go out now
    5. each connection's output goes to its socket in one piece
    6. the sync begins; earlier, its thread would contend for the interpreter with the deliveries
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from leveret.amqp.errors import InternalError
from leveret.broker.timers import Timers
from leveret.storage.committer import Committer, Syncable, Waiter
from leveret.storage.errors import DiskFull

logger = logging.getLogger(__name__)


class TurnQueue(Protocol):
    """A queue as a turn sees it."""

    def flush(self) -> Syncable | None:
        """Write what was published; answers the log to sync for it.

        Raises DiskFull, and is called again until it does not.
        """

    def dispatch(self, now_ms: int) -> int | None:
        """Hand ready messages to consumers; answers when to be called again, if at a time."""

    def flush_state(self) -> Syncable | None:
        """Write what was delivered and settled; answers the log whose states wait for a sync."""


class TurnOutput(Protocol):
    """A connection as a turn sees it."""

    def flush(self) -> None:
        """Give the collected output to the socket."""


class TurnConfirms(Protocol):
    """A channel in confirm mode as a turn sees it."""

    def end_turn(self, wait: Callable[[Waiter], None]) -> None:
        """Confirm what was published in this turn, or have it *wait* for the disk."""


RETRY_MS = 1000
"""Between two tries to write on a full disk."""


class Turn:
    """Collects the queues, channels and connections touched; `run` works them off."""

    __slots__ = (
        "_afterwards",
        "_behind",
        "_clock_ms",
        "_committer",
        "_confirms",
        "_dispatching",
        "_failure",
        "_full",
        "_log_waiters",
        "_on_failure",
        "_on_full",
        "_outputs",
        "_queues",
        "_schedule",
        "_scheduled",
        "_served",
        "_timers",
        "_unwritten",
        "_wake_committer",
        "_was_full",
        "now_ms",
    )

    def __init__(
        self,
        committer: Committer,
        *,
        schedule: Callable[[Callable[[], None]], object],
        wake_committer: Callable[[], None],
        on_failure: Callable[[TurnQueue, Exception], None],
        on_full: Callable[[bool], None],
        clock_ms: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._committer = committer
        self._schedule = schedule
        self._wake_committer = wake_committer
        self._on_failure = on_failure
        self._on_full = on_full
        self._clock_ms = clock_ms
        self._timers: Timers[TurnQueue] = Timers(clock_ms, call_later, self._fired)
        self._scheduled = False
        self._failure: Exception | None = None
        self._queues: dict[TurnQueue, None] = {}
        self._served: dict[TurnQueue, None] = {}
        self._dispatching: set[TurnQueue] = set()
        self._full: dict[TurnQueue, None] = {}  # those that the disk has no room for
        self._unwritten: dict[TurnQueue, None] = {}  # those of them that have new messages
        self._behind: dict[TurnQueue, None] = {}  # those whose states wait for these messages
        self._was_full = False
        self._confirms: dict[TurnConfirms, None] = {}
        self._outputs: dict[TurnOutput, None] = {}
        self._log_waiters: list[Waiter] = []
        self._afterwards: list[Callable[[], None]] = []
        self.now_ms = clock_ms()

    def touch(self, queue: TurnQueue) -> None:
        """*queue* got a message, credit or a consumer, or something was settled."""
        self._queues[queue] = None
        if not self._scheduled:
            self._soon()

    def confirm(self, confirms: TurnConfirms) -> None:
        """Something was published on a channel in confirm mode."""
        self._confirms[confirms] = None
        if not self._scheduled:
            self._soon()

    def output(self, output: TurnOutput) -> None:
        """A connection has something to send."""
        self._outputs[output] = None
        if not self._scheduled:
            self._soon()

    def forget(self, queue: TurnQueue) -> None:
        """*queue* is gone."""
        for queues in (self._queues, self._served, self._full, self._unwritten, self._behind):
            queues.pop(queue, None)
        self._timers.forget(queue)

    def write_behind(self, queue: TurnQueue) -> None:
        """What *queue* writes as its states says that others have got something in this turn.

        It is written once everything published is.
        """
        self._behind[queue] = None

    def work_off(self, queue: TurnQueue) -> None:
        """Work off *queue* now, for a method that looks at its messages.

        Raises InternalError if it cannot be written; the queue has then been stopped.
        """
        self.touch(queue)  # its states are written at the end of the turn
        if not (self._flush(queue) and self._dispatch(queue)):
            raise InternalError("the storage of this queue failed")

    def wake_at(self, queue: TurnQueue, due_ms: int) -> None:
        """Touch *queue* at *due_ms*, milliseconds since 1970."""
        self._timers.set(queue, due_ms)

    def _fired(self, queues: list[TurnQueue]) -> None:
        for queue in queues:
            self.touch(queue)

    def wait_for_logs(self, waiter: Waiter) -> None:
        """Tell *waiter* once what this turn writes is as durable as the policy promises."""
        self._log_waiters.append(waiter)
        if not self._scheduled:
            self._soon()

    @property
    def is_behind(self) -> bool:
        """Is the disk so far behind that publishers should wait?"""
        return self._committer.is_behind

    def afterwards(self, action: Callable[[], None]) -> None:
        """Do *action* once all output is with the sockets and the disk is not behind."""
        self._afterwards.append(action)
        if not self._scheduled:
            self._soon()

    def wait_for_commit(self) -> None:
        """A definition waits for the committer."""
        if not self._scheduled:
            self._soon()

    def _soon(self) -> None:
        self._scheduled = True
        self._schedule(self.run)

    def run(self) -> None:
        """Work off everything that was touched."""
        self._scheduled = True  # what touches on the way is worked off here as well
        try:
            self._run()
        finally:
            self._scheduled = False
        if self._committer.is_waited_for:
            self._wake_committer()
        is_waited_for = bool(self._confirms or self._log_waiters) and not self._unwritten
        if self._queues or self._outputs or is_waited_for:
            self._soon()

    def _run(self) -> None:
        self.now_ms = self._clock_ms()
        while self._queues:
            queues, self._queues = self._queues, {}
            sound = [queue for queue in queues if self._flush(queue)]
            for queue in sound:
                self._served[queue] = None
                self._dispatch(queue)
        served, self._served = self._served, {}
        if self._behind and not self._unwritten:
            served |= self._behind
            self._behind = {}
        for queue in served:
            if queue not in self._behind:
                self._flush_state(queue)
        if bool(self._full) is not self._was_full:
            self._was_full = bool(self._full)
            self._on_full(self._was_full)
        # While something published is not written, nobody hears that anything is.
        if not self._unwritten:
            self._join_commit()
        committer = self._committer
        for waiter in committer.take_due():
            waiter(None)
        outputs, self._outputs = self._outputs, {}
        for output in outputs:
            output.flush()
        if not committer.is_behind:
            afterwards, self._afterwards = self._afterwards, []
            for action in afterwards:
                action()

    def _join_commit(self) -> None:
        """Enter those who wait for what was flushed."""
        # Whose messages a failed queue lost is not known: whoever waits for a log hears of it.
        failure, self._failure = self._failure, None
        wait = self._committer.wait if failure is None else partial(_refuse, failure)
        if self._confirms:
            confirms, self._confirms = self._confirms, {}
            for confirm in confirms:
                confirm.end_turn(wait)
        if self._log_waiters:
            log_waiters, self._log_waiters = self._log_waiters, []
            for waiter in log_waiters:
                wait(waiter)

    def _dispatch(self, queue: TurnQueue) -> bool:
        if queue in self._dispatching:
            return True  # by a dead letter on its way back: what it has taken goes out first
        self._dispatching.add(queue)
        try:
            due_ms = queue.dispatch(self.now_ms)
        except Exception as error:  # one queue's fault is that queue's end, not the broker's
            self._served.pop(queue, None)
            self._on_failure(queue, error)
            return False
        finally:
            self._dispatching.remove(queue)
        if due_ms is not None:
            self._timers.set(queue, due_ms)
        return True

    def _flush_state(self, queue: TurnQueue) -> None:
        try:
            log = queue.flush_state()
        except DiskFull as error:
            self._found_full(queue, error)
            return
        except Exception as error:
            self._on_failure(queue, error)
            return
        if self._full and queue not in self._unwritten:
            self._full.pop(queue, None)
        if log is not None:
            self._committer.touch_state(log)

    def _flush(self, queue: TurnQueue) -> bool:
        try:
            log = queue.flush()
        except DiskFull as error:
            self._unwritten[queue] = None
            self._found_full(queue, error)
            return True  # what was written before can be delivered
        except Exception as error:
            self._failure = error
            self._on_failure(queue, error)
            return False
        if self._unwritten:
            self._unwritten.pop(queue, None)
        if log is not None:
            self._committer.touch(log)
        return True

    def _found_full(self, queue: TurnQueue, error: DiskFull) -> None:
        logger.error("publishers wait for room on the disk: %s", error)
        self._full[queue] = None
        self._timers.set(queue, self.now_ms + RETRY_MS)


def _refuse(error: Exception, waiter: Waiter) -> None:
    waiter(error)
