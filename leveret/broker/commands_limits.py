"""Commands on the limits of vhosts and users."""

import json
from collections.abc import Callable, Mapping

from leveret.broker.broker import NO_USER_LIMITS, Broker
from leveret.broker.commands_users import find_user
from leveret.broker.commands_vhosts import find_vhost, vhosts_named
from leveret.broker.limits import NO_VHOST, UserLimits, VHostLimits
from leveret.storage.changes import DeleteParameter, PutParameter
from leveret.storage.rows import ParameterRow

VHOST_PARAMETER = "limits"
"""RabbitMQ's name of the one parameter that holds the limits of a vhost."""


def set_vhost_limits(broker: Broker, *, vhost: str, limits: Mapping[str, object]) -> None:
    """Set limits of a vhost; a negative number lifts one. Raises InvalidRequest, NoSuchObject."""
    found = find_vhost(broker, vhost)
    found.limits = VHostLimits.parse({**found.limits.to_dict(), **limits})
    _store(broker, found.limits, found.definitions.vhost_id, VHOST_PARAMETER)


def clear_vhost_limits(broker: Broker, *, vhost: str, name: str | None = None) -> None:
    """Lift one limit of a vhost or all. Raises InvalidRequest, NoSuchObject."""
    set_vhost_limits(broker, vhost=vhost, limits=dict.fromkeys(_names(VHostLimits, name), -1))


def list_vhost_limits(broker: Broker, *, vhost: str | None = None) -> list[dict[str, object]]:
    """The limits of a vhost, or of all vhosts that have any. Raises NoSuchObject."""
    return [
        {"vhost": found.name, "limits": limits}
        for found in vhosts_named(broker, vhost)
        if (limits := found.limits.to_dict())
    ]


def set_user_limits(broker: Broker, *, user: str, limits: Mapping[str, object]) -> None:
    """Set limits of a user; a negative number lifts one. Raises InvalidRequest, NoSuchObject."""
    find_user(broker, user)
    current = broker.user_limits.get(user, NO_USER_LIMITS)
    broker.user_limits[user] = UserLimits.parse({**current.to_dict(), **limits})
    _store(broker, broker.user_limits[user], NO_VHOST, user)


def clear_user_limits(broker: Broker, *, user: str, name: str | None = None) -> None:
    """Lift one limit of a user or all. Raises InvalidRequest, NoSuchObject."""
    set_user_limits(broker, user=user, limits=dict.fromkeys(_names(UserLimits, name), -1))


def list_user_limits(broker: Broker, *, user: str | None = None) -> list[dict[str, object]]:
    """The limits of a user, or of all users that have any. Raises NoSuchObject."""
    if user is not None:
        find_user(broker, user)
    return [
        {"user": name, "limits": values}
        for name, limits in sorted(broker.user_limits.items())
        if user in (None, name) and (values := limits.to_dict())
    ]


def _names(kind: type[VHostLimits | UserLimits], name: str | None) -> tuple[str, ...]:
    return kind.names if name is None else (name,)


def _store(broker: Broker, limits: VHostLimits | UserLimits, vhost_id: int, name: str) -> None:
    values = limits.to_dict()
    if values:
        row = ParameterRow(limits.component, vhost_id, name, json.dumps(values))
        broker.write(PutParameter(row))
    else:
        broker.write(DeleteParameter(limits.component, vhost_id, name))


COMMANDS: dict[str, Callable[..., object]] = {
    "set_vhost_limits": set_vhost_limits,
    "clear_vhost_limits": clear_vhost_limits,
    "list_vhost_limits": list_vhost_limits,
    "set_user_limits": set_user_limits,
    "clear_user_limits": clear_user_limits,
    "list_user_limits": list_user_limits,
}
