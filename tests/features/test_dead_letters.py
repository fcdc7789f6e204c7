"""Dead letters: which messages become one, where they go, and what their headers tell."""

from datetime import UTC, datetime, timedelta

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import BasicProperties

from tests.clients.blocking import drain, publish, ready_count
from tests.conftest import BrokerProcess
from tests.features.steps import (
    Connect,
    Fetched,
    Restart,
    arguments,
    declare,
    declare_with_dead,
    fetch,
    restarts,
    send,
    take,
    take_bodies,
)
from tests.waiting import eventually

DEATH_FIELDS = ["count", "reason", "queue", "time", "exchange", "routing-keys"]
TOLD = ("reason", "queue", "exchange")


def reject(channel: BlockingChannel, queue: str) -> None:
    fetched = fetch(channel, queue)
    assert fetched is not None
    channel.basic_reject(fetched.tag, requeue=False)


def deaths(letter: Fetched) -> list[dict[str, object]]:
    entries = letter.headers["x-death"]
    assert isinstance(entries, list)
    return entries


def told(letter: Fetched, which: str) -> tuple[object, ...]:
    """What the headers x-first-death-... or x-last-death-... say."""
    return tuple(letter.headers[f"x-{which}-death-{of}"] for of in TOLD)


# ---- which, and where


def test_reject_and_nack_without_requeue(channel: BlockingChannel, name: str) -> None:
    dead = declare_with_dead(channel, name)
    publish(channel, name, *"abc")
    for settle in (channel.basic_reject, channel.basic_nack):
        fetched = fetch(channel, name)
        assert fetched is not None
        settle(fetched.tag, requeue=False)
    assert take_bodies(channel, dead, 2) == ["a", "b"]
    assert drain(channel, name) == ["c"]


def test_acked_purged_and_deleted_messages_are_no_dead_letters(
    channel: BlockingChannel, name: str
) -> None:
    dead = declare_with_dead(channel, name)
    publish(channel, name, "acked", "purged")
    take(channel, name)
    channel.queue_purge(name)
    publish(channel, name, "deleted")
    channel.queue_delete(name)
    assert ready_count(channel, dead) == 0


def test_an_auto_delete_queue_leaves_no_dead_letters(channel: BlockingChannel, name: str) -> None:
    dead = declare(channel, f"{name}-dead")
    target = arguments(dead_letter_exchange="", dead_letter_routing_key=dead)
    channel.queue_declare(name, auto_delete=True, arguments=target)
    channel.basic_qos(prefetch_count=1)
    tag = channel.basic_consume(name, lambda *_: None)
    publish(channel, name, "a", "b")
    channel.basic_cancel(tag)
    assert ready_count(channel, dead) == 0


def test_a_multiple_nack_keeps_the_order(channel: BlockingChannel, name: str) -> None:
    dead = declare_with_dead(channel, name)
    publish(channel, name, *map(str, range(20)))
    tags = []
    for _ in range(10):
        fetched = fetch(channel, name)
        assert fetched is not None
        tags.append(fetched.tag)
    channel.basic_ack(tags[3])
    channel.basic_nack(tags[-1], multiple=True, requeue=False)
    assert take_bodies(channel, dead, 9) == [str(number) for number in range(10) if number != 3]
    channel.basic_nack(0, multiple=True, requeue=False)
    assert ready_count(channel, name) == 10


def test_single_rejects_keep_the_order_they_came_in(channel: BlockingChannel, name: str) -> None:
    dead = declare_with_dead(channel, name)
    publish(channel, name, *"abcd")
    tags = [fetched.tag for _ in "abcd" if (fetched := fetch(channel, name))]
    for place in (2, 0, 3, 1):
        channel.basic_reject(tags[place], requeue=False)
    assert take_bodies(channel, dead, 4) == ["c", "a", "d", "b"]


def test_through_an_exchange_with_the_key_it_came_with(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(name, "topic", auto_delete=True)
    declare(channel, name, dead_letter_exchange=f"{name}-dlx")
    channel.exchange_declare(f"{name}-dlx", "topic")
    channel.queue_bind(name, name, "#")
    declare(channel, f"{name}-red")
    declare(channel, f"{name}-all")
    channel.queue_bind(f"{name}-red", f"{name}-dlx", "red.*")
    channel.queue_bind(f"{name}-all", f"{name}-dlx", "#")
    for key in ("red.apple", "green"):
        channel.basic_publish(name, key, key.encode())
        reject(channel, name)
    letter = take(channel, f"{name}-red")
    assert letter.body == "red.apple"
    (death,) = deaths(letter)
    assert death["exchange"] == name
    assert death["routing-keys"] == ["red.apple"]
    assert told(letter, "first") == told(letter, "last") == ("rejected", name, name)
    assert take_bodies(channel, f"{name}-all", 2) == ["red.apple", "green"]


def test_the_default_exchange_without_a_key_sends_it_back(
    channel: BlockingChannel, name: str
) -> None:
    declare(channel, name, dead_letter_exchange="")
    publish(channel, name, "a")
    reject(channel, name)
    assert take(channel, name).body == "a"


def test_a_letter_says_the_exchange_and_key_it_was_sent_with(
    channel: BlockingChannel, name: str
) -> None:
    channel.exchange_declare(name, "fanout", auto_delete=True)
    declare(channel, name, dead_letter_exchange=name, dead_letter_routing_key="dead.key")
    dead = declare(channel, f"{name}-dead")
    channel.queue_bind(dead, name)
    publish(channel, name, "a")
    reject(channel, name)
    method, _, body = channel.basic_get(dead, auto_ack=True)
    assert (method.exchange, method.routing_key, body) == (name, "dead.key", b"a")
    assert not method.redelivered


@pytest.mark.parametrize("key", [None, "nowhere"])
def test_a_missing_exchange_or_queue_loses_it(
    channel: BlockingChannel, name: str, key: str | None
) -> None:
    target = {"dead_letter_exchange": "" if key else f"{name}-dlx"}
    if key:
        target["dead_letter_routing_key"] = f"{name}-{key}"
    declare(channel, name, **target)
    publish(channel, name, "a", "b")
    reject(channel, name)
    assert ready_count(channel, name) == 1
    if key:
        dead = declare(channel, f"{name}-{key}")
    else:
        channel.exchange_declare(f"{name}-dlx", "fanout", auto_delete=True)
        dead = declare(channel, f"{name}-dead")
        channel.queue_bind(dead, f"{name}-dlx")
    reject(channel, name)
    assert take_bodies(channel, dead, 1) == ["b"]
    assert ready_count(channel, dead) == 0


# ---- headers


def test_the_history_of_a_death(channel: BlockingChannel, name: str) -> None:
    dead = declare_with_dead(channel, name)
    began = datetime.now(UTC).replace(microsecond=0)
    properties = {
        "content_type": "text/plain",
        "headers": {"mine": 1},
        "priority": 4,
        "correlation_id": "c",
        "message_id": "m",
        "app_id": "app",
    }
    send(channel, name, "a", **properties)
    reject(channel, name)
    letter = take(channel, dead)
    for key, value in properties.items():
        if key != "headers":
            assert getattr(letter.properties, key) == value
    (death,) = deaths(letter)
    assert list(death) == DEATH_FIELDS
    time = death.pop("time")
    assert began <= time <= began + timedelta(minutes=5)  # type: ignore[operator]
    assert death == {
        "count": 1,
        "reason": "rejected",
        "queue": name,
        "exchange": "",
        "routing-keys": [name],
    }
    assert next(iter(letter.headers)) == "mine"
    assert set(letter.headers) == {
        "mine",
        "x-death",
        *(f"x-{which}-death-{of}" for which in ("first", "last") for of in TOLD),
    }


def test_deaths_in_one_queue_for_one_reason_are_counted(
    channel: BlockingChannel, name: str
) -> None:
    declare(channel, name, dead_letter_exchange="")
    publish(channel, name, "a")
    first_time = None
    for count in range(1, 5):
        reject(channel, name)
        letter = fetch(channel, name)
        assert letter is not None
        (death,) = deaths(letter)
        assert death["count"] == count
        first_time = first_time or death["time"]
        assert death["time"] == first_time
        channel.basic_nack(letter.tag, requeue=True)


def test_another_queue_or_reason_is_another_entry_the_newest_first(
    channel: BlockingChannel, name: str
) -> None:
    work, wait = f"{name}-work", f"{name}-wait"
    declare(channel, work, dead_letter_exchange="", dead_letter_routing_key=wait)
    declare(channel, wait, dead_letter_exchange="", dead_letter_routing_key=work, message_ttl=20)
    send(channel, work, "a", expiration="60000")
    for _ in range(2):
        held = eventually(lambda: fetch(channel, work))
        channel.basic_reject(held.tag, requeue=False)
    letter = take(channel, work)
    summary = [(death["queue"], death["reason"], death["count"]) for death in deaths(letter)]
    assert summary == [(wait, "expired", 2), (work, "rejected", 2)]
    assert told(letter, "first") == ("rejected", work, "")
    assert told(letter, "last") == ("expired", wait, "")
    assert deaths(letter)[1]["original-expiration"] == "60000"
    assert next(iter(deaths(letter)[1])) == "original-expiration"
    assert "original-expiration" not in deaths(letter)[0]
    assert deaths(letter)[0]["routing-keys"] == [wait]


def test_a_history_that_a_client_sends_is_none(channel: BlockingChannel, name: str) -> None:
    dead = declare_with_dead(channel, name)
    declare(channel, f"{name}-2", dead_letter_exchange="", dead_letter_routing_key=name)
    publish(channel, f"{name}-2", "a")
    reject(channel, f"{name}-2")
    reject(channel, name)
    letter = take(channel, dead)
    assert len(deaths(letter)) == 2
    send(channel, name, "b", headers=letter.headers)
    again = fetch(channel, name)
    assert again is not None
    assert again.headers == letter.headers
    channel.basic_reject(again.tag, requeue=False)
    letter = take(channel, dead)
    assert [(death["queue"], death["count"]) for death in deaths(letter)] == [(name, 1)]
    assert told(letter, "first") == ("rejected", name, "")


def test_copies_are_told_and_blind_copies_are_not(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(f"{name}-dlx", "direct")
    declare(channel, name, dead_letter_exchange=f"{name}-dlx")
    dead = {}
    for key in ("to", "cc", "bcc"):
        dead[key] = declare(channel, f"{name}-{key}")
        channel.queue_bind(dead[key], f"{name}-dlx", key)
    channel.queue_bind(name, "amq.direct", f"{name}.to")
    channel.queue_bind(dead["to"], f"{name}-dlx", f"{name}.to")
    channel.basic_publish(
        "amq.direct",
        f"{name}.to",
        b"a",
        BasicProperties(headers={"CC": ["cc"], "BCC": ["bcc"]}),
    )
    reject(channel, name)
    for key in ("to", "cc", "bcc"):
        letter = take(channel, dead[key])
        assert letter.headers["CC"] == ["cc"]
        assert "BCC" not in letter.headers
        assert deaths(letter)[0]["routing-keys"] == [f"{name}.to", "cc"]


def test_a_key_of_the_queue_replaces_copies(channel: BlockingChannel, name: str) -> None:
    dead = declare_with_dead(channel, name)
    copies = [declare(channel, f"{name}-{kind}") for kind in ("cc", "bcc")]
    send(channel, name, "a", headers={"CC": copies[:1], "BCC": copies[1:]})
    assert take_bodies(channel, copies[0], 1) == take_bodies(channel, copies[1], 1) == ["a"]
    reject(channel, name)
    letter = take(channel, dead)
    assert "CC" not in letter.headers
    assert deaths(letter)[0]["routing-keys"] == [name, copies[0]]
    assert [ready_count(channel, queue) for queue in copies] == [0, 0]


def test_large_messages_die_whole(channel: BlockingChannel, name: str) -> None:
    dead = declare_with_dead(channel, name)
    body = "0123456789" * 50_000
    send(channel, name, body, headers={"k": "v" * 1000})
    reject(channel, name)
    letter = take(channel, dead)
    assert letter.body == body
    assert letter.headers["k"] == "v" * 1000


# ---- state


@restarts
def test_histories_survive_a_restart(
    shared_broker: BrokerProcess, connect: Connect, name: str, restart: Restart
) -> None:
    channel = connect(shared_broker).channel()
    channel.confirm_delivery()
    dead = declare_with_dead(channel, name)
    declare(channel, f"{name}-2", dead_letter_exchange="", dead_letter_routing_key=name)
    send(channel, f"{name}-2", "a", "b", expiration="600000")
    reject(channel, f"{name}-2")
    reject(channel, f"{name}-2")
    reject(channel, name)
    before = fetch(channel, dead)
    assert before is not None
    channel.basic_nack(before.tag)
    ready_count(channel, name)
    restart(shared_broker, channel)
    channel = connect(shared_broker).channel()
    assert ready_count(channel, f"{name}-2") == 0
    assert take(channel, dead).headers == before.headers
    reject(channel, name)
    letter = take(channel, dead)
    assert [(death["queue"], death["count"]) for death in deaths(letter)] == [
        (name, 1),
        (f"{name}-2", 1),
    ]
    assert told(letter, "first") == ("rejected", f"{name}-2", "")


def test_a_rejection_is_done_once_a_later_answer_is_here(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    channel = connect(shared_broker).channel()
    channel.confirm_delivery()
    dead = declare_with_dead(channel, name)
    publish(channel, name, *map(str, range(50)))
    for _ in range(50):
        reject(channel, name)
    ready_count(channel, name)
    shared_broker.kill()
    shared_broker.start()
    channel = connect(shared_broker).channel()
    assert drain(channel, name) == []
    assert drain(channel, dead) == [str(number) for number in range(50)]
