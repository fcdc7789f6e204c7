"""Deduplication: what exchanges are told of it, in the plugin's way and in LavinMQ's."""

import pytest

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.properties import NO_PROPERTIES
from leveret.amqp.tables import Field, table_of
from leveret.exchanges.deduplication import DeduplicationArguments
from leveret.exchanges.registry import create_exchange

PLUGIN = "x-message-deduplication"


def deduplication(type_name: str, **arguments: object) -> DeduplicationArguments | None:
    names = {name.replace("_", "-"): value for name, value in arguments.items()}
    return create_exchange(type_name, "e", arguments=table_of(names)).deduplication


def test_the_exchange_type_routes_everywhere(make_queue, bind):
    exchange = create_exchange(PLUGIN, "e", arguments=table_of({"x-cache-size": 5}))
    one, two = make_queue("1"), make_queue("2")
    bind(exchange, one, "a")
    bind(exchange, two, "b")
    assert list(exchange.destinations("x", NO_PROPERTIES)) == [one, two]


def test_arguments_of_the_exchange_type():
    default = DeduplicationArguments(5, None, "x-deduplication-header")
    assert deduplication(PLUGIN, x_cache_size=5) == default
    assert deduplication(PLUGIN, x_cache_size="5", x_cache_persistence="disk") == default
    assert deduplication(
        PLUGIN,
        x_cache_size=Field("b", 7),
        x_cache_ttl=1500,
        x_cache_persistence="memory",
        x_deduplication_header="id",
    ) == DeduplicationArguments(7, 1500, "id")


def test_arguments_of_any_other_type():
    assert deduplication("direct", x_cache_size=5) is None
    assert deduplication("direct", x_message_deduplication=False) is None
    assert deduplication("direct", x_message_deduplication=True) == DeduplicationArguments(
        128, None, "x-deduplication-header"
    )
    assert deduplication(
        "topic",
        x_message_deduplication=True,
        x_cache_size=5,
        x_cache_ttl=1500,
        x_deduplication_header="id",
    ) == DeduplicationArguments(5, 1500, "id")


@pytest.mark.parametrize(
    ("type_name", "arguments", "text"),
    [
        (
            PLUGIN,
            {},
            "Missing or invalid argument, 'x-cache-size' must be an integer greater than 0",
        ),
        (
            PLUGIN,
            {"x_cache_size": 5, "x_cache_persistence": "tape"},
            "Invalid argument, 'x-cache-persistence' must be either 'disk' or 'memory'",
        ),
        (
            "direct",
            {"x_message_deduplication": True, "x_deduplication_header": 5},
            "invalid type 'signedint' for arg 'x-deduplication-header' "
            "in exchange 'e' in vhost '/'",
        ),
        *(
            (
                type_name,
                {"x_message_deduplication": True, "x_cache_size": 5, name: value},
                f"Invalid argument, '{name.replace('_', '-')}' must be an integer greater than 0",
            )
            for type_name in (PLUGIN, "direct")
            for name in ("x_cache_size", "x_cache_ttl")
            for value in (0, -1, "0", "many", "", True, 1.5)
        ),
    ],
)
def test_bad_arguments_are_refused(type_name, arguments, text):
    with pytest.raises(PreconditionFailed) as refused:
        deduplication(type_name, **arguments)
    assert refused.value.explanation == text
