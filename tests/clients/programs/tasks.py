"""A Celery application, as a user writes one. The broker's URI is in AMQP_URI."""

import os
import time
from pathlib import Path

from celery import Celery
from celery.app.task import Task

app = Celery("tasks", broker=os.environ["AMQP_URI"], backend="rpc://")
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
def third_time_lucky(self: Task) -> int:
    if self.request.retries < 2:
        raise self.retry(countdown=0.2)
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
