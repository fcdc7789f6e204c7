"""Tutorial 7, publisher confirms: wait for each message's confirm before the next."""

import os
import sys

import pika

URI = os.environ.get("AMQP_URI", "amqp://guest:guest@127.0.0.1:5672/")

count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
with pika.BlockingConnection(pika.URLParameters(URI)) as connection:
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.confirm_delivery()
    for number in range(count):
        # Returns at the confirm. Raises NackError if the broker refuses, UnroutableError if,
        # being mandatory, the message reaches no queue.
        channel.basic_publish("", queue, str(number).encode(), mandatory=True)
    stored = channel.queue_declare(queue, passive=True).method.message_count
    print(f"Published {count} messages individually, {stored} in the queue")
