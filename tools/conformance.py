"""Run `leveret conformance` against a broker that is started for it.

    python tools/conformance.py leveret --format json > ours.json
    python tools/conformance.py rabbitmq --only exchange

The broker runs on ports and in a directory of its own, can be restarted, and is gone afterwards.
RabbitMQ, as Debian packages it, has its HTTP API and consistent hashing. Further arguments are
those of `leveret conformance`. Exit code: that of `leveret conformance`; 2 too if the broker does
not start.
"""

import argparse
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, Thread

# With PYTHONSAFEPATH set, as the Makefile has it, Python does not look beside the script.
sys.path.insert(0, str(Path(__file__).resolve().parent / "compare"))

from brokers import Broker, RunningBroker, leveret, managed, rabbitmq
from processes import CompareError

_LEVERET = [sys.executable, "-m", "leveret.server"]
_SERVE = [*_LEVERET, "serve", "--data-dir", "{directory}/data", "--port", "{port}"]


class Restartable:
    """A broker that runs from `start` to `end`, and begins anew when it is asked to."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self._broker = broker
        self._directory = directory
        self._running: RunningBroker | None = None
        self._is_over = False
        # A restart is asked for in another thread than the one that ends the broker.
        self._lock = Lock()

    def start(self) -> None:
        """Start it. Raises CompareError."""
        self._running = RunningBroker(self._broker, self._directory)
        self._running.wait_until_ready()

    def restart(self) -> None:
        """Stop it and start it again, on what it has stored. Raises CompareError."""
        with self._lock:
            if not self._is_over and self._running:
                self._running.stop()
                self.start()

    def end(self) -> None:
        """End it, whatever it does."""
        with self._lock:
            self._is_over = True
            if self._running:
                self._running.kill()


@contextmanager
def command_for(act: Callable[[], None], directory: Path) -> Iterator[str]:
    """A shell command that has *act* called and ends when it has been done."""
    asked, done = directory / "asked", directory / "done"
    os.mkfifo(asked)
    os.mkfifo(done)

    def serve() -> None:
        while asked.read_text():
            try:
                act()
                code = 0
            except CompareError as error:
                print(f"conformance: {error}", file=sys.stderr)
                code = 1
            done.write_text(f"{code}\n")

    Thread(target=serve, daemon=True).start()
    yield f"echo > {asked}; read code < {done}; exit $code"


def main() -> int:
    """Start the broker, run the suite, and return its exit code."""
    parser = argparse.ArgumentParser(
        description="Run `leveret conformance` against a broker that is started for it.",
        epilog="Further arguments are those of `leveret conformance`.",
    )
    parser.add_argument("broker", choices=["leveret", "rabbitmq"])
    chosen, rest = parser.parse_known_args()
    broker = leveret(shlex.join(_SERVE), _free_port())
    if chosen.broker == "rabbitmq":
        broker = managed(rabbitmq("conformance", 5694))
        rest += ["--management-url", f"http://127.0.0.1:{broker.ports[-1]}"]
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        directory = Path(name)
        restartable = Restartable(broker, directory)
        try:
            restartable.start()
            with command_for(restartable.restart, directory) as restart:
                uri = f"amqp://guest:guest@127.0.0.1:{broker.port}/"
                words = [*_LEVERET, "conformance", uri, "--restart-command", restart, *rest]
                return subprocess.run(words, check=False).returncode
        except CompareError as error:
            print(f"conformance: {error}", file=sys.stderr)
            return 2
        finally:
            restartable.end()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
