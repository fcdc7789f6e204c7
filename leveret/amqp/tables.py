"""Field tables with their type letters kept (§4.2.5.5, in RabbitMQ's dialect of the letters)."""

from decimal import Decimal
from typing import NamedTuple, TypeAlias

FieldValue: TypeAlias = (
    "bool | int | float | Decimal | bytes | str | None | Table | list[Field]"
)


class Field(NamedTuple):
    """One value of a field table and the letter that it had on the wire."""

    tag: str
    value: FieldValue


Table: TypeAlias = dict[str, Field]
