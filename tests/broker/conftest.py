from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.broker.vhost import VHost
from tests.broker.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


@pytest.fixture
def vhost(world: World) -> VHost:
    return world.vhost
