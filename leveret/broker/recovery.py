"""Recovery: the queues of a broker that are being recovered, and who waits for them.

Other threads call `work`, the loop installs by `finish` what they have made. Making the queue of a
log touches nothing but its directory; what is shared belongs to the loop. A queue is claimed by
taking it out of a dict, which happens for one thread only.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from leveret.queues.classic import ClassicQueue
from leveret.storage.errors import StorageError

logger = logging.getLogger(__name__)

SLICE_S = 0.01
"""How long small queues are recovered before the loop is told of them."""


class NotRecovered(Exception):
    """These queues are being recovered: nothing was done, try again when they are there."""

    def __init__(self, queues: list[ClassicQueue]) -> None:
        super().__init__(f"queue '{queues[-1].name}' is being recovered")
        self.queues = queues


Installed = Callable[[ClassicQueue, Exception | None], None]
"""Takes the recovered queue, or what went wrong and the one that stands for it."""


@dataclass(slots=True, eq=False)
class Job:
    """The recovery of one queue. *make* makes it, in any thread; *install* is for the loop."""

    queue: ClassicQueue
    make: Callable[[], ClassicQueue]
    install: Installed
    made: ClassicQueue | None = None
    error: Exception | None = None
    waiters: list[Callable[[], object]] = field(default_factory=list)

    def run(self) -> None:
        """Recover the queue."""
        try:
            self.made = self.make()
        except (OSError, StorageError) as error:
            self.error = error
        except Exception as error:  # a fault of ours in one queue; the others are recovered
            logger.exception("recovery failed: queue=%s", self.queue.name)
            self.error = error


class Recovery:
    """Has queues recovered in their order, but those that somebody waits for first.

    `total` are all there were at the start, `done` those that have been recovered, with so many
    ready `messages` and `bytes` on disk.
    *on_wanted* is called when somebody begins to wait, perhaps for what is only to be installed.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._jobs: dict[ClassicQueue, Job] = {}
        self._unclaimed: dict[ClassicQueue, Job] = {}
        self._line: deque[Job] = deque()
        self._wanted: deque[Job] = deque()
        self._finished: deque[Job] = deque()
        self.on_wanted: Callable[[], None] = _nobody
        self.total = 0
        self.done = 0
        self.messages = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def add(
        self, queue: ClassicQueue, make: Callable[[], ClassicQueue], install: Installed
    ) -> None:
        """Put *queue* into the line; what *make* answers is given to *install*."""
        job = Job(queue, make, install)
        self._jobs[queue] = self._unclaimed[queue] = job
        self._line.append(job)
        self.total += 1

    # ---- for those who wait

    def want(self, queues: Iterable[ClassicQueue], then: Callable[[], object]) -> None:
        """Recover *queues* next; call *then* once the last of them is there, or given up.

        Others of them may still be missing then.
        """
        jobs = [self._jobs[queue] for queue in queues]
        self._wanted += jobs
        jobs[-1].waiters.append(then)
        self.on_wanted()

    def drop(self, queue: ClassicQueue) -> None:
        """*queue* is deleted: do not recover it if that has not begun."""
        if self._unclaimed.pop(queue, None) is not None:
            self._end(self._jobs[queue])

    def once_idle(self, queue: ClassicQueue, action: Callable[[], None]) -> None:
        """Do *action* when nobody is at the files of *queue*: now, or once it is recovered."""
        job = self._jobs.get(queue)
        if job is None:
            action()
        else:
            job.waiters.append(action)

    # ---- in another thread

    def work(self, *, only_wanted: bool = False) -> bool:
        """Recover queues for a little while, one at least; answers False if none is left."""
        lines = (self._wanted,) if only_wanted else (self._wanted, self._line)
        end = self._clock_s() + SLICE_S
        is_any = False
        while (job := self._claim(lines)) is not None:
            job.run()
            self._finished.append(job)
            is_any = True
            if self._clock_s() >= end:
                break
        return is_any

    def _claim(self, lines: Iterable[deque[Job]]) -> Job | None:
        for line in lines:
            while line:
                try:
                    job = line.popleft()
                except IndexError:  # another thread was faster
                    break
                if self._unclaimed.pop(job.queue, None) is not None:
                    return job
        return None

    # ---- in the loop

    def finish(self) -> None:
        """Install what `work` has recovered so far, and tell those who wait."""
        while self._finished:
            job = self._finished.popleft()
            if job.made is not None:
                self.messages += job.made.ready.count
                self.bytes += job.made.disk_bytes
            try:
                job.install(job.made or job.queue, job.error)
            except Exception:  # a fault of ours in one queue; whoever waits for others is served
                logger.exception("recovery failed: queue=%s", job.queue.name)
            self._end(job)

    def _end(self, job: Job) -> None:
        del self._jobs[job.queue]
        self.done += 1
        for waiter in job.waiters:
            waiter()


def _nobody() -> None:
    """Nobody recovers before this is replaced."""
