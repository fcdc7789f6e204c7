"""Topic exchange: the routing key matches the pattern of the binding (§3.1.3.3)."""

from collections.abc import Collection
from dataclasses import dataclass, field

from leveret.amqp.properties import PropertyView
from leveret.exchanges.binding import Binding
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange import Exchange
from leveret.exchanges.topic_trie import TopicTrie


@dataclass(eq=False)
class TopicExchange(Exchange):
    """Routes by patterns of words, through a trie."""

    type_name = "topic"

    _trie: TopicTrie[Destination] = field(init=False, repr=False, default_factory=TopicTrie)

    def destinations(self, routing_key: str, properties: PropertyView) -> Collection[Destination]:
        """Destinations bound with a pattern that matches *routing_key*."""
        return self._trie.match(routing_key)

    def bind(self, binding: Binding) -> bool:
        """Add *binding*; False if it was there already."""
        if not super().bind(binding):
            return False
        self._trie.add(binding.routing_key, binding.destination)
        return True

    def unbind(self, binding: Binding) -> bool:
        """Remove the binding equal to *binding*; False if there was none."""
        if not super().unbind(binding):
            return False
        self._trie.remove(binding.routing_key, binding.destination)
        return True
