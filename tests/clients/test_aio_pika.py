"""aio-pika, plain: everything a program does with it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import aio_pika
import pytest
from aio_pika import DeliveryMode, ExchangeType, Message
from aio_pika.abc import (
    AbstractChannel,
    AbstractConnection,
    AbstractIncomingMessage,
    AbstractQueue,
)
from aio_pika.exceptions import (
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    DeliveryError,
    ProbableAuthenticationError,
    QueueEmpty,
)
from aiormq.exceptions import ChannelAccessRefused, ChannelLockedResource

from tests.conftest import BrokerProcess
from tests.waiting import eventually_async

pytestmark = pytest.mark.anyio
HEADERS = {
    "string": "größer 队列 🐇",
    "bytes": bytearray(b"\x00\xff"),
    "bool": True,
    "integers": [0, -1, 127, 128, -129, 65_536, -(2**31), 2**32, 2**62],
    "float": 0.125,  # pamqp sends 32 bits
    "decimal": Decimal("3.14"),
    "none": None,
    "when": datetime(2024, 2, 29, 12, 30, 15, tzinfo=UTC),
    "table": {"list": [1, "two", {"three": 3.5}], "empty": {}},
}


@pytest.fixture
async def connection(shared_broker: BrokerProcess) -> AsyncIterator[AbstractConnection]:
    connection = await aio_pika.connect(shared_broker.uri)
    async with connection:
        yield connection


@pytest.fixture
async def channel(connection: AbstractConnection) -> AbstractChannel:
    return await connection.channel()


@pytest.fixture
async def queue(channel: AbstractChannel, name: str) -> AbstractQueue:
    return await channel.declare_queue(name, durable=True)


class Deliveries(list[AbstractIncomingMessage]):
    """What a consumer was sent."""

    async def take(self, message: AbstractIncomingMessage) -> None:
        self.append(message)


async def publish(channel: AbstractChannel, queue: AbstractQueue, *bodies: str) -> None:
    for body in bodies:
        message = Message(body.encode(), delivery_mode=DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, queue.name)


async def drain(queue: AbstractQueue) -> list[str]:
    bodies = []
    while (message := await queue.get(fail=False, no_ack=True)) is not None:
        bodies.append(message.body.decode())
    return bodies


async def test_a_message_arrives_with_all_it_carries(
    channel: AbstractChannel, queue: AbstractQueue
) -> None:
    message = Message(
        b"body" * 50_000,
        headers=HEADERS,
        content_type="application/json",
        content_encoding="gzip",
        delivery_mode=DeliveryMode.PERSISTENT,
        priority=9,
        correlation_id="c",
        reply_to="r",
        expiration=timedelta(minutes=10),
        message_id="é",
        timestamp=datetime(2024, 2, 29, tzinfo=UTC),
        type="t",
        user_id="guest",
        app_id="a",
    )
    await channel.default_exchange.publish(message, queue.name)
    received = await queue.get()
    assert received.body == message.body
    assert received.headers == HEADERS
    assert received.properties == message.properties
    await received.ack()


async def test_a_thousand_publishes_await_their_confirms_at_once(
    channel: AbstractChannel, queue: AbstractQueue
) -> None:
    await asyncio.gather(*(publish(channel, queue, str(number)) for number in range(1000)))
    assert await drain(queue) == [str(number) for number in range(1000)]


async def test_the_iterator_consumes_and_processing_acknowledges(
    channel: AbstractChannel, queue: AbstractQueue
) -> None:
    await channel.set_qos(prefetch_count=2)
    await publish(channel, queue, *"abcde")
    bodies = []
    async with queue.iterator() as messages:
        async for message in messages:
            async with message.process():
                bodies.append(message.body)
            if len(bodies) == 3:
                break
    assert bodies == [b"a", b"b", b"c"]
    assert await drain(queue) == ["d", "e"]


async def test_failed_processing_requeues_or_rejects(
    channel: AbstractChannel, queue: AbstractQueue
) -> None:
    await publish(channel, queue, "a", "b")
    for requeue, redelivered in ((True, False), (False, True)):
        message = await queue.get()
        assert (message.body, message.redelivered) == (b"a", redelivered)
        with pytest.raises(ValueError, match="broken"):
            async with message.process(requeue=requeue):
                raise ValueError("broken")
    assert await drain(queue) == ["b"]


async def test_ack_nack_and_reject(channel: AbstractChannel, queue: AbstractQueue) -> None:
    await publish(channel, queue, *"abcdef")
    messages = [await queue.get() for _ in range(6)]
    await messages[1].ack(multiple=True)
    await messages[3].nack(requeue=True)
    await messages[2].reject(requeue=True)
    await messages[4].nack(requeue=False)
    await messages[5].reject(requeue=False)
    again = [await queue.get() for _ in range(2)]
    assert [(m.body, m.redelivered) for m in again] == [(b"c", True), (b"d", True)]
    with pytest.raises(QueueEmpty):
        await queue.get()


async def test_an_unroutable_message_is_returned(connection: AbstractConnection) -> None:
    channel = await connection.channel(on_return_raises=True)
    with pytest.raises(DeliveryError) as raised:
        await channel.default_exchange.publish(Message(b"x"), "no such queue", mandatory=True)
    assert raised.value.message.body == b"x"
    await channel.default_exchange.publish(Message(b"y"), "no such queue", mandatory=False)


async def test_consumers_share_by_prefetch(
    connection: AbstractConnection, channel: AbstractChannel, queue: AbstractQueue
) -> None:
    await publish(channel, queue, *map(str, range(10)))
    received: list[Deliveries] = [Deliveries(), Deliveries()]
    for deliveries in received:
        reader = await connection.channel()
        await reader.set_qos(prefetch_count=3)
        await (await reader.get_queue(queue.name)).consume(deliveries.take)
    await eventually_async(lambda: [len(deliveries) for deliveries in received] == [3, 3])
    declared = (await channel.declare_queue(queue.name, durable=True)).declaration_result
    assert (declared.message_count, declared.consumer_count) == (4, 2)
    await received[1][-1].ack(multiple=True)
    await eventually_async(lambda: len(received[1]) == 6)


async def test_exchanges_of_every_type_route(channel: AbstractChannel, name: str) -> None:
    queue = await channel.declare_queue(exclusive=True)
    hub = await channel.declare_exchange(name, ExchangeType.FANOUT, auto_delete=True)
    await queue.bind(hub)
    cases = [
        (ExchangeType.DIRECT, "k", {}),
        (ExchangeType.TOPIC, "*.k", {}),
        (ExchangeType.HEADERS, "", {"x-match": "all", "h": 1}),
    ]
    for kind, key, arguments in cases:
        exchange = await channel.declare_exchange(f"{name}-{kind.value}", kind, auto_delete=True)
        await hub.bind(exchange, key, arguments=arguments)
        for routing_key, headers in (("k", {}), ("a.k", {}), ("none", {"h": 1}), ("none", {})):
            body = f"{kind.value} {routing_key} {headers}".encode()
            await exchange.publish(Message(body, headers=headers), routing_key, mandatory=False)
    assert await drain(queue) == ["direct k {}", "topic a.k {}", "headers none {'h': 1}"]


async def test_a_consumer_ends_when_its_queue_is_deleted(
    connection: AbstractConnection, channel: AbstractChannel, name: str
) -> None:
    queue = await channel.declare_queue(name)
    tag = await queue.consume(Deliveries().take)
    consumers = (await channel.get_underlay_channel()).consumers
    assert tag in consumers
    await (await connection.channel()).queue_delete(name)
    await eventually_async(lambda: tag not in consumers)


@pytest.mark.parametrize(
    ("error", "act"),
    [
        (ChannelNotFoundEntity, lambda it, name: it.get_queue(name + "-absent")),
        (ChannelNotFoundEntity, lambda it, name: it.get_exchange(name + "-absent")),
        (ChannelPreconditionFailed, lambda it, name: it.declare_queue(name, durable=False)),
        (ChannelPreconditionFailed, lambda it, name: it.declare_exchange("amq.topic", "direct")),
        (ChannelAccessRefused, lambda it, name: it.declare_queue("amq.mine")),
        (ChannelLockedResource, lambda it, name: it.declare_queue(name, exclusive=True)),
    ],
)
async def test_an_error_closes_the_channel_and_the_next_one_works(
    connection: AbstractConnection,
    queue: AbstractQueue,
    error: type[Exception],
    act: Callable[[AbstractChannel, str], object],
) -> None:
    doomed = await connection.channel()
    with pytest.raises(error):
        await act(doomed, queue.name)
    again = await connection.channel()
    await publish(again, queue, "on we go")
    assert await drain(queue) == ["on we go"]


async def test_a_transaction(connection: AbstractConnection, queue: AbstractQueue) -> None:
    channel = await connection.channel(publisher_confirms=False)
    async with channel.transaction():
        await publish(channel, queue, "a", "b")
        assert await drain(queue) == []
    transaction = channel.transaction()
    await transaction.select()
    await publish(channel, queue, "c")
    await transaction.rollback()
    assert await drain(queue) == ["a", "b"]


async def test_many_connections_at_once(shared_broker: BrokerProcess, name: str) -> None:
    async def use(number: int) -> list[str]:
        async with await aio_pika.connect(shared_broker.uri) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(f"{name}-{number}", exclusive=True)
            await publish(channel, queue, *"abc")
            return await drain(queue)

    assert await asyncio.gather(*(use(number) for number in range(30))) == [["a", "b", "c"]] * 30


async def test_the_wrong_password_is_told(shared_broker: BrokerProcess) -> None:
    with pytest.raises(ProbableAuthenticationError, match="ACCESS_REFUSED"):
        await aio_pika.connect(shared_broker.uri.replace("guest:guest", "guest:wrong"))
