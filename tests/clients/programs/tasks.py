"""A Celery application, as a user writes one.

The broker's URI is in AMQP_URI, that of the result backend in RESULTS if it is not the broker.
"""

import os
import signal
import time
from pathlib import Path

from celery import Celery
from celery.app.task import Task

app = Celery("tasks", broker=os.environ["AMQP_URI"], backend=os.environ.get("RESULTS", "rpc://"))
app.conf.broker_connection_retry_on_startup = True
# With a small window the solo pool stops now and then until a timer of its own lets its acks out.
app.conf.worker_prefetch_multiplier = 100
app.conf.result_persistent = True


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def fail(text: str) -> None:
    raise ValueError(text)


@app.task(bind=True, max_retries=3)
def third_time_lucky(self: Task, countdown: float = 0.2) -> int:
    if self.request.retries < 2:
        raise self.retry(countdown=countdown)
    return self.request.retries


@app.task(acks_late=True)
def survive(directory: str) -> str:
    """Say that it started, then wait to be allowed to end."""
    path = Path(directory)
    with (path / "starts").open("a") as starts:
        starts.write("started\n")
    while not (path / "may end").exists():
        time.sleep(0.05)
    return "done"


@app.task(ignore_result=True)
def note(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(acks_late=True, reject_on_worker_lost=True)
def die_once(directory: str) -> str:
    """The first time, take the process that runs the task along."""
    died = Path(directory) / "died"
    if not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done after all"
