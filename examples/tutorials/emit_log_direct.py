"""Tutorial 4, routing: send a line with its severity as the routing key."""

import os
import sys

import pika

URI = os.environ.get("AMQP_URI", "amqp://guest:guest@127.0.0.1:5672/")

severity = sys.argv[1] if len(sys.argv) > 1 else "info"
line = " ".join(sys.argv[2:]) or "Hello World!"
with pika.BlockingConnection(pika.URLParameters(URI)) as connection:
    channel = connection.channel()
    channel.exchange_declare("direct_logs", exchange_type="direct")
    channel.basic_publish(exchange="direct_logs", routing_key=severity, body=line.encode())
    print(f"Sent {severity}: {line}")
