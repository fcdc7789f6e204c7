"""Celery: a worker in a process of its own, and tasks that are sent to it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from celery import group
from kombu.connection import Connection

from leveret.conformance.clients.scenarios import WAIT_S, Unexpected, expect, run_all, unique

APPLICATION = "leveret.conformance.clients.celery_application"


@contextmanager
def running_worker(name: str) -> Iterator[None]:
    """A worker that ends with the block."""
    command = [sys.executable, "-m", "celery", "-A", APPLICATION, "worker", "--pool=solo"]
    worker = subprocess.Popen(
        [*command, "-n", f"{name}@conformance", "-l", "INFO", "--prefetch-multiplier=8"],
        stdout=sys.stderr,
    )
    try:
        yield
    finally:
        worker.send_signal(signal.SIGTERM)
        try:
            worker.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def remove(uri: str, name: str) -> None:
    """Remove what Celery leaves behind."""
    with Connection(uri) as connection:
        channel = connection.default_channel
        channel.queue_delete(name)
        for exchange in (f"{name}-tasks", f"{name}-events", f"{name}-control.pidbox"):
            channel.exchange_delete(exchange)
        channel.exchange_delete(f"reply.{name}-control.pidbox")


def scenarios() -> dict[str, Callable[[], object]]:
    """The scenarios, by their names."""
    from leveret.conformance.clients.celery_application import add, app, fail, succeed_at_last

    def result() -> None:
        expect(add.delay(2, 3).get(WAIT_S), 5)

    def results_of_many() -> None:
        results = [add.delay(number, number) for number in range(50)]
        expect([each.get(WAIT_S) for each in results], [2 * number for number in range(50)])

    def failure() -> None:
        try:
            fail.delay("no good").get(WAIT_S)
        except ValueError as error:
            expect(str(error), "no good")
        else:
            raise Unexpected("a task that fails did not")

    def retries() -> None:
        expect(succeed_at_last.delay().get(WAIT_S), 2)

    def countdown() -> None:
        expect(add.apply_async((1, 2), countdown=0.2).get(WAIT_S), 3)

    def groups() -> None:
        together = group(add.s(number, 1) for number in range(10))
        expect(together().get(WAIT_S), list(range(1, 11)))

    def remote_control() -> None:
        answers = app.control.ping(timeout=WAIT_S, limit=1)
        expect([next(iter(answer.values())) for answer in answers], [{"ok": "pong"}])

    each = (result, results_of_many, failure, retries, countdown, groups, remote_control)
    return {scenario.__name__.replace("_", "-"): scenario for scenario in each}


def main() -> None:
    """Run them with a worker of their own."""
    uri, name = sys.argv[1], unique("celery")
    os.environ |= {"CONFORMANCE_URI": uri, "CONFORMANCE_NAME": name}
    try:
        with running_worker(name):
            run_all(scenarios())
    finally:
        remove(uri, name)


if __name__ == "__main__":
    main()
