"""Programs of users, run as processes of their own, and what they print."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.waiting import eventually


class Program:
    """A Python program under way; its output is in *lines*, errors and warnings included.

    It runs in *directory*, away from the checkout, so that it imports what a user's would.
    """

    def __init__(
        self, *command: str, directory: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, *command],
            cwd=directory,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}
            | dict(environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # Whoever starts the tests in the background has them ignore it, and so would these.
            preexec_fn=heed_interrupts,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self.lines.append(line.rstrip("\n"))

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, text: str, *, times: int = 1, timeout: float = 30) -> None:
        """Wait until *text* has been printed that often."""

        def is_printed() -> bool:
            assert self._process.poll() is None or text in self.output, self.output
            return self.output.count(text) >= times

        try:
            eventually(is_printed, within=timeout)
        except AssertionError as error:
            raise AssertionError(
                f"{text!r} was not printed {times} times:\n{self.output}"
            ) from error

    def finish(self, timeout: float = 30) -> list[str]:
        """Wait for an end without error; answers the lines."""
        assert self.end(timeout) == 0, self.output
        return self.lines

    def interrupt(self) -> list[str]:
        """Ctrl+C, then as `finish`."""
        self._process.send_signal(signal.SIGINT)
        return self.finish()

    def end(self, timeout: float = 30) -> int:
        """Wait for the end; answers the exit status."""
        status = self._process.wait(timeout)
        self._reader.join()
        return status

    def kill(self) -> None:
        """SIGKILL for the program and every process that it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self.end()


def heed_interrupts() -> None:
    """Take SIGINT again, in a child that inherited from a background job that it is ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
