"""Tutorial 4, routing: print the lines of the given severities. Ends at Ctrl+C."""

import contextlib
import os
import sys

import pika

URI = os.environ.get("AMQP_URI", "amqp://guest:guest@127.0.0.1:5672/")

binding_keys = sys.argv[1:]
if not binding_keys:
    sys.exit(f"Usage: {sys.argv[0]} KEY...   for example: info warning error")


def on_line(channel, delivery, properties, body):
    print(f"{delivery.routing_key}: {body.decode()}")


with pika.BlockingConnection(pika.URLParameters(URI)) as connection:
    channel = connection.channel()
    channel.exchange_declare("direct_logs", exchange_type="direct")
    queue = channel.queue_declare("", exclusive=True).method.queue
    for key in binding_keys:
        channel.queue_bind(queue, "direct_logs", routing_key=key)
    channel.basic_consume(queue, on_line, auto_ack=True)
    print("Waiting for logs")
    with contextlib.suppress(KeyboardInterrupt):
        channel.start_consuming()
