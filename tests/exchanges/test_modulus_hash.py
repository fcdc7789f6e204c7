"""Modulus hash exchange: even, and stable however the bindings were made."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from leveret.amqp.properties import NO_PROPERTIES
from leveret.exchanges.binding import Binding
from leveret.exchanges.fanout import FanoutExchange
from leveret.exchanges.modulus_hash import ModulusHashExchange
from tests.exchanges.conftest import FakeQueue

KEYS = [str(number) for number in range(1000)]


def names(exchange: ModulusHashExchange, keys: list[str]) -> list[list[str]]:
    return [[found.name for found in exchange.destinations(key, NO_PROPERTIES)] for key in keys]


def test_nothing_bound():
    assert list(ModulusHashExchange("e").destinations("k", NO_PROPERTIES)) == []


def test_each_binding_gets_as_much(make_queue, bind):
    exchange = ModulusHashExchange("e")
    twice, once, behind = make_queue("twice"), make_queue("once"), FanoutExchange("behind")
    for queue, key in ((twice, "a"), (twice, "b"), (once, ""), (behind, "")):
        bind(exchange, queue, key)
    counts = Counter(name for found in names(exchange, KEYS) for name in found)
    assert counts.total() == len(KEYS)
    # Five standard deviations, at most, with these keys.
    assert abs(counts["twice"] - 500) < 80
    assert abs(counts["once"] - 250) < 70
    assert abs(counts["behind"] - 250) < 70


@given(
    bindings=st.lists(
        st.tuples(st.sampled_from("abcde"), st.sampled_from(["", "1", "2"])), unique=True
    ),
    order=st.randoms(use_true_random=False),
)
def test_the_order_of_binding_does_not_count(bindings, order):
    queues = {name: FakeQueue(name) for name in "abcde"}
    first, second = ModulusHashExchange("e"), ModulusHashExchange("e")
    for name, key in bindings:
        first.bind(Binding("e", queues[name], key))
    order.shuffle(bindings)
    passing = Binding("e", FakeQueue("passing"), "")
    second.bind(passing)
    assert len(list(second.destinations("k", NO_PROPERTIES))) == 1
    for name, key in bindings:
        second.bind(Binding("e", queues[name], key))
    second.unbind(passing)
    assert names(first, KEYS[:50]) == names(second, KEYS[:50])
