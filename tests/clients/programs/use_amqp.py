"""py-amqp, Celery's client library: publish with confirms, get, consume, errors, transactions."""

import sys

import amqp

LIMIT_S = 10
with amqp.Connection(sys.argv[1], confirm_publish=True, heartbeat=2) as connection:
    print("connected to", connection.server_properties["product"])
    channel = connection.channel()
    channel.exchange_declare("routes", "direct", durable=True, auto_delete=False)
    queue = channel.queue_declare("py-amqp", durable=True, auto_delete=False).queue
    channel.queue_bind(queue, "routes", "there")
    for number in range(3):
        message = amqp.Message(
            f"body {number}",
            delivery_mode=2,
            content_type="text/plain",
            application_headers={"n": number, "large": 2**40, "none": None, "float": 0.1},
        )
        channel.basic_publish(message, "routes", "there")  # waits for its confirm

    message = channel.basic_get(queue)
    print("got", message.body, message.headers, message.delivery_info["message_count"], "left")
    channel.basic_ack(message.delivery_tag)

    def on_message(message):
        print("consumed", message.body, message.delivery_info["redelivered"])
        if message.body == "body 1" and not message.delivery_info["redelivered"]:
            channel.basic_reject(message.delivery_tag, requeue=True)
        else:
            channel.basic_ack(message.delivery_tag)
            settled.append(message.body)

    settled = []
    channel.basic_qos(0, 1, False)
    tag = channel.basic_consume(queue, callback=on_message)
    while len(settled) < 2:
        connection.drain_events(timeout=LIMIT_S)
    channel.basic_cancel(tag)
    print("deleted with", channel.queue_delete(queue), "messages")

    try:
        connection.channel().queue_declare("absent", passive=True)
    except amqp.NotFound as error:
        print(error.code, error.message)
    try:
        connection.channel().exchange_declare("routes", "fanout", durable=True, auto_delete=False)
    except amqp.PreconditionFailed as error:
        print(error.code, error.message)

with amqp.Connection(sys.argv[1]) as connection:
    channel = connection.channel()
    channel.tx_select()
    queue = channel.queue_declare(exclusive=True).queue
    channel.basic_publish(amqp.Message("rolled back"), "", queue)
    channel.tx_rollback()
    channel.basic_publish(amqp.Message("committed"), "", queue)
    channel.tx_commit()
    print(channel.basic_get(queue, no_ack=True).body, channel.basic_get(queue, no_ack=True))
    connection.send_heartbeat()
print("closed")
