"""Calls the tasks of quorum_tasks.py and prints what comes of them; the argument says which."""

import sys

from celery import chain, chord, group
from quorum_tasks import app
from tasks import add, die_once, note, third_time_lucky, total

LIMIT_S = 20
INTERVAL_S = 0.05
LEVELS = 28
DAY_S = 24 * 3600


def result_of(result) -> object:
    return result.get(LIMIT_S, interval=INTERVAL_S)


def ready(queue: str) -> int:
    with app.connection_for_read() as connection:
        return connection.default_channel.queue_declare(queue, passive=True).message_count


def canvas() -> None:
    print(result_of(group(add.s(n, n) for n in range(5))()))
    print(result_of(chain(add.s(1, 2), add.s(3))()))
    print(result_of(chord([add.s(n, n) for n in range(5)])(total.s())))


def later() -> None:
    """A task for tomorrow waits at the level of the highest bit of its delay, in no worker."""
    add.apply_async((1, 1), countdown=DAY_S)
    counts = [ready(f"celery_delayed_{level}") for level in range(LEVELS)]
    print([level for level, count in enumerate(counts) if count], DAY_S.bit_length() - 1)
    print(app.control.inspect(limit=1, timeout=LIMIT_S).scheduled())


def soon() -> None:
    """Tasks come back down the levels, the short delays first."""
    late, early = (add.apply_async((n, n), countdown=n) for n in (3, 1))
    print(result_of(late), result_of(early), early.date_done < late.date_done)


def retries() -> None:
    print(result_of(third_time_lucky.delay(countdown=1)))


def lost(directory: str) -> None:
    print(result_of(die_once.delay(directory)))


def send(path: str) -> None:
    """Only what the broker has confirmed is sent."""
    note.apply_async((path, "later"), countdown=2)
    note.delay(path, "at once")
    print("sent")


SCENARIOS = [canvas, later, soon, retries, lost, send]
{scenario.__name__: scenario for scenario in SCENARIOS}[sys.argv[1]](*sys.argv[2:])
