"""Brokers: each in a directory of its own, on its own ports, started and ended by process id."""

import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from processes import CompareError, is_free, is_running, tree

_READY_TIMEOUT_S = 120
_STOP_TIMEOUT_S = 60
_PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
_RABBITMQ_SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"


@dataclass(frozen=True)
class Broker:
    """How a broker is started.

    `ports` begins with the one for AMQP. {directory} and {port} in `command` and `environment`
    stand for the place of the data and for that port. `companion` runs as long as the broker does.
    """

    name: str
    ports: tuple[int, ...]
    command: str
    environment: Mapping[str, str]
    companion: str = ""

    @property
    def port(self) -> int:
        """Where it listens for AMQP."""
        return self.ports[0]


def leveret(command: str, port: int = 5692) -> Broker:
    """Our broker, started by *command*."""
    return Broker("leveret", (port,), command, {})


def before(command: str) -> Broker:
    """Our broker of an earlier commit, started by *command*."""
    return Broker("before", (5693,), command, {})


def rabbitmq(node: str = "compare", port: int = 5691) -> Broker:
    """RabbitMQ as Debian packages it: default configuration, no plugins, loopback only.

    It would start a port mapper of its own and leave it running, so it gets one from us.
    """
    ports = (port, port + 20000, port - 1300)
    _, distribution_port, mapper_port = ports
    environment = {
        "HOME": "{directory}",
        "RABBITMQ_NODENAME": f"{node}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution_port),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {{127,0,0,1}}",
        "RABBITMQ_MNESIA_BASE": "{directory}/mnesia",
        "RABBITMQ_LOG_BASE": "{directory}/log",
        "RABBITMQ_PID_FILE": "{directory}/pid",
        "RABBITMQ_ENABLED_PLUGINS_FILE": "{directory}/plugins",
        "RABBITMQ_CONFIG_FILE": "{directory}/none",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(mapper_port),
    }
    return Broker("rabbitmq", ports, _RABBITMQ_SERVER, environment, companion="epmd")


def managed(broker: Broker) -> Broker:
    """The same RabbitMQ with plugins, among them its HTTP API on the last of its ports."""
    port = broker.port + 10000
    arguments = "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"
    listener = f"-rabbitmq_management listener [{{{{port,{port}}}}},{{{{ip,{{{{127,0,0,1}}}}}}}}]"
    environment = {
        **broker.environment,
        "RABBITMQ_ENABLED_PLUGINS": "rabbitmq_management,rabbitmq_consistent_hash_exchange",
        arguments: f"{broker.environment[arguments]} {listener}",
    }
    return replace(broker, ports=(*broker.ports, port), environment=environment)


class RunningBroker:
    """A broker's process and its companion's."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        taken = [port for port in broker.ports if not is_free(port)]
        if taken:
            raise CompareError(f"{broker.name}: port {taken[0]} is in use")
        self.broker = broker
        self._output = directory / "output"
        places = {"directory": str(directory), "port": str(broker.port)}
        environment = os.environ | {
            name: value.format(**places) for name, value in broker.environment.items()
        }
        self._companion = self._spawn([broker.companion], environment) if broker.companion else None
        words = [word.format(**places) for word in shlex.split(broker.command)]
        try:
            self._process = self._spawn(words, environment)
        except CompareError:
            self._end_companion()
            raise

    @property
    def pid(self) -> int:
        """The process at the top of its tree."""
        return self._process.pid

    def check(self) -> None:
        """Raise CompareError if it has ended by itself."""
        code = self._process.poll()
        if code is not None:
            lines = self._output.read_text(errors="replace").split("\n")
            said = next((line for line in reversed(lines) if line.strip()), "nothing")
            raise CompareError(f"{self.broker.name} ended with {code}; it said: {said}")

    def wait_until_ready(self) -> None:
        """Return when it greets clients. Raises CompareError."""
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not _greets(self.broker.port):
            self.check()
            if time.monotonic() > deadline:
                raise CompareError(f"{self.broker.name} is not ready after {_READY_TIMEOUT_S} s")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it in the way it offers."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise CompareError(
                f"{self.broker.name} did not stop within {_STOP_TIMEOUT_S} s"
            ) from None
        self._end_companion()

    def kill(self) -> None:
        """End it and all below it without a chance to tidy up."""
        if self._process.poll() is None:
            below = tree(self._process.pid)[1:]
            # It leads a session and a group of its own, which has nothing else in it.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            # They are not our children, and one with much memory takes a while to go.
            while any(is_running(pid) for pid in below):
                time.sleep(0.01)
        self._end_companion()

    def _spawn(self, words: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        try:
            with self._output.open("ab") as output:
                return subprocess.Popen(
                    words,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise CompareError(f"cannot start {words[0]}: {error.strerror}") from None

    def _end_companion(self) -> None:
        if self._companion and self._companion.poll() is None:
            self._companion.terminate()
            self._companion.wait()


def _greets(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as client:
            client.sendall(_PROTOCOL_HEADER)
            return client.recv(1) == b"\x01"
    except OSError:
        return False
