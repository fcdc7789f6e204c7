"""kombu: what it offers beyond AMQP 0-9-1. Prints what came of it; the argument says what to do."""

import sys

from kombu import Connection, Consumer, Exchange, Queue
from kombu.common import Broadcast
from kombu.transport.native_delayed_delivery import (
    bind_queue_to_native_delayed_delivery_exchange,
    calculate_routing_key,
    declare_native_delayed_delivery_exchanges_and_queues,
    level_name,
)

import amqp

LIMIT_S = 10


def drain(connection: Connection, received: list, count: int) -> None:
    while len(received) < count:
        connection.drain_events(timeout=LIMIT_S)


def refusals(connection: Connection) -> None:
    """A full queue refuses; a mandatory message that goes nowhere comes back before its confirm."""
    full = Queue(
        "full", exclusive=True, max_length=1, queue_arguments={"x-overflow": "reject-publish"}
    )
    full(connection.default_channel).declare()
    returned = []
    producer = connection.Producer(
        on_return=lambda error, exchange, routing_key, message: returned.append(routing_key)
    )
    producer.publish("first", routing_key="full")
    try:
        producer.publish("second", routing_key="full")
    except amqp.exceptions.MessageNacked:
        print("refused")
    producer.publish("lost", routing_key="nowhere", mandatory=True)
    print("returned", returned)


def cancelled(connection: Connection) -> None:
    """The queue of a consumer is deleted by somebody else."""
    tags = []
    queue = Queue("doomed", auto_delete=True)(connection.default_channel)
    queue.declare()
    queue.consume("tag", callback=print, on_cancel=tags.append)
    with connection.clone() as other:
        queue.bind(other.default_channel).delete()
        drain(connection, tags, 1)
    print("cancelled", tags)


def arguments(connection: Connection) -> None:
    """Arguments of queues that kombu has names for."""
    channel = connection.default_channel
    dead = Queue("dead", exclusive=True)(channel)
    dead.declare()
    short = Queue(
        "short",
        exclusive=True,
        expires=60,
        message_ttl=0.05,
        max_length=1,
        max_length_bytes=1000,
        queue_arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    )
    short(channel).declare()
    producer = connection.Producer()
    received = []
    with Consumer(channel, [dead], on_message=received.append, no_ack=True):
        for number in range(2):
            producer.publish(number, routing_key="short")
        drain(connection, received, 2)
    print([(m.payload, m.headers["x-death"][0]["reason"]) for m in received])


def priorities(connection: Connection) -> None:
    """The most urgent first; a consumer of a higher priority before the others."""
    queue = Queue("ranked", exclusive=True, max_priority=10)(connection.default_channel)
    queue.declare()
    producer = connection.Producer()
    for number, priority in enumerate([1, 9, 5, 9, None]):
        producer.publish(number, routing_key="ranked", priority=priority)
    received = []
    with Consumer(connection, [queue], on_message=received.append, no_ack=True):
        drain(connection, received, 5)
    print([message.payload for message in received])
    work = Queue("work", exclusive=True)(connection.default_channel)
    work.declare()
    takers = {}
    for priority in (1, 2):
        takers[priority] = []
        work.consumer_arguments = {"x-priority": priority}
        work.consume(str(priority), callback=takers[priority].append, no_ack=True)
    for number in range(3):
        producer.publish(number, routing_key="work")
    drain(connection, takers[2], 3)
    print({priority: len(messages) for priority, messages in takers.items()})


def everybody(connection: Connection) -> None:
    """A broadcast reaches each of its queues."""
    received = []
    queues = [Broadcast("news", exchange=Exchange("news", "fanout")) for _ in range(2)]
    with Consumer(connection.default_channel, queues, on_message=received.append, no_ack=True):
        connection.Producer().publish("hello", exchange="news")
        drain(connection, received, 2)
    print(len({message.delivery_info["consumer_tag"] for message in received}))


def delayed(connection: Connection, queue_type: str) -> None:
    """Native delayed delivery: a message goes down a level for each bit of its delay."""
    declare_native_delayed_delivery_exchanges_and_queues(connection, queue_type, queue_type)
    exchange = Exchange(f"{queue_type}-topic", "topic")
    queue = Queue(f"{queue_type}-late", exchange, routing_key="late")(connection.default_channel)
    queue.declare()
    bind_queue_to_native_delayed_delivery_exchange(connection, queue, queue_type)
    producer = connection.Producer()
    received = []
    with Consumer(connection, [queue], on_message=received.append, no_ack=True):
        for delay_s in (2, 1):
            producer.publish(
                delay_s,
                exchange=level_name(27, queue_type),
                routing_key=calculate_routing_key(delay_s, "late"),
            )
        drain(connection, received, 2)
    print([message.payload for message in received])


def blocked(connection: Connection) -> None:
    """The broker is short of disk space: the publish waits until there is some."""
    connection.SimpleQueue("blocked").put("held")
    print("confirmed")


options = {
    "confirm_publish": True,
    "on_blocked": lambda reason: print("blocked"),
    "on_unblocked": lambda: print("unblocked"),
}
SCENARIOS = [refusals, cancelled, arguments, priorities, everybody, delayed, blocked]
with Connection(sys.argv[1], transport_options=options) as connection:
    {scenario.__name__: scenario for scenario in SCENARIOS}[sys.argv[2]](connection, *sys.argv[3:])
