"""x-expires: a queue that nobody uses goes away."""

from pika.adapters.blocking_connection import BlockingChannel

from tests.clients.blocking import Consumer, publish, ready_count
from tests.conftest import BrokerProcess
from tests.features.steps import (
    Connect,
    Restart,
    declare,
    exists,
    fetch,
    reply_text,
    restarts,
    take,
)
from tests.waiting import eventually


def test_publishing_is_no_use_of_a_queue(channel: BlockingChannel, name: str) -> None:
    channel.confirm_delivery()
    declare(channel, name, expires=100)
    eventually(lambda: not exists(channel, name))
    text = reply_text(lambda: ready_count(channel, name))
    assert text == f"NOT_FOUND - no queue '{name}' in vhost '/'"


def test_declares_and_gets_are_use(channel: BlockingChannel, name: str) -> None:
    channel.confirm_delivery()
    used = [declare(channel, f"{name}-{way}", expires=1000) for way in ("again", "passive", "get")]
    unused = declare(channel, name, expires=1500)

    def use() -> None:
        declare(channel, used[0], expires=1000)
        ready_count(channel, used[1])
        channel.basic_get(used[2], auto_ack=True)

    eventually(lambda: not exists(channel, unused), pump=use)
    assert all(exists(channel, queue) for queue in used)
    eventually(lambda: not any(exists(channel, queue) for queue in used))


def test_a_queue_with_consumers_is_in_use(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    connection = connect(shared_broker)
    channel, other = connection.channel(), connection.channel()
    channel.confirm_delivery()
    consumed = [declare(channel, f"{name}-{end}", expires=100) for end in ("cancelled", "closed")]
    consumer = Consumer(channel, consumed[0], auto_ack=True)
    Consumer(other, consumed[1], auto_ack=True)
    unused = declare(channel, name, expires=200)
    eventually(lambda: not exists(channel, unused))
    assert all(exists(channel, queue) for queue in consumed)
    channel.basic_cancel(consumer.tag)
    other.close()
    eventually(lambda: not any(exists(channel, queue) for queue in consumed))


def test_messages_of_an_expired_queue_are_no_dead_letters(
    channel: BlockingChannel, name: str
) -> None:
    channel.confirm_delivery()
    dead = declare(channel, f"{name}-dead")
    declare(channel, name, expires=100, dead_letter_exchange="", dead_letter_routing_key=dead)
    publish(channel, name, "a")
    eventually(lambda: not exists(channel, name))
    assert ready_count(channel, dead) == 0


def test_a_delivery_of_an_expired_queue_can_be_settled(channel: BlockingChannel, name: str) -> None:
    channel.confirm_delivery()
    declare(channel, name, expires=100)
    publish(channel, name, "a", "b")
    first, second = fetch(channel, name), fetch(channel, name)
    assert first is not None
    assert second is not None
    eventually(lambda: not exists(channel, name))
    channel.basic_ack(first.tag)
    channel.basic_nack(second.tag)
    declare(channel, name)
    assert ready_count(channel, name) == 0


@restarts
def test_a_restart_is_no_lack_of_use(
    shared_broker: BrokerProcess, connect: Connect, name: str, restart: Restart
) -> None:
    channel = connect(shared_broker).channel()
    channel.confirm_delivery()
    lasting = declare(channel, name, expires=60_000)
    passing = declare(channel, f"{name}-passing", expires=2_000)
    publish(channel, lasting, "a")
    publish(channel, passing, "b")
    restart(shared_broker, channel)
    channel = connect(shared_broker).channel()
    channel.confirm_delivery()
    assert exists(channel, passing)
    eventually(lambda: not exists(channel, passing))
    assert take(channel, lasting).body == "a"


def test_an_expired_queue_does_not_come_back(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    channel = connect(shared_broker).channel()
    channel.confirm_delivery()
    channel.exchange_declare(name, "fanout", durable=True)
    declare(channel, name, expires=50)
    channel.queue_bind(name, name)
    eventually(lambda: not exists(channel, name))
    declare(channel, f"{name}-next")
    shared_broker.kill()
    shared_broker.start()
    channel = connect(shared_broker).channel()
    channel.confirm_delivery()
    assert not exists(channel, name)
    channel.exchange_delete(name, if_unused=True)


def test_a_queue_can_expire_again_under_the_same_name(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    channel = connect(shared_broker).channel()
    channel.confirm_delivery()
    for _ in range(3):
        declare(channel, name, expires=40)
        eventually(lambda: not exists(channel, name))
