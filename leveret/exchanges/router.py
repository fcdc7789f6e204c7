"""Router: from an exchange and a routing key to the queues, through the exchanges between."""

from collections import deque
from collections.abc import Callable, Collection, Sequence

from leveret.amqp.properties import PropertyView
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange import Exchange


class Router:
    """Follows the bindings between exchanges, and alternate exchanges.

    *find_exchange* gives the exchange of a name, or None if there is none of that name.
    """

    def __init__(self, find_exchange: Callable[[str], Exchange | None]) -> None:
        self._find_exchange = find_exchange

    def route(
        self, exchange: Exchange, routing_key: str, properties: PropertyView
    ) -> tuple[Destination, ...]:
        """The queues a message goes to, each once, the nearest first.

        An exchange that itself leads nowhere hands over to its alternate exchange. Each exchange
        is visited once, so cycles end.
        """
        if not exchange.exchange_destinations:
            found = exchange.destinations(routing_key, properties)
            if found or exchange.alternate_exchange is None:
                return tuple(found)
        return self._route_through(exchange, (routing_key,), properties)

    def route_keys(
        self, exchange: Exchange, routing_keys: Sequence[str], properties: PropertyView
    ) -> tuple[Destination, ...]:
        """The queues of a message with several routing keys, each once.

        Every exchange on the way sees all keys, and hands over to its alternate exchange only if
        none of them leads anywhere. An exchange that picks one destination goes by the first key.
        """
        return self._route_through(exchange, routing_keys, properties)

    def is_cacheable(self, exchange: Exchange) -> bool:
        """Whether the routing key alone decides: no exchange that can be reached uses properties.

        Valid until an exchange or a binding between exchanges comes or goes.
        """
        visited: set[Exchange] = set()
        pending = [exchange]
        while pending:
            current = pending.pop()
            if current.uses_properties:
                return False
            if current not in visited:
                visited.add(current)
                pending += [*current.exchange_destinations, *self._alternates(current)]
        return True

    def _route_through(
        self, exchange: Exchange, routing_keys: Sequence[str], properties: PropertyView
    ) -> tuple[Destination, ...]:
        queues: dict[Destination, None] = {}
        visited: set[Exchange] = set()
        pending = deque([exchange])
        while pending:
            current = pending.popleft()
            if current in visited:
                continue
            visited.add(current)
            found = _destinations(current, routing_keys, properties)
            for destination in found:
                if isinstance(destination, Exchange):
                    pending.append(destination)
                else:
                    queues[destination] = None
            if not found:
                pending += self._alternates(current)
        return tuple(queues)

    def _alternates(self, exchange: Exchange) -> Sequence[Exchange]:
        """The alternate exchange of *exchange*, unless it has none or it is missing."""
        name = exchange.alternate_exchange
        alternate = None if name is None else self._find_exchange(name)
        return () if alternate is None else (alternate,)


def _destinations(
    exchange: Exchange, routing_keys: Sequence[str], properties: PropertyView
) -> Collection[Destination]:
    if len(routing_keys) == 1 or exchange.picks_one:
        return exchange.destinations(routing_keys[0], properties)
    return dict.fromkeys(
        destination
        for key in routing_keys
        for destination in exchange.destinations(key, properties)
    )
