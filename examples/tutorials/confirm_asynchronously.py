"""Tutorial 7, publisher confirms: keep sending; note each confirm as it comes."""

import os
import sys

import pika

URI = os.environ.get("AMQP_URI", "amqp://guest:guest@127.0.0.1:5672/")

WINDOW = 500  # messages under way before we wait


class AsyncPublisher:
    """Publishes *count* messages to a queue of its own and knows which are unconfirmed."""

    def __init__(self, count):
        self._bodies = (str(number).encode() for number in range(count))
        self._count = count
        self._unconfirmed = {}  # delivery tag -> body, in the order of the tags
        self._next_tag = 1
        self._connection = pika.SelectConnection(
            pika.URLParameters(URI), on_open_callback=self._on_connection
        )

    def run(self):
        self._connection.ioloop.start()

    def _on_connection(self, connection):
        connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel):
        self._channel = channel
        channel.queue_declare("", exclusive=True, callback=self._on_queue)

    def _on_queue(self, declared):
        self._queue = declared.method.queue
        self._channel.confirm_delivery(self._on_confirm, callback=lambda _: self._publish())

    def _publish(self):
        while len(self._unconfirmed) < WINDOW:
            body = next(self._bodies, None)
            if body is None:
                return
            self._channel.basic_publish("", self._queue, body)
            self._unconfirmed[self._next_tag] = body
            self._next_tag += 1

    def _on_confirm(self, frame):
        tag = frame.method.delivery_tag
        settled = [tag]
        if frame.method.multiple:
            settled = [earlier for earlier in self._unconfirmed if earlier <= tag]
        for number in settled:
            body = self._unconfirmed.pop(number)
            if isinstance(frame.method, pika.spec.Basic.Nack):
                print(f"Refused: {body.decode()}")
        self._publish()
        if not self._unconfirmed:
            self._channel.queue_declare(self._queue, passive=True, callback=self._report)

    def _report(self, declared):
        stored = declared.method.message_count
        print(f"Published {self._count} messages asynchronously, {stored} in the queue")
        self._connection.add_on_close_callback(lambda *_: self._connection.ioloop.stop())
        self._connection.close()


AsyncPublisher(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000).run()
