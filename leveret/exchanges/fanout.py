"""Fanout exchange: every binding matches (§3.1.3.2)."""

from collections.abc import Collection

from leveret.amqp.properties import PropertyView
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange import Exchange


class FanoutExchange(Exchange):
    """Routes to all that is bound, whatever the key."""

    type_name = "fanout"

    def destinations(self, routing_key: str, properties: PropertyView) -> Collection[Destination]:
        """All destinations."""
        return self.bindings_by_destination
