"""aio-pika."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue
from aio_pika.exceptions import ChannelNotFoundEntity, DeliveryError
from aio_pika.patterns import RPC

from leveret.conformance.clients.scenarios import (
    LARGE,
    WAIT_S,
    Unexpected,
    expect,
    numbered,
    run_with_uri,
    unique,
)

Scenario = Callable[[str], Awaitable[None]]


@asynccontextmanager
async def open_channel(uri: str, *, confirms: bool = True) -> AsyncIterator[AbstractChannel]:
    connection = await aio_pika.connect(uri)
    async with connection:
        yield await connection.channel(publisher_confirms=confirms, on_return_raises=confirms)


async def own_queue(channel: AbstractChannel) -> AbstractQueue:
    return await channel.declare_queue(unique("q"), exclusive=True)


async def consume(queue: AbstractQueue) -> "asyncio.Queue[AbstractIncomingMessage]":
    received: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
    await queue.consume(received.put)
    return received


async def publish(channel: AbstractChannel, queue: AbstractQueue, *bodies: bytes) -> None:
    for body in bodies:
        await channel.default_exchange.publish(aio_pika.Message(body), queue.name)


async def publish_and_consume(uri: str) -> None:
    async with open_channel(uri) as channel:
        queue = await own_queue(channel)
        exchange = await channel.declare_exchange(unique("x"), "topic", auto_delete=True)
        await queue.bind(exchange, "a.*")
        for body in numbered(100):
            await exchange.publish(aio_pika.Message(body), "a.b")
        bodies = []
        async with queue.iterator() as messages:
            async for message in messages:
                async with message.process():
                    bodies.append(message.body)
                if len(bodies) == 100:
                    break
        expect(bodies, numbered(100))


async def confirms(uri: str) -> None:
    async with open_channel(uri) as channel:
        queue = await own_queue(channel)
        message = aio_pika.Message(b"", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        exchange = channel.default_exchange
        await asyncio.gather(*(exchange.publish(message, queue.name) for _ in range(50)))
        again = await channel.declare_queue(queue.name, passive=True)
        expect(again.declaration_result.message_count, 50)


async def mandatory_return(uri: str) -> None:
    async with open_channel(uri) as channel:
        try:
            await channel.default_exchange.publish(aio_pika.Message(b"back"), unique("none"))
        except DeliveryError as error:
            expect(error.message.body if error.message else None, b"back")
        else:
            raise Unexpected("no message came back")


async def nack_and_requeue(uri: str) -> None:
    async with open_channel(uri) as channel:
        queue = await own_queue(channel)
        await publish(channel, queue, b"again")
        received = await consume(queue)
        first = await received.get()
        await first.nack(requeue=True)
        second = await received.get()
        expect([first.redelivered, second.redelivered], [False, True])
        await second.reject(requeue=False)


async def prefetch(uri: str) -> None:
    async with open_channel(uri) as channel:
        queue = await own_queue(channel)
        await publish(channel, queue, *numbered(10))
        await channel.set_qos(prefetch_count=3)
        received = await consume(queue)
        first = [await received.get() for _ in range(3)]
        again = await channel.declare_queue(queue.name, passive=True)
        expect((again.declaration_result.message_count, received.qsize()), (7, 0))
        await first[1].ack(multiple=True)
        more = [await received.get() for _ in range(2)]
        expect([message.body for message in (*first, *more)], numbered(5))


async def rpc(uri: str) -> None:
    async def double(*, number: int) -> int:
        return 2 * number

    async with open_channel(uri) as client, open_channel(uri) as server:
        name = unique("q")
        answering, asking = await RPC.create(server), await RPC.create(client)
        await answering.register(name, double, auto_delete=True)
        results = await asyncio.gather(
            *(asking.call(name, {"number": number}) for number in range(10))
        )
        expect(results, [2 * number for number in range(10)])
        await asking.close()
        await answering.close()


async def large_message(uri: str) -> None:
    async with open_channel(uri) as channel:
        queue = await own_queue(channel)
        await publish(channel, queue, LARGE)
        message = await queue.get(no_ack=True)
        expect(message is not None and message.body == LARGE, True)


async def transactions(uri: str) -> None:
    async with open_channel(uri, confirms=False) as channel:
        queue = await own_queue(channel)
        transaction = channel.transaction()
        await transaction.select()
        await publish(channel, queue, b"undone")
        await transaction.rollback()
        await publish(channel, queue, b"done")
        await transaction.commit()
        message = await queue.get(no_ack=True)
        expect(message.body if message else None, b"done")
        expect(await queue.get(no_ack=True, fail=False), None)


async def errors(uri: str) -> None:
    connection = await aio_pika.connect(uri)
    async with connection:
        channel = await connection.channel()
        try:
            await channel.declare_queue(unique("none"), passive=True)
        except ChannelNotFoundEntity:
            await own_queue(await connection.channel())
        else:
            raise Unexpected("a queue that does not exist was declared")


async def reopen(uri: str) -> None:
    name = unique("q")
    async with open_channel(uri) as channel:
        queue = await channel.declare_queue(name, durable=True)
        message = aio_pika.Message(b"kept", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, name)
    async with open_channel(uri) as channel:
        queue = await channel.declare_queue(name, durable=True)
        kept = await queue.get(no_ack=True)
        expect(kept.body if kept else None, b"kept")
        await queue.delete()


def in_loop(scenario: Scenario) -> Callable[[str], None]:
    """*scenario* as a function that ends, under its name."""

    def run(uri: str) -> None:
        asyncio.run(asyncio.wait_for(scenario(uri), WAIT_S))

    run.__name__ = scenario.__name__
    return run


if __name__ == "__main__":
    run_with_uri(
        map(
            in_loop,
            (
                publish_and_consume,
                confirms,
                mandatory_return,
                nack_and_requeue,
                prefetch,
                rpc,
                large_message,
                transactions,
                errors,
                reopen,
            ),
        )
    )
