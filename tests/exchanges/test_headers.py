"""Headers exchange: the four kinds of match."""

import pytest

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.properties import NO_PROPERTIES
from leveret.amqp.tables import Field, table_of
from leveret.exchanges.binding import Binding
from leveret.exchanges.headers import HeadersExchange, HeadersMatcher

TWO = {"a": 1, "b": "x"}
WITH_X = {"a": 1, "x-b": "x"}
PRESENCE = {"a": None}


@pytest.mark.parametrize(
    ("x_match", "arguments", "headers", "expected"),
    [
        ("all", TWO, {"a": 1, "b": "x", "c": 3}, True),
        ("all", TWO, {"a": 1}, False),
        ("all", TWO, {"a": 1, "b": "y"}, False),
        ("all", TWO, {}, False),
        ("all", {}, {}, True),
        ("all", {}, {"a": 1}, True),
        ("any", TWO, {"a": 1}, True),
        ("any", TWO, {"a": 2, "b": "x"}, True),
        ("any", TWO, {"a": 2, "b": "y"}, False),
        ("any", {}, {"a": 1}, False),
        ("any", {}, {}, False),
        ("all", WITH_X, {"a": 1}, True),
        ("any", WITH_X, {"x-b": "x"}, False),
        ("all-with-x", WITH_X, {"a": 1}, False),
        ("all-with-x", WITH_X, {"a": 1, "x-b": "x"}, True),
        ("any-with-x", WITH_X, {"x-b": "x"}, True),
        ("any-with-x", WITH_X, {"a": 2}, False),
        ("any-with-x", {}, {"x-match": "any-with-x"}, False),
        ("all", PRESENCE, {"a": "whatever"}, True),
        ("all", PRESENCE, {"a": None}, True),
        ("all", PRESENCE, {"b": 1}, False),
        ("any", PRESENCE, {"a": 1}, True),
        ("all", {"a": 1}, {"a": None}, False),
        ("all", {"a": 1}, {"a": True}, False),
        ("all", {"a": True}, {"a": True}, True),
        ("all", {"a": 1}, {"a": "1"}, False),
        ("all", {"a": 1}, {"a": 1.0}, True),
        ("all", {"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}, True),
    ],
)
def test_match(x_match, arguments, headers, expected):
    matcher = HeadersMatcher(table_of({"x-match": x_match, **arguments}))
    assert matcher.matches(table_of(headers)) is expected


def test_match_is_all_if_not_said():
    matcher = HeadersMatcher(table_of(TWO))
    assert matcher.matches(table_of(TWO))
    assert not matcher.matches(table_of({"a": 1}))


def test_width_of_an_integer_does_not_count():
    assert HeadersMatcher({"a": Field("b", 5)}).matches({"a": Field("l", 5)})


def test_routes_to_each_destination_once_and_ignores_the_key(make_queue, bind, with_headers):
    exchange = HeadersExchange("e")
    one, two = make_queue("1"), make_queue("2")
    bind(exchange, one, "k", a=1)
    bind(exchange, one, "l", a=1)
    bind(exchange, two, "k", a=2)
    assert list(exchange.destinations("k", with_headers(a=1))) == [one]
    assert list(exchange.destinations("other", with_headers(a=2))) == [two]
    assert list(exchange.destinations("k", NO_PROPERTIES)) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            "some",
            'Invalid x-match field value <<"some">>; expected all, any, all-with-x, or any-with-x',
        ),
        (5, "Invalid x-match field type signedint (value 5); expected longstr"),
        (True, "Invalid x-match field type bool (value true); expected longstr"),
        (None, "Invalid x-match field type void (value undefined); expected longstr"),
        (
            Field("x", b"all"),
            'Invalid x-match field type binary (value <<"all">>); expected longstr',
        ),
    ],
)
def test_bad_x_match_is_refused_and_leaves_no_binding(value, text, make_queue):
    exchange = HeadersExchange("e")
    with pytest.raises(PreconditionFailed) as refused:
        exchange.bind(Binding("e", make_queue("q"), "", table_of({"x-match": value})))
    assert refused.value.explanation == text
    assert not exchange.has_bindings
