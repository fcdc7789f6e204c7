"""Calls the tasks of tasks.py and prints what comes of them; the argument says which."""

import sys

from celery import chain, group
from tasks import add, app, fail, note, survive, third_time_lucky

LIMIT_S = 30


def results() -> None:
    print([add.delay(n, n).get(LIMIT_S) for n in range(10)])


def at_once() -> None:
    pending = [add.delay(n, 1) for n in range(200)]
    print(sum(result.get(LIMIT_S) for result in pending))


def failure() -> None:
    try:
        fail.delay("no good").get(LIMIT_S)
    except ValueError as error:
        print("failed:", error)


def retries() -> None:
    print("retries:", third_time_lucky.delay().get(LIMIT_S))


def groups() -> None:
    print(group(add.s(n, n) for n in range(20))().get(LIMIT_S))
    print(chain(add.s(1, 2), add.s(3), add.s(4))().get(LIMIT_S))


def countdown() -> None:
    print(add.apply_async((2, 3), countdown=0.5).get(LIMIT_S))


def ping() -> None:
    inspect = app.control.inspect(limit=1, timeout=LIMIT_S)
    print([reply["ok"] for reply in inspect.ping().values()])
    registered = app.control.inspect(limit=1, timeout=LIMIT_S).registered()
    print(sorted(next(iter(registered.values()))))


def slow(directory: str) -> None:
    print("result:", survive.delay(directory).get(LIMIT_S))


def send(path: str, count: str) -> None:
    for number in range(int(count)):
        note.delay(path, str(number))
    print("sent")


SCENARIOS = [results, at_once, failure, retries, groups, countdown, ping, slow, send]
{scenario.__name__: scenario for scenario in SCENARIOS}[sys.argv[1]](*sys.argv[2:])
