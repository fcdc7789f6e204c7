"""Publish to a durable queue and wait for the confirm; then consume. With aio-pika."""

import asyncio
import sys

import aio_pika

URI = sys.argv[1] if len(sys.argv) > 1 else "amqp://guest:guest@127.0.0.1:5672/"


async def main() -> None:
    connection = await aio_pika.connect_robust(URI)
    async with connection:
        channel = await connection.channel()  # publishes with confirms unless told otherwise
        queue = await channel.declare_queue("async-greetings", durable=True)

        message = aio_pika.Message(
            b"Hello from aio-pika", delivery_mode=aio_pika.DeliveryMode.PERSISTENT
        )
        await channel.default_exchange.publish(message, routing_key=queue.name)
        print("confirmed")

        async with queue.iterator() as deliveries:
            async for delivery in deliveries:
                async with delivery.process():  # acknowledges at the end of the block
                    print("received:", delivery.body.decode())
                break


asyncio.run(main())
