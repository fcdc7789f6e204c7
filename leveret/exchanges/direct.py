"""Direct exchange: the routing key equals the key of the binding (§3.1.3.1)."""

from collections.abc import Collection
from dataclasses import dataclass, field

from leveret.amqp.properties import PropertyView
from leveret.exchanges.binding import Binding
from leveret.exchanges.destination import Destination
from leveret.exchanges.destination_set import DestinationSet
from leveret.exchanges.exchange import Exchange


@dataclass(eq=False)
class DirectExchange(Exchange):
    """Routes by equality, through a dict from key to destinations."""

    type_name = "direct"

    _by_key: dict[str, DestinationSet[Destination]] = field(
        init=False, repr=False, default_factory=dict
    )

    def destinations(self, routing_key: str, properties: PropertyView) -> Collection[Destination]:
        """Destinations bound with *routing_key*."""
        return self._by_key.get(routing_key, ())

    def bind(self, binding: Binding) -> bool:
        """Add *binding*; False if it was there already."""
        if not super().bind(binding):
            return False
        self._by_key.setdefault(binding.routing_key, DestinationSet()).add(binding.destination)
        return True

    def unbind(self, binding: Binding) -> bool:
        """Remove the binding equal to *binding*; False if there was none."""
        if not super().unbind(binding):
            return False
        destinations = self._by_key[binding.routing_key]
        destinations.remove(binding.destination)
        if not destinations:
            del self._by_key[binding.routing_key]
        return True
