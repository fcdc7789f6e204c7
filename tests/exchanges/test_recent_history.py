"""Recent history exchange: a fanout exchange with a memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.properties import NO_PROPERTIES
from leveret.amqp.tables import Field
from leveret.exchanges.recent_history import RecentHistoryExchange


def declare(length: Field | None = None) -> RecentHistoryExchange:
    arguments = {} if length is None else {"x-recent-history-length": length}
    return RecentHistoryExchange("e", arguments=arguments)


def test_routes_everywhere(make_queue, bind):
    exchange = declare()
    one, two = make_queue("1"), make_queue("2")
    bind(exchange, one, "a")
    bind(exchange, two, "b")
    assert list(exchange.destinations("x", NO_PROPERTIES)) == [one, two]


@given(length=st.integers(1, 30), count=st.integers(0, 60))
def test_keeps_the_last_messages_oldest_first(length, count):
    exchange = declare(Field("I", length))
    messages = [(number % 3, str(number).encode()) for number in range(count)]
    for attributes, message in messages:
        exchange.keep(attributes, message, NO_PROPERTIES)
    assert exchange.history() == messages[-length:]


def test_keeps_twenty_unless_told_otherwise():
    exchange = declare()
    for number in range(30):
        exchange.keep(0, bytes([number]), NO_PROPERTIES)
    assert exchange.history() == [(0, bytes([number])) for number in range(10, 30)]


def test_a_message_may_ask_not_to_be_kept(with_headers):
    exchange = declare()
    for number, value in enumerate([True, False, "true", 1]):
        properties = with_headers(**{"x-recent-history-no-store": value})
        exchange.keep(0, bytes([number]), properties)
    exchange.keep(0, b"other", with_headers(other=True))
    assert [message for _, message in exchange.history()] == [b"\x01", b"\x02", b"\x03", b"other"]


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (Field("I", 0), "0"),
        (Field("l", -5), "-5"),
        (Field("S", "5"), '<<"5">>'),
        (Field("d", 5.0), "5.0"),
        (Field("t", True), "true"),
        (Field("V", None), "undefined"),
    ],
)
def test_the_length_must_be_a_positive_integer(length, text):
    with pytest.raises(PreconditionFailed) as refused:
        declare(length)
    assert refused.value.explanation == (
        f"Invalid argument {text}, 'x-recent-history-length' must be a positive integer"
    )
