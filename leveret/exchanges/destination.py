"""Destination: what a binding can lead to."""

from typing import Protocol


class Destination(Protocol):
    """What a binding can lead to: a queue or an exchange.

    Two destinations are the same only if they are the same object, so a class of destinations
    leaves `__eq__` and `__hash__` as they are.
    """

    @property
    def name(self) -> str:
        """The name in its vhost; a queue and an exchange may share it."""
