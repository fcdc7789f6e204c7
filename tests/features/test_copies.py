"""The headers CC and BCC: further routing keys of a message."""

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import BasicProperties

from tests.clients.blocking import drain, ready_count
from tests.conftest import BrokerProcess
from tests.features.steps import (
    Connect,
    Restart,
    declare,
    exists,
    reply_text,
    restarts,
    send,
    take,
)


def properties(**headers: object) -> BasicProperties:
    return BasicProperties(headers=headers)


def declare_three(channel: BlockingChannel, name: str) -> list[str]:
    return [declare(channel, f"{name}-{kind}") for kind in ("to", "cc", "bcc")]


def test_each_key_is_a_route_and_blind_copies_are_hidden(
    channel: BlockingChannel, name: str
) -> None:
    queues = declare_three(channel, name)
    to, copy, blind = queues
    send(channel, to, "a", headers={"CC": [copy], "k": "v", "BCC": [blind]}, priority=1)
    for queue in queues:
        fetched = take(channel, queue)
        assert (fetched.body, fetched.headers) == ("a", {"CC": [copy], "k": "v"})
        assert fetched.properties.priority == 1


def test_each_queue_gets_one_copy(channel: BlockingChannel, name: str) -> None:
    to, copy, _ = declare_three(channel, name)
    send(channel, to, "a", headers={"CC": [to, copy, copy], "BCC": [copy, to]})
    assert drain(channel, to) == ["a"]
    assert drain(channel, copy) == ["a"]


def test_copies_are_routed_by_any_exchange(channel: BlockingChannel, name: str) -> None:
    queues = declare_three(channel, name)
    channel.exchange_declare(name, "topic", auto_delete=True)
    for queue, key in zip(queues, ("a.*", "b.*", "c.#"), strict=True):
        channel.queue_bind(queue, name, key)
    channel.basic_publish(name, "a.1", b"1", properties(CC=["b.1"], BCC=["c"]))
    channel.basic_publish(name, "x", b"2", properties(CC=["c.1.2"]))
    assert [drain(channel, queue) for queue in queues] == [["1"], ["1"], ["1", "2"]]


def test_a_copy_alone_is_a_route(channel: BlockingChannel, name: str) -> None:
    channel.confirm_delivery()
    copy = declare(channel, name)
    channel.basic_publish("", f"{name}-none", b"a", properties(BCC=[copy]), mandatory=True)
    assert drain(channel, copy) == ["a"]
    assert not exists(channel, f"{name}-none")


def test_none_is_no_copy(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    send(channel, name, "a", headers={"CC": [], "BCC": []})
    assert take(channel, name).headers == {"CC": []}


@pytest.mark.parametrize(
    ("header", "value", "found"),
    [
        ("CC", "queue", "longstr"),
        ("BCC", 7, "signedint"),
        ("CC", {"a": 1}, "table"),
        ("CC", True, "bool"),
    ],
)
@pytest.mark.parametrize("in_transaction", [False, True])
def test_wrong_types(
    channel: BlockingChannel,
    name: str,
    header: str,
    value: object,
    found: str,
    in_transaction: bool,
) -> None:
    declare(channel, name)
    if in_transaction:
        channel.tx_select()

    def publish_and_ask() -> None:
        send(channel, name, "a", headers={header: value})
        ready_count(channel, name)

    assert reply_text(publish_and_ask) == (
        f'PRECONDITION_FAILED - invalid message: {{unacceptable_type_in_header,"{header}",{found}}}'
    )


def test_what_is_no_string_in_the_array_is_no_key(channel: BlockingChannel, name: str) -> None:
    to, copy, _ = declare_three(channel, name)
    send(channel, to, "a", headers={"CC": [7, copy, True]})
    assert take(channel, to).headers == {"CC": [7, copy, True]}
    assert take(channel, copy).body == "a"


def test_copies_of_a_transaction(channel: BlockingChannel, name: str) -> None:
    to, copy, blind = declare_three(channel, name)
    other = channel.connection.channel()
    channel.tx_select()
    send(channel, to, "a", headers={"CC": [copy], "BCC": [blind]})
    assert [ready_count(other, queue) for queue in (to, copy, blind)] == [0, 0, 0]
    channel.tx_commit()
    assert [drain(other, queue) for queue in (to, copy, blind)] == [["a"]] * 3


@restarts
def test_blind_copies_stay_hidden_over_a_restart(
    shared_broker: BrokerProcess, connect: Connect, name: str, restart: Restart
) -> None:
    channel = connect(shared_broker).channel()
    channel.confirm_delivery()
    to, copy, blind = declare_three(channel, name)
    send(channel, to, "a", headers={"CC": [copy], "BCC": [blind]})
    restart(shared_broker, channel)
    channel = connect(shared_broker).channel()
    assert [take(channel, queue).headers for queue in (to, copy, blind)] == [{"CC": [copy]}] * 3
