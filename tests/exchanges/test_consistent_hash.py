"""Consistent hash exchange: weights, and what is hashed."""

from collections import Counter

import pytest

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.properties import NO_PROPERTIES, PropertyView
from leveret.amqp.tables import Field, table_of
from leveret.exchanges.binding import Binding
from leveret.exchanges.consistent_hash import ConsistentHashExchange
from leveret.exchanges.fanout import FanoutExchange

KEYS = [str(number) for number in range(400)]


def declare(**arguments: object) -> ConsistentHashExchange:
    names = {name.replace("_", "-"): value for name, value in arguments.items()}
    return ConsistentHashExchange("e", arguments=table_of(names))


@pytest.fixture
def queues(make_queue):
    return [make_queue(f"q{number}") for number in range(4)]


def one(exchange, key: str = "", properties: PropertyView = NO_PROPERTIES):
    (destination,) = exchange.destinations(key, properties)
    return destination


def test_each_key_goes_to_one_queue_and_all_queues_get_some(queues, bind):
    exchange = declare()
    for queue in queues:
        bind(exchange, queue, "1")
    counts = Counter(one(exchange, key) for key in KEYS)
    assert set(counts) == set(queues)
    assert [one(exchange, key) for key in KEYS] == [one(exchange, key) for key in KEYS]


def test_bindings_to_one_destination_add_up(queues, bind):
    first, second = declare(), declare()
    bind(first, queues[0], "3")
    bind(first, queues[1], "1")
    split = [bind(second, queues[0], "1"), bind(second, queues[0], "2")]
    bind(second, queues[1], "+1")
    assert [one(first, key) for key in KEYS] == [one(second, key) for key in KEYS]
    second.unbind(split[0])
    assert {one(second, key) for key in KEYS} == set(queues[:2])
    second.unbind(split[1])
    assert {one(second, key) for key in KEYS} == {queues[1]}


def test_an_exchange_can_be_the_destination(make_queue, bind):
    exchange, same_name = declare(), FanoutExchange("x")
    queue = make_queue("x")
    bind(exchange, queue, "1")
    bind(exchange, same_name, "1")
    assert {one(exchange, key) for key in KEYS} == {queue, same_name}


def test_the_routing_key_alone_decides_unless_told_otherwise(queues, bind, with_headers):
    exchange = declare()
    assert not exchange.uses_properties
    for queue in queues:
        bind(exchange, queue, "1")
    assert {one(exchange, "k", with_headers(h=key)) for key in KEYS} == {one(exchange, "k")}


def test_a_header_decides(queues, bind, with_headers):
    exchange, by_key = declare(hash_header="h"), declare()
    assert exchange.uses_properties
    for queue in queues:
        bind(exchange, queue, "1")
        bind(by_key, queue, "1")
    for key in KEYS:
        assert one(exchange, key, with_headers(h="v", key=key)) == one(by_key, "v")
        # The value counts, in whatever type it comes.
        assert one(exchange, "", with_headers(h=key)) == one(by_key, key)
        assert one(exchange, "", with_headers(h=Field("b", 7))) == one(by_key, "7")
        assert one(exchange, "", with_headers(h=Field("l", 7))) == one(by_key, "7")
        assert one(exchange, "", with_headers(h=Field("x", key.encode()))) == one(by_key, key)
        # A message without the header, or without headers, counts as one with an empty one.
        assert one(exchange, key, with_headers(other=key)) == one(by_key, "")
        assert one(exchange, key) == one(by_key, "")


@pytest.mark.parametrize(
    "value", [True, None, 1.5, [1, "two"], {"a": {"b": 1}}, b"\xff", Field("T", 5)]
)
def test_a_header_of_any_type_has_its_queue(value, queues, bind, with_headers):
    exchange = declare(hash_header="h")
    for queue in queues:
        bind(exchange, queue, "1")
    assert one(exchange, "a", with_headers(h=value)) == one(exchange, "b", with_headers(h=value))


@pytest.mark.parametrize(
    ("name", "value"), [("correlation_id", "v"), ("message_id", "v"), ("timestamp", 1234)]
)
def test_a_property_decides(name, value, queues, bind):
    exchange, by_key = declare(hash_property=name), declare()
    assert exchange.uses_properties
    for queue in queues:
        bind(exchange, queue, "1")
        bind(by_key, queue, "1")
    properties = PropertyView(NO_PROPERTIES.with_changes(**{name: value}))
    for key in KEYS:
        assert one(exchange, key, properties) == one(by_key, str(value))
        assert one(exchange, key) == one(by_key, "")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"hash_header": "a", "hash_property": "message_id"},
            "hash-header and hash-property are mutually exclusive",
        ),
        ({"hash_property": "app_id"}, "Unsupported property: app_id"),
        (
            {"hash_header": 5},
            "invalid type 'signedint' for arg 'hash-header' in exchange 'e' in vhost '/'",
        ),
        (
            {"hash_property": True},
            "invalid type 'bool' for arg 'hash-property' in exchange 'e' in vhost '/'",
        ),
    ],
)
def test_arguments_are_checked(arguments, text):
    with pytest.raises(PreconditionFailed) as refused:
        declare(**arguments)
    assert refused.value.explanation == text


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("x", 'The binding key must be an integer: <<"x">>'),
        ("", "The binding key must be an integer: <<>>"),
        (" 1", 'The binding key must be an integer: <<" 1">>'),
        ("1_0", 'The binding key must be an integer: <<"1_0">>'),
        ("1.5", 'The binding key must be an integer: <<"1.5">>'),
        ("٣", 'The binding key must be an integer: <<"٣">>'),
        ("0", "The binding key must be greater than 0"),
        ("-3", "The binding key must be greater than 0"),
    ],
)
def test_a_binding_key_that_is_no_weight_is_refused_and_leaves_no_binding(key, text, queues):
    exchange = declare()
    binding = Binding("e", queues[0], key)
    with pytest.raises(PreconditionFailed) as refused:
        exchange.bind(binding)
    assert refused.value.explanation == text
    assert not exchange.has_bindings
    assert not exchange.unbind(binding)
