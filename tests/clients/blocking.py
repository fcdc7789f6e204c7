"""Shorthand for tests with pika's BlockingConnection."""

from collections.abc import Callable
from typing import NamedTuple

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic, BasicProperties

from tests.waiting import T, eventually

PERSISTENT = BasicProperties(delivery_mode=2)


class Delivery(NamedTuple):
    method: Basic.Deliver
    properties: BasicProperties
    body: bytes


def wait_until(connection: pika.BlockingConnection, condition: Callable[[], T]) -> T:
    """`eventually`, while *connection* does its work."""
    return eventually(condition, pump=lambda: connection.process_data_events(time_limit=0.01))


class Consumer:
    """A consumer that keeps what it is sent."""

    def __init__(self, channel: BlockingChannel, queue: str, **options: object) -> None:
        self.deliveries: list[Delivery] = []
        self._channel = channel
        self.tag = channel.basic_consume(
            queue,
            lambda _channel, *delivery: self.deliveries.append(Delivery(*delivery)),
            **options,
        )

    @property
    def bodies(self) -> list[bytes]:
        return [delivery.body for delivery in self.deliveries]

    def wait_for(self, count: int) -> list[Delivery]:
        """Wait for the first *count* deliveries; answers all there are."""
        wait_until(self._channel.connection, lambda: len(self.deliveries) >= count)
        return self.deliveries


def publish(channel: BlockingChannel, queue: str, *bodies: str) -> None:
    """Publish persistent messages through the default exchange."""
    for body in bodies:
        channel.basic_publish("", queue, body.encode(), PERSISTENT)


def ready_count(channel: BlockingChannel, queue: str) -> int:
    """How many messages are ready. Whatever was delivered before the answer has been sent."""
    return channel.queue_declare(queue, passive=True).method.message_count


def drain(channel: BlockingChannel, queue: str) -> list[str]:
    """Get and acknowledge all that is ready."""
    bodies = []
    while (body := channel.basic_get(queue, auto_ack=True)[2]) is not None:
        bodies.append(body.decode())
    return bodies
