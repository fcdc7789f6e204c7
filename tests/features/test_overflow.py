"""x-overflow: queues that refuse what they have no room for."""

import asyncio

import aio_pika
import pika
import pytest
from aio_pika.exceptions import DeliveryError
from pika.adapters.blocking_connection import BlockingChannel
from pika.channel import Channel
from pika.spec import Basic

from tests.clients.blocking import PERSISTENT, Consumer, drain, publish, ready_count
from tests.clients.test_pika_select import Finish, run
from tests.conftest import BrokerProcess
from tests.features.steps import (
    Connect,
    Restart,
    arguments,
    declare,
    declare_with_dead,
    fetch,
    is_accepted,
    restarts,
    take,
    take_bodies,
)

REFUSING = pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])


@REFUSING
@pytest.mark.parametrize("limit", [{"max_length": 2}, {"max_length_bytes": 2}])
def test_a_full_queue_refuses(
    channel: BlockingChannel, name: str, overflow: str, limit: dict[str, object]
) -> None:
    channel.confirm_delivery()
    declare(channel, name, overflow=overflow, **limit)
    assert [is_accepted(channel, name, body) for body in "abcd"] == [True, True, False, False]
    assert take(channel, name).body == "a"
    assert [is_accepted(channel, name, body) for body in "ef"] == [True, False]
    assert drain(channel, name) == ["b", "e"]


def test_a_message_that_fits_is_taken_behind_one_that_does_not(
    channel: BlockingChannel, name: str
) -> None:
    channel.confirm_delivery()
    declare(channel, name, overflow="reject-publish", max_length_bytes=3)
    assert [is_accepted(channel, name, body) for body in ("a", "bbb", "cc", "")] == [
        True,
        False,
        True,
        True,
    ]
    assert drain(channel, name) == ["a", "cc", ""]


def test_without_confirms_it_is_dropped_in_silence(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, overflow="reject-publish", max_length=1)
    publish(channel, name, *"abc")
    assert drain(channel, name) == ["a"]


def test_what_is_refused_is_no_dead_letter(channel: BlockingChannel, name: str) -> None:
    dead = declare_with_dead(channel, name, overflow="reject-publish", max_length=1)
    publish(channel, name, "a", "b")
    assert ready_count(channel, name) == 1
    assert ready_count(channel, dead) == 0


def test_what_is_refused_is_a_dead_letter_if_asked_for(channel: BlockingChannel, name: str) -> None:
    channel.confirm_delivery()
    dead = declare_with_dead(channel, name, overflow="reject-publish-dlx", max_length=1)
    assert [is_accepted(channel, name, body) for body in "abc"] == [True, False, False]
    letter = take(channel, dead)
    assert letter.body == "b"
    (death,) = letter.headers["x-death"]  # type: ignore[misc]
    assert (death["reason"], death["queue"], death["count"]) == ("maxlen", name, 1)
    assert drain(channel, dead) == ["c"]
    assert drain(channel, name) == ["a"]


@REFUSING
def test_nothing_may_wait(channel: BlockingChannel, name: str, overflow: str) -> None:
    channel.confirm_delivery()
    declare(channel, name, overflow=overflow, max_length=0)
    Consumer(channel, name, auto_ack=True)
    assert not is_accepted(channel, name)


def test_what_came_back_makes_a_queue_full(channel: BlockingChannel, name: str) -> None:
    channel.confirm_delivery()
    declare(channel, name, overflow="reject-publish", max_length=1)
    assert is_accepted(channel, name, "a")
    held = fetch(channel, name)
    assert held is not None
    assert is_accepted(channel, name, "b")
    channel.basic_nack(held.tag, requeue=True)
    assert not is_accepted(channel, name, "c")
    assert drain(channel, name) == ["a", "b"]


def test_a_full_queue_with_a_reader_refuses_little(channel: BlockingChannel, name: str) -> None:
    channel.confirm_delivery()
    declare(channel, name, overflow="reject-publish", max_length=5)
    consumer = Consumer(channel, name, auto_ack=True)
    assert all(is_accepted(channel, name, str(number)) for number in range(50))
    consumer.wait_for(50)


def test_nacks_stand_between_the_acks_in_order(shared_broker: BrokerProcess, name: str) -> None:
    limits = arguments(max_length=2, overflow="reject-publish")
    frames: list[Basic.Ack | Basic.Nack] = []
    total = 30

    def scenario(channel: Channel, finish: Finish) -> None:
        def on_confirm(frame: pika.frame.Method) -> None:
            frames.append(frame.method)
            if frame.method.delivery_tag == total:
                finish()

        def publish(_: object) -> None:
            for number in range(total):
                queue = f"{name}-full" if number % 3 else f"{name}-free"
                channel.basic_publish("", queue, b"", PERSISTENT)

        for queue, values in ((f"{name}-free", {}), (f"{name}-full", limits)):
            channel.queue_declare(queue, durable=True, exclusive=True, arguments=values)
        channel.confirm_delivery(on_confirm, callback=publish)

    run(shared_broker, scenario)
    accepted: dict[int, bool] = {}
    for frame in frames:
        last = len(accepted)
        tags = range(last + 1, frame.delivery_tag + 1) if frame.multiple else [frame.delivery_tag]
        assert tags[0] == last + 1
        accepted.update((tag, isinstance(frame, Basic.Ack)) for tag in tags)
    refused = [number for number in range(total) if number % 3][2:]
    assert [number for number in range(total) if not accepted[number + 1]] == refused


@pytest.mark.anyio
async def test_one_queue_of_many_refuses(shared_broker: BrokerProcess, name: str) -> None:
    connection = await aio_pika.connect(shared_broker.uri)
    async with connection:
        channel = await connection.channel(publisher_confirms=True)
        exchange = await channel.declare_exchange(name, "fanout", auto_delete=True)
        limits = arguments(max_length=1, overflow="reject-publish")
        queues = [
            await channel.declare_queue("", exclusive=True, arguments=values)
            for values in (None, limits, None)
        ]
        for queue in queues:
            await queue.bind(exchange)
        results = await asyncio.gather(
            *(exchange.publish(aio_pika.Message(b"%d" % number), "") for number in range(4)),
            return_exceptions=True,
        )
        assert [isinstance(result, DeliveryError) for result in results] == [
            False,
            True,
            True,
            True,
        ]
        counts = [
            (await channel.declare_queue(queue.name, passive=True)).declaration_result.message_count
            for queue in queues
        ]
        assert counts == [4, 1, 4]


@restarts
def test_a_queue_is_as_full_after_a_restart(
    shared_broker: BrokerProcess, connect: Connect, name: str, restart: Restart
) -> None:
    channel = connect(shared_broker).channel()
    channel.confirm_delivery()
    dead = declare_with_dead(channel, name, overflow="reject-publish-dlx", max_length=2)
    assert [is_accepted(channel, name, body) for body in "abc"] == [True, True, False]
    restart(shared_broker, channel)
    channel = connect(shared_broker).channel()
    channel.confirm_delivery()
    assert not is_accepted(channel, name, "d")
    assert take_bodies(channel, dead, 2) == ["c", "d"]
    assert take(channel, name).body == "a"
    assert is_accepted(channel, name, "e")
    assert drain(channel, name) == ["b", "e"]
