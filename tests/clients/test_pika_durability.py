"""What is durable is there after the broker stopped or was killed, and only that."""

from collections.abc import Callable

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from tests.clients.blocking import Consumer, drain, publish, ready_count
from tests.conftest import BrokerProcess

Connect = Callable[..., pika.BlockingConnection]
Restart = Callable[[BrokerProcess], object]


def stop_and_start(broker: BrokerProcess) -> None:
    broker.restart()


def kill_and_start(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


restarts = pytest.mark.parametrize("restart", [stop_and_start, kill_and_start])


@restarts
def test_durable_definitions_route_as_before(
    broker: BrokerProcess, connect: Connect, restart: Restart
) -> None:
    connection = connect(broker)
    channel = connection.channel()
    channel.exchange_declare("unrouted", "fanout", durable=True)
    channel.exchange_declare(
        "orders", "topic", durable=True, arguments={"alternate-exchange": "unrouted"}
    )
    channel.exchange_declare("copies", "headers", durable=True)
    for queue in ("all", "pdf", "rest", "größe"):
        channel.queue_declare(queue, durable=True)
    channel.exchange_bind("copies", "orders", "order.*")
    channel.queue_bind("all", "orders", "order.#")
    channel.queue_bind("größe", "orders", "order.größe")
    channel.queue_bind("pdf", "copies", arguments={"x-match": "any", "format": "pdf", "n": 1})
    channel.queue_bind("rest", "unrouted")
    channel.queue_bind("rest", "orders", "unbound")
    channel.queue_unbind("rest", "orders", "unbound")
    channel.queue_declare("deleted", durable=True)
    channel.queue_delete("deleted")
    connection.close()
    restart(broker)
    channel = connect(broker).channel()
    channel.confirm_delivery()
    pdf = pika.BasicProperties(headers={"format": "pdf"})
    for key in ("order.größe", "order", "unbound", "order.a.b"):
        channel.basic_publish("orders", key, key.encode(), pdf, mandatory=True)
    assert drain(channel, "all") == ["order.größe", "order", "order.a.b"]
    assert drain(channel, "größe") == ["order.größe"]
    assert drain(channel, "pdf") == ["order.größe"]
    assert drain(channel, "rest") == ["unbound"]
    channel.exchange_declare(
        "orders", "topic", durable=True, arguments={"alternate-exchange": "unrouted"}
    )
    with pytest.raises(ChannelClosedByBroker, match="404"):
        channel.queue_declare("deleted", passive=True)


@restarts
def test_transient_queues_exchanges_and_messages_are_gone(
    broker: BrokerProcess, connect: Connect, restart: Restart
) -> None:
    connection = connect(broker)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare("transient", "direct")
    channel.exchange_declare("durable", "direct", durable=True)
    channel.queue_declare("transient")
    channel.queue_declare("exclusive", durable=True, exclusive=True)
    channel.queue_declare("durable", durable=True)
    channel.queue_bind("transient", "durable", "k")
    channel.queue_bind("durable", "transient", "k")
    for number in range(6):
        mode = pika.BasicProperties(delivery_mode=1 + number % 2)
        channel.basic_publish("", "durable", str(number).encode(), mode, mandatory=True)
    publish(channel, "transient", "lost")
    connection.close()
    restart(broker)
    connection = connect(broker)
    channel = connection.channel()
    assert drain(channel, "durable") == ["1", "3", "5"]
    channel.basic_publish("durable", "k", b"the binding went with its queue")
    for queue in ("transient", "exclusive"):
        with pytest.raises(ChannelClosedByBroker, match="404"):
            channel.queue_declare(queue, passive=True)
        channel = connection.channel()
    with pytest.raises(ChannelClosedByBroker, match="404"):
        channel.exchange_declare("transient", passive=True)


@restarts
def test_confirmed_messages_come_back_in_order_with_properties_and_body(
    broker: BrokerProcess, connect: Connect, restart: Restart
) -> None:
    channel = connect(broker).channel()
    channel.queue_declare("q", durable=True)
    channel.confirm_delivery()
    lengths = [0, 1, 5000, 131_064, 1_000_000, 3]
    for number, length in enumerate(lengths):
        properties = pika.BasicProperties(
            delivery_mode=2, message_id=str(number), headers={"größe": length, "t": [None, {}]}
        )
        channel.basic_publish("", "q", b"x" * length, properties, mandatory=True)
    restart(broker)
    channel = connect(broker).channel()
    assert ready_count(channel, "q") == len(lengths)
    for delivery, length in zip(
        Consumer(channel, "q").wait_for(len(lengths)), lengths, strict=True
    ):
        assert delivery.properties.headers == {"größe": length, "t": [None, {}]}
        assert delivery.properties.message_id == str(lengths.index(length))
        assert (delivery.method.redelivered, delivery.body) == (False, b"x" * length)


@restarts
def test_what_was_settled_stays_away_and_what_was_held_comes_back_marked(
    broker: BrokerProcess, connect: Connect, restart: Restart
) -> None:
    channel = connect(broker).channel()
    channel.queue_declare("q", durable=True)
    channel.confirm_delivery()
    publish(channel, "q", *"abcdef")
    for _ in range(4):
        channel.basic_get("q")
    channel.basic_ack(1)
    channel.basic_reject(3, requeue=False)
    publish(channel, "q", "g")  # its confirm covers the settling before it
    restart(broker)
    channel = connect(broker).channel()
    seen = [(d.body, d.method.redelivered) for d in Consumer(channel, "q").wait_for(5)]
    assert seen == [(b"b", True), (b"d", True), (b"e", False), (b"f", False), (b"g", False)]


@restarts
def test_a_committed_transaction_is_kept(
    broker: BrokerProcess, connect: Connect, restart: Restart
) -> None:
    channel = connect(broker).channel()
    channel.queue_declare("q", durable=True)
    channel.tx_select()
    publish(channel, "q", "kept")
    channel.tx_commit()
    publish(channel, "q", "not committed")
    channel.queue_declare("q", durable=True)
    restart(broker)
    assert drain(connect(broker).channel(), "q") == ["kept"]


def test_several_restarts_in_a_row(broker: BrokerProcess, connect: Connect) -> None:
    for number in range(3):
        connection = connect(broker)
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        publish(channel, "q", f"{number} a", f"{number} b")
        first = channel.basic_get("q", auto_ack=True)[2].decode()
        assert first == f"{number // 2} {'ab'[number % 2]}"
        connection.close()
        broker.restart()
    assert drain(connect(broker).channel(), "q") == ["1 b", "2 a", "2 b"]
