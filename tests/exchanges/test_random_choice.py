"""Random exchanges: one binding a message, and what may be bound."""

import random
from collections import Counter

import pytest

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.properties import NO_PROPERTIES
from leveret.exchanges.binding import Binding
from leveret.exchanges.fanout import FanoutExchange
from leveret.exchanges.random_choice import LocalRandomExchange, RandomExchange


@pytest.fixture
def seeded():
    state = random.getstate()
    random.seed(5)
    yield
    random.setstate(state)


@pytest.mark.parametrize("exchange_type", [RandomExchange, LocalRandomExchange])
def test_one_destination_a_message_and_each_as_often(exchange_type, make_queue, bind, seeded):
    exchange = exchange_type("e")
    assert list(exchange.destinations("k", NO_PROPERTIES)) == []
    queues = [make_queue(str(number)) for number in range(4)]
    for queue in queues:
        bind(exchange, queue)
    counts = Counter(
        found for _ in range(1000) for found in exchange.destinations("k", NO_PROPERTIES)
    )
    assert counts.total() == 1000
    assert set(counts) == set(queues)
    assert all(abs(count - 250) < 70 for count in counts.values())


def test_the_keys_of_the_bindings_mean_nothing(make_queue, bind):
    exchange, behind = RandomExchange("e"), FanoutExchange("behind")
    bind(exchange, behind, "whatever")
    assert list(exchange.destinations("k", NO_PROPERTIES)) == [behind]


def test_a_local_random_exchange_takes_queues_without_a_key_only(make_queue):
    exchange = LocalRandomExchange("e")
    for binding, text in (
        (Binding("e", make_queue("q"), "k"), "Non empty binding 'k' key not permitted"),
        (Binding("e", FanoutExchange("x"), ""), "Destination not found"),
    ):
        with pytest.raises(PreconditionFailed) as refused:
            exchange.bind(binding)
        assert refused.value.explanation == text
    assert not exchange.has_bindings
