"""kombu: one channel consumes from three queues and changes its prefetch limit meanwhile.

Prints how many deliveries are unsettled after each step: of each queue, or where the limit is one
for all of the channel, together.
"""

import sys
from collections import Counter

from kombu import Connection, Consumer, Queue

queues = [Queue(f"limited-{number}", durable=False, auto_delete=True) for number in range(3)]
unsettled = []


with Connection(sys.argv[1]) as connection:
    channel = connection.default_channel
    properties = connection.connection.server_properties
    print(properties["product"], properties["version"].split(".")[0])
    print(properties["platform"].split()[0], "|", properties["information"])
    print(properties["copyright"])
    print(*sorted(name for name, is_there in properties["capabilities"].items() if is_there))
    is_global = not connection.qos_semantics_matches_spec

    def show() -> None:
        # What a change lets out was sent before the answer to a second request after it.
        for _ in range(2):
            channel.queue_declare(queues[0].name, passive=True)
        counts = Counter(message.delivery_info["routing_key"] for message in unsettled)
        print(len(unsettled) if is_global else [counts[queue.name] for queue in queues])

    def settle(count: int) -> None:
        for message in unsettled[:count]:
            message.ack()
        del unsettled[:count]
        show()

    def limit(count: int) -> None:
        consumer.qos(prefetch_count=count, apply_global=is_global)
        show()

    consumer = Consumer(channel, queues[:2], on_message=unsettled.append)
    producer = connection.Producer()
    channel.basic_qos(0, 1, is_global)
    for queue in queues:
        queue(channel).declare()
        for number in range(20):
            producer.publish(number, routing_key=queue.name)
    consumer.consume()
    show()
    limit(3)
    consumer.add_queue(queues[2])
    consumer.consume()
    show()
    limit(1)
    settle(2)
    settle(100)
    limit(5)
    limit(0)
