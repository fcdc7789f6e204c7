"""Tutorial 1, Hello World: print every message of a queue. Ends at Ctrl+C."""

import contextlib
import os

import pika

URI = os.environ.get("AMQP_URI", "amqp://guest:guest@127.0.0.1:5672/")


def on_message(channel, delivery, properties, body):
    print(f"Received {body.decode()!r}")


with pika.BlockingConnection(pika.URLParameters(URI)) as connection:
    channel = connection.channel()
    # Either side may come first, so both declare the queue: declaring again changes nothing.
    channel.queue_declare("hello")
    channel.basic_consume("hello", on_message, auto_ack=True)
    print("Waiting for messages")
    with contextlib.suppress(KeyboardInterrupt):
        channel.start_consuming()
