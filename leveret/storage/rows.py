"""Rows of the metadata: what is stored of vhosts, users, exchanges, queues, bindings and policies.

Field tables (`arguments`) are bytes and JSON is text here: read by the layers above.
"""

from dataclasses import dataclass, fields
from typing import TypeAlias, TypeVar


@dataclass(frozen=True, slots=True)
class VHostRow:
    """A virtual host. Its id names its directory and is never used again."""

    id: int
    name: str


@dataclass(frozen=True, slots=True)
class ExchangeRow:
    """An exchange, identified by vhost and name."""

    vhost_id: int
    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: bytes = b""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue. Its id names its directory and is never used again; its name may be."""

    id: int
    vhost_id: int
    name: str
    type: str
    durable: bool
    auto_delete: bool
    exclusive: bool = False
    arguments: bytes = b""


@dataclass(frozen=True, slots=True)
class BindingRow:
    """A binding, identified by all of its fields. `destination_type` is "queue" or "exchange"."""

    vhost_id: int
    source: str
    destination: str
    destination_type: str
    routing_key: str
    arguments: bytes = b""


@dataclass(frozen=True, slots=True)
class UserRow:
    """A user. `tags` are joined by commas."""

    name: str
    password_hash: str
    hashing_algorithm: str
    tags: str


@dataclass(frozen=True, slots=True)
class PermissionRow:
    """The patterns of names in a vhost that a user may configure, write and read."""

    user: str
    vhost_id: int
    configure: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A policy, identified by vhost, name and whether it is an operator's. `definition` is JSON."""

    vhost_id: int
    name: str
    is_operator: bool
    pattern: str
    apply_to: str
    priority: int
    definition: str


@dataclass(frozen=True, slots=True)
class ParameterRow:
    """Something set at run time, identified by component, vhost (0 for none) and name.

    `value` is JSON.
    """

    component: str
    vhost_id: int
    name: str
    value: str


Row: TypeAlias = (
    VHostRow
    | ExchangeRow
    | QueueRow
    | BindingRow
    | UserRow
    | PermissionRow
    | PolicyRow
    | ParameterRow
)
RowT = TypeVar(
    "RowT",
    VHostRow,
    ExchangeRow,
    QueueRow,
    BindingRow,
    UserRow,
    PermissionRow,
    PolicyRow,
    ParameterRow,
)

TABLES: dict[type[Row], str] = {
    VHostRow: "vhosts",
    ExchangeRow: "exchanges",
    QueueRow: "queues",
    BindingRow: "bindings",
    UserRow: "users",
    PermissionRow: "permissions",
    PolicyRow: "policies",
    ParameterRow: "parameters",
}
"""The table of each kind of row."""


def columns(row: Row | type[Row]) -> list[str]:
    """The names of the columns, in the order of the fields."""
    return [column.name for column in fields(row)]
