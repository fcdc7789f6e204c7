"""RouteTable: found once, forgotten at every change."""

import pytest
from pamqp import commands

from leveret.amqp.errors import AccessRefused, NotFound
from leveret.amqp.tables import Field
from leveret.broker.vhost import VHost
from leveret.exchanges.route_cache import RouteCache
from tests.broker.test_vhost import ME, declare_exchange, declare_queue, delete


def arguments(exchange: str, routing_key: str, *, mandatory: bool = False) -> bytes:
    return commands.Basic.Publish(
        exchange=exchange, routing_key=routing_key, mandatory=mandatory
    ).marshal()


def found(vhost: VHost, exchange: str, key: str = "key") -> list[str] | None:
    queues = vhost.routes.find(arguments(exchange, key)).queues
    return None if queues is None else sorted(queue.name for queue in queues)


def test_a_route_is_remembered(vhost: VHost) -> None:
    declare_queue(vhost, "q")
    first = vhost.routes.find(arguments("", "q"))
    assert vhost.routes.find(arguments("", "q")) is first
    assert vhost.routes.find_each([arguments("", "q"), arguments("", "p")])[0] is first


def test_every_change_is_seen_at_once(vhost: VHost) -> None:
    with pytest.raises(NotFound, match="no exchange 'e' in vhost '/'"):
        found(vhost, "e")
    declare_exchange(vhost, "e", "direct", arguments={"alternate-exchange": Field("S", "other")})
    assert found(vhost, "e") == []
    queue = declare_queue(vhost, "q")
    vhost.bind("e", queue, "key", {})
    assert found(vhost, "e") == ["q"]
    vhost.unbind("e", queue, "key", {})
    assert found(vhost, "e") == []
    declare_exchange(vhost, "other")
    vhost.bind("other", declare_queue(vhost, "p"), "", {})
    assert found(vhost, "e") == ["p"]
    vhost.bind("e", vhost.exchange("other"), "key", {})
    assert found(vhost, "e") == ["p"]
    delete(vhost, "p")
    assert found(vhost, "e") == []
    vhost.bind("other", queue, "", {})
    assert found(vhost, "e") == ["q"]
    vhost.delete_exchange("other", if_unused=False)
    assert found(vhost, "e") == []
    vhost.delete_exchange("e", if_unused=False)
    with pytest.raises(NotFound):
        found(vhost, "e")


def test_the_default_exchange_sees_queues_come_and_go(vhost: VHost) -> None:
    assert found(vhost, "", "q") == []
    queue = declare_queue(vhost, "q", auto_delete=True)
    assert found(vhost, "", "q") == ["q"]
    vhost.drop_if_unused(queue)
    assert found(vhost, "", "q") == []


def test_where_properties_decide_no_route_is_remembered(vhost: VHost) -> None:
    assert found(vhost, "amq.headers") is None
    declare_exchange(vhost, "e")
    assert found(vhost, "e") == []
    vhost.bind("e", vhost.exchange("amq.headers"), "", {})
    assert found(vhost, "e") is None


def test_an_internal_exchange_takes_no_publishes(vhost: VHost) -> None:
    declare_exchange(vhost, "e", internal=True)
    with pytest.raises(AccessRefused, match="cannot publish to internal exchange 'e' in vhost '/'"):
        found(vhost, "e")


def test_a_message_goes_to_a_queue_once(vhost: VHost) -> None:
    queue = declare_queue(vhost, "q")
    vhost.bind("amq.topic", queue, "a.*", {})
    vhost.bind("amq.topic", queue, "*.b", {})
    vhost.bind("amq.topic", vhost.exchange("amq.fanout"), "#", {})
    vhost.bind("amq.fanout", queue, "", {})
    assert found(vhost, "amq.topic", "a.b") == ["q"]


def test_an_exclusive_queue_may_be_published_to_by_anybody(vhost: VHost) -> None:
    declare_queue(vhost, "q", exclusive=True, owner=ME)
    assert found(vhost, "", "q") == ["q"]


def test_keys_that_come_once_do_not_push_out_one_that_lasts() -> None:
    cache: RouteCache[int] = RouteCache(limit=100)
    cache.put(b"lasting", 1)
    for number in range(10_000):
        key = b"%d" % number
        assert cache.get(key) is None
        cache.put(key, number)
        if number % 50 == 0:
            assert cache.get(b"lasting") == 1
        assert len(cache) <= 200


def test_a_key_that_is_not_used_is_forgotten() -> None:
    cache: RouteCache[int] = RouteCache(limit=100)
    cache.put(b"unused", 1)
    for number in range(200):
        cache.put(b"%d" % number, number)
    assert cache.get(b"unused") is None
