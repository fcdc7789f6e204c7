"""pika's BlockingConnection."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pika
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import ChannelClosedByBroker, UnroutableError
from pika.spec import Basic, BasicProperties

from leveret.conformance.clients.scenarios import (
    LARGE,
    WAIT_S,
    Unexpected,
    expect,
    numbered,
    run_with_uri,
    unique,
)

PERSISTENT = BasicProperties(delivery_mode=2)


@contextmanager
def open_connection(uri: str) -> Iterator[BlockingConnection]:
    connection = BlockingConnection(pika.URLParameters(uri))
    try:
        yield connection
    finally:
        if connection.is_open:
            connection.close()


@contextmanager
def open_channel(uri: str) -> Iterator[BlockingChannel]:
    with open_connection(uri) as connection:
        yield connection.channel()


def own_queue(channel: BlockingChannel) -> str:
    queue = unique("q")
    channel.queue_declare(queue, exclusive=True)
    return queue


def wait_for(channel: BlockingChannel, is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise Unexpected("nothing more came")
        channel.connection.process_data_events(time_limit=0.05)


class Received:
    """What a consumer was sent."""

    def __init__(self, channel: BlockingChannel, queue: str, *, auto_ack: bool = False) -> None:
        self.bodies: list[bytes] = []
        self.methods: list[Basic.Deliver] = []
        self.properties: list[BasicProperties] = []
        self._channel = channel
        self.tag = channel.basic_consume(queue, self._note, auto_ack=auto_ack)

    def _note(
        self, _: BlockingChannel, method: Basic.Deliver, properties: BasicProperties, body: bytes
    ) -> None:
        self.methods.append(method)
        self.properties.append(properties)
        self.bodies.append(body)

    def wait(self, count: int) -> None:
        wait_for(self._channel, lambda: len(self.bodies) >= count)


def publish_and_consume(uri: str) -> None:
    with open_channel(uri) as channel:
        queue, exchange = own_queue(channel), unique("x")
        channel.exchange_declare(exchange, "topic", auto_delete=True)
        channel.queue_bind(queue, exchange, "a.*")
        for body in numbered(100):
            channel.basic_publish(exchange, "a.b", body)
        channel.basic_publish(exchange, "elsewhere", b"lost")
        received = Received(channel, queue)
        received.wait(100)
        expect(received.bodies, numbered(100))
        channel.basic_ack(received.methods[-1].delivery_tag, multiple=True)
        channel.basic_cancel(received.tag)
        expect(channel.queue_delete(queue).method.message_count, 0)


def confirms(uri: str) -> None:
    with open_channel(uri) as channel:
        queue = own_queue(channel)
        channel.confirm_delivery()
        for body in numbered(20):
            channel.basic_publish("", queue, body, PERSISTENT, mandatory=True)
        expect(channel.queue_declare(queue, passive=True).method.message_count, 20)


def mandatory_return(uri: str) -> None:
    with open_channel(uri) as channel:
        channel.confirm_delivery()
        try:
            channel.basic_publish("", unique("none"), b"back", mandatory=True)
        except UnroutableError as error:
            expect([message.body for message in error.messages], [b"back"])
        else:
            raise Unexpected("no message came back")


def nack_and_requeue(uri: str) -> None:
    with open_channel(uri) as channel:
        queue = own_queue(channel)
        channel.basic_publish("", queue, b"again")
        received = Received(channel, queue)
        received.wait(1)
        channel.basic_nack(received.methods[0].delivery_tag, requeue=True)
        received.wait(2)
        expect([method.redelivered for method in received.methods], [False, True])
        channel.basic_reject(received.methods[1].delivery_tag, requeue=False)
        expect(channel.basic_get(queue)[0], None)


def prefetch(uri: str) -> None:
    with open_channel(uri) as channel:
        queue = own_queue(channel)
        for body in numbered(10):
            channel.basic_publish("", queue, body)
        channel.basic_qos(prefetch_count=3)
        received = Received(channel, queue)
        received.wait(3)
        expect(channel.queue_declare(queue, passive=True).method.message_count, 7)
        expect(len(received.bodies), 3)
        channel.basic_ack(received.methods[1].delivery_tag, multiple=True)
        received.wait(5)
        expect(received.bodies, numbered(5))


def rpc(uri: str) -> None:
    with open_channel(uri) as client, open_channel(uri) as server:
        queue = unique("q")
        server.queue_declare(queue, auto_delete=True)

        def answer(
            _: BlockingChannel, method: Basic.Deliver, properties: BasicProperties, body: bytes
        ) -> None:
            reply = BasicProperties(correlation_id=properties.correlation_id)
            server.basic_publish("", str(properties.reply_to), body.upper(), reply)
            server.basic_ack(method.delivery_tag)

        server.basic_consume(queue, answer)
        replies = Received(client, "amq.rabbitmq.reply-to", auto_ack=True)
        asked = BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="7")
        client.basic_publish("", queue, b"question", asked)

        def is_answered() -> bool:
            server.connection.process_data_events(time_limit=0.02)
            return bool(replies.bodies)

        wait_for(client, is_answered)
        expect(replies.bodies, [b"QUESTION"])
        expect(replies.properties[0].correlation_id, "7")


def large_message(uri: str) -> None:
    with open_channel(uri) as channel:
        queue = own_queue(channel)
        channel.basic_publish("", queue, LARGE)
        received = Received(channel, queue, auto_ack=True)
        received.wait(1)
        expect(received.bodies[0] == LARGE, True)


def transactions(uri: str) -> None:
    with open_channel(uri) as channel:
        queue = own_queue(channel)
        channel.tx_select()
        channel.basic_publish("", queue, b"undone")
        channel.tx_rollback()
        channel.basic_publish("", queue, b"done")
        channel.tx_commit()
        expect(channel.basic_get(queue, auto_ack=True)[2], b"done")
        expect(channel.basic_get(queue, auto_ack=True)[2], None)


def errors(uri: str) -> None:
    with open_connection(uri) as connection:
        channel = connection.channel()
        try:
            channel.queue_declare(unique("none"), passive=True)
        except ChannelClosedByBroker as error:
            expect(error.reply_code, 404)
        else:
            raise Unexpected("a queue that does not exist was declared")
        own_queue(connection.channel())


def reopen(uri: str) -> None:
    queue = unique("q")
    with open_channel(uri) as channel:
        channel.queue_declare(queue, durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", queue, b"kept", PERSISTENT)
    with open_channel(uri) as channel:
        expect(channel.basic_get(queue, auto_ack=True)[2], b"kept")
        channel.queue_delete(queue)


if __name__ == "__main__":
    run_with_uri(
        [
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
        ]
    )
