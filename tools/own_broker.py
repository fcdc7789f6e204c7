"""A broker of our own for the tools that measure it, and how they show what they found."""

import atexit
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

LEVERET = str(Path(sys.executable).parent / "leveret")
READY = re.compile(r"ready: amqp://[^ ]+:(\d+) ")


class Broker:
    """A broker of our own on *data_dir*."""

    def __init__(self, data_dir: Path, *options: str) -> None:
        self._data_dir = data_dir
        self._begin = time.monotonic()
        command = [LEVERET, "serve", "--data-dir", str(data_dir), "--port", "0"]
        command += ["--log-level", "warning", *options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        atexit.register(self._process.kill)  # should the measurement fail
        assert self._process.stdout is not None
        ready = READY.search(self._process.stdout.readline())
        assert ready, "the broker did not start"
        self.port = int(ready[1])
        self.start_s = time.monotonic() - self._begin

    def bench(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the load generator."""
        uri = f"amqp://127.0.0.1:{self.port}/"
        command = [LEVERET, "bench", "--uri", uri, "--json", *arguments]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def measure(self, *arguments: str) -> dict[str, Any]:
        """Run the load generator; its figures."""
        output, _ = self.bench(*arguments).communicate()
        (figures,) = json.loads(output)
        faults = ("lost", "duplicated", "out_of_order", "nacked", "early")
        assert not any(figures[fault] for fault in faults), figures
        found: dict[str, Any] = figures
        return found

    @property
    def resident_mb(self) -> float:
        """Its resident memory."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1000

    @property
    def waiting(self) -> int:
        """How many messages wait for their time."""
        with closing(socket.socket(socket.AF_UNIX)) as client, client.makefile("rb") as answers:
            client.connect(str(self._data_dir / "control.sock"))
            client.sendall(b'{"command": "list_delayed", "arguments": {"limit": 1}}\n')
            count: int = json.loads(answers.readline())["result"]["waiting"]
        return count

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def stop(self) -> None:
        """SIGTERM, and wait."""
        self._process.terminate()
        self._process.communicate()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def empty_directory() -> Iterator[Path]:
    """A directory for one broker, gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="leveret-"))
    try:
        yield directory / "data"
    finally:
        shutil.rmtree(directory)


def verdict(*, is_met: bool) -> str:
    """Whether a requirement is met, for a table."""
    return "yes" if is_met else "**no**"


def markdown(head: str, rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    count = head.count("|") - 1
    body = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{head}\n|{'---|' * count}\n{body}\n"
