"""The types of exchange through a broker and a client, over a restart too."""

from collections.abc import Callable
from itertools import chain

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from tests.conftest import BrokerProcess

KEYS = [str(number) for number in range(60)]
QUEUES = ["one", "two", "three"]
HASHING = {
    "x-consistent-hash": {},
    "x-modulus-hash": {},
    "by-header": {"hash-header": "id"},
}


def distribution(broker: BrokerProcess) -> dict[str, dict[str, list[str]]]:
    """For each exchange the keys that arrive in each queue."""
    found: dict[str, dict[str, list[str]]] = {}
    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for exchange in HASHING:
            for key in KEYS:
                # Only one of the two is hashed.
                by_header = exchange == "by-header"
                channel.basic_publish(
                    exchange,
                    "" if by_header else key,
                    key.encode(),
                    pika.BasicProperties(headers={"id": key if by_header else "x"}),
                    mandatory=True,
                )
            found[exchange] = {queue: list(drain(channel, queue)) for queue in QUEUES}
    return found


def drain(channel: BlockingChannel, queue: str) -> list[str]:
    bodies = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return bodies
        bodies.append(body.decode())


def test_a_key_keeps_its_queue_over_a_restart(broker: BrokerProcess) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
        channel = connection.channel()
        for queue in QUEUES:
            channel.queue_declare(queue, durable=True)
        for exchange, arguments in HASHING.items():
            exchange_type = "x-consistent-hash" if arguments else exchange
            channel.exchange_declare(exchange, exchange_type, durable=True, arguments=arguments)
            for queue in QUEUES:
                channel.queue_bind(queue, exchange, "1")
    before = distribution(broker)
    for queues in before.values():
        assert sorted(chain.from_iterable(queues.values())) == sorted(KEYS)
        assert all(queues.values())
    assert before["by-header"] == before["x-consistent-hash"]
    broker.restart()
    assert distribution(broker) == before


REFUSED: dict[str, tuple[Callable[[BlockingChannel], object], str]] = {
    "binding key": (
        lambda channel: channel.queue_bind("q", "hash", "many"),
        'The binding key must be an integer: <<"many">>',
    ),
    "delayed type": (
        lambda channel: channel.exchange_declare("delayed", "x-delayed-message"),
        "Invalid argument, 'x-delayed-type' must be an existing exchange type",
    ),
    "hash arguments": (
        lambda channel: channel.exchange_declare(
            "other", "x-consistent-hash", arguments={"hash-header": "a", "hash-property": "b"}
        ),
        "hash-header and hash-property are mutually exclusive",
    ),
    "redeclare": (
        lambda channel: channel.exchange_declare(
            "hash", "x-consistent-hash", arguments={"hash-header": "a"}
        ),
        "inequivalent arg 'hash-header' for exchange 'hash' in vhost '/': "
        "received the value 'a' of type 'longstr' but current is none",
    ),
    "local random": (
        lambda channel: channel.queue_bind("q", "local", "k"),
        "Non empty binding 'k' key not permitted",
    ),
}


def test_what_does_not_fit_is_refused(broker: BrokerProcess) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", exclusive=True)
        channel.exchange_declare("hash", "x-consistent-hash")
        channel.exchange_declare("local", "x-local-random")
        for name, (action, text) in REFUSED.items():
            with pytest.raises(ChannelClosedByBroker) as closed:
                action(channel)
            assert closed.value.reply_code == 406, name
            assert closed.value.reply_text == f"PRECONDITION_FAILED - {text}"
            channel = connection.channel()
