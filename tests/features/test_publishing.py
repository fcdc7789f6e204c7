"""Publishing: who one is, what comes back, and transactions."""

import asyncio
from collections.abc import Callable

import aio_pika
import pika
import pytest
from aio_pika.exceptions import DeliveryError
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import NackError, UnroutableError
from pika.spec import BasicProperties

from tests.clients.blocking import PERSISTENT, Consumer, drain, publish, ready_count, wait_until
from tests.conftest import BrokerProcess
from tests.features.steps import Connect, declare, fetch, reply_text, send, take

FULL = {"max_length": 1, "overflow": "reject-publish"}


# ---- user-id


def test_ones_own_user_id(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    send(channel, name, "a", user_id="guest")
    assert take(channel, name).properties.user_id == "guest"


def test_the_user_id_of_somebody_else(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)

    def publish_and_ask() -> None:
        send(channel, name, "a", user_id="admin")
        ready_count(channel, name)

    assert reply_text(publish_and_ask) == (
        "PRECONDITION_FAILED - user_id property set to 'admin' but authenticated user was 'guest'"
    )


# ---- what comes back


class Returns:
    def __init__(self, channel: BlockingChannel) -> None:
        self.codes: list[tuple[int, str, bytes]] = []
        channel.add_on_return_callback(self._returned)

    def _returned(self, _: object, method: pika.spec.Basic.Return, __: object, body: bytes) -> None:
        self.codes.append((method.reply_code, method.reply_text, body))


def test_mandatory_looks_behind_alternate_exchanges(channel: BlockingChannel, name: str) -> None:
    returns = Returns(channel)
    for place in range(3):
        alternate = {"alternate-exchange": f"{name}-{place + 1}"}
        channel.exchange_declare(f"{name}-{place}", "direct", arguments=alternate)
    channel.basic_publish(f"{name}-0", "k", b"missing", mandatory=True)
    channel.exchange_declare(f"{name}-3", "fanout", arguments={"alternate-exchange": f"{name}-0"})
    channel.basic_publish(f"{name}-0", "k", b"cycle", mandatory=True)
    queue = declare(channel, name)
    channel.queue_bind(queue, f"{name}-3")
    channel.basic_publish(f"{name}-0", "k", b"found", mandatory=True)
    assert take(channel, queue).body == "found"
    wait_until(channel.connection, lambda: len(returns.codes) == 2)
    assert returns.codes == [(312, "NO_ROUTE", b"missing"), (312, "NO_ROUTE", b"cycle")]


def test_a_queue_that_refuses_is_a_route(channel: BlockingChannel, name: str) -> None:
    channel.confirm_delivery()
    declare(channel, name, **FULL)
    channel.basic_publish("", name, b"a", PERSISTENT, mandatory=True)
    with pytest.raises(NackError):
        channel.basic_publish("", name, b"b", PERSISTENT, mandatory=True)
    with pytest.raises(UnroutableError):
        channel.basic_publish("", f"{name}-none", b"c", PERSISTENT, mandatory=True)


@pytest.mark.anyio
async def test_immediate_wants_a_consumer_that_can_take_it(
    shared_broker: BrokerProcess, name: str
) -> None:
    connection = await aio_pika.connect(shared_broker.uri)
    async with connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        await channel.set_qos(prefetch_count=1)
        queue = await channel.declare_queue(name, exclusive=True)
        exchange = channel.default_exchange
        message = aio_pika.Message(b"a")

        async def code(routing_key: str) -> int | None:
            try:
                await exchange.publish(message, routing_key, mandatory=False, immediate=True)
            except DeliveryError as error:
                return int(error.message.delivery.reply_code)
            return None

        assert await code(name) == 313
        received: asyncio.Queue[aio_pika.abc.AbstractIncomingMessage] = asyncio.Queue()
        await queue.consume(received.put)
        assert await code(name) is None
        held = await asyncio.wait_for(received.get(), 10)
        assert await code(name) == 313
        await held.ack()
        assert await code(name) is None
        assert await code(f"{name}-none") == 312


# ---- transactions


def test_a_transaction_is_done_at_its_commit(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    other = channel.connection.channel()
    publish(other, name, "old")
    channel.tx_select()
    held = fetch(channel, name)
    assert held is not None
    publish(channel, name, "a", "b")
    channel.basic_ack(held.tag)
    assert ready_count(other, name) == 0
    channel.tx_commit()
    assert drain(other, name) == ["a", "b"]
    publish(channel, name, "c")
    channel.tx_rollback()
    channel.tx_commit()
    assert ready_count(other, name) == 0


def test_what_is_rolled_back_is_outstanding_again(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    channel.tx_select()
    other = channel.connection.channel()
    publish(other, name, "a")
    held = fetch(channel, name)
    assert held is not None
    channel.basic_nack(held.tag, requeue=True)
    channel.tx_rollback()
    assert ready_count(other, name) == 0
    channel.basic_nack(held.tag, requeue=True)
    channel.tx_commit()
    assert ready_count(other, name) == 1


def test_a_rejecting_queue_makes_a_commit_partial(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, **FULL)
    free = declare(channel, f"{name}-free")
    other = channel.connection.channel()
    publish(other, free, "old")
    channel.tx_select()
    held = fetch(channel, free)
    assert held is not None
    channel.basic_ack(held.tag)
    publish(channel, name, "a", "b")
    publish(channel, free, "c")
    text = reply_text(channel.tx_commit)
    assert text == "PRECONDITION_FAILED - partial tx completion"
    assert drain(other, name) == ["a"]
    assert drain(other, free) == ["c"]


def test_rejections_of_a_transaction_are_dead_letters_at_its_commit(
    channel: BlockingChannel, name: str
) -> None:
    dead = declare(channel, f"{name}-dead")
    declare(channel, name, dead_letter_exchange="", dead_letter_routing_key=dead)
    other = channel.connection.channel()
    publish(other, name, "a", "b", "c")
    channel.tx_select()
    consumer = Consumer(channel, name)
    tags = [delivery.method.delivery_tag for delivery in consumer.wait_for(3)]
    channel.basic_ack(tags[1])
    channel.basic_nack(tags[2], multiple=True, requeue=False)
    assert ready_count(other, dead) == 0
    channel.tx_commit()
    assert drain(other, dead) == ["a", "c"]


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ("confirm_delivery", "tx_select", "cannot switch from confirm to tx mode"),
        ("tx_select", "confirm_delivery", "cannot switch from tx to confirm mode"),
    ],
)
def test_modes_do_not_mix(channel: BlockingChannel, first: str, second: str, text: str) -> None:
    getattr(channel, first)()
    getattr(channel, first)()
    assert reply_text(getattr(channel, second)) == f"PRECONDITION_FAILED - {text}"


@pytest.mark.parametrize("method", ["tx_commit", "tx_rollback"])
def test_without_a_transaction(channel: BlockingChannel, method: str) -> None:
    text = reply_text(getattr(channel, method))
    assert text == "PRECONDITION_FAILED - channel is not transactional"


@pytest.mark.parametrize("end", ["kill", "commit and kill"])
def test_a_kill_keeps_what_was_committed(
    shared_broker: BrokerProcess,
    connect: Callable[..., pika.BlockingConnection],
    name: str,
    end: str,
) -> None:
    channel = connect(shared_broker).channel()
    declare(channel, name)
    channel.tx_select()
    publish(channel, name, *"abc")
    if end == "kill":
        channel.tx_rollback()
        publish(channel, name, "d")
        channel.basic_qos(prefetch_count=1)  # answered: the publish has been read
    else:
        channel.tx_commit()
    shared_broker.kill()
    shared_broker.start()
    channel = connect(shared_broker).channel()
    assert drain(channel, name) == ([] if end == "kill" else ["a", "b", "c"])


def test_properties_are_kept_as_they_came(
    shared_broker: BrokerProcess, connect: Connect, name: str
) -> None:
    channel = connect(shared_broker).channel()
    channel.confirm_delivery()
    declare(channel, name)
    properties = BasicProperties(
        content_type="application/json",
        content_encoding="gzip",
        headers={"n": 1, "t": {"x": [True, None, "é"]}, "CC": [f"{name}-2"]},
        delivery_mode=2,
        priority=9,
        correlation_id="c",
        reply_to="r",
        expiration="600000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="a",
        cluster_id="",
    )
    declare(channel, f"{name}-2")
    channel.basic_publish("", name, b"{}", properties)
    shared_broker.kill()
    shared_broker.start()
    channel = connect(shared_broker).channel()
    for queue in (name, f"{name}-2"):
        assert take(channel, queue).properties == properties
