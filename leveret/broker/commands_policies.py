"""Commands on policies and operator policies."""

from collections.abc import Callable, Mapping

from leveret.broker.broker import DEFAULT_VHOST, Broker
from leveret.broker.commands_vhosts import find_vhost, vhosts_named
from leveret.broker.errors import NoSuchObject
from leveret.broker.policies import Policy
from leveret.storage.changes import DeletePolicy, PutPolicy


def set_policy(
    broker: Broker,
    *,
    name: str,
    pattern: str,
    definition: Mapping[str, object],
    vhost: str = DEFAULT_VHOST,
    priority: int = 0,
    apply_to: str = "all",
) -> None:
    """Set a policy; it acts at once. Raises InvalidRequest, NoSuchObject."""
    policy = Policy.parse(name, pattern, definition, apply_to=apply_to, priority=priority)
    _set(broker, vhost, policy)


def set_operator_policy(
    broker: Broker,
    *,
    name: str,
    pattern: str,
    definition: Mapping[str, object],
    vhost: str = DEFAULT_VHOST,
    priority: int = 0,
    apply_to: str = "all",
) -> None:
    """Set an operator policy; it acts at once. Raises InvalidRequest, NoSuchObject."""
    policy = Policy.parse(
        name, pattern, definition, apply_to=apply_to, priority=priority, is_operator=True
    )
    _set(broker, vhost, policy)


def clear_policy(broker: Broker, *, name: str, vhost: str = DEFAULT_VHOST) -> None:
    """Remove a policy; what it did ends at once. Raises NoSuchObject."""
    _clear(broker, vhost, name, is_operator=False)


def clear_operator_policy(broker: Broker, *, name: str, vhost: str = DEFAULT_VHOST) -> None:
    """Remove an operator policy; what it did ends at once. Raises NoSuchObject."""
    _clear(broker, vhost, name, is_operator=True)


def list_policies(broker: Broker, *, vhost: str | None = None) -> list[dict[str, object]]:
    """The policies of a vhost or of all, the one that comes first on top."""
    return _list(broker, vhost, is_operator=False)


def list_operator_policies(broker: Broker, *, vhost: str | None = None) -> list[dict[str, object]]:
    """The operator policies of a vhost or of all, the one that comes first on top."""
    return _list(broker, vhost, is_operator=True)


def _set(broker: Broker, vhost_name: str, policy: Policy) -> None:
    vhost = find_vhost(broker, vhost_name)
    vhost.definitions.write(PutPolicy(policy.to_row(vhost.definitions.vhost_id)))
    vhost.use_policies(vhost.policies.with_policy(policy))


def _clear(broker: Broker, vhost_name: str, name: str, *, is_operator: bool) -> None:
    vhost = find_vhost(broker, vhost_name)
    if vhost.policies.find(name, is_operator=is_operator) is None:
        kind = "operator policy" if is_operator else "policy"
        raise NoSuchObject(f"{kind} '{name}' does not exist in vhost '{vhost_name}'")
    vhost.definitions.write(DeletePolicy(vhost.definitions.vhost_id, name, is_operator))
    vhost.use_policies(vhost.policies.without(name, is_operator=is_operator))


def _list(broker: Broker, vhost_name: str | None, *, is_operator: bool) -> list[dict[str, object]]:
    return [
        {
            "vhost": vhost.name,
            "name": policy.name,
            "pattern": policy.pattern.pattern,
            "apply-to": policy.apply_to.value,
            "definition": policy.definition,
            "priority": policy.priority,
        }
        for vhost in vhosts_named(broker, vhost_name)
        for policy in vhost.policies
        if policy.is_operator is is_operator
    ]


COMMANDS: dict[str, Callable[..., object]] = {
    "set_policy": set_policy,
    "clear_policy": clear_policy,
    "list_policies": list_policies,
    "set_operator_policy": set_operator_policy,
    "clear_operator_policy": clear_operator_policy,
    "list_operator_policies": list_operator_policies,
}
