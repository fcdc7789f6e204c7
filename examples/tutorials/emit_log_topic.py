"""Tutorial 5, topics: send a line under a topic such as kern.critical."""

import os
import sys

import pika

URI = os.environ.get("AMQP_URI", "amqp://guest:guest@127.0.0.1:5672/")

topic = sys.argv[1] if len(sys.argv) > 1 else "anonymous.info"
line = " ".join(sys.argv[2:]) or "Hello World!"
with pika.BlockingConnection(pika.URLParameters(URI)) as connection:
    channel = connection.channel()
    channel.exchange_declare("topic_logs", exchange_type="topic")
    channel.basic_publish(exchange="topic_logs", routing_key=topic, body=line.encode())
    print(f"Sent {topic}: {line}")
