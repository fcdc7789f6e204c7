"""SIGKILL while thousands of messages wait for their time and some have just come to it."""

import json
import random
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pamqp import commands

from tests.conftest import BrokerProcess
from tests.durability.client import Delivery, connected, encode_publish
from tests.waiting import eventually

EXCHANGE, QUEUE = "delayed", "due"
LONGEST_MS = 2500
BURST = 100

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Sent:
    """What the publisher knows of a message: it is due between these times."""

    earliest_ms: int
    latest_ms: int | None = None  # of a confirmed one


@dataclass(slots=True)
class Story:
    """All that was published, and what has come, in its order. Shared by two threads."""

    sent: list[Sent] = field(default_factory=list)
    arrivals: list[tuple[int, int]] = field(default_factory=list)
    arrived: set[int] = field(default_factory=set)
    confirmed: int = 0
    ends: threading.Event = field(default_factory=threading.Event)

    @property
    def missing(self) -> int:
        return sum(
            message.latest_ms is not None and number not in self.arrived
            for number, message in enumerate(self.sent)
        )

    def check(self) -> None:
        """No message came before its time, and none after one that was due behind it."""
        latest_so_far = 0
        for number, arrived_ms in self.arrivals:
            message = self.sent[number]
            assert arrived_ms >= message.earliest_ms, f"{number} came early"
            if message.latest_ms is not None:
                assert message.latest_ms >= latest_so_far, f"{number} came late"
            latest_so_far = max(latest_so_far, message.earliest_ms)


def declare(broker: BrokerProcess) -> None:
    with connected(broker.port) as client:
        client.call(
            commands.Exchange.Declare(
                exchange=EXCHANGE,
                exchange_type="x-delayed-message",
                durable=True,
                arguments={"x-delayed-type": "direct"},
            ),
            commands.Exchange.DeclareOk,
        )
        client.call(commands.Queue.Declare(queue=QUEUE, durable=True), commands.Queue.DeclareOk)
        client.call(
            commands.Queue.Bind(queue=QUEUE, exchange=EXCHANGE, routing_key=QUEUE),
            commands.Queue.BindOk,
        )


def publish(broker: BrokerProcess, story: Story, choice: random.Random) -> None:
    """Publish bursts, each when the one before is confirmed, until the broker is killed."""
    with suppress(ConnectionError), connected(broker.port) as client:
        client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        published = confirmed = 0
        while not story.ends.is_set():
            first = len(story.sent)
            delays = [choice.randint(1, LONGEST_MS) for _ in range(BURST)]
            sent_ms = now_ms()
            story.sent += [Sent(sent_ms + delay) for delay in delays]
            client.publish(
                *(
                    encode_publish(
                        EXCHANGE,
                        QUEUE,
                        commands.Basic.Properties(headers={"x-delay": delay}, delivery_mode=2),
                        b"%d" % (first + place) + bytes(choice.randrange(300)),
                    )
                    for place, delay in enumerate(delays)
                )
            )
            published += BURST
            while confirmed < published:
                ack = client.next_event()
                assert isinstance(ack, commands.Basic.Ack), ack
                confirmed = ack.delivery_tag or 0
            story.confirmed += BURST
            done_ms = now_ms()
            for place, delay in enumerate(delays, first):
                story.sent[place].latest_ms = done_ms + delay


def consume(broker: BrokerProcess, story: Story) -> None:
    """Take what comes, until the broker is killed or the story ends."""
    with suppress(ConnectionError), connected(broker.port) as client:
        client.call(commands.Basic.Qos(prefetch_count=200), commands.Basic.QosOk)
        client.call(commands.Basic.Consume(queue=QUEUE), commands.Basic.ConsumeOk)
        while not story.ends.is_set():
            event = client.next_event(timeout=0.1)
            if event is None:
                continue
            assert isinstance(event, Delivery), event
            number = int(event.body.partition(b"\0")[0])
            if number not in story.arrived:
                story.arrived.add(number)
                story.arrivals.append((number, now_ms()))
            client.send(commands.Basic.Ack(event.method.delivery_tag or 0))


def waiting(broker: BrokerProcess) -> int:
    """How many messages wait for their time."""
    with closing(socket.socket(socket.AF_UNIX)) as client, client.makefile("rb") as answers:
        client.connect(str(broker.data_dir / "control.sock"))
        client.sendall(b'{"command": "list_delayed", "arguments": {"limit": 1}}\n')
        answer: dict[str, Any] = json.loads(answers.readline())
    count: int = answer["result"]["waiting"]
    return count


@pytest.mark.parametrize(
    "options", [(), ("--segment-bytes", "1MiB")], ids=["default", "small-segments"]
)
def test_each_confirmed_message_comes_in_its_time(
    make_broker: Callable[..., BrokerProcess], options: tuple[str, ...]
) -> None:
    broker = make_broker(*options).start()
    declare(broker)
    story = Story()
    choice = random.Random(1)
    with ThreadPoolExecutor(2) as pool:
        for _ in range(3):
            roles = [
                pool.submit(publish, broker, story, choice),
                pool.submit(consume, broker, story),
            ]
            confirmed, arrived = story.confirmed, len(story.arrived)
            try:
                eventually(lambda: story.confirmed > confirmed + 3000)  # noqa: B023
                eventually(lambda: len(story.arrived) > arrived + 500)  # noqa: B023
                assert waiting(broker) > 1000
            finally:
                broker.kill()
                for role in roles:
                    role.result()
            broker.start()
        consumer = pool.submit(consume, broker, story)
        try:
            eventually(lambda: not story.missing)
            eventually(lambda: not waiting(broker))
        finally:
            story.ends.set()
            consumer.result()
    story.check()
    assert broker.stop() == 0
    assert "Traceback" not in Path(broker.log_path).read_text()
