"""pika's BlockingConnection: publish, get, consume, settle, prefetch."""

from collections.abc import Callable

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import UnroutableError

from tests.clients.blocking import Consumer, drain, publish, ready_count, wait_until
from tests.conftest import BrokerProcess
from tests.programs import Program

Connect = Callable[..., pika.BlockingConnection]

HOLDER = """
import sys, pika
channel = pika.BlockingConnection(pika.URLParameters(sys.argv[1])).channel()
channel.basic_consume(sys.argv[2], lambda *delivery: print("holding", delivery[3].decode()))
channel.start_consuming()
"""


@pytest.fixture
def queue(channel: BlockingChannel, name: str) -> str:
    channel.queue_declare(name, durable=True)
    return name


# ---- get


def test_get_answers_messages_in_order_and_how_many_are_left(
    channel: BlockingChannel, queue: str
) -> None:
    publish(channel, queue, "a", "b", "c")
    for tag, body in enumerate((b"a", b"b", b"c"), start=1):
        method, _, received = channel.basic_get(queue)
        assert (method.delivery_tag, method.message_count, received) == (tag, 3 - tag, body)
        assert (method.exchange, method.routing_key, method.redelivered) == ("", queue, False)
    assert channel.basic_get(queue) == (None, None, None)


def test_a_message_got_without_ack_is_gone(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, "a")
    channel.basic_get(queue, auto_ack=True)
    channel.basic_recover(requeue=True)
    assert ready_count(channel, queue) == 0


# ---- consume


def test_a_consumer_is_sent_what_waits_and_what_comes(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, "waiting")
    consumer = Consumer(channel, queue, consumer_tag="mine")
    publish(channel, queue, "fresh")
    deliveries = consumer.wait_for(2)
    assert [(d.method.consumer_tag, d.method.delivery_tag, d.body) for d in deliveries] == [
        ("mine", 1, b"waiting"),
        ("mine", 2, b"fresh"),
    ]


def test_a_cancelled_consumer_is_sent_no_more_and_may_still_ack(
    channel: BlockingChannel, queue: str
) -> None:
    publish(channel, queue, "a")
    consumer = Consumer(channel, queue)
    consumer.wait_for(1)
    channel.basic_cancel(consumer.tag)
    publish(channel, queue, "b")
    channel.basic_ack(1)
    assert ready_count(channel, queue) == 1
    assert consumer.bodies == [b"a"]
    channel.basic_recover(requeue=True)
    assert drain(channel, queue) == ["b"]


def test_consumers_of_a_queue_take_turns(channel: BlockingChannel, queue: str) -> None:
    consumers = [Consumer(channel, queue) for _ in range(3)]
    for number in range(9):
        publish(channel, queue, str(number))
        consumers[number % 3].wait_for(number // 3 + 1)
    for index, consumer in enumerate(consumers):
        assert consumer.bodies == [str(number).encode() for number in range(index, 9, 3)]


def test_a_burst_is_shared_by_the_consumers_in_turn(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, *map(str, range(100)))
    channel.basic_qos(prefetch_count=1)
    first, second = Consumer(channel, queue), Consumer(channel, queue)
    for count in range(1, 51):
        for consumer in (first, second):
            channel.basic_ack(consumer.wait_for(count)[-1].method.delivery_tag)
    assert sorted(first.bodies + second.bodies, key=int) == [str(n).encode() for n in range(100)]


# ---- acknowledge, refuse, requeue


def test_acked_messages_do_not_come_back(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, *"abcdef")
    Consumer(channel, queue).wait_for(6)
    channel.basic_ack(2)
    channel.basic_ack(4, multiple=True)
    channel.basic_recover(requeue=True)
    channel.close()
    again = channel.connection.channel()
    assert drain(again, queue) == ["e", "f"]


def test_requeued_messages_come_back_in_their_old_place_marked_redelivered(
    channel: BlockingChannel, queue: str
) -> None:
    publish(channel, queue, *"abcdef")
    for _ in range(5):
        channel.basic_get(queue)
    channel.basic_reject(4, requeue=True)
    channel.basic_nack(2, requeue=True)
    channel.basic_nack(1, requeue=True)
    seen = []
    for _ in range(4):
        method, _, body = channel.basic_get(queue)
        seen.append((body, method.redelivered))
    assert seen == [(b"a", True), (b"b", True), (b"d", True), (b"f", False)]


def test_nack_of_several_and_of_all(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, *"abcd")
    for _ in range(4):
        channel.basic_get(queue)
    channel.basic_nack(2, multiple=True, requeue=False)
    channel.basic_nack(0, multiple=True, requeue=True)
    assert drain(channel, queue) == ["c", "d"]


def test_rejected_without_requeue_is_gone(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, "a", "b")
    channel.basic_get(queue)
    channel.basic_reject(1, requeue=False)
    channel.basic_recover(requeue=True)
    assert drain(channel, queue) == ["b"]


def test_a_closed_channel_gives_back_what_it_held(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, *"abc")
    holder = channel.connection.channel()
    Consumer(holder, queue).wait_for(3)
    holder.basic_ack(2)
    holder.close()
    seen = [channel.basic_get(queue) for _ in range(2)]
    assert [(body, method.redelivered) for method, _, body in seen] == [(b"a", True), (b"c", True)]


def test_a_killed_client_gives_back_what_it_held(
    shared_broker: BrokerProcess, run: Callable[..., Program], channel: BlockingChannel, queue: str
) -> None:
    publish(channel, queue, *"abc")
    client = run("-c", HOLDER, shared_broker.uri, queue)
    client.wait_for("holding c")
    assert ready_count(channel, queue) == 0
    client.kill()
    wait_until(channel.connection, lambda: ready_count(channel, queue) == 3)
    seen = [channel.basic_get(queue) for _ in range(3)]
    assert [(body, method.redelivered) for method, _, body in seen] == [
        (b"a", True),
        (b"b", True),
        (b"c", True),
    ]


def test_recover_redelivers_to_the_consumer(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, "a", "b")
    consumer = Consumer(channel, queue)
    consumer.wait_for(2)
    channel.basic_recover(requeue=True)
    again = consumer.wait_for(4)[2:]
    assert [(d.method.delivery_tag, d.method.redelivered, d.body) for d in again] == [
        (3, True, b"a"),
        (4, True, b"b"),
    ]


# ---- prefetch


def test_prefetch_limits_each_consumer(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, *map(str, range(10)))
    channel.basic_qos(prefetch_count=2)
    first, second = Consumer(channel, queue), Consumer(channel, queue)
    first.wait_for(2)
    second.wait_for(2)
    assert ready_count(channel, queue) == 6
    channel.basic_ack(first.deliveries[0].method.delivery_tag)
    first.wait_for(3)
    assert ready_count(channel, queue) == 5
    assert (len(first.deliveries), len(second.deliveries)) == (3, 2)


def test_prefetch_applies_to_later_consumers_only(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, *map(str, range(5)))
    unlimited = Consumer(channel, queue)
    channel.basic_qos(prefetch_count=1)
    assert len(unlimited.wait_for(5)) == 5


def test_global_prefetch_limits_the_channel_at_once(channel: BlockingChannel, queue: str) -> None:
    channel.basic_qos(prefetch_count=3, global_qos=True)
    consumers = [Consumer(channel, queue) for _ in range(2)]
    publish(channel, queue, *map(str, range(10)))

    def received() -> int:
        return sum(len(consumer.deliveries) for consumer in consumers)

    wait_until(channel.connection, lambda: received() == 3)
    assert ready_count(channel, queue) == 7
    channel.basic_qos(prefetch_count=5, global_qos=True)
    wait_until(channel.connection, lambda: received() == 5)
    assert ready_count(channel, queue) == 5
    channel.basic_ack(0, multiple=True)
    wait_until(channel.connection, lambda: received() == 10)


def test_a_consumer_without_acks_ignores_prefetch(channel: BlockingChannel, queue: str) -> None:
    channel.basic_qos(prefetch_count=1)
    publish(channel, queue, *map(str, range(20)))
    assert len(Consumer(channel, queue, auto_ack=True).wait_for(20)) == 20
    channel.basic_recover(requeue=True)
    assert ready_count(channel, queue) == 0


def test_get_is_not_limited_by_prefetch(channel: BlockingChannel, queue: str) -> None:
    channel.basic_qos(prefetch_count=1)
    publish(channel, queue, *"abc")
    Consumer(channel, queue).wait_for(1)
    assert channel.basic_get(queue)[2] == b"b"


# ---- confirms, returns


def test_each_confirmed_publish_is_in_the_queue(channel: BlockingChannel, queue: str) -> None:
    channel.confirm_delivery()
    for number in range(20):
        channel.basic_publish("", queue, b"m", mandatory=True)
        assert ready_count(channel, queue) == number + 1


def test_an_unroutable_mandatory_message_is_returned_whole(channel: BlockingChannel) -> None:
    returned = []
    channel.add_on_return_callback(lambda _channel, *parts: returned.append(parts))
    properties = pika.BasicProperties(message_id="7", headers={"k": "v"})
    channel.basic_publish("amq.direct", "nowhere", b"body", properties, mandatory=True)
    channel.basic_publish("amq.direct", "nowhere", b"not mandatory", properties)
    wait_until(channel.connection, lambda: returned)
    channel.queue_declare("", exclusive=True)
    [(method, received, body)] = returned
    assert (method.reply_code, method.reply_text) == (312, "NO_ROUTE")
    assert (method.exchange, method.routing_key) == ("amq.direct", "nowhere")
    assert (received, body) == (properties, b"body")


def test_an_unroutable_mandatory_message_is_returned_and_confirmed(
    channel: BlockingChannel, queue: str
) -> None:
    channel.confirm_delivery()
    with pytest.raises(UnroutableError) as raised:
        channel.basic_publish("", "no such queue", b"body", mandatory=True)
    [message] = raised.value.messages
    assert message.body == b"body"
    channel.basic_publish("", "no such queue", b"dropped and confirmed")
    channel.basic_publish("", queue, b"fine", mandatory=True)


# ---- channels


def test_channels_of_any_number_work_side_by_side(
    shared_broker: BrokerProcess, connect: Connect, queue: str
) -> None:
    connection = connect(shared_broker)
    low, middle, high = (connection.channel(number) for number in (1, 256, 2047))
    consumers = [Consumer(low, queue), Consumer(high, queue)]
    for body in "abcdef":
        publish(middle, queue, body)
    for consumer in consumers:
        assert [d.method.delivery_tag for d in consumer.wait_for(3)] == [1, 2, 3]
    low.basic_ack(3, multiple=True)
    high.close()
    assert [d.method.redelivered for d in consumers[0].wait_for(6)] == [False] * 3 + [True] * 3


def test_a_channel_number_is_free_again_once_closed(channel: BlockingChannel, queue: str) -> None:
    connection = channel.connection
    for number in range(50):
        again = connection.channel(9)
        publish(again, queue, str(number))
        again.close()
    assert drain(channel, queue) == [str(number) for number in range(50)]
