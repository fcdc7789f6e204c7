"""What operators of Celery do with a worker, in either of kombu's dialects."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.test_celery import PROGRAMS, environment, worker_command
from tests.conftest import BrokerProcess
from tests.programs import Program

pytestmark = pytest.mark.slow
OPERATE = str(PROGRAMS / "operate_worker.py")


@pytest.fixture(scope="module", params=["leveret", "rabbitmq-3.13"])
def dialect_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("dialect")
    broker = BrokerProcess(directory / "data", "--advertise", request.param).start()
    yield broker
    assert broker.stop() == 0
    assert "Traceback" not in broker.log_path.read_text()


@pytest.fixture(scope="module")
def settings(
    dialect_broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The environment of worker and operator; chords need another result backend than rpc."""
    results = tmp_path_factory.mktemp("results")
    return environment(dialect_broker) | {"RESULTS": f"file://{results}"}


@pytest.fixture(scope="module")
def worker(settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A worker of one or two processes and a window of two messages."""
    options = ["--autoscale=2,1", "--prefetch-multiplier=1", "-E"]
    worker = Program(
        *worker_command("scaling", *options),
        directory=tmp_path_factory.mktemp("worker"),
        environment=settings | {"AUTOSCALE_KEEPALIVE": "1"},
    )
    try:
        worker.wait_for("ready.")
        yield worker
    finally:
        worker.kill()


@pytest.fixture
def operate(
    run: Callable[..., Program], settings: dict[str, str], worker: Program
) -> Callable[..., list[str]]:
    """Operates the worker from a program of its own; answers what that printed."""

    def operate(scenario: str, *arguments: str) -> list[str]:
        program = run(OPERATE, "scaling@here", scenario, *arguments, environment=settings)
        assert program.end() == 0, f"{program.output}\n\n{worker.output}"
        return program.lines

    return operate


def test_tasks_for_later_block_nobody_and_go_back_at_shutdown(
    run: Callable[..., Program], settings: dict[str, str]
) -> None:
    options = ["-c", "1", "--prefetch-multiplier=1", "-Q", "soon,late"]
    worker = run(*worker_command("patient", *options), environment=settings)
    worker.wait_for("ready.")
    operator = run(OPERATE, "patient@here", "eta", environment=settings)
    assert operator.finish() == ["[2, 2]", "7", "returned"]
    assert worker.end() == 0


@pytest.mark.parametrize(
    ("scenario", "printed"),
    [
        ("near_eta", [str([number + 1 for number in range(10)]), "closed again"]),
        ("look", ["{'ok': 'pong'} ['celery']", "amqp [] []", "True"]),
        (
            "queues",
            [
                "add consumer extra",
                "3",
                "no longer consuming from extra",
                "['celery']",
                "add consumer extra",
                "7",
                "no longer consuming from extra",
            ],
        ),
        ("events", ["['task-received', 'task-sent', 'task-started', 'task-succeeded']"]),
        ("chords", ["90", "91"]),
        ("retries", ["2"]),
    ],
)
def test_operation(operate: Callable[..., list[str]], scenario: str, printed: list[str]) -> None:
    assert operate(scenario) == printed


@pytest.mark.parametrize(
    ("scenario", "printed"),
    [
        (
            "autoscale",
            [
                "2 2 3",
                "autoscale now max=4 min=1",
                "4 4 1",
                str(["done"] * 5),
                "autoscale now max=2 min=1",
                "2",
            ],
        ),
        ("rate", ["new rate limit set successfully", "rate limit disabled successfully"]),
        ("revoke", ["revoked", "terminated"]),
        ("lost", ["done after all"]),
    ],
)
def test_operation_on_tasks_that_leave_traces(
    operate: Callable[..., list[str]], tmp_path: Path, scenario: str, printed: list[str]
) -> None:
    assert operate(scenario, str(tmp_path)) == printed
