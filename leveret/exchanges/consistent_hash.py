"""Consistent hash exchange: each message goes to one destination, equal keys to the same one.

The key of a binding is the weight of its destination; bindings to one destination add up. Hashed is
the routing key of the message or, as the arguments of the exchange say, a header or a property.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.properties import PropertyView
from leveret.amqp.tables import FieldValue, plain_value
from leveret.exchanges.arguments import text_argument
from leveret.exchanges.binding import Binding
from leveret.exchanges.destination import Destination
from leveret.exchanges.erlang import as_erlang
from leveret.exchanges.exchange import Exchange
from leveret.exchanges.rendezvous import RendezvousHash

HASH_HEADER = "hash-header"
HASH_PROPERTY = "hash-property"
HASH_PROPERTIES = ("correlation_id", "message_id", "timestamp")

_INTEGER = re.compile(r"[+-]?[0-9]+")


@dataclass(eq=False)
class ConsistentHashExchange(Exchange):
    """Routes by a hash: see the module."""

    type_name = "x-consistent-hash"
    compared_arguments = (*Exchange.compared_arguments, HASH_HEADER, HASH_PROPERTY)
    picks_one = True

    _hash: RendezvousHash[Destination] = field(
        init=False, repr=False, default_factory=RendezvousHash
    )
    _hashed_value: Callable[[PropertyView], object] | None = field(
        init=False, repr=False, default=None
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        header = text_argument(self.arguments, HASH_HEADER, self)
        hash_property = text_argument(self.arguments, HASH_PROPERTY, self)
        if header is not None and hash_property is not None:
            raise PreconditionFailed(f"{HASH_HEADER} and {HASH_PROPERTY} are mutually exclusive")
        if header is not None:
            self._hashed_value = _header_reader(header)
        if hash_property is not None:
            if hash_property not in HASH_PROPERTIES:
                raise PreconditionFailed(f"Unsupported property: {hash_property}")
            self._hashed_value = _property_reader(hash_property)

    @property
    def uses_properties(self) -> bool:
        """Whether a header or a property is hashed instead of the routing key."""
        return self._hashed_value is not None

    def destinations(self, routing_key: str, properties: PropertyView) -> Collection[Destination]:
        """The one destination for the hashed value, if there is any."""
        value = routing_key if self._hashed_value is None else self._hashed_value(properties)
        owner = self._hash.owner(_as_key(value))
        return () if owner is None else (owner,)

    def bind(self, binding: Binding) -> bool:
        """Add *binding*; False if it was there already.

        Raises PreconditionFailed unless its key is an integer above zero.
        """
        weight = _weight(binding)
        if not super().bind(binding):
            return False
        # A queue and an exchange may share a name.
        kind = "exchange" if isinstance(binding.destination, Exchange) else "queue"
        self._hash.add(binding.destination, f"{kind} {binding.destination.name}", weight)
        return True

    def unbind(self, binding: Binding) -> bool:
        """Remove the binding equal to *binding*; False if there was none."""
        if not super().unbind(binding):
            return False
        self._hash.remove(binding.destination, _weight(binding))
        return True


def _weight(binding: Binding) -> int:
    key = binding.routing_key
    if _INTEGER.fullmatch(key) is None:
        raise PreconditionFailed(f"The binding key must be an integer: {as_erlang(key)}")
    weight = int(key)
    if weight < 1:
        raise PreconditionFailed("The binding key must be greater than 0")
    return weight


def _header_reader(name: str) -> Callable[[PropertyView], object]:
    def read(properties: PropertyView) -> object:
        header = (properties.headers or {}).get(name)
        return None if header is None else plain_value(header)

    return read


def _property_reader(name: str) -> Callable[[PropertyView], object]:
    def read(properties: PropertyView) -> object:
        value: FieldValue = getattr(properties, name)
        return value

    return read


def _as_key(value: object) -> bytes:
    """What is hashed of a value: text as it is, the others as Python writes them, none as empty."""
    if isinstance(value, bytes):
        return value
    return b"" if value is None else str(value).encode()
