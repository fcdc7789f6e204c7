"""SIGKILL while many queues take, expire, reject and delay messages, all at the same time.

Each message is published to one queue and followed to its end. Dead letters of all queues come to
one queue, at least once; delayed messages to another.
"""

import itertools
import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pamqp import commands

from tests.conftest import BrokerProcess
from tests.durability.client import Delivery, RawClient, connected, encode_publish
from tests.waiting import eventually

ROUNDS = int(os.environ.get("KILL_ROUNDS", "4"))
QUEUES = 60
DEAD, DUE, DELAYS = "dead", "due", "delays"
BURST = 40

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@dataclass(slots=True)
class Message:
    """What its clients know: `is_acked` once they sent the ack that ends it."""

    queue: str
    is_confirmed: bool = False
    is_acked: bool = False


@dataclass(slots=True)
class Story:
    """All messages by their numbers. Each is written to by one thread at a time."""

    messages: dict[int, Message] = field(default_factory=dict)
    confirmed: int = 0
    ends: threading.Event = field(default_factory=threading.Event)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def seen(self, queue: str, body: bytes) -> Message:
        """Check that the message *body* may be in *queue*."""
        message = self.messages[int(body.partition(b"|")[0])]
        dies = message.queue.startswith("dying")
        assert queue == message.queue or (queue == DEAD and dies), (queue, message)
        return message


def names() -> list[str]:
    return [f"{'dying' if number % 3 == 0 else 'plain'}-{number}" for number in range(QUEUES)]


def declare(broker: BrokerProcess) -> None:
    dying: dict[str, Any] = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": DEAD,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-message-ttl": 300,
    }
    delays = commands.Exchange.Declare(
        exchange=DELAYS,
        exchange_type="x-delayed-message",
        durable=True,
        arguments={"x-delayed-type": "fanout"},
    )
    with connected(broker.port) as client:
        client.call(delays, commands.Exchange.DeclareOk)
        for name in (*names(), DEAD, DUE):
            arguments = dying if name.startswith("dying") else {}
            client.call(
                commands.Queue.Declare(queue=name, durable=True, arguments=arguments),
                commands.Queue.DeclareOk,
            )
        client.call(commands.Queue.Bind(queue=DUE, exchange=DELAYS), commands.Queue.BindOk)


def publish(broker: BrokerProcess, story: Story, seed: int) -> None:
    choice = random.Random(seed)
    queues = [*names(), DUE]
    with suppress(ConnectionError), connected(broker.port) as client:
        client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        published = confirmed = 0
        while not story.ends.is_set():
            burst = [(next(story.numbers), choice.choice(queues)) for _ in range(BURST)]
            story.messages |= {number: Message(queue) for number, queue in burst}
            client.publish(*(encode(number, queue, choice) for number, queue in burst))
            published += BURST
            while confirmed < published:
                ack = client.next_event()
                assert isinstance(ack, commands.Basic.Ack), ack
                confirmed = ack.delivery_tag or 0
            for number, _ in burst:
                story.messages[number].is_confirmed = True
            story.confirmed += BURST


def encode(number: int, queue: str, choice: random.Random) -> bytes:
    properties = commands.Basic.Properties(delivery_mode=2)
    body = b"%d|" % number + bytes(choice.randrange(400))
    if queue != DUE:
        return encode_publish("", queue, properties, body)
    properties.headers = {"x-delay": choice.randint(1, 1500)}
    return encode_publish(DELAYS, "", properties, body)


def consume(broker: BrokerProcess, story: Story, queues: list[str], seed: int) -> None:
    """Ack most of what comes, out of order; reject some, which ends those that do not die."""
    choice = random.Random(seed)
    held: list[tuple[int, Message, str]] = []
    with suppress(ConnectionError), connected(broker.port) as client:
        client.call(commands.Basic.Qos(prefetch_count=30), commands.Basic.QosOk)
        for queue in queues:
            tag = commands.Basic.Consume(queue=queue, consumer_tag=queue)
            client.send(tag)
        while not story.ends.is_set():
            event = client.next_event(timeout=0.1)
            if isinstance(event, Delivery):
                queue = event.method.consumer_tag or ""
                message = story.seen(queue, event.body)
                held.append((event.method.delivery_tag or 0, message, queue))
            if len(held) > 15 or (event is None and held):
                choice.shuffle(held)
                settle(client, held.pop(), choice)


def settle(client: RawClient, delivery: tuple[int, Message, str], choice: random.Random) -> None:
    tag, message, queue = delivery
    kind = choice.random()
    if kind < 0.2:
        client.send(commands.Basic.Reject(tag, requeue=True))
    elif kind < 0.4 and queue.startswith("dying"):
        client.send(commands.Basic.Reject(tag, requeue=False))
    else:
        message.is_acked = True
        client.send(commands.Basic.Ack(tag))


def drain(broker: BrokerProcess, story: Story) -> None:
    """Take everything there is, wherever it is."""
    with connected(broker.port) as client:
        for queue in (*names(), DEAD, DUE):
            client.call(
                commands.Basic.Consume(queue=queue, consumer_tag=queue, no_ack=True),
                commands.Basic.ConsumeOk,
            )
            while isinstance(event := client.next_event(timeout=0.02), Delivery):
                story.seen(event.method.consumer_tag or "", event.body).is_acked = True
        eventually(lambda: not missing_after_delivery(client, story))


def missing_after_delivery(client: RawClient, story: Story) -> list[int]:
    """The confirmed messages that have not come, once no more comes now."""
    while isinstance(event := client.next_event(timeout=0.1), Delivery):
        story.seen(event.method.consumer_tag or "", event.body).is_acked = True
    return [n for n, m in story.messages.items() if m.is_confirmed and not m.is_acked]


def test_each_confirmed_message_has_an_end(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker("--segment-bytes", "1MiB").start()
    declare(broker)
    story = Story()
    queues = names()
    with ThreadPoolExecutor(5) as pool:
        for number in range(ROUNDS):
            confirmed = story.confirmed
            roles = [
                pool.submit(publish, broker, story, 2 * number),
                pool.submit(publish, broker, story, 2 * number + 1),
                pool.submit(consume, broker, story, queues[::2], number),
                pool.submit(consume, broker, story, queues[1::4], number),
                pool.submit(consume, broker, story, [DEAD, DUE], number),
            ]
            try:
                eventually(lambda: story.confirmed > confirmed + 2000)  # noqa: B023
            finally:
                broker.kill()
                for role in roles:
                    role.result()
            broker.start()
    drain(broker, story)
    assert broker.stop() == 0
    assert "Traceback" not in Path(broker.log_path).read_text()
