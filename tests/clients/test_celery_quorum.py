"""Celery with quorum queues; tasks for later wait in the broker (native delayed delivery)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.test_celery import PROGRAMS, environment, worker_command
from tests.conftest import BrokerProcess
from tests.programs import Program
from tests.waiting import eventually

pytestmark = pytest.mark.slow
CALL = str(PROGRAMS / "call_quorum_tasks.py")


@pytest.fixture(scope="module")
def settings(
    shared_broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    results = tmp_path_factory.mktemp("results")
    return environment(shared_broker) | {"RESULTS": f"file://{results}"}


@pytest.fixture(scope="module")
def worker(settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    worker = Program(
        *worker_command("quorum", "-c", "1", application="quorum_tasks"),
        directory=tmp_path_factory.mktemp("worker"),
        environment=settings,
    )
    try:
        worker.wait_for("ready.")
        yield worker
    finally:
        worker.kill()


@pytest.fixture
def call(
    run: Callable[..., Program], settings: dict[str, str], worker: Program
) -> Callable[..., list[str]]:
    """Calls tasks from a program of its own; answers what that printed."""

    def call(scenario: str, *arguments: str) -> list[str]:
        program = run(CALL, scenario, *arguments, environment=settings)
        assert program.end() == 0, f"{program.output}\n\n{worker.output}"
        return program.lines

    return call


@pytest.mark.parametrize(
    ("scenario", "printed"),
    [
        ("canvas", ["[0, 2, 4, 6, 8]", "6", "20"]),
        ("later", ["[16] 16", "{'quorum@here': []}"]),
        ("soon", ["6 2 True"]),
        ("retries", ["2"]),
    ],
)
def test_tasks_of_quorum_queues(
    call: Callable[..., list[str]], scenario: str, printed: list[str]
) -> None:
    assert call(scenario) == printed


def test_the_task_of_a_lost_process_is_done_by_the_next(
    call: Callable[..., list[str]], tmp_path: Path
) -> None:
    assert call("lost", str(tmp_path)) == ["done after all"]


def test_a_worker_keeps_to_the_prefetch_limit_of_a_consumer(worker: Program) -> None:
    assert "Global QoS is disabled. Prefetch count is now static." in worker.output


def test_tasks_for_later_survive_a_kill_of_the_broker(
    run: Callable[..., Program], broker: BrokerProcess, tmp_path: Path
) -> None:
    tasks = environment(broker)
    worker = run(
        *worker_command("steady", "-c", "1", application="quorum_tasks"), environment=tasks
    )
    worker.wait_for("ready.")
    done = tmp_path / "done"
    caller = run(CALL, "send", str(done), environment=tasks)
    assert caller.finish() == ["sent"]
    eventually(lambda: done.exists() and done.read_text() == "at once\n")
    broker.kill()
    worker.wait_for("Trying to re-establish")
    broker.start()
    eventually(lambda: done.read_text() == "at once\nlater\n")
