"""Topic exchange: the trie follows the bindings."""

from leveret.amqp.properties import NO_PROPERTIES
from leveret.exchanges.topic import TopicExchange


def test_routes_by_pattern(make_queue, bind):
    exchange = TopicExchange("e")
    temperature, room, house = make_queue("temperature"), make_queue("room"), make_queue("house")
    bind(exchange, temperature, "dev.*.temp")
    bind(exchange, room, "dev.room.temp")
    everything = bind(exchange, house, "dev.#")
    assert set(exchange.destinations("dev.room.temp", NO_PROPERTIES)) == {temperature, room, house}
    assert list(exchange.destinations("dev", NO_PROPERTIES)) == [house]
    exchange.unbind(everything)
    assert list(exchange.destinations("dev", NO_PROPERTIES)) == []
    assert set(exchange.destinations("dev.room.temp", NO_PROPERTIES)) == {temperature, room}
