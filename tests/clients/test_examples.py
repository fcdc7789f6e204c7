"""The programs in examples/ do against our broker what they do against RabbitMQ."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT, BrokerProcess
from tests.programs import Program

EXAMPLES = ROOT / "examples"
Tutorial = Callable[..., Program]


@pytest.fixture
def tutorial(run: Callable[..., Program], broker: BrokerProcess) -> Tutorial:
    """Runs a program of the tutorials against a new broker."""

    def tutorial(program: str, *arguments: str) -> Program:
        path = EXAMPLES / "tutorials" / program
        return run(str(path), *arguments, environment={"AMQP_URI": broker.uri})

    return tutorial


def listener(tutorial: Tutorial, program: str, *arguments: str) -> Program:
    program_run = tutorial(program, *arguments)
    program_run.wait_for("Waiting for")
    return program_run


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("publish_consume_pika.py", "Hello from pika"),
        ("publish_consume_aio_pika.py", "Hello from aio-pika"),
    ],
)
def test_the_first_program_publishes_with_a_confirm_and_consumes(
    run: Callable[..., Program], shared_broker: BrokerProcess, program: str, text: str
) -> None:
    lines = run(str(EXAMPLES / program), shared_broker.uri).finish()
    assert lines == ["confirmed", f"received: {text}"]


@pytest.mark.parametrize("program", ["publish_consume_pika.py", "publish_consume_aio_pika.py"])
def test_the_readme_shows_the_first_programs_as_they_are(program: str) -> None:
    readme = (ROOT / "README.md").read_text()
    assert f"```python\n{(EXAMPLES / program).read_text()}```" in readme


def test_every_tutorial_is_run_here() -> None:
    programs = {path.name for path in (EXAMPLES / "tutorials").glob("*.py")}
    ours = Path(__file__).read_text()
    assert [program for program in programs if f'"{program}"' not in ours] == []


def test_tutorial_1_hello_world(tutorial: Tutorial) -> None:
    assert tutorial("send.py").finish() == ["Sent 'Hello World!'"]
    receiver = listener(tutorial, "receive.py")
    receiver.wait_for("Received")
    tutorial("send.py").finish()
    receiver.wait_for("Received", times=2)
    assert receiver.interrupt() == ["Waiting for messages"] + ["Received 'Hello World!'"] * 2


def test_tutorial_2_two_workers_take_turns(tutorial: Tutorial) -> None:
    workers = [listener(tutorial, "worker.py") for _ in range(2)]
    for number in range(6):
        tutorial("new_task.py", f"task {number}").finish()
        workers[number % 2].wait_for("Done", times=number // 2 + 1)
    for index, worker in enumerate(workers):
        received = [line for line in worker.interrupt() if line.startswith("Received")]
        assert received == [f"Received 'task {number}'" for number in range(index, 6, 2)]


def test_tutorial_2_the_task_of_a_killed_worker_is_done_by_the_other(tutorial: Tutorial) -> None:
    doomed, heir = (listener(tutorial, "worker.py") for _ in range(2))
    tutorial("new_task.py", "long" + "." * 600).finish()
    doomed.wait_for("Received 'long")
    tutorial("new_task.py", "short").finish()
    heir.wait_for("Done")
    doomed.kill()
    heir.wait_for("Received 'long")


def test_tutorial_2_a_task_waits_for_a_worker_through_a_restart(
    tutorial: Tutorial, broker: BrokerProcess
) -> None:
    tutorial("new_task.py", "patient").finish()
    broker.restart()
    listener(tutorial, "worker.py").wait_for("Received 'patient'")


def test_tutorial_3_everyone_who_listens_gets_every_line(tutorial: Tutorial) -> None:
    tutorial("emit_log.py", "before anyone listens").finish()
    listeners = [listener(tutorial, "receive_logs.py") for _ in range(2)]
    tutorial("emit_log.py", "warning: one").finish()
    assert tutorial("emit_log.py").finish() == ["Sent 'info: Hello World!'"]
    for each in listeners:
        each.wait_for("info: Hello World!")
        assert each.interrupt() == ["Waiting for logs", "warning: one", "info: Hello World!"]


def test_tutorial_4_lines_go_by_severity(tutorial: Tutorial) -> None:
    errors = listener(tutorial, "receive_logs_direct.py", "error")
    everything = listener(tutorial, "receive_logs_direct.py", "info", "warning", "error")
    for severity in ("info", "error", "warning", "debug", "error"):
        tutorial("emit_log_direct.py", severity, "disk").finish()
    errors.wait_for("error: disk", times=2)
    everything.wait_for("error: disk", times=2)
    assert errors.interrupt()[1:] == ["error: disk", "error: disk"]
    assert everything.interrupt()[1:] == [
        "info: disk",
        "error: disk",
        "warning: disk",
        "error: disk",
    ]


def test_tutorial_5_lines_go_by_topic(tutorial: Tutorial) -> None:
    everything = listener(tutorial, "receive_logs_topic.py", "#")
    kernel = listener(tutorial, "receive_logs_topic.py", "kern.*")
    kernel_or_critical = listener(tutorial, "receive_logs_topic.py", "kern.*", "*.critical")
    topics = ["kern.critical", "auth.critical", "kern.info", "kern", "kern.a.b", "end.critical"]
    for topic in topics:
        tutorial("emit_log_topic.py", topic, "text").finish()
    tutorial("emit_log_topic.py", "kern.end", "text").finish()
    for each in (everything, kernel, kernel_or_critical):
        each.wait_for("kern.end: text")

    def topics_of(program: Program) -> list[str]:
        return [line.removesuffix(": text") for line in program.interrupt()[1:]]

    assert topics_of(everything) == [*topics, "kern.end"]
    assert topics_of(kernel) == ["kern.critical", "kern.info", "kern.end"]
    assert topics_of(kernel_or_critical) == [
        "kern.critical",
        "auth.critical",
        "kern.info",
        "end.critical",
        "kern.end",
    ]


def test_tutorial_6_remote_procedure_call(tutorial: Tutorial) -> None:
    server = listener(tutorial, "rpc_server.py")
    assert tutorial("rpc_client.py").finish() == ["Requesting fibonacci(30)", "Got 832040"]
    clients = {n: tutorial("rpc_client.py", str(n)) for n in (3, 10, 50)}
    for n, result in ((3, 2), (10, 55), (50, 12586269025)):
        assert clients[n].finish()[-1] == f"Got {result}"
    assert sorted(server.interrupt()[1:]) == [f"fibonacci({n})" for n in (10, 3, 30, 50)]


@pytest.mark.parametrize(
    ("program", "how"),
    [
        ("confirm_individually.py", "individually"),
        ("confirm_in_batches.py", "in batches"),
        ("confirm_asynchronously.py", "asynchronously"),
    ],
)
def test_tutorial_7_publisher_confirms(tutorial: Tutorial, program: str, how: str) -> None:
    lines = tutorial(program, "1050").finish()
    assert lines == [f"Published 1050 messages {how}, 1050 in the queue"]
