"""Tutorial 3, publish/subscribe: broadcast a line to whoever listens now."""

import os
import sys

import pika

URI = os.environ.get("AMQP_URI", "amqp://guest:guest@127.0.0.1:5672/")

line = " ".join(sys.argv[1:]) or "info: Hello World!"
with pika.BlockingConnection(pika.URLParameters(URI)) as connection:
    channel = connection.channel()
    channel.exchange_declare("logs", exchange_type="fanout")
    channel.basic_publish(exchange="logs", routing_key="", body=line.encode())
    print(f"Sent {line!r}")
