"""Random exchanges: each message goes through one binding, whatever its routing key."""

import random
from collections.abc import Collection, Sequence

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.properties import PropertyView
from leveret.exchanges.binding import Binding
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange import Exchange


class RandomExchange(Exchange):
    """Routes through a binding chosen at random for each message."""

    type_name = "x-random"
    picks_one = True
    uses_properties = True

    def destinations(self, routing_key: str, properties: PropertyView) -> Collection[Destination]:
        """The destination of any one binding."""
        return _choose(self.ordered_bindings())


class LocalRandomExchange(Exchange):
    """A random exchange for queues of this node: they all are, but its bindings are restricted."""

    type_name = "x-local-random"
    picks_one = True
    uses_properties = True

    def destinations(self, routing_key: str, properties: PropertyView) -> Collection[Destination]:
        """The queue of any one binding."""
        return _choose(self.ordered_bindings())

    def bind(self, binding: Binding) -> bool:
        """Add *binding*; False if it was there already.

        Raises PreconditionFailed for a routing key and for a destination that is no queue.
        """
        if binding.routing_key:
            raise PreconditionFailed(f"Non empty binding '{binding.routing_key}' key not permitted")
        if isinstance(binding.destination, Exchange):
            raise PreconditionFailed("Destination not found")
        return super().bind(binding)


def _choose(bindings: Sequence[Binding]) -> Collection[Destination]:
    return (random.choice(bindings).destination,) if bindings else ()
