"""Tutorial 7, publisher confirms: send a batch, then wait until all of it is confirmed."""

import os
import sys

import pika

URI = os.environ.get("AMQP_URI", "amqp://guest:guest@127.0.0.1:5672/")

BATCH = 100


class BatchPublisher:
    """Publishes *count* messages to a queue of its own, BATCH at a time."""

    def __init__(self, count):
        self._count = count
        self._published = 0
        self._unconfirmed = set()  # delivery tags, which count from 1
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
        self._channel.confirm_delivery(self._on_confirm, callback=self._publish_batch)

    def _publish_batch(self, _frame=None):
        for _ in range(min(BATCH, self._count - self._published)):
            self._channel.basic_publish("", self._queue, str(self._published).encode())
            self._published += 1
            self._unconfirmed.add(self._published)

    def _on_confirm(self, frame):
        if isinstance(frame.method, pika.spec.Basic.Nack):
            sys.exit(f"Refused: message {frame.method.delivery_tag}")
        tag = frame.method.delivery_tag
        if frame.method.multiple:
            self._unconfirmed = {later for later in self._unconfirmed if later > tag}
        else:
            self._unconfirmed.remove(tag)
        if self._unconfirmed:
            return
        if self._published == self._count:
            self._channel.queue_declare(self._queue, passive=True, callback=self._report)
        else:
            self._publish_batch()

    def _report(self, declared):
        stored = declared.method.message_count
        print(f"Published {self._count} messages in batches, {stored} in the queue")
        self._connection.add_on_close_callback(lambda *_: self._connection.ioloop.stop())
        self._connection.close()


BatchPublisher(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000).run()
