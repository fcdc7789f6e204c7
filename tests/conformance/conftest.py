from collections.abc import Iterator

import pytest

from tests.conftest import BrokerProcess


@pytest.fixture(scope="package")
def one_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker for all tests that leave nothing behind."""
    broker = BrokerProcess(tmp_path_factory.mktemp("conformance") / "data").start()
    yield broker
    broker.kill()
