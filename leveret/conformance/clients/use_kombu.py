"""kombu over py-amqp."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.message import Message
from kombu.messaging import Consumer, Producer
from kombu.transport.pyamqp import Channel

from leveret.conformance.clients.scenarios import (
    LARGE,
    WAIT_S,
    Unexpected,
    expect,
    numbered,
    run_with_uri,
    unique,
)


@contextmanager
def open_channel(uri: str, **options: object) -> Iterator[Channel]:
    with Connection(uri, transport_options=options, connect_timeout=WAIT_S) as connection:
        yield connection.default_channel


def own_queue(channel: Channel) -> Queue:
    queue = Queue(unique("q"), exclusive=True, channel=channel)
    queue.declare()
    return queue


def publish(channel: Channel, queue: Queue, *bodies: bytes, **options: object) -> None:
    with Producer(channel) as producer:
        for body in bodies:
            producer.publish(
                body,
                routing_key=queue.name,
                content_type="application/octet-stream",
                content_encoding="binary",
                **options,
            )


class Received:
    """What a consumer was sent."""

    def __init__(self, channel: Channel, queue: Queue, **options: object) -> None:
        self.messages: list[Message] = []
        self._channel = channel
        self.consumer = Consumer(channel, [queue], on_message=self.messages.append, **options)
        self.consumer.consume()

    @property
    def bodies(self) -> list[bytes]:
        return [bytes(message.body) for message in self.messages]

    def wait(self, count: int) -> None:
        while len(self.messages) < count:
            self._channel.connection.drain_events(timeout=WAIT_S)


def publish_and_consume(uri: str) -> None:
    with open_channel(uri) as channel:
        exchange = Exchange(unique("x"), "topic", auto_delete=True, durable=False)
        queue = Queue(unique("q"), exchange, "a.*", exclusive=True)
        received = Received(channel, queue)
        with Producer(channel, exchange) as producer:
            for number in range(100):
                producer.publish({"number": number}, routing_key="a.b", serializer="json")
        received.wait(100)
        payloads = [message.payload for message in received.messages]
        expect(payloads, [{"number": number} for number in range(100)])
        received.messages[-1].ack(multiple=True)


def confirms(uri: str) -> None:
    with open_channel(uri, confirm_publish=True) as channel:
        queue = own_queue(channel)
        publish(channel, queue, *numbered(20), delivery_mode=2)
        expect(queue.queue_declare(passive=True).message_count, 20)


def mandatory_return(uri: str) -> None:
    with open_channel(uri) as channel:
        returns: list[int] = []

        def on_return(error: Any, *_: object) -> None:
            returns.append(error.reply_code)

        with Producer(channel, on_return=on_return) as producer:
            producer.publish("back", routing_key=unique("none"), mandatory=True)
            while not returns:
                channel.connection.drain_events(timeout=WAIT_S)
        expect(returns, [312])


def nack_and_requeue(uri: str) -> None:
    with open_channel(uri) as channel:
        queue = own_queue(channel)
        publish(channel, queue, b"again")
        received = Received(channel, queue)
        received.wait(1)
        received.messages[0].requeue()
        received.wait(2)
        flags = [bool(message.delivery_info["redelivered"]) for message in received.messages]
        expect(flags, [False, True])
        received.messages[1].reject()


def prefetch(uri: str) -> None:
    with open_channel(uri) as channel:
        queue = own_queue(channel)
        publish(channel, queue, *numbered(10))
        channel.basic_qos(0, 3, False)
        received = Received(channel, queue)
        received.wait(3)
        expect(queue.queue_declare(passive=True).message_count, 7)
        expect(len(received.messages), 3)
        received.messages[1].ack(multiple=True)
        received.wait(5)
        expect(received.bodies, numbered(5))


def rpc(uri: str) -> None:
    with open_channel(uri) as server, open_channel(uri) as client:
        queue = Queue(unique("q"), auto_delete=True, durable=False)
        questions = Received(server, queue, no_ack=True)
        own = own_queue(client)
        answers = Received(client, own, no_ack=True)
        with Producer(client) as producer:
            producer.publish(
                {"number": 21},
                routing_key=queue.name,
                reply_to=own.name,
                correlation_id="7",
            )
        questions.wait(1)
        question = questions.messages[0]
        with Producer(server) as producer:
            producer.publish(
                {"number": 2 * question.payload["number"]},
                routing_key=question.properties["reply_to"],
                correlation_id=question.properties["correlation_id"],
            )
        answers.wait(1)
        answer = answers.messages[0]
        expect((answer.payload, answer.properties["correlation_id"]), ({"number": 42}, "7"))


def large_message(uri: str) -> None:
    with open_channel(uri) as channel:
        queue = own_queue(channel)
        publish(channel, queue, LARGE)
        received = Received(channel, queue, no_ack=True)
        received.wait(1)
        expect(received.bodies[0] == LARGE, True)


def transactions(uri: str) -> None:
    with open_channel(uri) as channel:
        queue = own_queue(channel)
        channel.tx_select()
        publish(channel, queue, b"undone")
        channel.tx_rollback()
        publish(channel, queue, b"done")
        channel.tx_commit()
        message = queue.get(no_ack=True)
        expect(bytes(message.body) if message else None, b"done")
        expect(queue.get(no_ack=True), None)


def errors(uri: str) -> None:
    with Connection(uri, connect_timeout=WAIT_S) as connection:
        try:
            connection.channel().queue_declare(unique("none"), passive=True)
        except connection.channel_errors as error:
            expect(error.code, 404)
            own_queue(connection.channel())
        else:
            raise Unexpected("a queue that does not exist was declared")


def reopen(uri: str) -> None:
    name = unique("q")
    with Connection(uri, connect_timeout=WAIT_S) as connection:
        with connection.SimpleQueue(name) as queue:
            queue.put({"kept": True})
        connection.close()
        connection.ensure_connection(max_retries=1)
        with connection.SimpleQueue(name) as queue:
            message = queue.get(timeout=WAIT_S)
            message.ack()
        with connection.channel() as channel:
            channel.queue_delete(name)
            channel.exchange_delete(name)
        expect(message.payload, {"kept": True})


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
