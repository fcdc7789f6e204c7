"""Arguments of a declared exchange, each checked for its type.

*owner* is the exchange as the texts of errors name it. All functions raise PreconditionFailed.
"""

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.tables import INTEGER_TAGS, Field, Table, type_name


def text_argument(arguments: Table, name: str, owner: object) -> str | None:
    """The text called *name*, None if it is missing."""
    argument = arguments.get(name)
    if argument is None:
        return None
    if not isinstance(argument.value, str):
        raise _invalid_type(argument, name, owner)
    return argument.value


def flag_argument(arguments: Table, name: str, owner: object) -> bool:
    """The boolean called *name*, False if it is missing."""
    argument = arguments.get(name)
    if argument is None:
        return False
    if argument.tag != "t":
        raise _invalid_type(argument, name, owner)
    return bool(argument.value)


def positive_integer(argument: Field) -> int | None:
    """The value of *argument* if it is an integer above zero, None if it is anything else."""
    if argument.tag not in INTEGER_TAGS:
        return None
    assert isinstance(argument.value, int)
    return argument.value if argument.value > 0 else None


def _invalid_type(argument: Field, name: str, owner: object) -> PreconditionFailed:
    return PreconditionFailed(f"invalid type '{type_name(argument)}' for arg '{name}' in {owner}")
