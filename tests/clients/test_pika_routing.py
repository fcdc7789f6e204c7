"""Exchanges as pika sees them: types, bindings between exchanges, alternates, life cycle."""

from collections.abc import Iterable

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from tests.clients.blocking import drain


def new_queue(channel: BlockingChannel) -> str:
    return channel.queue_declare("", exclusive=True).method.queue


def send(channel: BlockingChannel, exchange: str, keys: Iterable[str]) -> None:
    for key in keys:
        channel.basic_publish(exchange, key, key.encode())


def test_direct(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(name, "direct", auto_delete=True)
    both, one = new_queue(channel), new_queue(channel)
    for queue, key in ((both, "red"), (both, "green"), (one, "green")):
        channel.queue_bind(queue, name, key)
    send(channel, name, ["red", "green", "blue", "red"])
    assert drain(channel, both) == ["red", "green", "red"]
    assert drain(channel, one) == ["green"]
    channel.queue_unbind(both, name, "red")
    send(channel, name, ["red", "green"])
    assert drain(channel, both) == ["green"]


def test_fanout_reaches_each_queue_once(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(name, "fanout", auto_delete=True)
    queues = [new_queue(channel) for _ in range(3)]
    for queue in queues:
        channel.queue_bind(queue, name)
        channel.queue_bind(queue, name, "another key")
    send(channel, name, ["a", "b"])
    assert [drain(channel, queue) for queue in queues] == [["a", "b"]] * 3


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("#", ["", "a", "a.b", "a.b.c"]),
        ("*", ["a"]),  # no key is no word
        ("a.*", ["a.b"]),
        ("a.#", ["a", "a.b", "a.b.c"]),
        ("#.c", ["a.b.c"]),
        ("*.b.*", ["a.b.c"]),
        ("a.b", ["a.b"]),
    ],
)
def test_topic(channel: BlockingChannel, pattern: str, matching: list[str]) -> None:
    queue = new_queue(channel)
    channel.queue_bind(queue, "amq.topic", pattern)
    send(channel, "amq.topic", ["", "a", "a.b", "a.b.c"])
    assert drain(channel, queue) == matching


@pytest.mark.parametrize(
    ("x_match", "headers", "matches"),
    [
        ("all", {"format": "pdf", "pages": 3, "more": "x"}, True),
        ("all", {"format": "pdf"}, False),
        ("all", {"format": "pdf", "pages": 4}, False),
        ("any", {"format": "pdf"}, True),
        ("any", {"format": "zip", "pages": 3}, True),
        ("any", {"format": "zip"}, False),
        ("any", None, False),
        (None, {"format": "pdf", "pages": 3}, True),
        (None, {"format": "pdf"}, False),
        ("all-with-x", {"format": "pdf", "pages": 3, "x-kind": "k"}, True),
        ("all-with-x", {"format": "pdf", "pages": 3}, False),
        ("all", {"format": "pdf", "pages": 3}, True),
        ("any-with-x", {"x-kind": "k"}, True),
        ("any", {"x-kind": "k"}, False),
    ],
)
def test_headers(
    channel: BlockingChannel, x_match: str | None, headers: dict[str, object], matches: bool
) -> None:
    arguments = {"format": "pdf", "pages": 3, "x-kind": "k"}
    if x_match is not None:
        arguments["x-match"] = x_match
    queue = new_queue(channel)
    channel.queue_bind(queue, "amq.headers", arguments=arguments)
    channel.basic_publish("amq.headers", "", b"x", pika.BasicProperties(headers=headers))
    assert drain(channel, queue) == ["x"] * matches


def test_exchanges_bound_to_exchanges(channel: BlockingChannel, name: str) -> None:
    inner, outer = f"{name}-inner", f"{name}-outer"
    channel.exchange_declare(outer, "topic")
    channel.exchange_declare(inner, "direct")
    channel.exchange_bind(inner, outer, "a.#")
    channel.exchange_bind(outer, inner, "a.loop")  # a circle ends by itself
    queue = new_queue(channel)
    channel.queue_bind(queue, inner, "a.b")
    channel.queue_bind(queue, inner, "a.loop")
    send(channel, outer, ["a.b", "a.c", "b", "a.loop"])
    assert drain(channel, queue) == ["a.b", "a.loop"]
    channel.exchange_unbind(inner, outer, "a.#")
    send(channel, outer, ["a.b"])
    assert drain(channel, queue) == []


def test_the_alternate_exchange_takes_what_has_no_route(
    channel: BlockingChannel, name: str
) -> None:
    alternate = f"{name}-alternate"
    channel.exchange_declare(alternate, "fanout", auto_delete=True)
    channel.exchange_declare(
        name, "direct", auto_delete=True, arguments={"alternate-exchange": alternate}
    )
    routed, lost = new_queue(channel), new_queue(channel)
    channel.queue_bind(routed, name, "known")
    channel.queue_bind(lost, alternate)
    channel.confirm_delivery()
    for key in ("known", "unknown"):
        channel.basic_publish(name, key, key.encode(), mandatory=True)
    assert (drain(channel, routed), drain(channel, lost)) == (["known"], ["unknown"])
    method, _, _ = channel.basic_get(lost)
    assert method is None


def test_the_predeclared_exchanges_are_there(channel: BlockingChannel) -> None:
    for kind in ("direct", "fanout", "topic", "headers"):
        channel.exchange_declare(f"amq.{kind}", kind, durable=True)
    channel.exchange_declare("amq.match", "headers", durable=True)


def test_an_auto_delete_exchange_goes_with_its_last_binding(
    channel: BlockingChannel, name: str
) -> None:
    channel.exchange_declare(name, "fanout", auto_delete=True)
    queues = [new_queue(channel) for _ in range(2)]
    for queue in queues:
        channel.queue_bind(queue, name)
    channel.queue_unbind(queues[0], name)
    channel.exchange_declare(name, passive=True)
    channel.queue_delete(queues[1])
    with pytest.raises(ChannelClosedByBroker) as raised:
        channel.exchange_declare(name, passive=True)
    assert raised.value.reply_code == 404


def test_a_binding_goes_with_its_queue_and_its_exchange(
    channel: BlockingChannel, name: str
) -> None:
    channel.exchange_declare(name, "fanout")
    channel.queue_declare(name)
    channel.queue_bind(name, name)
    channel.queue_delete(name)
    channel.queue_declare(name, exclusive=True)
    send(channel, name, ["to no queue"])
    assert drain(channel, name) == []
    channel.queue_bind(name, name)
    channel.exchange_delete(name)
    channel.exchange_declare(name, "fanout", auto_delete=True)
    send(channel, name, ["to no queue"])
    assert drain(channel, name) == []


def test_messages_follow_a_binding_made_while_publishing(
    channel: BlockingChannel, name: str
) -> None:
    channel.exchange_declare(name, "direct", auto_delete=True)
    first, second = new_queue(channel), new_queue(channel)
    channel.queue_bind(first, name, "k")
    send(channel, name, ["k"])
    channel.queue_bind(second, name, "k")
    send(channel, name, ["k"])
    channel.queue_unbind(first, name, "k")
    send(channel, name, ["k"])
    assert (drain(channel, first), drain(channel, second)) == (["k"] * 2, ["k"] * 2)
