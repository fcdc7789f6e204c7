"""Delayed exchange: it routes as the type inside it, whatever happens to its bindings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.properties import NO_PROPERTIES
from leveret.amqp.tables import table_of
from leveret.exchanges.binding import Binding
from leveret.exchanges.delayed import DelayedExchange
from leveret.exchanges.direct import DirectExchange
from leveret.exchanges.fanout import FanoutExchange
from leveret.exchanges.immediate_types import IMMEDIATE_TYPES
from leveret.exchanges.registry import create_exchange
from tests.exchanges.conftest import FakeQueue

DETERMINATE = sorted(set(IMMEDIATE_TYPES) - {"x-random", "x-local-random"})
DESTINATIONS = [FakeQueue("a"), FakeQueue("b"), FanoutExchange("x"), FanoutExchange("y")]
KEYS = ["1", "2", "*", "#"]
BINDINGS = st.builds(
    Binding,
    st.just("e"),
    st.sampled_from(DESTINATIONS),
    st.sampled_from(["1", "2", "#", "x"]),
    st.sampled_from([{}, table_of({"h": 1}), table_of({"h": 2, "x-match": "any"})]),
)
STEPS = st.lists(st.tuples(st.sampled_from(["bind", "unbind", "unbind_destination"]), BINDINGS))


def step(exchange, action: str, binding: Binding) -> object:
    """What the action answers, or the text of its refusal."""
    argument = binding.destination if action == "unbind_destination" else binding
    try:
        return getattr(exchange, action)(argument)
    except PreconditionFailed as refused:
        return refused.explanation


@given(type_name=st.sampled_from(DETERMINATE), steps=STEPS)
def test_does_all_that_the_inner_type_does(type_name, steps, with_headers):
    arguments = table_of({"x-delayed-type": type_name, "x-cache-size": 5, "a": "b"})
    delayed = create_exchange("x-delayed-message", "e", arguments=arguments)
    plain = create_exchange(type_name, "e", arguments=arguments)
    assert delayed.uses_properties == plain.uses_properties
    assert delayed.picks_one == plain.picks_one
    for action, binding in steps:
        assert step(delayed, action, binding) == step(plain, action, binding)
        assert list(delayed.bindings()) == list(plain.bindings())
        assert delayed.has_bindings == plain.has_bindings
        assert delayed.exchange_destinations == plain.exchange_destinations
        for key in KEYS:
            for properties in (NO_PROPERTIES, with_headers(h=1)):
                assert list(delayed.destinations(key, properties)) == list(
                    plain.destinations(key, properties)
                )


def test_only_a_delayed_exchange_delays():
    arguments = table_of({"x-delayed-type": "topic"})
    exchange = create_exchange("x-delayed-message", "e", durable=True, arguments=arguments)
    assert isinstance(exchange, DelayedExchange)
    assert exchange.delays
    assert exchange.durable
    assert exchange.arguments == arguments
    assert exchange.inner.type_name == "topic"
    assert not exchange.inner.delays
    assert not DirectExchange("e").delays


@pytest.mark.parametrize(
    "arguments",
    [{}, *({"x-delayed-type": name} for name in ("no such type", "", 5, "x-delayed-message"))],
)
def test_the_type_inside_must_exist(arguments):
    with pytest.raises(PreconditionFailed) as refused:
        create_exchange("x-delayed-message", "e", arguments=table_of(arguments))
    assert refused.value.explanation == (
        "Invalid argument, 'x-delayed-type' must be an existing exchange type"
    )


def test_arguments_of_the_type_inside_are_checked():
    arguments = {"x-delayed-type": "x-consistent-hash", "hash-property": "app_id"}
    with pytest.raises(PreconditionFailed, match=r"^Unsupported property: app_id$"):
        create_exchange("x-delayed-message", "e", arguments=table_of(arguments))


def test_its_alternate_is_its_own():
    arguments = table_of({"x-delayed-type": "direct", "alternate-exchange": "ae"})
    assert create_exchange("x-delayed-message", "e", arguments=arguments).alternate_exchange == "ae"
