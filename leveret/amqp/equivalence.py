"""Equivalence: what a declare is told that differs from the one before, in RabbitMQ's words."""

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.tables import Field, type_name


def inequivalent(
    argument: str, what: object, received: object, current: object
) -> PreconditionFailed:
    """The error for a flag or an argument of *what* that differs.

    An argument is a Field, None if it is missing; its type is told only if the other is missing.
    """
    if isinstance(received, Field) and isinstance(current, Field):
        received, current = received.value, current.value
    return PreconditionFailed(
        f"inequivalent arg '{argument}' for {what}: "
        f"received {_described(received)} but current is {_described(current)}"
    )


def _described(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, Field):
        return f"the value {_described(value.value)} of type '{type_name(value)}'"
    if isinstance(value, bool):
        return f"'{str(value).lower()}'"
    return f"'{value.decode('utf-8', 'replace') if isinstance(value, bytes) else value}'"
