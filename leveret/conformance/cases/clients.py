"""Client libraries: the same everyday scenarios through each, in processes of their own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from importlib.resources import as_file, files
from itertools import zip_longest
from pathlib import Path
from threading import Lock
from urllib.parse import quote

from leveret.conformance.case import Chapter, Seen, Unavailable, Unmet
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Address

chapter = Chapter("clients")

PROGRAMS = "leveret.conformance.clients"
LIMIT_S = 60.0
"""For all scenarios of a library together."""
_INSTALL_S = 60.0
_SHOWN_LINES = 400

EVERYDAY = {
    "publish-and-consume": "Publish through an exchange, consume, acknowledge",
    "confirms": "Persistent messages are confirmed",
    "mandatory-return": "A mandatory message without a route comes back",
    "nack-and-requeue": "A message that is nacked comes back as redelivered",
    "prefetch": "A consumer holds no more than its prefetch count",
    "rpc": "A question is answered through reply-to",
    "large-message": "A message of 5 MB arrives whole",
    "transactions": "A transaction is committed, another one rolled back",
    "errors": "A channel that the broker closes leaves its connection as it is",
    "reopen": "A new connection finds what the last one left",
}
CELERY = {
    "result": "A task is done and its result comes back",
    "results-of-many": "Fifty tasks at once, and their results",
    "failure": "The exception of a task comes back",
    "retries": "A task that is retried succeeds in the end",
    "countdown": "A task that waits is done later",
    "groups": "The results of a group come back together",
    "remote-control": "A worker answers a ping",
}


@dataclass(frozen=True, slots=True)
class Output:
    """What a program printed: results by scenario, and all of its lines."""

    results: Mapping[str, Mapping[str, object]]
    lines: Sequence[str]
    version: str


@dataclass(slots=True)
class Library:
    """A client library and the program that uses it; the program runs once for each broker.

    `distributions` are the packages it needs, whose versions are told.
    """

    name: str
    program: Sequence[str]
    distributions: Sequence[str]
    _lock: Lock = field(default_factory=Lock)
    _outputs: dict[Address, Output] = field(default_factory=dict)

    def look(self, scenario: str, ground: Ground) -> Seen:
        """Tell what became of *scenario*. Raises Unavailable without the library, and Unmet."""
        address = ground.facilities.address
        with self._lock:
            if address not in self._outputs:
                self._outputs[address] = self._run(_uri(address))
        output = self._outputs[address]
        ground.transcript += output.lines[-_SHOWN_LINES:]
        result = output.results.get(scenario)
        if result is None:
            raise Unmet(f"{output.version}: ended before it came to this")
        if not result["passed"]:
            raise Unmet(f"{output.version}: {result['text']}")
        return Seen(text=output.version)

    def _run(self, uri: str) -> Output:
        version = self._version()
        with tempfile.TemporaryDirectory() as directory:
            command = [sys.executable, "-m", f"{PROGRAMS}.{self.program[0]}", *self.program[1:]]
            return _output([*command, uri], directory, version)

    def _version(self) -> str:
        try:
            return ", ".join(f"{each} {metadata.version(each)}" for each in self.distributions)
        except metadata.PackageNotFoundError as error:
            raise Unavailable(f"needs the package {error.name}") from None


class JavaScriptLibrary(Library):
    """The library for Node.js that `package.json` names, which npm installs for the run."""

    def _run(self, uri: str) -> Output:
        missing = [program for program in ("node", "npm") if shutil.which(program) is None]
        if missing:
            raise Unavailable(f"needs {' and '.join(missing)}")
        with (
            as_file(files(PROGRAMS) / "javascript") as source,
            tempfile.TemporaryDirectory() as directory,
        ):
            for name in ("package.json", "use_amqp_client.mjs"):
                shutil.copy(source / name, directory)
            _install(directory)
            wanted = json.loads(Path(directory, "package.json").read_text(encoding="utf-8"))
            version = ", ".join(" ".join(each) for each in wanted["dependencies"].items())
            return _output(["node", "use_amqp_client.mjs", uri], directory, version)


def _install(directory: str) -> None:
    """Let npm fetch what package.json names. Raises Unavailable."""
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    try:
        subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=_INSTALL_S)
    except subprocess.TimeoutExpired:
        raise Unavailable("needs npm's registry, which does not answer") from None
    except subprocess.CalledProcessError as error:
        words = error.stderr.decode(errors="replace").split("\n")[0]
        raise Unavailable(f"needs npm's registry: {words}") from None


def _output(command: Sequence[str], directory: str, version: str) -> Output:
    """Run a program to its end, or end it when the time is over; answers what it printed."""
    environment = os.environ | {"PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command,
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # A group of its own, so that what it started ends with it.
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=LIMIT_S - 5)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed, _ = process.communicate()
    lines = printed.splitlines()
    told = [json.loads(line) for line in lines if line.startswith('{"scenario":')]
    return Output({each["scenario"]: each for each in told}, lines, version)


def _uri(address: Address) -> str:
    user, password = quote(address.user, safe=""), quote(address.password, safe="")
    place = f"{address.host}:{address.port}/{quote(address.vhost, safe='')}"
    return f"amqp://{user}:{password}@{place}"


def _add(library: Library, scenario: str, title: str) -> None:
    def run(ground: Ground) -> Seen:
        return library.look(scenario, ground)

    run.__name__, run.__doc__ = scenario, title
    chapter.case(f"client-{library.name}", rabbitmq="as its users expect", limit_s=LIMIT_S)(run)


_CELERY = Library("celery", ["use_celery"], ["celery", "kombu", "amqp"])
_LIBRARIES = (
    Library("pika-blocking", ["use_pika_blocking"], ["pika"]),
    Library("pika-select", ["use_pika_callbacks", "select"], ["pika"]),
    Library("pika-asyncio", ["use_pika_callbacks", "asyncio"], ["pika"]),
    Library("aio-pika", ["use_aio_pika"], ["aio-pika", "aiormq"]),
    Library("kombu", ["use_kombu"], ["kombu", "amqp"]),
    JavaScriptLibrary("javascript", [], []),
)
# A scenario of each in turn, so that their programs run beside each other.
for _everyday, _tasks in zip_longest(EVERYDAY.items(), CELERY.items()):
    if _tasks:
        _add(_CELERY, *_tasks)
    for _library in _LIBRARIES:
        _add(_library, *_everyday)
