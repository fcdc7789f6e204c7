"""Commands on users and their permissions."""

from collections.abc import Callable
from dataclasses import replace

from leveret.broker.broker import DEFAULT_VHOST, Broker
from leveret.broker.commands_vhosts import find_vhost
from leveret.broker.errors import AlreadyExists, InvalidRequest, NoSuchObject
from leveret.broker.limits import NO_VHOST, UserLimits
from leveret.broker.permissions import Access, Permissions
from leveret.broker.users import User
from leveret.storage.changes import (
    DeleteParameter,
    DeletePermission,
    DeleteUser,
    PutPermission,
    PutUser,
)
from leveret.storage.rows import PermissionRow


def add_user(broker: Broker, *, name: str, password: str, tags: list[str] | None = None) -> None:
    """Make a user, who still needs permissions. Raises InvalidRequest, AlreadyExists."""
    if not name:
        raise InvalidRequest("a user needs a name")
    if name in broker.users:
        raise AlreadyExists(f"user '{name}' already exists")
    _check_password(password)
    _put(broker, User.with_password(name, password, _checked_tags(tags or [])))


def delete_user(broker: Broker, *, name: str) -> None:
    """Remove a user with permissions and limits; closes the connections. Raises NoSuchObject."""
    find_user(broker, name)
    for client in broker.connections.of_user(name):
        client.close(f"user '{name}' was deleted")
    broker.users.delete(name)
    for user_name, vhost_name in list(broker.permissions):
        if user_name == name:
            del broker.permissions[user_name, vhost_name]
    if broker.user_limits.pop(name, None) is not None:
        broker.write(DeleteParameter(UserLimits.component, NO_VHOST, name))
    broker.write(DeleteUser(name))


def list_users(broker: Broker) -> list[dict[str, object]]:
    """The users and their tags."""
    return [
        {"user": user.name, "tags": list(user.tags)}
        for user in sorted(broker.users, key=lambda user: user.name)
    ]


def change_password(broker: Broker, *, name: str, password: str) -> None:
    """Give a user another password; connections stay. Raises InvalidRequest, NoSuchObject."""
    user = find_user(broker, name)
    _check_password(password)
    _put(broker, User.with_password(name, password, user.tags))


def set_user_tags(broker: Broker, *, name: str, tags: list[str]) -> None:
    """Replace the tags of a user. Raises InvalidRequest, NoSuchObject."""
    _put(broker, replace(find_user(broker, name), tags=_checked_tags(tags)))


def set_permissions(
    broker: Broker,
    *,
    user: str,
    configure: str,
    write: str,
    read: str,
    vhost: str = DEFAULT_VHOST,
) -> None:
    """Say what a user may do in a vhost; acts on open connections. Raises as the others do."""
    find_user(broker, user)
    vhost_id = find_vhost(broker, vhost).definitions.vhost_id
    permissions = broker.permissions.get((user, vhost))
    if permissions is None:
        permissions = Permissions(user, vhost, configure, write, read)
        broker.permissions[user, vhost] = permissions
    else:
        permissions.set(configure, write, read)
    broker.write(PutPermission(PermissionRow(user, vhost_id, configure, write, read)))


def clear_permissions(broker: Broker, *, user: str, vhost: str = DEFAULT_VHOST) -> None:
    """Shut a user out of a vhost; open connections may do nothing more. Raises NoSuchObject."""
    find_user(broker, user)
    vhost_id = find_vhost(broker, vhost).definitions.vhost_id
    permissions = broker.permissions.pop((user, vhost), None)
    if permissions is not None:
        permissions.clear()
        broker.write(DeletePermission(user, vhost_id))


def list_permissions(
    broker: Broker, *, user: str | None = None, vhost: str | None = None
) -> list[dict[str, object]]:
    """Who may do what, all of it or that of a user or in a vhost. Raises NoSuchObject."""
    if user is not None:
        find_user(broker, user)
    if vhost is not None:
        find_vhost(broker, vhost)
    return [
        {
            "user": user_name,
            "vhost": vhost_name,
            **{access.value: permissions.patterns[access] for access in Access},
        }
        for (user_name, vhost_name), permissions in sorted(
            broker.permissions.items(), key=lambda item: item[0]
        )
        if user in (None, user_name) and vhost in (None, vhost_name)
    ]


def find_user(broker: Broker, name: str) -> User:
    """The user called *name*. Raises NoSuchObject."""
    user = broker.users.get(name)
    if user is None:
        raise NoSuchObject(f"user '{name}' does not exist")
    return user


def _put(broker: Broker, user: User) -> None:
    broker.users.add(user)
    broker.write(PutUser(user.to_row()))


def _check_password(password: str) -> None:
    if not password:
        raise InvalidRequest("a user needs a password")


def _checked_tags(tags: list[str]) -> tuple[str, ...]:
    for tag in tags:
        if not tag or "," in tag:
            raise InvalidRequest(f"'{tag}' cannot be a tag")
    return tuple(tags)


COMMANDS: dict[str, Callable[..., object]] = {
    "add_user": add_user,
    "delete_user": delete_user,
    "list_users": list_users,
    "change_password": change_password,
    "set_user_tags": set_user_tags,
    "set_permissions": set_permissions,
    "clear_permissions": clear_permissions,
    "list_permissions": list_permissions,
}
