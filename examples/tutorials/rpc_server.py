"""Tutorial 6, remote procedure call: answer Fibonacci numbers. Ends at Ctrl+C."""

import contextlib
import os

import pika

URI = os.environ.get("AMQP_URI", "amqp://guest:guest@127.0.0.1:5672/")


def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def on_request(channel, delivery, properties, body):
    n = int(body)
    print(f"fibonacci({n})")
    channel.basic_publish(
        exchange="",
        routing_key=properties.reply_to,
        properties=pika.BasicProperties(correlation_id=properties.correlation_id),
        body=str(fibonacci(n)).encode(),
    )
    channel.basic_ack(delivery.delivery_tag)


with pika.BlockingConnection(pika.URLParameters(URI)) as connection:
    channel = connection.channel()
    channel.queue_declare("rpc_queue")
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume("rpc_queue", on_request)
    print("Waiting for requests")
    with contextlib.suppress(KeyboardInterrupt):
        channel.start_consuming()
