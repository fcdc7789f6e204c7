"""Tutorial 3, publish/subscribe: print all lines from now on. Ends at Ctrl+C."""

import contextlib
import os

import pika

URI = os.environ.get("AMQP_URI", "amqp://guest:guest@127.0.0.1:5672/")


def on_line(channel, delivery, properties, body):
    print(body.decode())


with pika.BlockingConnection(pika.URLParameters(URI)) as connection:
    channel = connection.channel()
    channel.exchange_declare("logs", exchange_type="fanout")
    # A queue of our own: named by the server, gone when we are.
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, "logs")
    channel.basic_consume(queue, on_line, auto_ack=True)
    print("Waiting for logs")
    with contextlib.suppress(KeyboardInterrupt):
        channel.start_consuming()
