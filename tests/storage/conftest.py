import os
from collections.abc import Iterator

import pytest


@pytest.fixture
def no_descriptor_left() -> Iterator[None]:
    before = set(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) <= len(before)
