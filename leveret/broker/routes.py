"""Routes: from the argument bytes of a basic.publish to the queues (§1.8.3.7).

The bytes are the key of the cache: a publisher repeats them, so decoding, looking up and routing
happen once for all messages that share them.
"""

from typing import NamedTuple, cast

from leveret.amqp.errors import AccessRefused, NotFound
from leveret.amqp.message import encode_head
from leveret.amqp.tables import Table
from leveret.exchanges.exchange import Exchange
from leveret.exchanges.route_cache import RouteCache
from leveret.exchanges.router import Router
from leveret.queues.classic import ClassicQueue

MANDATORY = 1
IMMEDIATE = 2


class Route:
    """Where publishes with these argument bytes go; not changed once made.

    `head` is the head of the messages. `queues` is None if the headers of each message decide.
    """

    __slots__ = ("bits", "exchange", "head", "queues", "routing_key")

    def __init__(
        self,
        exchange: Exchange,
        routing_key: str,
        head: bytes,
        bits: int,
        queues: tuple[ClassicQueue, ...] | None,
    ) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.head = head
        self.bits = bits
        self.queues = queues


class Routed(NamedTuple):
    """A run of messages with the same queues and bits, None if their headers are to decide.

    `routes` holds the route of each message, or one for all of them.
    """

    queues: tuple[ClassicQueue, ...] | None
    routes: list[Route]
    contents: list[bytes]
    content_length: int


class RouteTable:
    """Finds and remembers the routes of one vhost."""

    __slots__ = ("_cache", "_exchanges", "_router", "_vhost_name")

    def __init__(self, vhost_name: str, exchanges: dict[str, Exchange]) -> None:
        self._vhost_name = vhost_name
        self._exchanges = exchanges
        self._router = Router(exchanges.get)
        self._cache: RouteCache[Route] = RouteCache()

    def changed(self) -> None:
        """An exchange, a queue or a binding came or went."""
        self._cache.clear()

    def find(self, method: bytes) -> Route:
        """The route for the argument bytes of a basic.publish.

        Raises NotFound for a missing exchange and AccessRefused for an internal one.
        """
        route = self._cache.get(method)
        if route is None:
            route = self._resolve(method)
            self._cache.put(method, route)
        return route

    def find_each(self, methods: list[bytes]) -> list[Route]:
        """The routes of a run of publishes. Raises as `find` does, for the first at fault."""
        routes = self._cache.get_each(methods)
        if None in routes:
            return [route or self.find(methods[at]) for at, route in enumerate(routes)]
        return cast("list[Route]", routes)

    def queues(self, route: Route, headers: Table) -> tuple[ClassicQueue, ...]:
        """The queues for one message of a route that depends on its headers."""
        found = self._router.route(route.exchange, route.routing_key, headers)
        return cast("tuple[ClassicQueue, ...]", found)

    def _resolve(self, method: bytes) -> Route:
        # u16 reserved | short string exchange | short string routing key | bits
        name_end = 3 + method[2]
        key_end = name_end + 1 + method[name_end]
        name = method[3:name_end]
        key = method[name_end + 1 : key_end]
        exchange = self._exchanges.get(name.decode())
        if exchange is None:
            raise NotFound(f"no exchange '{name.decode()}' in vhost '{self._vhost_name}'")
        if exchange.internal:
            raise AccessRefused(
                f"cannot publish to internal exchange '{exchange.name}' in vhost "
                f"'{self._vhost_name}'"
            )
        queues: tuple[ClassicQueue, ...] | None = None
        if self._router.is_cacheable(exchange):
            found = self._router.route(exchange, key.decode(), {})
            queues = cast("tuple[ClassicQueue, ...]", found)
        return Route(
            exchange,
            key.decode(),
            encode_head(name, key),
            method[key_end],
            queues,
        )
