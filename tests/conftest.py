"""Guards for the whole suite, and brokers in processes of their own."""

import importlib.util
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """The links at the root are for people: `import amqp` must find Celery's library, not ours."""
    spec = importlib.util.find_spec("amqp")
    origin = Path(spec.origin).resolve() if spec and spec.origin else None
    if origin and origin.is_relative_to(ROOT / "leveret"):
        raise pytest.UsageError(
            f"`import amqp` finds {origin}, which hides Celery's library: run with PYTHONSAFEPATH=1"
        )
    # How long an example takes says something about the machine only.
    settings.register_profile("leveret", deadline=None, stateful_step_count=80)
    # For minutes: `make model`.
    settings.register_profile("model", deadline=None, max_examples=1000, stateful_step_count=200)
    settings.load_profile("leveret")


class BrokerProcess:
    """A broker in its own process, as a user runs it: on a free port, data in *data_dir*.

    *prefix* is a command that runs the one behind it.
    """

    def __init__(self, data_dir: Path, *options: str, prefix: Sequence[str] = ()) -> None:
        self.data_dir = data_dir
        self._options = options
        self._prefix = prefix
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    @property
    def uri(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> "BrokerProcess":
        """Start, on the same port as before if it ran before; returns once it is ready."""
        command = [*self._prefix, sys.executable, "-m", "leveret.server", "serve"]
        command += ["--data-dir", str(self.data_dir), "--port", str(self.port), *self._options]
        self.log_path = self.data_dir.with_suffix(".log")
        with self.log_path.open("a") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        match = re.search(r"ready: amqp://[^ ]+:(\d+) ", line)
        assert match, f"no ready line but {line!r}: {self.log_path.read_text()}"
        self.port = int(match.group(1))
        return self

    def stop(self, number: int = signal.SIGTERM, timeout: float = 10) -> int:
        """Send a signal and wait for the end; answers the exit status."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)
        status = self._process.wait(timeout)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return status

    def kill(self) -> None:
        """SIGKILL."""
        self.stop(signal.SIGKILL)

    def restart(self) -> "BrokerProcess":
        assert self.stop() == 0
        return self.start()


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Makes brokers that are stopped at the end of the test, however it ends."""
    brokers: list[BrokerProcess] = []

    def make(*options: str, name: str = "data") -> BrokerProcess:
        brokers.append(BrokerProcess(tmp_path / name, *options))
        return brokers[-1]

    yield make
    for broker in brokers:
        if broker._process is not None:
            broker.kill()


@pytest.fixture
def broker(make_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """A running broker."""
    return make_broker().start()
