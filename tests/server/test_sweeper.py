import logging
from collections.abc import Iterator

import pytest

from leveret.server.sweeper import Sweeper


def steps(done: list[str], name: str, error: Exception | None = None) -> Iterator[None]:
    for number in range(3):
        if error is not None:
            raise error
        done.append(f"{name}{number}")
        yield


def test_work_is_done_in_order_to_the_end_and_outlives_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: list[str] = []
    sweeper = Sweeper()
    sweeper.start()
    with caplog.at_level(logging.WARNING):
        sweeper.sweep(steps(done, "a"))
        sweeper.sweep(steps(done, "b", OSError("no such disk")))
        sweeper.sweep(steps(done, "b", ValueError("a fault of ours")))
        sweeper.sweep(steps(done, "c"))
        sweeper.stop()
    assert done == ["a0", "a1", "a2", "c0", "c1", "c2"]
    assert "no such disk" in caplog.text
    assert "a fault of ours" in caplog.text
