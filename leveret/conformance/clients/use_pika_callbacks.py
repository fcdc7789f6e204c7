"""pika's SelectConnection and AsyncioConnection, which say by callbacks when something is done.

The first word of the command says which. A scenario is a generator: it yields what to begin, a
function that takes a callback, and goes on with what the callback was given.
"""

import sys
from collections.abc import Callable, Generator
from typing import Any

import pika
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.channel import Channel
from pika.exceptions import ChannelClosedByBroker
from pika.spec import Basic, BasicProperties

from leveret.conformance.clients.scenarios import (
    LARGE,
    WAIT_S,
    Unexpected,
    expect,
    numbered,
    run_all,
    unique,
)

PERSISTENT = BasicProperties(delivery_mode=2)
Done = Callable[..., None]
Step = Callable[[Done], object]
Scenario = Callable[[Any], Generator[Step, Any, None]]


class Conversation:
    """A connection on which one scenario runs to its end."""

    def __init__(self, connection_class: type, uri: str, scenario: Scenario) -> None:
        self._steps = scenario(self)
        self._failure: Exception | None = None
        self.connection: Any = connection_class(
            pika.URLParameters(uri),
            on_open_callback=self._go_on,
            on_open_error_callback=self._closed,
            on_close_callback=self._closed,
        )

    def run(self) -> None:
        """Run the loop until the scenario is over. Raises what it raised."""
        loop = self.connection.ioloop
        loop.call_later(WAIT_S, lambda: self._end(Unexpected("nothing more came")))
        if isinstance(self.connection, AsyncioConnection):
            loop.run_forever()
        else:
            loop.start()
        if self._failure:
            raise self._failure

    def open_channel(self, done: Done) -> None:
        """A step: a new channel."""
        self.connection.channel(on_open_callback=done)

    def _go_on(self, *seen: object) -> None:
        try:
            step = self._steps.send(seen[0] if seen and self._has_begun else None)
            self._has_begun = True
            step(self._go_on)
        except StopIteration:
            self._end(None)
        except Exception as error:
            self._end(error)

    _has_begun = False

    def _end(self, failure: Exception | None) -> None:
        self._failure = self._failure or failure
        if self.connection.is_open:
            self.connection.close()
        elif not self.connection.is_closing:
            self.connection.ioloop.stop()

    def _closed(self, _: object, reason: object) -> None:
        if not isinstance(reason, pika.exceptions.ConnectionClosedByClient):
            self._failure = self._failure or Unexpected(f"the connection was closed: {reason}")
        self.connection.ioloop.stop()


class Inbox:
    """Things that come one by one; `wait` is a step that is done when there are enough."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._waiting: tuple[int, Done] | None = None

    def put(self, *item: Any) -> None:
        self.items.append(item)
        self._look()

    def wait(self, count: int) -> Step:
        def step(done: Done) -> None:
            self._waiting = count, done
            self._look()

        return step

    def _look(self) -> None:
        if self._waiting and len(self.items) >= self._waiting[0]:
            (_, done), self._waiting = self._waiting, None
            done(self.items)

    def on_message(
        self, _: Channel, method: Basic.Deliver, properties: BasicProperties, body: bytes
    ) -> None:
        self.put(method, properties, body)

    @property
    def bodies(self) -> list[bytes]:
        return [item[2] for item in self.items]


def own_queue(channel: Channel) -> Generator[Step, Any, str]:
    name = unique("q")
    yield lambda done: channel.queue_declare(name, exclusive=True, callback=done)
    return name


def consume(channel: Channel, queue: str, *, auto_ack: bool = False) -> Generator[Step, Any, Inbox]:
    inbox = Inbox()
    yield lambda done: channel.basic_consume(
        queue, inbox.on_message, auto_ack=auto_ack, callback=done
    )
    return inbox


def ready(channel: Channel, queue: str) -> Generator[Step, Any, int]:
    answer = yield lambda done: channel.queue_declare(queue, passive=True, callback=done)
    return int(answer.method.message_count)


def select_confirms(channel: Channel) -> Generator[Step, Any, Inbox]:
    inbox = Inbox()
    yield lambda done: channel.confirm_delivery(inbox.put, callback=done)
    return inbox


def publish_and_consume(here: Conversation) -> Generator[Step, Any, None]:
    channel = yield here.open_channel
    queue, exchange = (yield from own_queue(channel)), unique("x")
    yield lambda done: channel.exchange_declare(exchange, "topic", auto_delete=True, callback=done)
    yield lambda done: channel.queue_bind(queue, exchange, "a.*", callback=done)
    for body in numbered(100):
        channel.basic_publish(exchange, "a.b", body)
    inbox = yield from consume(channel, queue)
    yield inbox.wait(100)
    expect(inbox.bodies, numbered(100))
    channel.basic_ack(0, multiple=True)
    answer = yield lambda done: channel.queue_delete(queue, callback=done)
    expect(answer.method.message_count, 0)


def confirms(here: Conversation) -> Generator[Step, Any, None]:
    channel = yield here.open_channel
    queue = yield from own_queue(channel)
    inbox = yield from select_confirms(channel)
    settled = set[int]()
    for body in numbered(100):
        channel.basic_publish("", queue, body, PERSISTENT)
    while len(settled) < 100:
        items = yield inbox.wait(len(inbox.items) + 1)
        method = items[-1][0].method
        expect(type(method), Basic.Ack)
        low = min(set(range(1, 101)) - settled) if method.multiple else method.delivery_tag
        settled |= set(range(low, method.delivery_tag + 1))
    expect((yield from ready(channel, queue)), 100)


def mandatory_return(here: Conversation) -> Generator[Step, Any, None]:
    channel = yield here.open_channel
    returns = Inbox()
    channel.add_on_return_callback(returns.on_message)
    channel.basic_publish("", unique("none"), b"back", mandatory=True)
    yield returns.wait(1)
    expect((returns.items[0][0].reply_code, returns.bodies), (312, [b"back"]))


def nack_and_requeue(here: Conversation) -> Generator[Step, Any, None]:
    channel = yield here.open_channel
    queue = yield from own_queue(channel)
    channel.basic_publish("", queue, b"again")
    inbox = yield from consume(channel, queue)
    (first, *_), *_ = yield inbox.wait(1)
    channel.basic_nack(first.delivery_tag, requeue=True)
    yield inbox.wait(2)
    expect([item[0].redelivered for item in inbox.items], [False, True])


def prefetch(here: Conversation) -> Generator[Step, Any, None]:
    channel = yield here.open_channel
    queue = yield from own_queue(channel)
    for body in numbered(10):
        channel.basic_publish("", queue, body)
    yield lambda done: channel.basic_qos(prefetch_count=3, callback=done)
    inbox = yield from consume(channel, queue)
    yield inbox.wait(3)
    expect((yield from ready(channel, queue)), 7)
    expect(len(inbox.items), 3)
    channel.basic_ack(inbox.items[1][0].delivery_tag, multiple=True)
    yield inbox.wait(5)
    expect(inbox.bodies, numbered(5))


def rpc(here: Conversation) -> Generator[Step, Any, None]:
    client, server = (yield here.open_channel), (yield here.open_channel)
    queue = yield from own_queue(server)
    questions = yield from consume(server, queue, auto_ack=True)
    replies = yield from consume(client, "amq.rabbitmq.reply-to", auto_ack=True)
    asked = BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="7")
    client.basic_publish("", queue, b"question", asked)
    (_, properties, body), *_ = yield questions.wait(1)
    reply = BasicProperties(correlation_id=properties.correlation_id)
    server.basic_publish("", properties.reply_to, body.upper(), reply)
    (_, properties, body), *_ = yield replies.wait(1)
    expect((properties.correlation_id, body), ("7", b"QUESTION"))


def large_message(here: Conversation) -> Generator[Step, Any, None]:
    channel = yield here.open_channel
    queue = yield from own_queue(channel)
    channel.basic_publish("", queue, LARGE)
    inbox = yield from consume(channel, queue, auto_ack=True)
    yield inbox.wait(1)
    expect(inbox.bodies[0] == LARGE, True)


def transactions(here: Conversation) -> Generator[Step, Any, None]:
    channel = yield here.open_channel
    queue = yield from own_queue(channel)
    yield channel.tx_select
    channel.basic_publish("", queue, b"undone")
    yield channel.tx_rollback
    channel.basic_publish("", queue, b"done")
    yield channel.tx_commit
    inbox = yield from consume(channel, queue, auto_ack=True)
    yield inbox.wait(1)
    expect((yield from ready(channel, queue)), 0)
    expect(inbox.bodies, [b"done"])


def errors(here: Conversation) -> Generator[Step, Any, None]:
    channel = yield here.open_channel
    closes = Inbox()
    channel.add_on_close_callback(closes.put)
    channel.queue_declare(unique("none"), passive=True, callback=lambda _: None)
    (_, reason), *_ = yield closes.wait(1)
    expect((type(reason), reason.reply_code), (ChannelClosedByBroker, 404))
    yield from own_queue((yield here.open_channel))


SCENARIOS: tuple[Scenario, ...] = (
    publish_and_consume,
    confirms,
    mandatory_return,
    nack_and_requeue,
    prefetch,
    rpc,
    large_message,
    transactions,
    errors,
)


def reopen(connection_class: type, uri: str) -> None:
    """A connection is closed and another one opened, which finds what the first one left."""
    queue = unique("q")

    def leave(here: Conversation) -> Generator[Step, Any, None]:
        channel = yield here.open_channel
        yield lambda done: channel.queue_declare(queue, durable=True, callback=done)
        inbox = yield from select_confirms(channel)
        channel.basic_publish("", queue, b"kept", PERSISTENT)
        yield inbox.wait(1)

    def find(here: Conversation) -> Generator[Step, Any, None]:
        channel = yield here.open_channel
        inbox = yield from consume(channel, queue, auto_ack=True)
        yield inbox.wait(1)
        expect(inbox.bodies, [b"kept"])
        yield lambda done: channel.queue_delete(queue, callback=done)

    for scenario in (leave, find):
        Conversation(connection_class, uri, scenario).run()


def main() -> None:
    """Run the scenarios with the class of connections that the command names."""
    classes = {"select": pika.SelectConnection, "asyncio": AsyncioConnection}
    chosen, uri = classes[sys.argv[1]], sys.argv[2]
    named = {
        scenario.__name__.replace("_", "-"): Conversation(chosen, uri, scenario).run
        for scenario in SCENARIOS
    }
    run_all(named | {"reopen": lambda: reopen(chosen, uri)})


if __name__ == "__main__":
    main()
