"""kombu without Celery: declare, produce and consume, with acks, rejects and requeues."""

import sys

from kombu import Connection, Consumer, Exchange, Producer, Queue

LIMIT_S = 10
media = Exchange("media", "topic", durable=True)
videos = Queue("videos", media, "video.*")
pictures = Queue("pictures", media, "picture.#", auto_delete=True, durable=False)
received = []


def on_message(body, message):
    received.append((message.delivery_info["routing_key"], body, message.headers.get("n")))
    if body == "refused":
        message.reject()
    elif body == {"again": True} and not message.delivery_info["redelivered"]:
        message.requeue()
    else:
        message.ack()


with Connection(sys.argv[1], transport_options={"confirm_publish": True}) as connection:
    producer = Producer(connection, exchange=media, serializer="json", auto_declare=True)
    with Consumer(connection, [videos, pictures], callbacks=[on_message], prefetch_count=1):
        for number, (key, body) in enumerate(
            [
                ("video.avi", {"name": "Ausflug", "größe": 1.5}),
                ("picture.a.png", ["list", None, 3]),
                ("video.avi", "refused"),
                ("nothing", "unroutable"),
                ("video.mkv", {"again": True}),
            ]
        ):
            producer.publish(body, routing_key=key, headers={"n": number}, compression="zlib")
        while len(received) < 5:
            connection.drain_events(timeout=LIMIT_S)
    for line in sorted(received, key=lambda each: each[2]):
        print(*line)

    with connection.SimpleQueue("simple") as simple:
        simple.put({"simple": 1})
        message = simple.get(timeout=LIMIT_S)
        message.ack()
        print(message.payload)
        try:
            simple.get(block=False)
        except simple.Empty:
            print("empty")
    try:
        connection.drain_events(timeout=0.1)
    except TimeoutError:
        print("quiet")
    print("purged", videos(connection.default_channel).purge())
    videos(connection.default_channel).delete()
