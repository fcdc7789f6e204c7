"""Celery, kombu and py-amqp, each program in a process and a directory of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import BrokerProcess
from tests.programs import Program
from tests.waiting import eventually

pytestmark = pytest.mark.slow
PROGRAMS = Path(__file__).parent / "programs"
Start = Callable[..., Program]


def environment(broker: BrokerProcess) -> dict[str, str]:
    return {"AMQP_URI": broker.uri, "PYTHONPATH": str(PROGRAMS), "PYTHONDONTWRITEBYTECODE": "1"}


def worker_command(name: str, *options: str, application: str = "tasks") -> list[str]:
    command = ["-m", "celery", "-A", application, "worker", "-n", f"{name}@here", "-l", "INFO"]
    return [*command, *(options or ("--pool=solo",))]


@pytest.fixture(scope="module")
def solo_worker(
    shared_broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Program]:
    """A worker that serves all tests of this module that do no harm to it."""
    worker = Program(
        *worker_command("solo"),
        directory=tmp_path_factory.mktemp("worker"),
        environment=environment(shared_broker),
    )
    try:
        worker.wait_for("ready.")
        yield worker
    finally:
        worker.kill()


@pytest.fixture
def call(
    run: Start, shared_broker: BrokerProcess, solo_worker: Program
) -> Callable[..., list[str]]:
    """Calls tasks from a program of its own; answers what that printed."""

    def call(scenario: str) -> list[str]:
        program = str(PROGRAMS / "call_tasks.py")
        return run(program, scenario, environment=environment(shared_broker)).finish()

    return call


@pytest.mark.parametrize(
    ("scenario", "printed"),
    [
        ("results", ["[0, 2, 4, 6, 8, 10, 12, 14, 16, 18]"]),
        ("at_once", [str(sum(range(1, 201)))]),
        ("failure", ["failed: no good"]),
        ("retries", ["retries: 2"]),
        ("countdown", ["5"]),
        ("groups", [str([2 * n for n in range(20)]), "10"]),
    ],
)
def test_tasks_are_done_and_results_come_back(
    call: Callable[..., list[str]], scenario: str, printed: list[str]
) -> None:
    assert call(scenario) == printed


def test_a_worker_answers_remote_control(call: Callable[..., list[str]]) -> None:
    ping, registered = call("ping")
    assert ping == "['pong']"
    assert "'tasks.add'" in registered


def test_the_task_of_a_killed_worker_is_done_by_the_next(
    run: Start, broker: BrokerProcess, tmp_path: Path
) -> None:
    tasks = environment(broker)
    doomed = run(*worker_command("doomed", "--pool=prefork", "-c", "2"), environment=tasks)
    doomed.wait_for("ready.")
    starts = tmp_path / "starts"
    caller = run(str(PROGRAMS / "call_tasks.py"), "slow", str(tmp_path), environment=tasks)
    eventually(starts.exists)
    doomed.kill()
    (tmp_path / "may end").touch()
    run(*worker_command("next"), environment=tasks)
    assert caller.finish() == ["result: done"]
    assert starts.read_text().splitlines() == ["started", "started"]


def test_tasks_sent_before_a_kill_of_the_broker_are_done_by_a_worker_that_reconnects(
    run: Start, broker: BrokerProcess, tmp_path: Path
) -> None:
    tasks = environment(broker)
    worker = run(*worker_command("steady"), environment=tasks)
    worker.wait_for("ready.")
    done = tmp_path / "done"
    caller = run(str(PROGRAMS / "call_tasks.py"), "send", str(done), "1", environment=tasks)
    assert caller.finish() == ["sent"]
    eventually(lambda: done.exists() and done.read_text() == "0\n")
    broker.kill()
    worker.wait_for("Trying to re-establish")
    broker.start()
    caller = run(str(PROGRAMS / "call_tasks.py"), "send", str(done), "20", environment=tasks)
    assert caller.finish() == ["sent"]
    eventually(lambda: set(done.read_text().split()) == set(map(str, range(20))))


def test_urgent_tasks_are_done_first(
    run: Start, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    tasks = environment(shared_broker)
    done = tmp_path / "done"
    priorities = ["0", "9", "5", "9", "1"]
    run(str(PROGRAMS / "ranked_tasks.py"), str(done), *priorities, environment=tasks).finish()
    options = ["-c", "1", "--prefetch-multiplier=1"]
    run(*worker_command("ranked", *options, application="ranked_tasks"), environment=tasks)
    eventually(lambda: done.exists() and done.read_text().split() == ["9", "9", "5", "1", "0"])


def test_kombu(run: Start, shared_broker: BrokerProcess) -> None:
    lines = run(str(PROGRAMS / "use_kombu.py"), shared_broker.uri).finish()
    assert lines == [
        "video.avi {'name': 'Ausflug', 'größe': 1.5} 0",
        "picture.a.png ['list', None, 3] 1",
        "video.avi refused 2",
        "video.mkv {'again': True} 4",
        "video.mkv {'again': True} 4",
        "{'simple': 1}",
        "empty",
        "quiet",
        "purged 0",
    ]


def test_py_amqp(run: Start, shared_broker: BrokerProcess) -> None:
    lines = run(str(PROGRAMS / "use_amqp.py"), f"127.0.0.1:{shared_broker.port}").finish()
    assert lines[0].startswith("connected to ")
    assert lines[1:] == [
        "got body 0 {'n': 0, 'large': 1099511627776, 'none': None, 'float': 0.1} 2 left",
        "consumed body 1 False",
        "consumed body 1 True",
        "consumed body 2 False",
        "deleted with 0 messages",
        "404 NOT_FOUND - no queue 'absent' in vhost '/'",
        "406 PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'routes' in vhost '/': "
        "received 'fanout' but current is 'direct'",
        "committed None",
        "closed",
    ]
