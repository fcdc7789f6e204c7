"""A Celery application with names of its own, all of which can be removed.

The broker's URI is in CONFORMANCE_URI, the word in all names in CONFORMANCE_NAME.
"""

import os

from celery import Celery
from celery.app.task import Task
from kombu.entity import Exchange, Queue

NAME = os.environ["CONFORMANCE_NAME"]

app = Celery("conformance", broker=os.environ["CONFORMANCE_URI"], backend="rpc://")
app.conf.update(
    broker_connection_retry_on_startup=True,
    control_exchange=f"{NAME}-control",
    event_exchange=f"{NAME}-events",
    event_queue_prefix=f"{NAME}-event",
    result_expires=60,
    task_default_queue=NAME,
    task_queues=[Queue(NAME, Exchange(f"{NAME}-tasks", "direct"), routing_key=NAME)],
    task_default_exchange=f"{NAME}-tasks",
    task_default_routing_key=NAME,
    task_acks_late=True,
    worker_hijack_root_logger=False,
)


def _add(x: int, y: int) -> int:
    return x + y


def _fail(text: str) -> None:
    raise ValueError(text)


def _succeed_at_last(self: Task) -> int:
    if self.request.retries < 2:
        raise self.retry(countdown=0, max_retries=3)
    return int(self.request.retries)


add: Task = app.task(name="add")(_add)
fail: Task = app.task(name="fail")(_fail)
succeed_at_last: Task = app.task(name="succeed_at_last", bind=True)(_succeed_at_last)
"""A task that is retried twice."""
