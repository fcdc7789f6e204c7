"""Schema of the metadata database, and how an older one is brought up to it."""

import sqlite3
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite_utils import Database


def migrate(connection: sqlite3.Connection) -> None:
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


def _add_policies(database: "Database") -> None:
    database.execute(
        """
        CREATE TABLE policies (
            vhost_id INTEGER NOT NULL,
            name TEXT NOT NULL,
            is_operator INTEGER NOT NULL,
            pattern TEXT NOT NULL,
            apply_to TEXT NOT NULL,
            priority INTEGER NOT NULL,
            definition TEXT NOT NULL,
            PRIMARY KEY (vhost_id, name, is_operator)
        ) WITHOUT ROWID
        """
    )
    database.execute(
        """
        CREATE TABLE parameters (
            component TEXT NOT NULL,
            vhost_id INTEGER NOT NULL,
            name TEXT NOT NULL,
            value TEXT NOT NULL,
            PRIMARY KEY (component, vhost_id, name)
        ) WITHOUT ROWID
        """
    )
    # Until now nothing looked at permissions: whoever was a user might do anything.
    database.execute(
        """
        INSERT OR IGNORE INTO permissions (user, vhost_id, configure, write, read)
        SELECT users.name, vhosts.id, '.*', '.*', '.*' FROM users, vhosts
        """
    )


# Only ever appended to: what has been applied somewhere stays as it is.
MIGRATIONS = (_create_tables, _add_policies)
