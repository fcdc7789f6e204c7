"""Destination set: where a routing key leads, with the number of bindings that lead there."""

from typing import TypeVar

T = TypeVar("T")


class DestinationSet(dict[T, int]):
    """Destinations in the order they were first bound, each mapped to its number of bindings.

    Bindings that differ only in their arguments lead to one destination by one key; it stays
    until the last of them is gone.
    """

    __slots__ = ()

    def add(self, destination: T) -> None:
        """Count one more binding to *destination*."""
        self[destination] = self.get(destination, 0) + 1

    def remove(self, destination: T) -> None:
        """Count one binding less; raises KeyError if there was none."""
        count = self.pop(destination) - 1
        if count:
            self[destination] = count
