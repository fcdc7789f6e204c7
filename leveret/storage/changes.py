"""Changes of the metadata, made where the broker decides them, applied by `MetadataStore`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias

from leveret.storage.rows import (
    TABLES,
    BindingRow,
    ExchangeRow,
    ParameterRow,
    PermissionRow,
    PolicyRow,
    QueueRow,
    RowT,
    UserRow,
    VHostRow,
    columns,
)

SqlValue: TypeAlias = int | str | bytes
Statement: TypeAlias = tuple[str, tuple[SqlValue, ...]]


class Change(Protocol):
    """One change of the metadata."""

    def statements(self) -> Iterator[Statement]:
        """The SQL that makes the change, with its values."""


@dataclass(frozen=True, slots=True)
class _Put(Generic[RowT]):
    row: RowT

    def statements(self) -> Iterator[Statement]:
        """Add the row, or replace the one of the same identity."""
        table, names = TABLES[type(self.row)], columns(self.row)
        marks = ", ".join("?" * len(names))
        yield (
            f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({marks})",
            tuple(getattr(self.row, name) for name in names),
        )


class PutVHost(_Put[VHostRow]):
    """Add a vhost or rename the one with this id."""

    __slots__ = ()


class PutExchange(_Put[ExchangeRow]):
    """Add or replace an exchange."""

    __slots__ = ()


class PutQueue(_Put[QueueRow]):
    """Add or replace a queue."""

    __slots__ = ()


class PutBinding(_Put[BindingRow]):
    """Add a binding; one that exists stays."""

    __slots__ = ()


class PutUser(_Put[UserRow]):
    """Add or replace a user; the permissions stay."""

    __slots__ = ()


class PutPermission(_Put[PermissionRow]):
    """Set the permissions of a user in a vhost."""

    __slots__ = ()


class PutPolicy(_Put[PolicyRow]):
    """Add or replace a policy."""

    __slots__ = ()


class PutParameter(_Put[ParameterRow]):
    """Set a parameter."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class DeleteVHost:
    """Remove a vhost with everything in it and all that is set for it."""

    id: int

    def statements(self) -> Iterator[Statement]:
        """Its contents first."""
        for table in (
            "bindings",
            "queues",
            "exchanges",
            "permissions",
            "policies",
            "parameters",
        ):
            yield f"DELETE FROM {table} WHERE vhost_id = ?", (self.id,)
        yield "DELETE FROM vhosts WHERE id = ?", (self.id,)


@dataclass(frozen=True, slots=True)
class DeleteExchange:
    """Remove an exchange with the bindings from it and to it."""

    vhost_id: int
    name: str

    def statements(self) -> Iterator[Statement]:
        """Its bindings first."""
        key = (self.vhost_id, self.name)
        yield "DELETE FROM bindings WHERE vhost_id = ? AND source = ?", key
        yield (
            "DELETE FROM bindings WHERE vhost_id = ? AND destination = ? "
            "AND destination_type = 'exchange'",
            key,
        )
        yield "DELETE FROM exchanges WHERE vhost_id = ? AND name = ?", key


@dataclass(frozen=True, slots=True)
class DeleteQueue:
    """Remove a queue with the bindings to it."""

    id: int

    def statements(self) -> Iterator[Statement]:
        """Its bindings first: they name it as the row does."""
        yield (
            "DELETE FROM bindings WHERE destination_type = 'queue' "
            "AND (vhost_id, destination) = (SELECT vhost_id, name FROM queues WHERE id = ?)",
            (self.id,),
        )
        yield "DELETE FROM queues WHERE id = ?", (self.id,)


@dataclass(frozen=True, slots=True)
class DeleteBinding:
    """Remove one binding."""

    row: BindingRow

    def statements(self) -> Iterator[Statement]:
        """All columns are its identity."""
        names = columns(self.row)
        condition = " AND ".join(f"{name} = ?" for name in names)
        yield (
            f"DELETE FROM bindings WHERE {condition}",
            tuple(getattr(self.row, name) for name in names),
        )


@dataclass(frozen=True, slots=True)
class DeleteUser:
    """Remove a user with all permissions."""

    name: str

    def statements(self) -> Iterator[Statement]:
        """The permissions first."""
        yield "DELETE FROM permissions WHERE user = ?", (self.name,)
        yield "DELETE FROM users WHERE name = ?", (self.name,)


@dataclass(frozen=True, slots=True)
class DeletePermission:
    """Remove the permissions of a user in a vhost."""

    user: str
    vhost_id: int

    def statements(self) -> Iterator[Statement]:
        """One row."""
        yield "DELETE FROM permissions WHERE user = ? AND vhost_id = ?", (self.user, self.vhost_id)


@dataclass(frozen=True, slots=True)
class DeletePolicy:
    """Remove a policy."""

    vhost_id: int
    name: str
    is_operator: bool

    def statements(self) -> Iterator[Statement]:
        """One row."""
        yield (
            "DELETE FROM policies WHERE vhost_id = ? AND name = ? AND is_operator = ?",
            (self.vhost_id, self.name, self.is_operator),
        )


@dataclass(frozen=True, slots=True)
class DeleteParameter:
    """Remove a parameter."""

    component: str
    vhost_id: int
    name: str

    def statements(self) -> Iterator[Statement]:
        """One row."""
        yield (
            "DELETE FROM parameters WHERE component = ? AND vhost_id = ? AND name = ?",
            (self.component, self.vhost_id, self.name),
        )
