"""Router: exchange-to-exchange bindings, alternate exchanges and their cycles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.amqp.properties import NO_PROPERTIES
from leveret.amqp.tables import table_of
from leveret.exchanges.binding import Binding
from leveret.exchanges.direct import DirectExchange
from leveret.exchanges.exchange import Exchange
from leveret.exchanges.fanout import FanoutExchange
from leveret.exchanges.registry import create_exchange
from leveret.exchanges.router import Router
from tests.exchanges.conftest import FakeQueue


class VHost:
    """Exchanges by name, with a router over them."""

    def __init__(self) -> None:
        self.exchanges: dict[str, Exchange] = {}
        self.router = Router(self.exchanges.get)

    def declare(self, type_name: str, name: str, alternate: str | None = None) -> Exchange:
        arguments = {} if alternate is None else {"alternate-exchange": alternate}
        exchange = create_exchange(type_name, name, arguments=table_of(arguments))
        return self.exchanges.setdefault(name, exchange)


@pytest.fixture
def vhost() -> VHost:
    return VHost()


def test_one_exchange(vhost, make_queue, bind):
    exchange = vhost.declare("direct", "e")
    one, two = make_queue("1"), make_queue("2")
    bind(exchange, one, "k")
    bind(exchange, two, "k")
    assert vhost.router.route(exchange, "k", NO_PROPERTIES) == (one, two)
    assert vhost.router.route(exchange, "l", NO_PROPERTIES) == ()


def test_follows_exchanges_and_gives_each_queue_once(vhost, make_queue, bind):
    source = vhost.declare("topic", "source")
    near, far = vhost.declare("fanout", "near"), vhost.declare("direct", "far")
    queue, other = make_queue("q"), make_queue("other")
    bind(source, near, "a.*")
    bind(source, queue, "a.#")
    bind(near, far, "whatever")
    bind(near, queue)
    bind(far, queue, "a.b")
    bind(far, other, "a.b")
    assert vhost.router.route(source, "a.b", NO_PROPERTIES) == (queue, other)
    assert vhost.router.route(source, "a.c", NO_PROPERTIES) == (queue,)
    assert vhost.router.route(source, "b", NO_PROPERTIES) == ()


def test_a_cycle_of_bindings_ends(vhost, make_queue, bind):
    exchanges = [vhost.declare("fanout", name) for name in "abc"]
    queues = [make_queue(name) for name in "abc"]
    for exchange, following, queue in zip(
        exchanges, exchanges[1:] + exchanges[:1], queues, strict=True
    ):
        bind(exchange, following)
        bind(exchange, exchange)
        bind(exchange, queue)
    assert vhost.router.route(exchanges[1], "", NO_PROPERTIES) == (queues[1], queues[2], queues[0])


def test_a_queue_and_an_exchange_may_share_a_name(vhost, make_queue, bind):
    source, same = vhost.declare("fanout", "source"), vhost.declare("fanout", "same")
    queue, behind = make_queue("same"), make_queue("behind")
    bind(source, queue)
    bind(source, same)
    bind(same, behind)
    assert vhost.router.route(source, "", NO_PROPERTIES) == (queue, behind)


def test_headers_reach_an_exchange_behind_another(vhost, make_queue, bind, with_headers):
    source, behind = vhost.declare("fanout", "source"), vhost.declare("headers", "behind")
    queue = make_queue("q")
    bind(source, behind)
    bind(behind, queue, a=1)
    assert vhost.router.route(source, "", with_headers(a=1)) == (queue,)
    assert vhost.router.route(source, "", with_headers(a=2)) == ()


def test_alternate_takes_what_went_nowhere(vhost, make_queue, bind):
    exchange = vhost.declare("direct", "e", alternate="ae")
    alternate = vhost.declare("fanout", "ae")
    queue, lost = make_queue("q"), make_queue("lost")
    bind(exchange, queue, "k")
    bind(alternate, lost)
    assert vhost.router.route(exchange, "k", NO_PROPERTIES) == (queue,)
    assert vhost.router.route(exchange, "l", NO_PROPERTIES) == (lost,)


def test_alternates_form_a_chain(vhost, make_queue, bind):
    first = vhost.declare("direct", "first", alternate="second")
    vhost.declare("direct", "second", alternate="third")
    third = vhost.declare("direct", "third", alternate="first")
    queue = make_queue("q")
    bind(third, queue, "k")
    assert vhost.router.route(first, "k", NO_PROPERTIES) == (queue,)
    assert vhost.router.route(first, "l", NO_PROPERTIES) == ()


def test_a_missing_alternate_is_nothing(vhost):
    exchange = vhost.declare("direct", "e", alternate="missing")
    assert vhost.router.route(exchange, "k", NO_PROPERTIES) == ()
    assert vhost.router.is_cacheable(exchange)


def test_an_exchange_that_is_its_own_alternate(vhost):
    exchange = vhost.declare("direct", "e", alternate="e")
    assert vhost.router.route(exchange, "k", NO_PROPERTIES) == ()
    assert vhost.router.is_cacheable(exchange)


def test_alternate_of_an_exchange_behind_another(vhost, make_queue, bind):
    source = vhost.declare("fanout", "source", alternate="unused")
    behind = vhost.declare("direct", "behind", alternate="ae")
    unused, alternate = vhost.declare("fanout", "unused"), vhost.declare("fanout", "ae")
    lost, never = make_queue("lost"), make_queue("never")
    bind(source, behind)
    bind(alternate, lost)
    bind(unused, never)
    # The source itself led somewhere, if only to an exchange: its own alternate stays out of it.
    assert vhost.router.route(source, "k", NO_PROPERTIES) == (lost,)


def test_unbound_exchange_is_no_longer_followed(vhost, make_queue, bind):
    source, behind = vhost.declare("fanout", "source"), vhost.declare("headers", "behind")
    bind(behind, make_queue("q"))
    bindings = [bind(source, behind, "1"), bind(source, behind, "2")]
    source.unbind(bindings[0])
    assert len(vhost.router.route(source, "", NO_PROPERTIES)) == 1
    assert not vhost.router.is_cacheable(source)
    source.unbind(bindings[1])
    assert vhost.router.route(source, "", NO_PROPERTIES) == ()
    assert vhost.router.is_cacheable(source)


def test_cacheable_unless_headers_can_be_reached(vhost, bind):
    headers = vhost.declare("headers", "headers")
    by_binding, by_alternate = DirectExchange("b"), vhost.declare("topic", "a", alternate="headers")
    bind(by_binding, headers, "k")
    outer, apart = FanoutExchange("outer"), FanoutExchange("apart")
    bind(outer, outer)
    bind(outer, by_alternate)
    assert [
        vhost.router.is_cacheable(exchange)
        for exchange in (headers, by_binding, by_alternate, outer, apart)
    ] == [False, False, False, False, True]


def test_several_keys_lead_to_the_union(vhost, make_queue, bind):
    exchange, behind = vhost.declare("direct", "e"), vhost.declare("topic", "behind")
    one, two, far = make_queue("1"), make_queue("2"), make_queue("far")
    bind(exchange, one, "a")
    bind(exchange, one, "b")
    bind(exchange, two, "b")
    bind(exchange, behind, "c")
    bind(behind, far, "b")
    assert vhost.router.route_keys(exchange, ["a", "b"], NO_PROPERTIES) == (one, two)
    # The exchange behind sees all keys, too.
    assert vhost.router.route_keys(exchange, ["c", "b"], NO_PROPERTIES) == (one, two, far)
    assert vhost.router.route_keys(exchange, ["d", "d"], NO_PROPERTIES) == ()
    assert vhost.router.route_keys(exchange, ["a"], NO_PROPERTIES) == (one,)


def test_alternate_only_if_no_key_leads_anywhere(vhost, make_queue, bind):
    exchange = vhost.declare("direct", "e", alternate="ae")
    alternate = vhost.declare("direct", "ae")
    queue, lost = make_queue("q"), make_queue("lost")
    bind(exchange, queue, "k")
    bind(alternate, lost, "l")
    assert vhost.router.route_keys(exchange, ["k", "l"], NO_PROPERTIES) == (queue,)
    assert vhost.router.route_keys(exchange, ["m", "l"], NO_PROPERTIES) == (lost,)


@pytest.mark.parametrize("type_name", ["x-consistent-hash", "x-modulus-hash", "x-random"])
def test_an_exchange_that_picks_one_does_so_for_all_keys_together(
    type_name, vhost, make_queue, bind
):
    exchange = vhost.declare(type_name, "e")
    for number in range(8):
        bind(exchange, make_queue(str(number)), "1")
    keys = [str(number) for number in range(50)]
    assert len(vhost.router.route_keys(exchange, keys, NO_PROPERTIES)) == 1
    if type_name != "x-random":
        assert vhost.router.route_keys(exchange, keys, NO_PROPERTIES) == vhost.router.route(
            exchange, keys[0], NO_PROPERTIES
        )


@given(
    bindings=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.sampled_from("ab"))),
    alternates=st.lists(st.sampled_from([None, "0", "1", "2", "3", "4", "none"]), min_size=5),
    keys=st.lists(st.sampled_from("abc"), min_size=1, max_size=3),
)
def test_one_key_given_in_any_way_leads_to_the_same(bindings, alternates, keys):
    vhost = VHost()
    nodes = [vhost.declare("direct", str(n), alternates[n]) for n in range(5)]
    targets = [*nodes, FakeQueue("q"), FakeQueue("p")]
    for source, target, key in bindings:
        nodes[source].bind(Binding(str(source), targets[target], key))
    for key in keys:
        assert vhost.router.route(nodes[0], key, NO_PROPERTIES) == vhost.router.route_keys(
            nodes[0], [key, key], NO_PROPERTIES
        )
    everywhere = set(vhost.router.route_keys(nodes[0], keys, NO_PROPERTIES))
    if not any(alternates):
        for key in keys:
            assert everywhere >= set(vhost.router.route(nodes[0], key, NO_PROPERTIES))
