"""Operates a worker of tasks.py and prints what comes of it.

Arguments: the name of the worker, what to do, and for some scenarios a directory to work in.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from celery import chord, group, uuid
from celery.exceptions import TaskRevokedError
from tasks import add, app, die_once, note, survive, third_time_lucky, total

LIMIT_S = 20
INTERVAL_S = 0.05
WORKER = sys.argv[1]
ONE_REPLY = {"reply": True, "limit": 1, "timeout": LIMIT_S, "destination": [WORKER]}


def inspect(what: str) -> object:
    """What the worker answers to `celery inspect`."""
    inspector = app.control.inspect(destination=[WORKER], limit=1, timeout=LIMIT_S)
    return getattr(inspector, what)()[WORKER]


def control(what: str, *arguments: object) -> str:
    """What the worker answers to `celery control`."""
    (reply,) = getattr(app.control, what)(*arguments, **ONE_REPLY)
    return reply[WORKER].get("ok")


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(INTERVAL_S)


def waiting(queue: str) -> int:
    """How many messages are ready in *queue*."""
    with app.connection_for_read() as connection:
        return connection.default_channel.queue_declare(queue, passive=True).message_count


def result_of(result) -> object:
    return result.get(LIMIT_S, interval=INTERVAL_S)


def eta() -> None:
    """More tasks for later than the window holds, in front of others in two queues."""
    queues = ["soon", "late"]
    for queue in queues:
        for number in range(3):
            add.apply_async((number, number), countdown=3600, queue=queue)
    print([result_of(add.apply_async((1, 1), queue=queue)) for queue in queues])
    wait_for(lambda: len(inspect("scheduled")) == 6)
    print(inspect("stats")["prefetch_count"])
    app.control.shutdown(destination=[WORKER])
    wait_for(lambda: [waiting(queue) for queue in queues] == [3, 3])
    print("returned")


def near_eta() -> None:
    """The window closes again when the tasks are done."""
    before = inspect("stats")["prefetch_count"]
    print(result_of(group(add.s(n, 1).set(countdown=0.5) for n in range(10))()))
    wait_for(lambda: inspect("stats")["prefetch_count"] == before)
    print("closed again")


def autoscale(directory: str) -> None:
    """Tasks that acknowledge late fill the window: more start only when it is widened."""
    starts = Path(directory) / "starts"
    results = [survive.delay(directory) for _ in range(5)]
    wait_for(lambda: starts.exists() and len(starts.read_text().splitlines()) == 2)
    print(len(inspect("active")), inspect("stats")["autoscaler"]["current"], waiting("celery"))
    print(control("autoscale", 4, 1))
    wait_for(lambda: len(starts.read_text().splitlines()) == 4)
    print(len(inspect("active")), inspect("stats")["autoscaler"]["current"], waiting("celery"))
    (Path(directory) / "may end").touch()
    print([result_of(result) for result in results])
    wait_for(lambda: inspect("stats")["autoscaler"]["current"] == 1)
    print(control("autoscale", 2, 1))
    print(inspect("stats")["prefetch_count"])


def look() -> None:
    print(inspect("ping"), [queue["name"] for queue in inspect("active_queues")])
    print(inspect("stats")["broker"]["transport"], inspect("active"), inspect("reserved"))
    print("tasks.add" in inspect("registered"))


def rate(directory: str) -> None:
    path = Path(directory) / "rated"
    print(control("rate_limit", "tasks.note", "20/s"))
    for number in range(5):
        note.delay(str(path), str(number))
    wait_for(lambda: path.exists() and len(path.read_text().splitlines()) == 5)
    print(control("rate_limit", "tasks.note", 0))


def queues() -> None:
    print(control("add_consumer", "extra"))
    print(result_of(add.apply_async((1, 2), queue="extra")))
    print(control("cancel_consumer", "extra"))
    late = add.apply_async((3, 4), queue="extra")
    wait_for(lambda: waiting("extra") == 1)
    print([queue["name"] for queue in inspect("active_queues")])
    print(control("add_consumer", "extra"))
    print(result_of(late))
    print(control("cancel_consumer", "extra"))


def revoke(directory: str) -> None:
    task_id = uuid()
    control("revoke", task_id)
    never = add.apply_async((1, 1), task_id=task_id)
    running = survive.delay(directory)
    wait_for((Path(directory) / "starts").exists)
    app.control.revoke(running.id, terminate=True, destination=[WORKER])
    for result in never, running:
        try:
            result_of(result)
        except TaskRevokedError as error:
            print(error)


def events() -> None:
    task_id = uuid()
    seen = []

    def on_event(event: dict[str, object]) -> None:
        if event.get("uuid") == task_id:
            seen.append(event["type"])
            receiver.should_stop = event["type"] == "task-succeeded"

    app.conf.task_send_sent_event = True
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": on_event})
        receiver.on_consume_ready = lambda *_, **__: add.apply_async((1, 2), task_id=task_id)
        receiver.capture(limit=None, timeout=LIMIT_S, wakeup=False)
    print(sorted(seen))


def chords() -> None:
    header = [add.s(number, number) for number in range(10)]
    print(result_of(chord(header)(total.s())))
    print(result_of(chord(group(header), total.s() | add.s(1))()))


def retries() -> None:
    print(result_of(third_time_lucky.delay()))


def lost(directory: str) -> None:
    print(result_of(die_once.delay(directory)))


SCENARIOS = [
    eta,
    near_eta,
    autoscale,
    look,
    rate,
    queues,
    revoke,
    events,
    chords,
    retries,
    lost,
]
{scenario.__name__: scenario for scenario in SCENARIOS}[sys.argv[2]](*sys.argv[3:])
