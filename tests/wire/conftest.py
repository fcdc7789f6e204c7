"""One broker for each module, clients that are closed at the end, and one that nothing may harm."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import BrokerProcess
from tests.wire.raw import Peer


def pytest_configure(config: pytest.Config) -> None:
    """What `rows` marks tests with."""
    config.addinivalue_line("markers", "row(number, ...): rows of docs/errors.md that it covers")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory: Path = tmp_path_factory.mktemp("wire") / "data"
    broker = BrokerProcess(directory, "--log-level", "error")
    broker.start()
    yield broker
    assert broker.stop() == 0
    assert "Traceback" not in broker.log_path.read_text()


@pytest.fixture(scope="module")
def _bystander(server: BrokerProcess) -> Iterator[Peer]:
    peer = Peer(server.port).open()
    yield peer
    peer.close()


@pytest.fixture(autouse=True)
def bystander(_bystander: Peer) -> Iterator[Peer]:
    """Another client of the same broker: whatever a test does, it is served afterwards."""
    yield _bystander
    _bystander.check()


@pytest.fixture
def connect(server: BrokerProcess) -> Iterator[Callable[..., Peer]]:
    """Makes connections; with numbers of channels they are open."""
    peers: list[Peer] = []

    def make(*channels: int, **tuning: int) -> Peer:
        peers.append(Peer(server.port))
        return peers[-1].open(*channels, **tuning) if channels else peers[-1]

    yield make
    for peer in peers:
        peer.close()


@pytest.fixture
def peer(connect: Callable[..., Peer]) -> Peer:
    """An open connection with channel 1."""
    return connect(1)
