"""What all types of exchange have in common, and the simple types."""

import pytest

from leveret.amqp.errors import AccessRefused, PreconditionFailed
from leveret.amqp.properties import NO_PROPERTIES
from leveret.amqp.tables import Field, table_of
from leveret.exchanges.binding import Binding
from leveret.exchanges.default import DefaultExchange
from leveret.exchanges.direct import DirectExchange
from leveret.exchanges.fanout import FanoutExchange
from leveret.exchanges.registry import EXCHANGE_TYPES, PREDECLARED, create_exchange

TYPES = sorted(EXCHANGE_TYPES)
HEADERS = table_of({"h": 1})


@pytest.mark.parametrize("type_name", TYPES)
def test_a_repeated_bind_is_no_second_binding(type_name, make_queue):
    exchange = create_exchange(type_name, "e")
    queue = make_queue("q")
    assert exchange.bind(Binding("e", queue, "k"))
    assert not exchange.bind(Binding("e", queue, "k"))
    assert list(exchange.bindings()) == [Binding("e", queue, "k")]
    assert list(exchange.destinations("k", NO_PROPERTIES)) == [queue]


@pytest.mark.parametrize("type_name", TYPES)
def test_unbind_of_an_unknown_binding_is_false(type_name, make_queue):
    exchange = create_exchange(type_name, "e")
    queue = make_queue("q")
    assert not exchange.unbind(Binding("e", queue, "k"))
    exchange.bind(Binding("e", queue, "k"))
    assert not exchange.unbind(Binding("e", queue, "l"))
    assert exchange.has_bindings


@pytest.mark.parametrize("type_name", TYPES)
def test_a_destination_stays_until_its_last_binding_goes(type_name, make_queue, with_headers):
    properties = with_headers(h=1)
    exchange = create_exchange(type_name, "e")
    queue = make_queue("q")
    bindings = [Binding("e", queue, "k"), Binding("e", queue, "k", HEADERS)]
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
    properties = with_headers(h=1)
    exchange = create_exchange(type_name, "e")
    gone, stays = make_queue("q"), make_queue("q")
    bindings = [Binding("e", gone, "k"), Binding("e", gone, "l"), Binding("e", gone, "k", HEADERS)]
    for binding in [*bindings, Binding("e", stays, "k")]:
        exchange.bind(binding)
    assert exchange.unbind_destination(gone) == bindings
    assert list(exchange.bindings()) == [Binding("e", stays, "k")]
    assert list(exchange.destinations("k", properties)) == [stays]
    assert exchange.unbind_destination(gone) == []


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


def test_only_alternate_exchange_names_the_alternate():
    assert create_exchange("fanout", "e").alternate_exchange is None
    arguments = table_of({"x-alternate-exchange": "ae"})
    assert create_exchange("fanout", "e", arguments=arguments).alternate_exchange is None


def test_alternate_exchange_must_be_a_string():
    with pytest.raises(PreconditionFailed) as refused:
        create_exchange(
            "fanout", "e", vhost_name="v", arguments={"alternate-exchange": Field("I", 5)}
        )
    assert refused.value.explanation == (
        "invalid type 'signedint' for arg 'alternate-exchange' in exchange 'e' in vhost 'v'"
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
            "'alternate-exchange' for {}: received the value 'other' of type 'longstr' "
            "but current is the value 'ae' of type 'longstr'",
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
