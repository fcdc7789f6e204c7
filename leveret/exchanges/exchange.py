"""Exchange: takes messages and says which queues and exchanges they go to (§3.1.2)."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.tables import Table, type_name
from leveret.exchanges.binding import Binding
from leveret.exchanges.destination import Destination
from leveret.exchanges.destination_set import DestinationSet

ALTERNATE_EXCHANGE = "alternate-exchange"


@dataclass(eq=False)
class Exchange(ABC):
    """A routing rule with its bindings; each type of exchange is a subclass.

    `alternate_exchange` names the exchange that gets what this one routes nowhere.
    `exchange_destinations` are those of its destinations that are exchanges.
    """

    type_name: ClassVar[str]
    uses_headers: ClassVar[bool] = False

    name: str
    _: KW_ONLY
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    arguments: Table = field(default_factory=dict)
    alternate_exchange: str | None = field(init=False, default=None)
    bindings_by_destination: dict[Destination, dict[Binding, None]] = field(
        init=False, repr=False, default_factory=dict
    )
    exchange_destinations: "DestinationSet[Exchange]" = field(
        init=False, repr=False, default_factory=DestinationSet
    )

    def __post_init__(self) -> None:
        alternate = self.arguments.get(ALTERNATE_EXCHANGE)
        if alternate is not None and isinstance(alternate.value, str):
            self.alternate_exchange = alternate.value

    @abstractmethod
    def destinations(self, routing_key: str, headers: Table) -> Collection[Destination]:
        """Where a message goes, each destination once.

        The answer may be the stored collection itself: valid until the next bind or unbind.
        """

    def bind(self, binding: Binding) -> bool:
        """Add *binding*; False if it was there already.

        Raises PreconditionFailed for arguments that the type of this exchange refuses.
        """
        bindings = self.bindings_by_destination.setdefault(binding.destination, {})
        if binding in bindings:
            return False
        bindings[binding] = None
        if isinstance(binding.destination, Exchange):
            self.exchange_destinations.add(binding.destination)
        return True

    def unbind(self, binding: Binding) -> bool:
        """Remove the binding equal to *binding*; False if there was none."""
        bindings = self.bindings_by_destination.get(binding.destination)
        if bindings is None or binding not in bindings:
            return False
        del bindings[binding]
        if not bindings:
            del self.bindings_by_destination[binding.destination]
        if isinstance(binding.destination, Exchange):
            self.exchange_destinations.remove(binding.destination)
        return True

    def unbind_destination(self, destination: Destination) -> list[Binding]:
        """Remove and return all bindings to *destination*, at a cost of their number only."""
        bindings = list(self.bindings_by_destination.get(destination, ()))
        for binding in bindings:
            self.unbind(binding)
        return bindings

    def bindings(self) -> Iterator[Binding]:
        """All bindings, those to one destination together."""
        for bindings in self.bindings_by_destination.values():
            yield from bindings

    @property
    def has_bindings(self) -> bool:
        """Whether anything is bound to this exchange as its source."""
        return bool(self.bindings_by_destination)


def check_arguments(name: str, vhost: str, arguments: Table) -> None:
    """Check the arguments of a declared exchange.

    Raises PreconditionFailed if the alternate exchange is not named by a string.
    """
    alternate = arguments.get(ALTERNATE_EXCHANGE)
    if alternate is not None and alternate.tag != "S":
        raise PreconditionFailed(
            f"invalid type '{type_name(alternate)}' for arg '{ALTERNATE_EXCHANGE}' "
            f"in exchange '{name}' in vhost '{vhost}'"
        )
