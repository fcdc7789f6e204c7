"""Tutorial 2, work queues: take tasks one at a time; a task whose worker dies goes to another."""

import contextlib
import os
import time

import pika

URI = os.environ.get("AMQP_URI", "amqp://guest:guest@127.0.0.1:5672/")


def work(channel, delivery, properties, body):
    print(f"Received {body.decode()!r}")
    time.sleep(body.count(b"."))
    print("Done")
    channel.basic_ack(delivery.delivery_tag)


with pika.BlockingConnection(pika.URLParameters(URI)) as connection:
    channel = connection.channel()
    channel.queue_declare("task_queue", durable=True)
    channel.basic_qos(prefetch_count=1)  # no second task before the first is acknowledged
    channel.basic_consume("task_queue", work)
    print("Waiting for tasks")
    with contextlib.suppress(KeyboardInterrupt):
        channel.start_consuming()
