import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from tests.conftest import BrokerProcess
from tests.programs import Program


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for the tests of a module that leave it running."""
    broker = BrokerProcess(tmp_path_factory.mktemp("shared") / "data").start()
    yield broker
    assert broker.stop() == 0
    assert "Traceback" not in broker.log_path.read_text()


@pytest.fixture
def name() -> str:
    """A name for a queue or an exchange that no other test uses."""
    return f"test-{uuid4().hex}"


@pytest.fixture
def connect() -> Iterator[Callable[..., pika.BlockingConnection]]:
    """Opens connections with pika that are closed at the end."""
    connections: list[pika.BlockingConnection] = []

    def connect(broker: BrokerProcess, **options: object) -> pika.BlockingConnection:
        parameters = pika.URLParameters(broker.uri)
        for option, value in options.items():
            setattr(parameters, option, value)
        connections.append(pika.BlockingConnection(parameters))
        return connections[-1]

    yield connect
    for connection in connections:
        with contextlib.suppress(AMQPError):  # those to a broker that is gone
            connection.close()


@pytest.fixture
def channel(
    shared_broker: BrokerProcess, connect: Callable[..., pika.BlockingConnection]
) -> BlockingChannel:
    """A channel of pika on a connection of its own."""
    return connect(shared_broker).channel()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts programs that are gone at the end of the test, however it ends."""
    programs: list[Program] = []

    def run(*command: str, environment: dict[str, str] | None = None) -> Program:
        directory = tmp_path / "programs"
        directory.mkdir(exist_ok=True)
        programs.append(Program(*command, directory=directory, environment=environment))
        return programs[-1]

    yield run
    for program in programs:
        program.kill()
