"""x-single-active-consumer: one gets everything, the next takes over when it goes."""

import asyncio

import aio_pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.clients.blocking import Consumer, publish, ready_count, wait_until
from tests.conftest import BrokerProcess
from tests.features.steps import Connect, declare, fetch, reply_text

SINGLE = {"single_active_consumer": True}


def test_the_next_takes_over_in_the_order_they_came(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    connection = connect(shared_broker)
    channel = connection.channel()
    declare(channel, name, **SINGLE)
    channels = [connection.channel() for _ in range(3)]
    consumers = [Consumer(each, name, auto_ack=True) for each in channels]
    publish(channel, name, "1", "2")
    consumers[0].wait_for(2)
    channels[0].basic_cancel(consumers[0].tag)
    publish(channel, name, "3", "4")
    consumers[1].wait_for(2)
    channels[1].close()
    publish(channel, name, "5", "6")
    consumers[2].wait_for(2)
    assert [consumer.bodies for consumer in consumers] == [
        [b"1", b"2"],
        [b"3", b"4"],
        [b"5", b"6"],
    ]


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_prefetch_does_not_move_the_role(
    channel: BlockingChannel, name: str, queue_type: str
) -> None:
    declare(channel, name, queue_type=queue_type, **SINGLE)
    channel.basic_qos(prefetch_count=1)
    active, waiting = Consumer(channel, name), Consumer(channel, name)
    publish(channel, name, "1", "2")
    (first,) = active.wait_for(1)
    assert ready_count(channel, name) == 1
    channel.basic_ack(first.method.delivery_tag)
    active.wait_for(2)
    assert waiting.bodies == []


def test_what_the_old_one_held_it_may_still_settle(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, **SINGLE)
    channel.basic_qos(prefetch_count=1)
    old, new = Consumer(channel, name), Consumer(channel, name)
    publish(channel, name, "1", "2")
    (held,) = old.wait_for(1)
    channel.basic_cancel(old.tag)
    assert new.wait_for(1)[0].body == b"2"
    channel.basic_nack(held.method.delivery_tag)
    channel.basic_ack(new.deliveries[0].method.delivery_tag)
    second = new.wait_for(2)[1]
    assert (second.body, second.method.redelivered) == (b"1", True)


def test_order_holds_over_a_lost_channel(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    channel, other = connect(shared_broker).channel(), connect(shared_broker).channel()
    declare(channel, name, **SINGLE)
    other.basic_qos(prefetch_count=3)
    Consumer(other, name).wait_for(0)
    heir = Consumer(channel, name, auto_ack=True)
    publish(channel, name, *map(str, range(6)))
    wait_until(other.connection, lambda: ready_count(channel, name) == 3)
    reply_text(lambda: other.queue_declare(f"{name}-none", passive=True))
    assert [delivery.body for delivery in heir.wait_for(6)] == [b"%d" % n for n in range(6)]
    assert [delivery.method.redelivered for delivery in heir.deliveries] == [True] * 3 + [False] * 3


def test_a_classic_queue_looks_at_priorities_when_the_role_is_free(
    channel: BlockingChannel, name: str
) -> None:
    declare(channel, name, **SINGLE)
    active = Consumer(channel, name, auto_ack=True)
    low = Consumer(channel, name, auto_ack=True)
    high = [Consumer(channel, name, auto_ack=True, arguments={"x-priority": 9}) for _ in range(2)]
    publish(channel, name, "a")
    active.wait_for(1)
    for consumer, successor, body in zip(
        (active, *high), (*high, low), ("b", "c", "d"), strict=True
    ):
        channel.basic_cancel(consumer.tag)
        publish(channel, name, body)
        assert successor.wait_for(1)[0].body == body.encode()


def test_a_quorum_queue_hands_over_to_the_highest_priority(
    channel: BlockingChannel, name: str
) -> None:
    declare(channel, name, queue_type="quorum", **SINGLE)
    channel.basic_qos(prefetch_count=1)
    low = Consumer(channel, name, arguments={"x-priority": 1})
    publish(channel, name, *"abc")
    (held,) = low.wait_for(1)
    Consumer(channel, name, arguments={"x-priority": 1})
    high = Consumer(channel, name, arguments={"x-priority": 2})
    assert ready_count(channel, name) == 2
    channel.basic_ack(held.method.delivery_tag)
    assert high.wait_for(1)[0].body == b"b"
    channel.basic_cancel(high.tag)
    assert low.wait_for(2)[1].body == b"c"


def test_others_may_get_from_a_classic_queue_only(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, **SINGLE)
    quorum = declare(channel, f"{name}-quorum", queue_type="quorum", **SINGLE)
    publish(channel, name, "a")
    fetched = fetch(channel, name)
    assert fetched is not None
    assert reply_text(lambda: fetch(channel, quorum)) == (
        f"RESOURCE_LOCKED - cannot obtain access to locked queue '{quorum}' in vhost '/'. "
        "basic.get operations are not supported by quorum queues with single active consumer"
    )


def test_an_exclusive_consumer_is_refused(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, **SINGLE)
    text = reply_text(lambda: Consumer(channel, name, exclusive=True))
    assert text == f"ACCESS_REFUSED - queue '{name}' in vhost '/' in exclusive use"


@pytest.mark.anyio
async def test_reconnecting_consumers_share_one_at_a_time_over_a_kill(
    shared_broker: BrokerProcess, name: str
) -> None:
    received: list[tuple[int, bytes]] = []
    arguments = {"x-single-active-consumer": True}

    async def consume(number: int) -> aio_pika.abc.AbstractRobustConnection:
        connection = await aio_pika.connect_robust(shared_broker.uri, reconnect_interval=0.1)
        channel = await connection.channel()
        queue = await channel.declare_queue(name, durable=True, arguments=arguments)

        async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            received.append((number, message.body))
            await message.ack()

        await queue.consume(take)
        return connection

    async def send(*bodies: bytes) -> None:
        wanted = len(received) + len(bodies)
        connection = await aio_pika.connect(shared_broker.uri)
        async with connection:
            channel = await connection.channel()
            for body in bodies:
                await channel.default_exchange.publish(aio_pika.Message(body), name)
        async with asyncio.timeout(10):
            while len(received) < wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    connections = [await consume(number) for number in range(2)]
    await send(b"1", b"2")
    assert received == [(0, b"1"), (0, b"2")]
    shared_broker.kill()
    shared_broker.start()
    await send(b"3", b"4")
    assert [body for _, body in received] == [b"1", b"2", b"3", b"4"]
    assert len({number for number, _ in received[2:]}) == 1
    for connection in connections:
        await connection.close()
