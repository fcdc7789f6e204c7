"""Direct reply-to: answers of an RPC without a queue of one's own."""

import re

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import UnroutableError
from pika.spec import Basic, BasicProperties

from tests.clients.blocking import Consumer, drain, publish, ready_count, wait_until
from tests.conftest import BrokerProcess
from tests.features.steps import Connect, declare, reply_text, take
from tests.waiting import eventually

REPLY_TO = "amq.rabbitmq.reply-to"


def request(channel: BlockingChannel, queue: str, body: str, **properties: object) -> None:
    channel.basic_publish(
        "", queue, body.encode(), BasicProperties(reply_to=REPLY_TO, **properties)
    )


def reply_name(channel: BlockingChannel, name: str) -> str:
    """The name under which *channel*, which consumes replies, is reached."""
    queue = declare(channel, name)
    request(channel, queue, "?")
    return str(take(channel, queue).properties.reply_to)


def test_question_and_answer(shared_broker: BrokerProcess, connect: Connect, name: str) -> None:
    client, server = connect(shared_broker).channel(), connect(shared_broker).channel()
    declare(server, name)

    def answer(
        channel: BlockingChannel, method: Basic.Deliver, properties: BasicProperties, body: bytes
    ) -> None:
        reply = BasicProperties(correlation_id=properties.correlation_id)
        channel.basic_publish("", properties.reply_to, body.upper(), reply)
        channel.basic_ack(method.delivery_tag)

    server.basic_consume(name, answer)
    replies = Consumer(client, REPLY_TO, auto_ack=True)
    for number, body in enumerate(("a", "b", "c")):
        request(client, name, body, correlation_id=str(number))
    eventually(
        lambda: len(replies.deliveries) == 3,
        pump=lambda: (
            server.connection.process_data_events(time_limit=0.01),
            client.connection.process_data_events(time_limit=0.01),
        ),
    )
    assert replies.bodies == [b"A", b"B", b"C"]
    assert [reply.properties.correlation_id for reply in replies.deliveries] == ["0", "1", "2"]
    (first, *_) = replies.deliveries
    assert first.method.exchange == ""
    assert re.fullmatch(rf"{REPLY_TO}\.\S{{22,}}", first.method.routing_key)


def test_a_name_is_opaque_and_of_one_channel(channel: BlockingChannel, name: str) -> None:
    other = channel.connection.channel()
    mine, theirs = (
        Consumer(each, REPLY_TO, auto_ack=True) and reply_name(each, f"{name}-{place}")
        for place, each in enumerate((channel, other))
    )
    assert mine != theirs
    assert mine.startswith(f"{REPLY_TO}.")


def test_other_reply_names_stay_as_they_are(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    channel.basic_publish("", name, b"", BasicProperties(reply_to="mine"))
    assert take(channel, name).properties.reply_to == "mine"


def test_a_server_can_ask_whether_somebody_waits(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    client, server = connect(shared_broker).channel(), connect(shared_broker).channel()
    consumer = Consumer(client, REPLY_TO, auto_ack=True)
    address = reply_name(client, name)
    for passive in (True, False):
        answer = server.queue_declare(address, passive=passive).method
        assert (answer.queue, answer.message_count, answer.consumer_count) == (address, 0, 1)
    client.basic_cancel(consumer.tag)
    text = reply_text(lambda: server.queue_declare(address, passive=True))
    assert text == f"NOT_FOUND - no queue '{address}' in vhost '/'"


@pytest.mark.parametrize("what", ["cancel", "channel", "connection"])
def test_an_answer_to_nobody_is_unroutable(
    shared_broker: BrokerProcess, connect: Connect, name: str, what: str
) -> None:
    client, server = connect(shared_broker).channel(), connect(shared_broker).channel()
    server.confirm_delivery()
    consumer = Consumer(client, REPLY_TO, auto_ack=True)
    address = reply_name(client, name)
    server.basic_publish("", address, b"in time", mandatory=True)
    consumer.wait_for(1)
    if what == "cancel":
        client.basic_cancel(consumer.tag)
    else:
        (client if what == "channel" else client.connection).close()

    def is_gone() -> bool:
        try:
            server.basic_publish("", address, b"late", mandatory=True)
        except UnroutableError:
            return True
        return False

    eventually(is_gone)
    server.basic_publish("", address, b"late")  # and without mandatory it is simply dropped


def test_after_a_cancel_one_may_consume_again(channel: BlockingChannel, name: str) -> None:
    first = Consumer(channel, REPLY_TO, auto_ack=True)
    old = reply_name(channel, name)
    channel.basic_cancel(first.tag)
    second = Consumer(channel, REPLY_TO, auto_ack=True)
    new = reply_name(channel, name)
    publish(channel, old, "old")
    publish(channel, new, "new")
    second.wait_for(1)
    assert second.bodies == [b"new"]


def test_the_question_must_come_from_who_consumes(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    connection = connect(shared_broker)
    channel, other = connection.channel(), connection.channel()
    declare(channel, name)
    Consumer(channel, REPLY_TO, auto_ack=True)

    def ask() -> None:
        request(other, name, "?")
        ready_count(other, name)

    assert reply_text(ask) == "PRECONDITION_FAILED - fast reply consumer does not exist"
    assert ready_count(channel, name) == 0


def test_replies_cannot_be_acknowledged(channel: BlockingChannel) -> None:
    text = reply_text(lambda: Consumer(channel, REPLY_TO))
    assert text == "PRECONDITION_FAILED - reply consumer cannot acknowledge"


def test_there_is_one_consumer_of_replies(channel: BlockingChannel) -> None:
    Consumer(channel, REPLY_TO, auto_ack=True)
    text = reply_text(lambda: Consumer(channel, REPLY_TO, auto_ack=True))
    assert text == "PRECONDITION_FAILED - reply consumer already set"


@pytest.mark.parametrize("method", ["bind", "unbind"])
def test_it_has_no_bindings(channel: BlockingChannel, method: str) -> None:
    bind = channel.queue_bind if method == "bind" else channel.queue_unbind
    assert reply_text(lambda: bind(REPLY_TO, "amq.direct", "k")) == (
        "ACCESS_REFUSED - cannot bind or unbind to a volatile (direct reply-to) queue"
    )


@pytest.mark.parametrize("method", ["basic_get", "queue_purge", "basic_consume"])
def test_nobody_else_reads_the_replies(
    shared_broker: BrokerProcess, connect: Connect, name: str, method: str
) -> None:
    client, thief = connect(shared_broker).channel(), connect(shared_broker).channel()
    Consumer(client, REPLY_TO, auto_ack=True)
    address = reply_name(client, name)
    options = {"on_message_callback": print} if method == "basic_consume" else {}
    text = reply_text(lambda: getattr(thief, method)(address, **options))
    assert text == f"NOT_FOUND - no queue '{address}' in vhost '/'"


def test_nobody_else_deletes_it(shared_broker: BrokerProcess, connect: Connect, name: str) -> None:
    client, thief = connect(shared_broker).channel(), connect(shared_broker).channel()
    consumer = Consumer(client, REPLY_TO, auto_ack=True)
    address = reply_name(client, name)
    assert thief.queue_delete(address).method.message_count == 0
    publish(thief, address, "still here")
    assert consumer.wait_for(1)[0].body == b"still here"


def test_a_question_may_be_returned_or_copied(channel: BlockingChannel, name: str) -> None:
    returned = []
    channel.add_on_return_callback(lambda *message: returned.append(message))
    consumer = Consumer(channel, REPLY_TO, auto_ack=True)
    channel.basic_publish(
        "", f"{name}-none", b"?", BasicProperties(reply_to=REPLY_TO), mandatory=True
    )
    wait_until(channel.connection, lambda: returned)
    copies = [declare(channel, f"{name}-{place}") for place in range(2)]
    request(channel, copies[0], "a", headers={"CC": copies[1:]})
    addresses = {take(channel, queue).properties.reply_to for queue in copies}
    assert len(addresses) == 1
    publish(channel, addresses.pop(), "b")
    consumer.wait_for(1)


def test_answers_die_with_their_reader(channel: BlockingChannel, name: str) -> None:
    """Replies are nobody's once the channel is gone: nothing is kept for them."""
    client = channel.connection.channel()
    Consumer(client, REPLY_TO, auto_ack=True)
    address = reply_name(client, name)
    client.close()
    publish(channel, address, "late")
    assert drain(channel, declare(channel, name)) == []
