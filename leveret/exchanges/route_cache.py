"""RouteCache: publishers repeat themselves, so a route is found once and remembered.

Two generations: what is used moves to the young one, and when that is full it becomes the old one
and the former old one is dropped. Keys that come once (an order number as routing key) pass
through; a key that is used at least once in a while stays.
"""

from typing import Generic, TypeVar

Route = TypeVar("Route")


class RouteCache(Generic[Route]):
    """Bytes of a publish -> route; at most twice *limit* entries."""

    __slots__ = ("_limit", "_old", "_young")

    def __init__(self, limit: int = 2048) -> None:
        self._limit = limit
        self._young: dict[bytes, Route] = {}
        self._old: dict[bytes, Route] = {}

    def get(self, key: bytes) -> Route | None:
        """The route remembered for *key*."""
        route = self._young.get(key)
        if route is None:
            route = self._old.pop(key, None)
            if route is not None:
                self.put(key, route)
        return route

    def get_each(self, keys: list[bytes]) -> list[Route | None]:
        """The routes of the young generation for *keys*; None for others, which `get` may find."""
        return list(map(self._young.get, keys))

    def put(self, key: bytes, route: Route) -> None:
        """Remember *route* for *key*."""
        if len(self._young) >= self._limit:
            self._old = self._young
            self._young = {}
        self._young[key] = route

    def clear(self) -> None:
        """A binding, exchange, queue or permission has changed."""
        self._young.clear()
        self._old.clear()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)
