"""Metadata: vhosts, users and durable exchanges, queues and bindings in one SQLite file.

The store is read once at the start and written by one thread, a group of changes in each
transaction. What it returned from is on the disk (WAL, synchronous=FULL).

Field tables (`arguments`) are bytes here: encoded and read by the layers above.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

from leveret.storage.data_directory import DataDirectoryError

if TYPE_CHECKING:
    from sqlite_utils import Database

SqlValue: TypeAlias = int | str | bytes
Statement: TypeAlias = tuple[str, tuple[SqlValue, ...]]


class MetadataDamaged(DataDirectoryError):
    """The file is not a database or its pages contradict each other."""


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


Row: TypeAlias = VHostRow | ExchangeRow | QueueRow | BindingRow | UserRow | PermissionRow
RowT = TypeVar("RowT", VHostRow, ExchangeRow, QueueRow, BindingRow, UserRow, PermissionRow)

TABLES: dict[type[Row], str] = {
    VHostRow: "vhosts",
    ExchangeRow: "exchanges",
    QueueRow: "queues",
    BindingRow: "bindings",
    UserRow: "users",
    PermissionRow: "permissions",
}


@dataclass(frozen=True, slots=True)
class Definitions:
    """Everything in the store, and the first ids that no vhost and no queue ever had."""

    vhosts: list[VHostRow]
    exchanges: list[ExchangeRow]
    queues: list[QueueRow]
    bindings: list[BindingRow]
    users: list[UserRow]
    permissions: list[PermissionRow]
    next_vhost_id: int
    next_queue_id: int


class Change(Protocol):
    """One change of the metadata: made where the broker decides it, applied by `MetadataStore`."""

    def statements(self) -> Iterator[Statement]:
        """The SQL that makes the change, with its values."""


@dataclass(frozen=True, slots=True)
class _Put(Generic[RowT]):
    row: RowT

    def statements(self) -> Iterator[Statement]:
        """Add the row, or replace the one of the same identity."""
        table, names = TABLES[type(self.row)], _columns(self.row)
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


@dataclass(frozen=True, slots=True)
class DeleteVHost:
    """Remove a vhost with everything in it and the permissions on it."""

    id: int

    def statements(self) -> Iterator[Statement]:
        """Its contents first."""
        for table in ("bindings", "queues", "exchanges", "permissions"):
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
        names = _columns(self.row)
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


class MetadataStore:
    """The open database. Any thread may use it, one at a time.

    Raises MetadataDamaged, or DataDirectoryError if the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._explained():
            self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        try:
            with self._explained():
                _migrate(self._connection)
                self._connection.execute("PRAGMA synchronous=FULL")
        except DataDirectoryError:
            self._connection.close()
            raise

    def load(self) -> Definitions:
        """Read everything. Raises as the constructor does."""
        with self._explained():
            last_ids = dict(self._connection.execute("SELECT name, seq FROM sqlite_sequence"))
            return Definitions(
                vhosts=_read(self._connection, VHostRow),
                exchanges=_read(self._connection, ExchangeRow),
                queues=_read(self._connection, QueueRow),
                bindings=_read(self._connection, BindingRow),
                users=_read(self._connection, UserRow),
                permissions=_read(self._connection, PermissionRow),
                next_vhost_id=last_ids.get("vhosts", 0) + 1,
                next_queue_id=last_ids.get("queues", 0) + 1,
            )

    def apply(self, changes: Sequence[Change]) -> None:
        """Make *changes* in order in one transaction, durable on return.

        Raises sqlite3.Error, for instance on a full disk; then none of them has been made.
        """
        with self._connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            for change in changes:
                for sql, values in change.statements():
                    connection.execute(sql, values)

    def close(self) -> None:
        """Close the file. The store cannot be used any more."""
        self._connection.close()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise DataDirectoryError(f"{self._path} cannot be read: {error}") from error
        except sqlite3.DatabaseError as error:
            raise MetadataDamaged(f"{self._path} is damaged: {error}") from error


def _columns(row: Row | type[Row]) -> list[str]:
    return [column.name for column in fields(row)]


def _read(connection: sqlite3.Connection, row_type: type[RowT]) -> list[RowT]:
    # SQLite has no booleans, it gives them back as 0 and 1.
    booleans = [i for i, column in enumerate(fields(row_type)) if column.type is bool]
    rows = []
    for stored in connection.execute(
        f"SELECT {', '.join(_columns(row_type))} FROM {TABLES[row_type]}"
    ):
        values = list(stored)
        for i in booleans:
            values[i] = bool(values[i])
        rows.append(row_type(*values))
    return rows


def _migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema up to date. `user_version` counts the migrations that were applied."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == len(MIGRATIONS):
        return
    # The import takes longer than all else at a start, and most starts find nothing to migrate.
    from sqlite_utils import Database, Migrations

    database = Database(connection, execute_plugins=False)
    database.enable_wal()
    migrations = Migrations("leveret")
    for migration in MIGRATIONS:
        migrations()(migration)
    migrations.apply(database)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _create_tables(database: "Database") -> None:
    # AUTOINCREMENT keeps the largest id ever used, also after its row has gone.
    database.execute(
        """
        CREATE TABLE vhosts (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            name TEXT NOT NULL UNIQUE
        )
        """
    )
    database.execute(
        """
        CREATE TABLE exchanges (
            vhost_id INTEGER NOT NULL,
            name TEXT NOT NULL,
            type TEXT NOT NULL,
            durable INTEGER NOT NULL,
            auto_delete INTEGER NOT NULL,
            internal INTEGER NOT NULL,
            arguments BLOB NOT NULL,
            PRIMARY KEY (vhost_id, name)
        ) WITHOUT ROWID
        """
    )
    database.execute(
        """
        CREATE TABLE queues (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            vhost_id INTEGER NOT NULL,
            name TEXT NOT NULL,
            type TEXT NOT NULL,
            durable INTEGER NOT NULL,
            auto_delete INTEGER NOT NULL,
            exclusive INTEGER NOT NULL,
            arguments BLOB NOT NULL,
            UNIQUE (vhost_id, name)
        )
        """
    )
    database.execute(
        """
        CREATE TABLE bindings (
            vhost_id INTEGER NOT NULL,
            source TEXT NOT NULL,
            destination TEXT NOT NULL,
            destination_type TEXT NOT NULL,
            routing_key TEXT NOT NULL,
            arguments BLOB NOT NULL,
            PRIMARY KEY (vhost_id, source, destination, destination_type, routing_key, arguments)
        ) WITHOUT ROWID
        """
    )
    database.execute(
        "CREATE INDEX bindings_by_destination ON bindings (vhost_id, destination, destination_type)"
    )
    database.execute(
        """
        CREATE TABLE users (
            name TEXT PRIMARY KEY NOT NULL,
            password_hash TEXT NOT NULL,
            hashing_algorithm TEXT NOT NULL,
            tags TEXT NOT NULL
        ) WITHOUT ROWID
        """
    )
    database.execute(
        """
        CREATE TABLE permissions (
            user TEXT NOT NULL,
            vhost_id INTEGER NOT NULL,
            configure TEXT NOT NULL,
            write TEXT NOT NULL,
            read TEXT NOT NULL,
            PRIMARY KEY (user, vhost_id)
        ) WITHOUT ROWID
        """
    )


# Only ever appended to: what has been applied somewhere stays as it is.
MIGRATIONS = (_create_tables,)
