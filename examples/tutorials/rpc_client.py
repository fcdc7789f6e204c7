"""Tutorial 6, remote procedure call: ask for a Fibonacci number and wait for the answer."""

import os
import sys
import uuid

import pika

URI = os.environ.get("AMQP_URI", "amqp://guest:guest@127.0.0.1:5672/")


class FibonacciClient:
    """Calls the server; one queue of our own takes all answers."""

    def __init__(self, connection):
        self._connection = connection
        self._channel = connection.channel()
        self._queue = self._channel.queue_declare("", exclusive=True).method.queue
        self._channel.basic_consume(self._queue, self._on_answer, auto_ack=True)
        self._answers = {}

    def _on_answer(self, channel, delivery, properties, body):
        self._answers[properties.correlation_id] = int(body)

    def call(self, n):
        call_id = str(uuid.uuid4())
        self._channel.basic_publish(
            exchange="",
            routing_key="rpc_queue",
            properties=pika.BasicProperties(reply_to=self._queue, correlation_id=call_id),
            body=str(n).encode(),
        )
        while call_id not in self._answers:
            self._connection.process_data_events(time_limit=None)
        return self._answers.pop(call_id)


n = int(sys.argv[1]) if len(sys.argv) > 1 else 30
with pika.BlockingConnection(pika.URLParameters(URI)) as connection:
    print(f"Requesting fibonacci({n})")
    print(f"Got {FibonacciClient(connection).call(n)}")
