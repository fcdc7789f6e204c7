"""Tutorial 2, work queues: send a task; each dot in its text is a second of work."""

import os
import sys

import pika

URI = os.environ.get("AMQP_URI", "amqp://guest:guest@127.0.0.1:5672/")

task = " ".join(sys.argv[1:]) or "Hello World!"
with pika.BlockingConnection(pika.URLParameters(URI)) as connection:
    channel = connection.channel()
    channel.queue_declare("task_queue", durable=True)
    channel.basic_publish(
        exchange="",
        routing_key="task_queue",
        body=task.encode(),
        properties=pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent),
    )
    print(f"Sent {task!r}")
