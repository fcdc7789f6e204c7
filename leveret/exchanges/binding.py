"""Binding: a rule that leads messages from an exchange to a queue or another exchange."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from leveret.amqp.tables import INTEGER_TAGS, Field, Table
from leveret.exchanges.destination import Destination


@dataclass(frozen=True, slots=True)
class Binding:
    """Source, destination, routing key and arguments.

    Bindings that agree in all four are one binding: the order of the arguments does not count,
    nor does the width of an integer, which client libraries choose by its value.
    """

    source: str
    destination: Destination
    routing_key: str
    arguments: Table = field(default_factory=dict, compare=False)
    canonical_arguments: Hashable = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "canonical_arguments", _canonical_table(self.arguments))


def _canonical_table(table: Table) -> Hashable:
    return frozenset((key, canonical_field(value)) for key, value in table.items())


def canonical_field(item: Field | None) -> Hashable:
    """Return what is equal for equal fields, whatever the widths of their integers."""
    if item is None:
        return None
    # The tag stays in, as Python takes True, 1 and 1.0 for equal.
    tag, value = item
    if isinstance(value, dict):
        return tag, _canonical_table(value)
    if isinstance(value, list):
        return tag, tuple(canonical_field(element) for element in value)
    return ("l" if tag in INTEGER_TAGS else tag), value
