"""Dead letters that would go round, and those that go far."""

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.clients.blocking import publish, ready_count
from tests.features.steps import declare, fetch, take, wait_for_message_death
from tests.waiting import eventually


def declare_cycle(channel: BlockingChannel, name: str, length: int, **values: object) -> list[str]:
    """Queues each of which sends its dead letters to the next, the last to the first."""
    queues = [f"{name}-{number}" for number in range(length)]
    for queue, target in zip(queues, [*queues[1:], queues[0]], strict=True):
        declare(channel, queue, dead_letter_exchange="", dead_letter_routing_key=target, **values)
    return queues


def ready(channel: BlockingChannel, queues: list[str]) -> int:
    return sum(ready_count(channel, queue) for queue in queues)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_message_that_only_expires_goes_round_once(
    channel: BlockingChannel, name: str, length: int
) -> None:
    queues = declare_cycle(channel, name, length, message_ttl=20)
    publish(channel, queues[0], "a")
    eventually(lambda: not ready(channel, queues))
    wait_for_message_death(channel, 60)
    assert not ready(channel, queues)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_message_that_only_has_no_room_goes_round_once(
    channel: BlockingChannel, name: str, length: int
) -> None:
    queues = declare_cycle(channel, name, length, max_length=1)
    publish(channel, queues[0], *map(str, range(length + 2)))
    eventually(lambda: ready(channel, queues) == length)
    assert [take(channel, queue).body for queue in queues] == [
        str(number) for number in range(length + 1, 1, -1)
    ]


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_message_that_is_rejected_goes_round_for_ever(
    channel: BlockingChannel, name: str, length: int
) -> None:
    queues = declare_cycle(channel, name, length)
    publish(channel, queues[0], "a")
    for _ in range(4):
        for queue in queues:
            fetched = fetch(channel, queue)
            assert fetched is not None
            channel.basic_reject(fetched.tag, requeue=False)
    deaths = take(channel, queues[0]).headers["x-death"]
    assert [(death["queue"], death["count"]) for death in deaths] == [  # type: ignore[attr-defined]
        (queue, 4) for queue in reversed(queues)
    ]


def test_a_rejection_among_the_deaths_lets_it_pass(channel: BlockingChannel, name: str) -> None:
    work, wait = f"{name}-work", f"{name}-wait"
    declare(channel, work, dead_letter_exchange="", dead_letter_routing_key=wait)
    declare(channel, wait, dead_letter_exchange="", dead_letter_routing_key=work, message_ttl=10)
    publish(channel, work, "a")
    for _ in range(5):
        fetched = eventually(lambda: fetch(channel, work))
        channel.basic_reject(fetched.tag, requeue=False)
    fetched = take(channel, work)
    deaths = fetched.headers["x-death"]
    assert [(death["queue"], death["count"]) for death in deaths] == [  # type: ignore[attr-defined]
        (wait, 5),
        (work, 5),
    ]


def test_only_the_queue_it_died_in_is_left_out(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(name, "fanout", auto_delete=True)
    round_ = declare(channel, name, dead_letter_exchange=name, message_ttl=20)
    other = declare(channel, f"{name}-other")
    channel.queue_bind(round_, name)
    channel.queue_bind(other, name)
    publish(channel, round_, "a")
    assert take(channel, other).body == "a"
    wait_for_message_death(channel, 60)
    assert ready(channel, [round_, other]) == 0


def test_through_three_hundred_queues(channel: BlockingChannel, name: str) -> None:
    length = 300
    for number in range(length):
        declare(
            channel,
            f"{name}-{number}",
            dead_letter_exchange="",
            dead_letter_routing_key=f"{name}-{number + 1}",
            max_length=0,
        )
    last = declare(channel, f"{name}-{length}")
    publish(channel, f"{name}-0", "a")
    letter = take(channel, last)
    assert letter.body == "a"
    deaths = letter.headers["x-death"]
    assert [death["queue"] for death in deaths] == [  # type: ignore[attr-defined]
        f"{name}-{number}" for number in reversed(range(length))
    ]
    assert letter.headers["x-first-death-queue"] == f"{name}-0"
    assert letter.headers["x-last-death-queue"] == f"{name}-{length - 1}"
