"""aio-pika's robust connection: it comes back with everything that it had declared."""

from collections.abc import AsyncIterator, Callable

import aio_pika
import anyio.to_thread
import pytest
from aio_pika import DeliveryMode, ExchangeType, Message
from aio_pika.abc import AbstractRobustConnection

from tests.conftest import BrokerProcess
from tests.waiting import eventually_async

pytestmark = pytest.mark.anyio


def kill_and_start(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


def stop_and_start(broker: BrokerProcess) -> None:
    broker.restart()


@pytest.fixture
async def connection(broker: BrokerProcess) -> AsyncIterator[AbstractRobustConnection]:
    connection = await aio_pika.connect_robust(broker.uri, reconnect_interval=0.1)
    async with connection:
        yield connection


@pytest.mark.parametrize("restart", [kill_and_start, stop_and_start])
async def test_it_reconnects_redeclares_and_goes_on_consuming(
    broker: BrokerProcess,
    connection: AbstractRobustConnection,
    restart: Callable[[BrokerProcess], None],
) -> None:
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=1)
    # Nothing of this outlives the broker, save the queue "kept".
    exchange = await channel.declare_exchange("events", ExchangeType.TOPIC)
    private = await channel.declare_queue("private", exclusive=True)
    kept = await channel.declare_queue("kept", durable=True)
    await private.bind(exchange, "user.*")
    await kept.bind(exchange, "#")
    received: list[tuple[str, bytes]] = []

    def consumer(name: str) -> Callable[[aio_pika.abc.AbstractIncomingMessage], object]:
        async def on_message(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            async with message.process():
                received.append((name, message.body))

        return on_message

    await private.consume(consumer("private"))
    await kept.consume(consumer("kept"))
    reconnected: list[object] = []
    connection.reconnect_callbacks.add(lambda *_: reconnected.append(True))
    for round_number in range(1, 3):
        body = f"round {round_number}".encode()
        await exchange.publish(Message(body), "user.1")
        await eventually_async(lambda: {("private", body), ("kept", body)} <= set(received))  # noqa: B023
        await anyio.to_thread.run_sync(restart, broker)
        await eventually_async(lambda: len(reconnected) == round_number)  # noqa: B023
    await channel.ready()
    await exchange.publish(Message(b"after"), "user.2")
    await eventually_async(lambda: {("private", b"after"), ("kept", b"after")} <= set(received))


async def test_confirmed_messages_are_consumed_after_the_broker_was_killed(
    broker: BrokerProcess, connection: AbstractRobustConnection
) -> None:
    channel = await connection.channel()
    queue = await channel.declare_queue("work", durable=True)
    bodies = [str(number).encode() for number in range(200)]
    for body in bodies:
        message = Message(body, delivery_mode=DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, "work")
    await anyio.to_thread.run_sync(kill_and_start, broker)
    received = []
    async with queue.iterator() as messages:
        async for message in messages:
            await message.ack()
            received.append(message.body)
            if message.body == bodies[-1]:
                break
    assert received == bodies


async def test_an_unacknowledged_message_comes_again_after_the_kill(
    broker: BrokerProcess, connection: AbstractRobustConnection
) -> None:
    channel = await connection.channel()
    queue = await channel.declare_queue("work", durable=True)
    await channel.default_exchange.publish(
        Message(b"task", delivery_mode=DeliveryMode.PERSISTENT), "work"
    )
    deliveries: list[aio_pika.abc.AbstractIncomingMessage] = []

    async def take(delivery: aio_pika.abc.AbstractIncomingMessage) -> None:
        deliveries.append(delivery)

    await queue.consume(take)
    await eventually_async(lambda: len(deliveries) == 1)
    await anyio.to_thread.run_sync(kill_and_start, broker)
    await eventually_async(lambda: len(deliveries) == 2)
    assert [(d.body, d.redelivered) for d in deliveries] == [(b"task", False), (b"task", True)]
    await deliveries[1].ack()
