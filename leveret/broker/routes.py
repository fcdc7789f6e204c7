"""Routes: from the argument bytes of a basic.publish to the queues (§1.8.3.7).

The bytes are the key of the cache: a publisher repeats them, so decoding, looking up and routing
happen once for all messages that share them.
"""

from typing import NamedTuple, cast

from leveret.amqp.errors import AccessRefused, NotFound
from leveret.amqp.properties import NO_PROPERTIES
from leveret.exchanges.exchange import Exchange
from leveret.exchanges.recent_history import RecentHistoryExchange
from leveret.exchanges.route_cache import RouteCache
from leveret.exchanges.router import Router
from leveret.queues.classic import ClassicQueue

MANDATORY = 1
IMMEDIATE = 2


class Route:
    """Where publishes with these argument bytes go; not changed once made.

    `head` is the head of the messages. `queues` is None if each message is to be looked at.
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
    """A run of messages with the same queues and bits, None if each is to be looked at.

    `routes` holds the route of each message, or one for all of them.
    """

    queues: tuple[ClassicQueue, ...] | None
    routes: list[Route]
    contents: list[bytes]
    content_length: int


class RouteTable:
    """Finds and remembers the routes of one vhost."""

    __slots__ = ("_cache", "_exchanges", "_sources", "_vhost_name", "router")

    def __init__(self, vhost_name: str, exchanges: dict[str, Exchange]) -> None:
        self._vhost_name = vhost_name
        self._exchanges = exchanges
        self.router = Router(exchanges.get)
        self._cache: RouteCache[Route] = RouteCache()
        # Exchange names as published -> exchange, and whether the key alone decides.
        self._sources: dict[bytes, tuple[Exchange, bool]] = {}

    def changed(self) -> None:
        """An exchange, a queue or a binding came or went."""
        self._cache.clear()
        self._sources.clear()

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

    def _resolve(self, method: bytes) -> Route:
        # u16 reserved | short string exchange | short string routing key | bits
        name_end = 3 + method[2]
        name = method[3:name_end]
        source = self._sources.get(name) or self._find_source(name)
        exchange, is_cacheable = source
        key = method[name_end + 1 : -1].decode()
        queues: tuple[ClassicQueue, ...] | None = None
        if is_cacheable and not method[-1] & IMMEDIATE:
            queues = self.router.route(exchange, key, NO_PROPERTIES)  # type: ignore[assignment]
        # The head of a message has the two names as they stand in the method.
        return Route(exchange, key, b"\x00%b\xce" % method[2:-1], method[-1], queues)

    def _find_source(self, raw_name: bytes) -> tuple[Exchange, bool]:
        name = raw_name.decode()
        exchange = self._exchanges.get(name)
        if exchange is None:
            raise NotFound(f"no exchange '{name}' in vhost '{self._vhost_name}'")
        if exchange.internal:
            raise AccessRefused(
                f"cannot publish to internal exchange '{name}' in vhost '{self._vhost_name}'"
            )
        is_cacheable = self.router.is_cacheable(exchange) and not (
            exchange.delays or exchange.deduplication or isinstance(exchange, RecentHistoryExchange)
        )
        source = exchange, is_cacheable
        self._sources[raw_name] = source
        return source
