"""Metadata: vhosts, users, policies, durable exchanges, queues and bindings in one SQLite file.

The store is read once at the start and written by one thread, a group of changes in each
transaction. What it returned from is on the disk (WAL, synchronous=FULL).
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from leveret.storage.changes import Change
from leveret.storage.data_directory import DataDirectoryError
from leveret.storage.errors import DiskFull
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
from leveret.storage.schema import migrate


class MetadataDamaged(DataDirectoryError):
    """The file is not a database or its pages contradict each other."""


@dataclass(frozen=True, slots=True)
class Definitions:
    """Everything in the store, and the first ids that no vhost and no queue ever had."""

    vhosts: list[VHostRow]
    exchanges: list[ExchangeRow]
    queues: list[QueueRow]
    bindings: list[BindingRow]
    users: list[UserRow]
    permissions: list[PermissionRow]
    policies: list[PolicyRow]
    parameters: list[ParameterRow]
    next_vhost_id: int
    next_queue_id: int


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
                migrate(self._connection)
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
                policies=_read(self._connection, PolicyRow),
                parameters=_read(self._connection, ParameterRow),
                next_vhost_id=last_ids.get("vhosts", 0) + 1,
                next_queue_id=last_ids.get("queues", 0) + 1,
            )

    def apply(self, changes: Sequence[Change]) -> None:
        """Make *changes* in order in one transaction, durable on return.

        Raises DiskFull, sqlite3.Error; then none of them has been made.
        """
        try:
            with self._connection as connection:
                connection.execute("BEGIN IMMEDIATE")
                for change in changes:
                    for sql, values in change.statements():
                        connection.execute(sql, values)
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                raise DiskFull(f"{self._path}: {error}") from error
            raise

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


def _read(connection: sqlite3.Connection, row_type: type[RowT]) -> list[RowT]:
    # SQLite has no booleans, it gives them back as 0 and 1.
    booleans = [i for i, column in enumerate(fields(row_type)) if column.type is bool]
    rows = []
    for stored in connection.execute(
        f"SELECT {', '.join(columns(row_type))} FROM {TABLES[row_type]}"
    ):
        values = list(stored)
        for i in booleans:
            values[i] = bool(values[i])
        rows.append(row_type(*values))
    return rows
