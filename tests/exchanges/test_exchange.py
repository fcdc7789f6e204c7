"""What all types of exchange have in common, and the simple types."""

import pytest

from leveret.amqp.errors import AccessRefused, PreconditionFailed
from leveret.amqp.properties import NO_PROPERTIES
from leveret.amqp.tables import Field, table_of
from leveret.exchanges.binding import Binding
from leveret.exchanges.deduplication import DeduplicationArguments
from leveret.exchanges.default import DefaultExchange
from leveret.exchanges.destination import Destination
from leveret.exchanges.direct import DirectExchange
from leveret.exchanges.exchange import Exchange
from leveret.exchanges.fanout import FanoutExchange
from leveret.exchanges.registry import EXCHANGE_TYPES, PREDECLARED, create_exchange

TYPES = sorted(EXCHANGE_TYPES)
REQUIRED = {
    "x-delayed-message": {"x-delayed-type": "direct"},
    "x-message-deduplication": {"x-cache-size": 5},
}
BINDING_KEYS = {"x-consistent-hash": "1", "x-local-random": ""}


def declare(type_name: str, **arguments: object) -> Exchange:
    return create_exchange(
        type_name, "e", arguments=table_of(REQUIRED.get(type_name, {}) | arguments)
    )


def to(queue: Destination, type_name: str, **arguments: object) -> Binding:
    """A binding that every message with the key `k` and the header h=1 goes through."""
    return Binding("e", queue, BINDING_KEYS.get(type_name, "k"), table_of(arguments))


@pytest.mark.parametrize("type_name", TYPES)
def test_a_repeated_bind_is_no_second_binding(type_name, make_queue):
    exchange = declare(type_name)
    queue = make_queue("q")
    assert exchange.bind(to(queue, type_name))
    assert not exchange.bind(to(queue, type_name))
    assert list(exchange.bindings()) == [to(queue, type_name)]
    assert list(exchange.destinations("k", NO_PROPERTIES)) == [queue]


@pytest.mark.parametrize("type_name", TYPES)
def test_unbind_of_an_unknown_binding_is_false(type_name, make_queue):
    exchange = declare(type_name)
    queue = make_queue("q")
    assert not exchange.unbind(to(queue, type_name))
    exchange.bind(to(queue, type_name))
    assert not exchange.unbind(to(queue, type_name, h=1))
    assert exchange.has_bindings


@pytest.mark.parametrize("type_name", TYPES)
def test_a_destination_stays_until_its_last_binding_goes(type_name, make_queue, with_headers):
    properties = with_headers(h=1)
    exchange = declare(type_name)
    queue = make_queue("q")
    bindings = [to(queue, type_name), to(queue, type_name, h=1)]
    for binding in bindings:
        assert exchange.bind(binding)
    assert list(exchange.destinations("k", properties)) == [queue]
    assert exchange.unbind(bindings[0])
    assert list(exchange.destinations("k", properties)) == [queue]
    assert exchange.unbind(bindings[1])
    assert list(exchange.destinations("k", properties)) == []
    assert not exchange.has_bindings


@pytest.mark.parametrize("type_name", TYPES)
def test_unbind_destination_removes_all_bindings_to_it_and_no_other(
    type_name, make_queue, with_headers
):
    exchange = declare(type_name)
    gone, stays = make_queue("q"), make_queue("q")
    bindings = [to(gone, type_name), to(gone, type_name, h=1), to(gone, type_name, h=2)]
    for binding in [*bindings, to(stays, type_name)]:
        exchange.bind(binding)
    assert exchange.unbind_destination(gone) == bindings
    assert list(exchange.bindings()) == [to(stays, type_name)]
    assert list(exchange.destinations("k", with_headers(h=1))) == [stays]
    assert exchange.unbind_destination(gone) == []


@pytest.mark.parametrize("type_name", TYPES)
def test_only_some_types_use_properties_or_pick_one(type_name):
    exchange = declare(type_name)
    picking = {"x-consistent-hash", "x-modulus-hash", "x-random", "x-local-random"}
    assert exchange.picks_one == (type_name in picking)
    assert exchange.uses_properties == (type_name in {"headers", "x-random", "x-local-random"})


@pytest.mark.parametrize("type_name", TYPES)
def test_any_type_can_delay_and_deduplicate(type_name):
    arguments = {"x-delayed-exchange": True, "x-message-deduplication": True, "x-cache-size": 5}
    exchange = declare(type_name, **arguments)
    assert exchange.delays
    assert exchange.deduplication == DeduplicationArguments(cache_size=5)


def test_direct_routes_by_the_very_key(make_queue, bind):
    exchange = DirectExchange("e")
    one, two, both = make_queue("1"), make_queue("2"), make_queue("both")
    bind(exchange, one, "a.b")
    bind(exchange, two, "*.b")
    bind(exchange, both, "a.b")
    bind(exchange, both, "*.b")
    assert list(exchange.destinations("a.b", NO_PROPERTIES)) == [one, both]
    assert list(exchange.destinations("*.b", NO_PROPERTIES)) == [two, both]
    assert list(exchange.destinations("A.b", NO_PROPERTIES)) == []
    assert list(exchange.destinations("", NO_PROPERTIES)) == []


def test_fanout_routes_to_each_destination_once(make_queue, bind):
    exchange = FanoutExchange("e")
    one, two = make_queue("1"), make_queue("2")
    bind(exchange, one, "a")
    bind(exchange, two, "b")
    bind(exchange, one, "c")
    assert list(exchange.destinations("x", NO_PROPERTIES)) == [one, two]


def test_default_exchange_routes_by_queue_name(make_queue):
    queues = {"q": make_queue("q")}
    exchange = DefaultExchange(queues)
    assert list(exchange.destinations("q", NO_PROPERTIES)) == [queues["q"]]
    assert list(exchange.destinations("p", NO_PROPERTIES)) == []
    queues["p"] = make_queue("p")
    assert list(exchange.destinations("p", NO_PROPERTIES)) == [queues["p"]]


def test_default_exchange_refuses_bind_and_unbind(make_queue):
    exchange = DefaultExchange({})
    binding = Binding("", make_queue("q"), "q")
    for refused in (exchange.bind, exchange.unbind):
        with pytest.raises(
            AccessRefused, match=r"^operation not permitted on the default exchange$"
        ):
            refused(binding)


def test_create_exchange_keeps_the_flags():
    arguments = table_of({"alternate-exchange": "ae"})
    exchange = create_exchange(
        "topic", "e", durable=True, auto_delete=True, internal=True, arguments=arguments
    )
    assert (exchange.type_name, exchange.name) == ("topic", "e")
    assert exchange.durable
    assert exchange.auto_delete
    assert exchange.internal
    assert exchange.arguments == arguments
    assert exchange.alternate_exchange == "ae"


def test_unknown_exchange_type():
    with pytest.raises(PreconditionFailed, match=r"^unknown exchange type 'x'$"):
        create_exchange("x", "e")


def test_predeclared_exchanges_can_be_made():
    exchanges = [create_exchange(type_name, name) for name, type_name, _ in PREDECLARED]
    assert [exchange.name for exchange in exchanges if exchange.uses_properties] == [
        "amq.headers",
        "amq.match",
    ]
    assert [exchange.name for exchange in PREDECLARED if exchange.internal] == [
        "amq.rabbitmq.trace"
    ]


def test_alternate_exchange_in_both_spellings():
    assert declare("fanout").alternate_exchange is None
    assert declare("fanout", **{"alternate-exchange": "ae"}).alternate_exchange == "ae"
    assert declare("fanout", **{"x-alternate-exchange": "ae"}).alternate_exchange == "ae"
    both = {"alternate-exchange": "ae", "x-alternate-exchange": "other"}
    assert declare("fanout", **both).alternate_exchange == "ae"


@pytest.mark.parametrize(
    ("name", "field", "expected"),
    [
        ("alternate-exchange", Field("I", 5), "signedint"),
        ("x-alternate-exchange", Field("t", True), "bool"),
        ("x-delayed-exchange", Field("S", "true"), "longstr"),
        ("x-message-deduplication", Field("l", 1), "long"),
    ],
)
def test_arguments_of_the_wrong_type(name, field, expected):
    with pytest.raises(PreconditionFailed) as refused:
        create_exchange("fanout", "e", vhost_name="v", arguments={name: field})
    assert refused.value.explanation == (
        f"invalid type '{expected}' for arg '{name}' in exchange 'e' in vhost 'v'"
    )


@pytest.mark.parametrize(
    ("again", "text"),
    [
        ({"type_name": "direct"}, "'type' for {}: received 'direct' but current is 'fanout'"),
        ({"durable": True}, "'durable' for {}: received 'true' but current is 'false'"),
        ({"auto_delete": True}, "'auto_delete' for {}: received 'true' but current is 'false'"),
        ({"internal": True}, "'internal' for {}: received 'true' but current is 'false'"),
        (
            {"arguments": table_of({"alternate-exchange": "other"})},
            "'alternate-exchange' for {}: received 'other' but current is 'ae'",
        ),
        (
            {"arguments": {}},
            "'alternate-exchange' for {}: received none "
            "but current is the value 'ae' of type 'longstr'",
        ),
    ],
)
def test_a_second_declare_must_ask_for_the_same(again, text):
    first = {
        "type_name": "fanout",
        "name": "e",
        "vhost_name": "v",
        "arguments": table_of({"alternate-exchange": "ae"}),
    }
    exchange = create_exchange(**first)
    exchange.check_equivalent(create_exchange(**first))
    with pytest.raises(PreconditionFailed) as refused:
        exchange.check_equivalent(create_exchange(**first | again))
    assert refused.value.explanation == "inequivalent arg " + text.format(
        "exchange 'e' in vhost 'v'"
    )


def test_other_arguments_may_differ_on_a_second_declare():
    exchange = create_exchange("fanout", "e", arguments=table_of({"a": 1}))
    exchange.check_equivalent(create_exchange("fanout", "e"))


@pytest.mark.parametrize(
    ("type_name", "first", "again"),
    [
        ("x-consistent-hash", {"hash-header": "a"}, {"hash-header": "b"}),
        ("x-consistent-hash", {"hash-property": "message_id"}, {}),
        ("x-recent-history", {}, {"x-recent-history-length": 5}),
        ("x-delayed-message", {"x-delayed-type": "direct"}, {"x-delayed-type": "fanout"}),
        (
            "x-delayed-message",
            {"x-delayed-type": "x-consistent-hash"},
            {"x-delayed-type": "x-consistent-hash", "hash-header": "a"},
        ),
        ("x-message-deduplication", {"x-cache-size": 5}, {"x-cache-size": 6}),
        ("topic", {"x-delayed-exchange": True}, {}),
        ("topic", {"x-message-deduplication": True}, {}),
        ("topic", {"x-alternate-exchange": "a"}, {"x-alternate-exchange": "b"}),
    ],
)
def test_arguments_that_must_be_the_same_on_a_second_declare(type_name, first, again):
    exchange = declare(type_name, **first)
    exchange.check_equivalent(declare(type_name, **first))
    name = next(name for name in {**first, **again} if first.get(name) != again.get(name))
    with pytest.raises(PreconditionFailed, match=f"^inequivalent arg '{name}' for exchange 'e'"):
        exchange.check_equivalent(declare(type_name, **again))


def test_the_width_of_an_integer_may_differ_on_a_second_declare():
    narrow, wide = (
        create_exchange("x-recent-history", "e", arguments={"x-recent-history-length": field})
        for field in (Field("b", 5), Field("l", 5))
    )
    narrow.check_equivalent(wide)
