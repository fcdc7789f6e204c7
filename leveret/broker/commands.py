"""COMMANDS: what an operator can ask of a running broker, one function for each name.

A function takes the broker and keyword arguments of JSON types, and answers something that JSON
can hold. What it changed is in force when it returns, and on disk once `Broker.wait` says so.
It raises RequestError. A new command is a function in a `commands_*` module and its table.
"""

import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin, get_type_hints

from leveret.broker import (
    commands_delayed,
    commands_limits,
    commands_messages,
    commands_objects,
    commands_policies,
    commands_replay,
    commands_streams,
    commands_users,
    commands_vhosts,
)
from leveret.broker.broker import Broker
from leveret.broker.errors import InvalidRequest

COMMANDS: Mapping[str, Callable[..., object]] = {
    **commands_delayed.COMMANDS,
    **commands_limits.COMMANDS,
    **commands_messages.COMMANDS,
    **commands_objects.COMMANDS,
    **commands_policies.COMMANDS,
    **commands_replay.COMMANDS,
    **commands_streams.COMMANDS,
    **commands_users.COMMANDS,
    **commands_vhosts.COMMANDS,
}


def run_command(broker: Broker, name: str, arguments: Mapping[str, object]) -> object:
    """Run the command called *name* with *arguments* as JSON had them. Raises RequestError."""
    command = COMMANDS.get(name)
    if command is None:
        raise InvalidRequest(f"unknown command '{name}'")
    _check(name, command, arguments)
    return command(broker, **arguments)


def _check(name: str, command: Callable[..., object], arguments: Mapping[str, object]) -> None:
    """Compare *arguments* with the signature of *command*."""
    parameters = dict(inspect.signature(command).parameters)
    del parameters["broker"]
    for unknown in arguments.keys() - parameters.keys():
        raise InvalidRequest(f"{name}: unknown argument '{unknown}'")
    hints = get_type_hints(command)
    for parameter in parameters.values():
        if parameter.name not in arguments:
            if parameter.default is parameter.empty:
                raise InvalidRequest(f"{name}: argument '{parameter.name}' is missing")
        elif not _fits(arguments[parameter.name], hints[parameter.name]):
            raise InvalidRequest(f"{name}: argument '{parameter.name}' is of another type")


def _fits(value: object, hint: Any) -> bool:
    if isinstance(hint, types.UnionType):
        return any(_fits(value, choice) for choice in get_args(hint))
    if get_origin(hint) is list:
        return isinstance(value, list) and all(_fits(item, get_args(hint)[0]) for item in value)
    expected = get_origin(hint) or hint
    return isinstance(value, expected) and not (expected is int and isinstance(value, bool))
