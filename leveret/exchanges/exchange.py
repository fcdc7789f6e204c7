"""Exchange: takes messages and says which queues and exchanges they go to (§3.1.2)."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

from leveret.amqp.equivalence import inequivalent
from leveret.amqp.properties import PropertyView
from leveret.amqp.tables import Table
from leveret.exchanges.arguments import flag_argument, text_argument
from leveret.exchanges.binding import Binding, canonical_field
from leveret.exchanges.deduplication import (
    CACHE_SIZE,
    CACHE_TTL,
    DEDUPLICATION,
    DEDUPLICATION_HEADER,
    DeduplicationArguments,
)
from leveret.exchanges.destination import Destination
from leveret.exchanges.destination_set import DestinationSet

ALTERNATE_EXCHANGE = "alternate-exchange"
X_ALTERNATE_EXCHANGE = "x-alternate-exchange"
"""The same as LavinMQ spells it."""
DELAYS = "x-delayed-exchange"


@dataclass(eq=False)
class Exchange(ABC):
    """A routing rule with its bindings; each type of exchange is a subclass.

    `alternate_exchange` names the exchange that gets what this one routes nowhere.
    `delays` says that messages are held here for the time that their header `x-delay` asks for,
    `deduplication` that messages which came before are dropped. `exchange_destinations` are those
    of its destinations that are exchanges.
    Raises PreconditionFailed for arguments that do not fit.
    """

    type_name: ClassVar[str]
    compared_arguments: ClassVar[tuple[str, ...]] = (
        ALTERNATE_EXCHANGE,
        X_ALTERNATE_EXCHANGE,
        DELAYS,
        DEDUPLICATION,
        CACHE_SIZE,
        CACHE_TTL,
        DEDUPLICATION_HEADER,
    )
    """The arguments that must be the same when an exchange is declared again."""

    name: str
    _: KW_ONLY
    vhost_name: str = "/"
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    arguments: Table = field(default_factory=dict)
    alternate_exchange: str | None = field(init=False, default=None)
    delays: bool = field(init=False, default=False)
    deduplication: DeduplicationArguments | None = field(init=False, default=None)
    bindings_by_destination: dict[Destination, dict[Binding, None]] = field(
        init=False, repr=False, default_factory=dict
    )
    exchange_destinations: "DestinationSet[Exchange]" = field(
        init=False, repr=False, default_factory=DestinationSet
    )
    _ordered_bindings: list[Binding] | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        for name in (X_ALTERNATE_EXCHANGE, ALTERNATE_EXCHANGE):
            if name in self.arguments:
                self.alternate_exchange = text_argument(self.arguments, name, self)
        self.delays = flag_argument(self.arguments, DELAYS, self)
        self.deduplication = DeduplicationArguments.asked_for(self.arguments, self)

    def __str__(self) -> str:
        """As the texts of errors name it."""
        return f"exchange '{self.name}' in vhost '{self.vhost_name}'"

    @property
    def uses_properties(self) -> bool:
        """Whether the destinations may differ between messages of one routing key."""
        return False

    @property
    def picks_one(self) -> bool:
        """Whether a message goes to one destination only: its first routing key decides."""
        return False

    def check_equivalent(self, received: "Exchange") -> None:
        """Raise PreconditionFailed unless *received* was declared as this exchange was."""
        for key in ("type_name", "durable", "auto_delete", "internal"):
            ours, theirs = getattr(self, key), getattr(received, key)
            if ours != theirs:
                raise inequivalent(key.removesuffix("_name"), self, theirs, ours)
        for key in self.compared_arguments:
            current, other = self.arguments.get(key), received.arguments.get(key)
            if canonical_field(current) != canonical_field(other):
                raise inequivalent(key, self, other, current)

    @abstractmethod
    def destinations(self, routing_key: str, properties: PropertyView) -> Collection[Destination]:
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
        self._ordered_bindings = None
        if isinstance(binding.destination, Exchange):
            self.exchange_destinations.add(binding.destination)
        return True

    def unbind(self, binding: Binding) -> bool:
        """Remove the binding equal to *binding*; False if there was none."""
        bindings = self.bindings_by_destination.get(binding.destination)
        if bindings is None or binding not in bindings:
            return False
        del bindings[binding]
        self._ordered_bindings = None
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

    def ordered_bindings(self) -> list[Binding]:
        """All bindings, in an order that does not depend on when they were made.

        The answer is the stored list itself: valid until the next bind or unbind.
        """
        if self._ordered_bindings is None:
            self._ordered_bindings = sorted(self.bindings(), key=_rank)
        return self._ordered_bindings

    @property
    def has_bindings(self) -> bool:
        """Whether anything is bound to this exchange as its source."""
        return bool(self.bindings_by_destination)


def _rank(binding: Binding) -> tuple[str, bool, str]:
    destination = binding.destination
    return destination.name, isinstance(destination, Exchange), binding.routing_key
