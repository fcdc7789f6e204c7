"""Shorthand for what most tests of features do with pika's BlockingConnection."""

from collections.abc import Callable
from typing import NamedTuple

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError
from pika.spec import BasicProperties

from tests.clients.blocking import PERSISTENT
from tests.conftest import BrokerProcess
from tests.waiting import eventually

Connect = Callable[..., pika.BlockingConnection]
Restart = Callable[[BrokerProcess, BlockingChannel], None]


class Fetched(NamedTuple):
    tag: int
    redelivered: bool
    properties: BasicProperties
    body: str

    @property
    def headers(self) -> dict[str, object]:
        return self.properties.headers or {}


def stop_and_start(broker: BrokerProcess, channel: BlockingChannel) -> None:
    """Stop the broker when its client has left."""
    channel.connection.close()
    broker.restart()


def kill_and_start(broker: BrokerProcess, channel: BlockingChannel) -> None:
    """Kill the broker under the client's feet."""
    broker.kill()
    broker.start()


restarts = pytest.mark.parametrize("restart", [stop_and_start, kill_and_start])


def arguments(**values: object) -> dict[str, object]:
    """Arguments of a queue: `message_ttl` is x-message-ttl."""
    return {f"x-{key.replace('_', '-')}": value for key, value in values.items()}


def declare(channel: BlockingChannel, queue: str, **values: object) -> str:
    """Declare a durable queue with these arguments; answers its name."""
    return channel.queue_declare(queue, durable=True, arguments=arguments(**values)).method.queue


def declare_with_dead(channel: BlockingChannel, queue: str, **values: object) -> str:
    """Declare *queue* and the queue of its dead letters; answers the name of the latter."""
    dead = declare(channel, f"{queue}-dead")
    declare(channel, queue, dead_letter_exchange="", dead_letter_routing_key=dead, **values)
    return dead


def send(channel: BlockingChannel, queue: str, *bodies: str, **properties: object) -> None:
    """Publish persistent messages with more properties."""
    for body in bodies:
        channel.basic_publish(
            "", queue, body.encode(), BasicProperties(delivery_mode=2, **properties)
        )


def fetch(channel: BlockingChannel, queue: str) -> Fetched | None:
    """Get one message, which is then to be settled."""
    method, properties, body = channel.basic_get(queue)
    if method is None:
        return None
    return Fetched(method.delivery_tag, method.redelivered, properties, body.decode())


def take(channel: BlockingChannel, queue: str) -> Fetched:
    """Wait for a message, get and acknowledge it."""
    fetched = eventually(lambda: fetch(channel, queue))
    channel.basic_ack(fetched.tag)
    return fetched


def take_bodies(channel: BlockingChannel, queue: str, count: int) -> list[str]:
    return [take(channel, queue).body for _ in range(count)]


def is_accepted(channel: BlockingChannel, queue: str, body: str = "?") -> bool:
    """Publish to *queue* on a channel in confirm mode; answers whether it was not refused."""
    try:
        channel.basic_publish("", queue, body.encode(), PERSISTENT)
    except NackError:
        return False
    return True


def exists(channel: BlockingChannel, queue: str) -> bool:
    """Publish to *queue* on a channel in confirm mode, which is no use of it."""
    try:
        channel.basic_publish("", queue, b"?", PERSISTENT, mandatory=True)
    except UnroutableError:
        return False
    return True


def wait_for_message_death(channel: BlockingChannel, after_ms: int = 30) -> None:
    """Return when a message that lives *after_ms* from now is dead."""
    queue = channel.queue_declare("", exclusive=True).method.queue
    send(channel, queue, "witness", expiration=str(after_ms))
    eventually(lambda: not channel.queue_declare(queue, passive=True).method.message_count)
    channel.queue_delete(queue)


def reply_text(action: Callable[[], object]) -> str:
    """The text with which the broker closes the channel because of *action*."""
    with pytest.raises(ChannelClosedByBroker) as closed:
        action()
    return str(closed.value.reply_text)
