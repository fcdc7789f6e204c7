"""Default exchange: the routing key is the name of a queue (§3.1.3.1, the nameless exchange)."""

from collections.abc import Collection, Mapping

from leveret.amqp.errors import AccessRefused
from leveret.amqp.properties import PropertyView
from leveret.exchanges.binding import Binding
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange import Exchange


class DefaultExchange(Exchange):
    """Every queue is bound to it by its name, and nothing else can be."""

    type_name = "direct"

    def __init__(self, queues: Mapping[str, Destination]) -> None:
        super().__init__("", durable=True)
        self._queues = queues

    def destinations(self, routing_key: str, properties: PropertyView) -> Collection[Destination]:
        """The queue named *routing_key*, if there is one."""
        queue = self._queues.get(routing_key)
        return () if queue is None else (queue,)

    def bind(self, binding: Binding) -> bool:
        """Raises AccessRefused."""
        raise AccessRefused("operation not permitted on the default exchange")

    def unbind(self, binding: Binding) -> bool:
        """Raises AccessRefused."""
        raise AccessRefused("operation not permitted on the default exchange")
