"""Publish to a durable queue and wait for the confirm; then consume. With pika."""

import sys

import pika

URI = sys.argv[1] if len(sys.argv) > 1 else "amqp://guest:guest@127.0.0.1:5672/"
PERSISTENT = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)

with pika.BlockingConnection(pika.URLParameters(URI)) as connection:
    channel = connection.channel()
    channel.queue_declare("greetings", durable=True)

    channel.confirm_delivery()  # from here on basic_publish returns once the message is on disk
    channel.basic_publish("", "greetings", b"Hello from pika", PERSISTENT, mandatory=True)
    print("confirmed")

    for delivery, _properties, body in channel.consume("greetings"):
        print("received:", body.decode())
        channel.basic_ack(delivery.delivery_tag)
        break
    channel.cancel()
