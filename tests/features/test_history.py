"""The past of a queue: what became of messages, bringing them back, moving them elsewhere."""

import base64
from collections.abc import Iterator
from typing import cast

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from leveret.server.commands.client import ask
from leveret.server.failure import Failure
from tests.clients.blocking import PERSISTENT, Consumer, drain, publish, ready_count, wait_until
from tests.conftest import BrokerProcess
from tests.features.steps import Connect, Restart, declare, fetch, restarts, send, take
from tests.waiting import eventually

Answer = dict[str, object]
Row = dict[str, object]

kinds = pytest.mark.parametrize("kind", ["classic", "quorum", "priority"])


def declare_kind(channel: BlockingChannel, name: str, kind: str, **values: object) -> None:
    if kind == "priority":
        declare(channel, name, max_priority=3, **values)
    else:
        declare(channel, name, queue_type=kind, **values)


def pages(broker: BrokerProcess, command: str, **arguments: object) -> Iterator[Answer]:
    """The answers to a command for all pages."""
    while True:
        answer = cast("Answer", ask(broker.data_dir, command, **arguments))
        yield answer
        if answer["next"] is None:
            return
        arguments |= {"start": answer["next"], "stop": answer["end"]}
        arguments |= {"start_ms": None, "stop_ms": None}


def count(broker: BrokerProcess, command: str, **arguments: object) -> int:
    return sum(cast("int", page["count"]) for page in pages(broker, command, **arguments))


def browse(broker: BrokerProcess, queue: str, **arguments: object) -> list[Row]:
    found: list[Row] = []
    for page in pages(broker, "browse_queue", queue=queue, **arguments):
        found += cast("list[Row]", page["messages"])
    return found


def states(broker: BrokerProcess, queue: str) -> str:
    """The first letter of the state of each message: ready, delivered, settled, waiting."""
    return "".join(str(row["state"])[0] for row in browse(broker, queue))


def show(broker: BrokerProcess, queue: str, offset: int) -> Row:
    return cast("Row", ask(broker.data_dir, "show_message", queue=queue, offset=offset))


def fetch_all(channel: BlockingChannel, queue: str) -> list[tuple[str, bool, bool]]:
    """Bodies, redelivered flags and x-replayed of all that is ready, which is settled."""
    found = []
    while (message := fetch(channel, queue)) is not None:
        channel.basic_ack(message.tag)
        found.append((message.body, message.redelivered, message.headers.get("x-replayed", False)))
    return found


# ---- looking


def test_browsing_changes_nothing(
    shared_broker: BrokerProcess, channel: BlockingChannel, name: str
) -> None:
    declare(channel, name)
    publish(channel, name, *"abcde")
    first = fetch(channel, name)
    assert first is not None
    assert fetch(channel, name) is not None
    channel.basic_ack(first.tag)
    assert ready_count(channel, name) == 3
    rows = browse(shared_broker, name)
    assert [row["state"] for row in rows] == ["settled", "delivered", "ready", "ready", "ready"]
    assert [base64.b64decode(str(row["body"])) for row in rows] == [b"a", b"b", b"c", b"d", b"e"]
    assert [row["offset"] for row in browse(shared_broker, name, state="ready")] == [2, 3, 4]
    assert [row["offset"] for row in browse(shared_broker, name, state="delivered")] == [1]
    assert [row["offset"] for row in browse(shared_broker, name, state="settled", stop=1)] == [0]
    assert fetch_all(channel, name) == [(body, False, False) for body in "cde"]
    time_ms = cast("int", rows[3]["time_ms"])
    later = [row for row in rows if cast("int", row["time_ms"]) >= time_ms]
    assert [row["offset"] for row in browse(shared_broker, name, start_ms=time_ms)] == [
        row["offset"] for row in later
    ]


def test_each_end_of_a_message_has_its_word(
    shared_broker: BrokerProcess, channel: BlockingChannel, name: str
) -> None:
    other = declare(channel, f"{name}-other")
    declare(channel, name, dead_letter_exchange="", dead_letter_routing_key=other, max_length=6)
    publish(channel, name, "dropped")
    send(channel, name, "expired", expiration="1")
    publish(channel, name, "acked", "rejected", "moved", "purged")
    publish(channel, name, "too much")
    eventually(lambda: "e" not in [row["state"] for row in browse(shared_broker, name)[:2]])
    eventually(lambda: show(shared_broker, name, 1)["state"] == "expired")
    acked, rejected = (fetch(channel, name) for _ in "ab")
    assert acked is not None
    assert rejected is not None
    channel.basic_ack(acked.tag)
    channel.basic_reject(rejected.tag, requeue=False)
    ready_count(channel, name)
    assert count(shared_broker, "move_messages", queue=name, to_queue=other, stop=5) == 1
    channel.queue_purge(name)
    found = [show(shared_broker, name, offset) for offset in range(6)]
    words = ["dropped", "expired", "acknowledged", "rejected", "moved", "purged"]
    assert [row["state"] for row in found] == words
    where = f"; dead letters of the queue go to the default exchange with routing key '{other}'"
    assert [row["offset"] for row in found if str(row["where"]).endswith(where)] == [0, 1, 3]
    assert [row["deliveries"] for row in found] == [0, 0, 1, 1, 0, 0]


def test_who_has_a_message_is_told(
    shared_broker: BrokerProcess, channel: BlockingChannel, name: str
) -> None:
    declare(channel, name)
    publish(channel, name, *"ab")
    channel.basic_qos(prefetch_count=1)
    consumer = Consumer(channel, name, consumer_tag="worker 7")
    consumer.wait_for(1)
    fetched = channel.connection.channel()
    assert fetched.basic_get(name)[2] == b"b"
    first, second = show(shared_broker, name, 0), show(shared_broker, name, 1)
    holder = cast("Row", first["holder"])
    assert (first["state"], holder["consumer_tag"], holder["channel"]) == (
        "delivered",
        "worker 7",
        1,
    )
    assert str(first["where"]).startswith("unacknowledged by consumer 'worker 7' on channel 1 of ")
    assert str(second["where"]).startswith("unacknowledged by a basic.get on channel 2 of ")


def test_what_waits_for_its_next_try_is_waiting(
    shared_broker: BrokerProcess, channel: BlockingChannel, name: str
) -> None:
    declare(channel, name, queue_type="quorum", delayed_retry_min=60_000, delayed_retry_type="all")
    publish(channel, name, "a")
    held = fetch(channel, name)
    assert held is not None
    channel.basic_nack(held.tag)
    ready_count(channel, name)
    found = show(shared_broker, name, 0)
    assert (found["state"], found["where"]) == (
        "waiting",
        "it came back and waits for its next try",
    )
    assert cast("int", found["next_try_ms"]) > cast("int", found["time_ms"]) + 50_000


def test_properties_and_headers_can_be_read(
    shared_broker: BrokerProcess, channel: BlockingChannel, name: str
) -> None:
    declare(channel, name)
    headers = {"n": 1, "nested": {"list": [True, None]}, "raw": b"\xff\x00"}
    send(channel, name, "x", headers=headers, app_id="shop", priority=3, message_id="é")
    found = show(shared_broker, name, 0)
    assert found["headers"] == {"n": 1, "nested": {"list": [True, None]}, "raw": "ff00"}
    assert found["properties"] == {
        "app_id": "shop",
        "priority": 3,
        "message_id": "é",
        "delivery_mode": 2,
    }
    assert (found["exchange"], found["routing_key"], found["size"]) == ("", name, 1)


def find(broker: BrokerProcess, queue: str, message_id: str) -> list[int]:
    """The offsets of the messages with this id."""
    found: list[int] = []
    for page in pages(broker, "find_message", queue=queue, message_id=message_id):
        found += cast("list[int]", page["offsets"])
    return found


def test_messages_are_found_by_id_before_and_after_the_index_is_there(
    shared_broker: BrokerProcess, channel: BlockingChannel, name: str
) -> None:
    declare(channel, name)
    channel.confirm_delivery()
    for number in range(30):
        send(channel, name, "x", message_id=f"id{number % 10}")
    publish(channel, name, "without")
    assert find(shared_broker, name, "id3") == [3, 13, 23]
    send(channel, name, "x", message_id="id3")
    drain(channel, name)
    assert find(shared_broker, name, "id3") == [3, 13, 23, 31]
    assert find(shared_broker, name, "id") == []


@restarts
def test_messages_are_found_by_id_after_a_restart(
    broker: BrokerProcess, connect: Connect, name: str, restart: Restart
) -> None:
    channel = connect(broker).channel()
    channel.confirm_delivery()
    declare(channel, name)
    for number in range(10):
        send(channel, name, "x", message_id=f"id{number % 3}")
    assert find(broker, name, "id1") == [1, 4, 7]
    restart(broker, channel)
    channel = connect(broker).channel()
    send(channel, name, "x", message_id="id1")
    assert find(broker, name, "id1")[:3] == [1, 4, 7]
    broker.restart()
    assert find(broker, name, "id1") == [1, 4, 7, 10]


def test_what_is_in_memory_has_no_history(
    shared_broker: BrokerProcess, channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name, exclusive=True)
    for command in ("browse_queue", "rewind_queue"):
        with pytest.raises(Failure, match="keeps its messages in memory: it has no history"):
            ask(shared_broker.data_dir, command, queue=name)
    with pytest.raises(Failure, match="queue 'nobody' does not exist in vhost '/'"):
        ask(shared_broker.data_dir, "browse_queue", queue="nobody")


# ---- bringing back


@kinds
def test_what_is_done_with_comes_back_to_its_place(
    shared_broker: BrokerProcess, channel: BlockingChannel, name: str, kind: str
) -> None:
    declare_kind(channel, name, kind)
    for body in "abcdefg":
        send(channel, name, body, priority=1)
    assert channel.basic_get(name, auto_ack=True)[2] == b"a"
    held = [fetch(channel, name) for _ in "bcde"]
    channel.basic_ack(held[0].tag)
    channel.basic_reject(held[1].tag, requeue=False)
    channel.basic_nack(held[2].tag, requeue=True)
    ready_count(channel, name)
    assert states(shared_broker, name) == "sssrdrr"
    assert count(shared_broker, "rewind_queue", queue=name, start=1, dry_run=True) == 2
    assert states(shared_broker, name) == "sssrdrr"
    assert count(shared_broker, "rewind_queue", queue=name, start=1) == 2
    assert states(shared_broker, name) == "srrrdrr"
    assert count(shared_broker, "rewind_queue", queue=name, start=1) == 0
    assert ready_count(channel, name) == 5
    assert fetch_all(channel, name) == [
        ("b", True, True),
        ("c", True, True),
        ("d", True, False),
        ("f", False, False),
        ("g", False, False),
    ]
    channel.basic_nack(held[3].tag, requeue=True)
    assert fetch_all(channel, name) == [("e", True, False)]
    assert states(shared_broker, name) == "sssssss"


@kinds
@restarts
def test_what_came_back_survives(
    broker: BrokerProcess, connect: Connect, name: str, kind: str, restart: Restart
) -> None:
    channel = connect(broker).channel()
    channel.confirm_delivery()
    declare_kind(channel, name, kind)
    for body in "abcd":
        send(channel, name, body, priority=1)
    drain(channel, name)
    assert count(broker, "rewind_queue", queue=name, start=1) == 3
    assert channel.basic_get(name, auto_ack=True)[2] == b"b"
    ready_count(channel, name)
    restart(broker, channel)
    channel = connect(broker).channel()
    assert fetch_all(channel, name) == [("c", True, True), ("d", True, True)]
    ready_count(channel, name)
    restart(broker, channel)
    assert states(broker, name) == "ssss"


def test_what_came_back_does_not_expire(
    shared_broker: BrokerProcess, channel: BlockingChannel, name: str
) -> None:
    declare(channel, name, message_ttl=100)
    publish(channel, name, *"abc")
    wait_until(channel.connection, lambda: ready_count(channel, name) == 0)
    assert show(shared_broker, name, 2)["state"] == "expired"
    assert count(shared_broker, "rewind_queue", queue=name, start=1) == 2
    publish(channel, name, "late")
    wait_until(channel.connection, lambda: states(shared_broker, name) == "srrr")
    assert fetch_all(channel, name)[:2] == [("b", True, True), ("c", True, True)]
    publish(channel, name, "later")
    wait_until(channel.connection, lambda: ready_count(channel, name) == 0)


def test_a_length_limit_holds_for_what_came_back(
    shared_broker: BrokerProcess, channel: BlockingChannel, name: str
) -> None:
    declare(channel, name, max_length=3, max_length_bytes=100)
    publish(channel, name, *"abcd")
    drain(channel, name)
    assert count(shared_broker, "rewind_queue", queue=name) == 4
    assert states(shared_broker, name) == "srrr"
    assert show(shared_broker, name, 0)["state"] == "dropped"


def test_consumers_get_what_came_back(
    shared_broker: BrokerProcess, channel: BlockingChannel, name: str
) -> None:
    declare(channel, name)
    publish(channel, name, *"abc")
    consumer = Consumer(channel, name, auto_ack=True)
    consumer.wait_for(3)
    assert count(shared_broker, "rewind_queue", queue=name) == 3
    again = consumer.wait_for(6)[3:]
    assert [delivery.body for delivery in again] == [b"a", b"b", b"c"]
    assert all(delivery.method.redelivered for delivery in again)
    assert all(delivery.properties.headers["x-replayed"] is True for delivery in again)
    assert states(shared_broker, name) == "sss"


# ---- moving and copying


@kinds
def test_ready_messages_move_to_a_queue_as_they_are(
    shared_broker: BrokerProcess, channel: BlockingChannel, name: str, kind: str
) -> None:
    declare_kind(channel, name, kind)
    target = declare(channel, f"{name}-target")
    for body in "abcdef":
        send(channel, name, body, headers={"CC": ["elsewhere"]}, priority=1)
    held = fetch(channel, name)
    wanted = {"queue": name, "to_queue": target}
    assert count(shared_broker, "move_messages", **wanted, start=2, stop=4, dry_run=True) == 2
    assert count(shared_broker, "move_messages", **wanted, start=2, stop=4) == 2
    assert states(shared_broker, name) == "drssrr"
    answer = cast("Answer", ask(shared_broker.data_dir, "move_messages", **wanted, limit=1))
    assert (answer["count"], answer["next"]) == (1, 4)
    assert [row["routing_key"] for row in browse(shared_broker, target)] == [name] * 3
    assert drain(channel, target) == ["c", "d", "b"]
    assert drain(channel, name) == ["e", "f"]
    channel.basic_nack(held.tag)
    assert drain(channel, name) == ["a"]


def test_messages_move_to_an_exchange_as_if_published_there(
    shared_broker: BrokerProcess, channel: BlockingChannel, name: str
) -> None:
    declare(channel, name)
    target = declare(channel, f"{name}-target")
    channel.exchange_declare(name, "direct", auto_delete=True)
    channel.queue_bind(target, name, "late")
    publish(channel, name, *"abc")
    send(channel, name, "d", headers={"CC": ["elsewhere"], "kept": 1})
    wanted = {"queue": name, "to_exchange": name}
    (answer,) = pages(shared_broker, "move_messages", **wanted)
    assert (answer["count"], answer["unroutable"]) == (0, 4)
    assert states(shared_broker, name) == "rrrr"
    (answer,) = pages(shared_broker, "move_messages", queue=name, to_exchange="")
    assert (answer["count"], answer["unroutable"]) == (0, 4)  # it leads back to where they are
    (answer,) = pages(shared_broker, "move_messages", **wanted, routing_key="late")
    assert (answer["count"], answer["unroutable"]) == (4, 0)
    rows = browse(shared_broker, target)
    assert [(row["exchange"], row["routing_key"]) for row in rows] == [(name, "late")] * 4
    last = [take(channel, target) for _ in "abcd"][-1]
    assert (last.body, last.headers) == ("d", {"kept": 1})
    assert states(shared_broker, name) == "ssss"


def test_what_a_full_queue_refuses_stays(
    shared_broker: BrokerProcess, channel: BlockingChannel, name: str
) -> None:
    declare(channel, name)
    target = declare(channel, f"{name}-target", max_length=2, overflow="reject-publish")
    publish(channel, name, *"abcd")
    ready_count(channel, name)
    answer = next(pages(shared_broker, "move_messages", queue=name, to_queue=target))
    assert (answer["count"], answer["refused"]) == (2, 2)
    assert (drain(channel, target), drain(channel, name)) == (["a", "b"], ["c", "d"])


def test_copies_leave_their_messages_where_they_are(
    shared_broker: BrokerProcess, channel: BlockingChannel, name: str
) -> None:
    declare(channel, name)
    target = declare(channel, f"{name}-target")
    publish(channel, name, *"abcd")
    assert channel.basic_get(name, auto_ack=True)[2] == b"a"
    wanted = {"queue": name, "to_queue": target}
    assert count(shared_broker, "copy_messages", **wanted) == 3
    assert count(shared_broker, "copy_messages", **wanted, state="settled") == 1
    assert count(shared_broker, "copy_messages", **wanted, state="all", dry_run=True) == 4
    assert drain(channel, target) == ["b", "c", "d", "a"]
    assert fetch_all(channel, name) == [(body, False, False) for body in "bcd"]


def test_a_transfer_says_where_to(
    shared_broker: BrokerProcess, channel: BlockingChannel, name: str
) -> None:
    declare(channel, name)
    for wrong, reason in (
        ({}, "either to_queue or to_exchange"),
        ({"to_queue": name}, "a queue cannot be its own target"),
        ({"to_queue": "nobody"}, "queue 'nobody' does not exist"),
        ({"to_exchange": "nobody"}, "exchange 'nobody' does not exist"),
        ({"to_queue": "q", "routing_key": "k"}, "a routing key goes with an exchange"),
    ):
        with pytest.raises(Failure, match=reason):
            ask(shared_broker.data_dir, "move_messages", queue=name, **wrong)


def test_nothing_is_lost_or_doubled_while_consumers_go_on(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    channel = connect(shared_broker).channel()
    declare(channel, name)
    target = declare(channel, f"{name}-target")
    channel.confirm_delivery()
    channel.basic_qos(prefetch_count=7)
    numbers = range(2500)
    publisher = connect(shared_broker).channel()
    for number in numbers:
        publisher.basic_publish("", name, str(number).encode(), PERSISTENT)
    consumed: list[bytes] = []

    def consume(
        on: BlockingChannel, method: pika.spec.Basic.Deliver, _: object, body: bytes
    ) -> None:
        consumed.append(body)
        on.basic_ack(method.delivery_tag)

    channel.basic_consume(name, consume)
    for _ in pages(shared_broker, "move_messages", queue=name, to_queue=target):
        channel.connection.process_data_events(time_limit=0)
    wait_until(channel.connection, lambda: ready_count(channel, name) == 0)
    wait_until(
        channel.connection,
        lambda: len(consumed) + ready_count(publisher, target) == len(numbers),
    )
    moved = drain(publisher, target)
    assert sorted([*map(int, moved), *map(int, consumed)]) == list(numbers)
    assert moved == sorted(moved, key=int)


def test_a_kill_during_a_move_loses_nothing_and_doubles_a_page_at_most(
    broker: BrokerProcess, connect: Connect, name: str
) -> None:
    channel = connect(broker).channel()
    declare(channel, name)
    target = declare(channel, f"{name}-target")
    for number in range(3500):
        channel.basic_publish("", name, str(number).encode(), PERSISTENT)
    eventually(lambda: ready_count(channel, name) == 3500)
    moves = pages(broker, "move_messages", queue=name, to_queue=target)
    for _ in "ab":
        next(moves)
    broker.kill()
    broker.start()
    channel = connect(broker).channel()
    left, moved = drain(channel, name), drain(channel, target)
    assert sorted({*map(int, left), *map(int, moved)}) == list(range(3500))
    assert len(left) + len(moved) <= 4500
    assert moved == sorted(moved, key=int)


def test_a_rewind_of_much_is_done_in_pages(
    shared_broker: BrokerProcess, channel: BlockingChannel, name: str
) -> None:
    declare(channel, name)
    publish(channel, name, *map(str, range(1500)))
    eventually(lambda: ready_count(channel, name) == 1500)
    channel.queue_purge(name)
    answers = list(pages(shared_broker, "rewind_queue", queue=name, start=100))
    assert len(answers) > 1
    assert answers[0]["begin"] == 100
    assert sum(cast("int", answer["count"]) for answer in answers) == 1400
    assert sum(cast("int", answer["bytes"]) for answer in answers) == 3 * 900 + 4 * 500
    assert drain(channel, name) == [str(number) for number in range(100, 1500)]
