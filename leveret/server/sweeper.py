"""Sweeper: a thread that gives disk space back while the broker goes on.

Freeing the blocks of a 64 MiB segment takes the kernel as long as many syncs.
"""

import logging
import queue
import threading
import time

from leveret.storage.disk_space import Work

logger = logging.getLogger(__name__)

PAUSE_S = 0.01
"""Between two steps, so that syncs come first."""


class Sweeper:
    """Does one piece of work after the other, in a thread of its own."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="sweeper")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def sweep(self, work: Work) -> None:
        """Do *work* soon."""
        self._work.put(work)

    def stop(self) -> None:
        """Finish what there is to do and end the thread. Blocks."""
        self._stopping = True
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                for _ in work:
                    if not self._stopping:
                        time.sleep(PAUSE_S)
            except OSError as error:
                # The next start sweeps what is left.
                logger.warning("disk space not given back: %s", error)
            except Exception:  # a fault of ours in one piece of work; the others are done
                logger.exception("disk space not given back")
