"""Session: a broker in a fresh directory and the load generator against it."""

import json
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brokers import Broker, RunningBroker
from processes import CompareError, resident_bytes, stolen_s, tree

_READY_TIMEOUT_S = 120
# The load generator takes no more.
_MAX_PIDS = 8


@dataclass(frozen=True)
class Settings:
    """What all measurements of a run have in common. Counts and times as the user gave them."""

    amqpload: Path
    seconds: float
    warmup_s: float
    messages: int


class Session:
    """One broker from its first start to the end, with the restarts in between."""

    def __init__(self, broker: Broker, settings: Settings, directory: Path) -> None:
        self.settings = settings
        self.start_s = 0.0
        self._broker = broker
        self._directory = directory
        self._running: RunningBroker | None = None

    @property
    def running(self) -> RunningBroker:
        """The broker as it runs now."""
        assert self._running
        return self._running

    def start(self) -> float:
        """Start the broker and return the seconds to the first open connection."""
        begin = time.monotonic()
        self._running = RunningBroker(self._broker, self._directory)
        while True:
            try:
                self._amqpload("--wait-ready", "0.1")
                break
            except CompareError:
                self._running.check()
                if time.monotonic() - begin > _READY_TIMEOUT_S:
                    raise
        return time.monotonic() - begin

    def load(self, *arguments: str) -> dict[str, Any]:
        """Run the load generator and return its figures.

        `others_cpus` among them is what neither the broker nor the load generator had of the CPUs
        that were busy. Raises CompareError if the broker refuses the work or a message is lost or
        comes twice.
        """
        pids = tree(self.running.pid)[:_MAX_PIDS]
        begin, stolen = time.monotonic(), stolen_s()
        figures = self._amqpload(*arguments, "--broker-pid", ",".join(map(str, pids)))
        stolen_cpus = (stolen_s() - stolen) / (time.monotonic() - begin)
        ours = figures["broker_cpus"] + figures.get("self_cpus", 0)
        return {**figures, "others_cpus": figures.get("busy_cpus", ours) - ours + stolen_cpus}

    def resident_mb(self) -> float:
        """The resident memory of the broker in units of 1,000,000 bytes."""
        return resident_bytes(self.running.pid) / 1e6

    def end(self) -> None:
        """End the broker, whatever it does."""
        if self._running:
            self._running.kill()

    def _amqpload(self, *arguments: str) -> dict[str, Any]:
        words = [str(self.settings.amqpload), "--json", "--port", str(self._broker.port)]
        done = subprocess.run([*words, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            reason = done.stderr.strip().rpartition("\n")[2]
            raise CompareError(f"{self._broker.name}, {' '.join(arguments)}: {reason}")
        figures: dict[str, Any] = json.loads(done.stdout)
        return figures


@contextmanager
def fresh(broker: Broker, settings: Settings) -> Iterator[Session]:
    """A session whose broker runs in an empty directory; both are gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="compare-"))
    session = Session(broker, settings, directory)
    try:
        session.start_s = session.start()
        yield session
        session.running.stop()
    finally:
        session.end()
        shutil.rmtree(directory)


def build(given: str | None, directory: Path) -> Path:
    """The load generator: *given* as a program or as its C source, or the one on PATH."""
    found = given or shutil.which("amqpload")
    if not found:
        raise CompareError("no amqpload on PATH: give its source or program with --amqpload")
    path = Path(found).resolve()
    if not path.is_file():
        raise CompareError(f"{found}: no such file")
    if path.suffix != ".c":
        return path
    program = directory / "amqpload"
    compile_words = ["gcc", "-O2", "-std=gnu11", "-pthread", "-o", str(program), str(path)]
    done = subprocess.run(compile_words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompareError(f"{found} does not compile: {done.stderr.splitlines()[0]}")
    return program


def allow_open_files() -> None:
    """Let us and the brokers open as many files as the system permits: 1,000 connections do."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
