"""Tutorial 1, Hello World: send one message through the default exchange."""

import os

import pika

URI = os.environ.get("AMQP_URI", "amqp://guest:guest@127.0.0.1:5672/")

with pika.BlockingConnection(pika.URLParameters(URI)) as connection:
    channel = connection.channel()
    channel.queue_declare("hello")
    channel.basic_publish(exchange="", routing_key="hello", body=b"Hello World!")
    print("Sent 'Hello World!'")
