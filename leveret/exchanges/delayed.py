"""Delayed exchange: holds messages for the time they ask for, then routes as another type does."""

from collections.abc import Collection
from dataclasses import dataclass, field

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.properties import PropertyView
from leveret.exchanges.binding import Binding
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange import Exchange
from leveret.exchanges.immediate_types import IMMEDIATE_TYPES

DELAYED_TYPE = "x-delayed-type"


@dataclass(eq=False)
class DelayedExchange(Exchange):
    """Routes as `inner` does, an exchange of the type that `x-delayed-type` names.

    The holding itself is the broker's, who sees that this exchange `delays`.
    """

    type_name = "x-delayed-message"
    compared_arguments = (*Exchange.compared_arguments, DELAYED_TYPE)

    inner: Exchange = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        argument = self.arguments.get(DELAYED_TYPE)
        inner_type = None if argument is None else IMMEDIATE_TYPES.get(str(argument.value))
        if inner_type is None:
            raise PreconditionFailed(
                f"Invalid argument, '{DELAYED_TYPE}' must be an existing exchange type"
            )
        self.inner = inner_type(self.name, vhost_name=self.vhost_name, arguments=self.arguments)
        self.delays = True
        self.deduplication = self.inner.deduplication
        # The same objects: what is bound to the one is bound to the other.
        self.bindings_by_destination = self.inner.bindings_by_destination
        self.exchange_destinations = self.inner.exchange_destinations

    @property
    def uses_properties(self) -> bool:
        """As for the inner exchange."""
        return self.inner.uses_properties

    @property
    def picks_one(self) -> bool:
        """As for the inner exchange."""
        return self.inner.picks_one

    def check_equivalent(self, received: Exchange) -> None:
        """Raise PreconditionFailed unless *received* was declared as this exchange was."""
        super().check_equivalent(received)
        assert isinstance(received, DelayedExchange)
        self.inner.check_equivalent(received.inner)

    def destinations(self, routing_key: str, properties: PropertyView) -> Collection[Destination]:
        """Where the inner exchange routes a message once its time has come."""
        return self.inner.destinations(routing_key, properties)

    def bind(self, binding: Binding) -> bool:
        """Add *binding*; False if it was there already.

        Raises PreconditionFailed for arguments that the inner exchange refuses.
        """
        return self.inner.bind(binding)

    def unbind(self, binding: Binding) -> bool:
        """Remove the binding equal to *binding*; False if there was none."""
        return self.inner.unbind(binding)
