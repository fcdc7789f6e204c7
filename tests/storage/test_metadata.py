import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.storage.changes import (
    Change,
    DeleteBinding,
    DeleteExchange,
    DeleteParameter,
    DeletePermission,
    DeletePolicy,
    DeleteQueue,
    DeleteUser,
    DeleteVHost,
    PutBinding,
    PutExchange,
    PutParameter,
    PutPermission,
    PutPolicy,
    PutQueue,
    PutUser,
    PutVHost,
)
from leveret.storage.data_directory import DataDirectoryError
from leveret.storage.metadata import Definitions, MetadataDamaged, MetadataStore
from leveret.storage.rows import (
    BindingRow,
    ExchangeRow,
    ParameterRow,
    PermissionRow,
    PolicyRow,
    QueueRow,
    UserRow,
    VHostRow,
)
from tests.small_disk import mounted

VHOST = VHostRow(1, "/")
EXCHANGE = ExchangeRow(1, "orders", "topic", True, False, True, b"\x00\xff")
QUEUE = QueueRow(1, 1, "mail", "classic", True, False, False, b"\x01")
BINDING = BindingRow(1, "orders", "mail", "queue", "#", b"\x02")
USER = UserRow("guest", "hash", "rabbit_password_hashing_sha256", "administrator")
PERMISSION = PermissionRow("guest", 1, ".*", "^$", "a|b")
POLICY = PolicyRow(1, "ttl", False, "^mail", "queues", -1, '{"message-ttl": 60000}')
PARAMETER = ParameterRow("vhost-limits", 1, "limits", '{"max-queues": 5}')
EVERYTHING: list[Change] = [
    PutVHost(VHOST),
    PutExchange(EXCHANGE),
    PutQueue(QUEUE),
    PutBinding(BINDING),
    PutUser(USER),
    PutPermission(PERMISSION),
    PutPolicy(POLICY),
    PutParameter(PARAMETER),
]
NOTHING = Definitions([], [], [], [], [], [], [], [], next_vhost_id=1, next_queue_id=1)


def change(path: Path, *changes: Change) -> Definitions:
    """Apply the changes and read all back after closing and opening the file."""
    store = MetadataStore(path)
    store.apply(changes)
    store.close()
    return load(path)


def load(path: Path) -> Definitions:
    with closing(MetadataStore(path)) as store:
        return store.load()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite"


def test_new_store_is_empty(path: Path) -> None:
    assert load(path) == NOTHING
    assert load(path) == NOTHING


def test_rows_come_back_as_they_went_in(path: Path) -> None:
    found = change(path, *EVERYTHING)
    assert found == Definitions(
        [VHOST], [EXCHANGE], [QUEUE], [BINDING], [USER], [PERMISSION], [POLICY], [PARAMETER], 2, 2
    )
    assert found.policies[0].is_operator is False
    assert [type(getattr(found.exchanges[0], field.name)) for field in fields(ExchangeRow)] == [
        field.type for field in fields(ExchangeRow)
    ]


@settings(deadline=None, max_examples=30)
@given(name=st.text(), routing_key=st.text(), arguments=st.binary())
def test_names_and_arguments_are_kept_exactly(
    tmp_path_factory: pytest.TempPathFactory, name: str, routing_key: str, arguments: bytes
) -> None:
    row = BindingRow(1, name, name, "queue", routing_key, arguments)
    path = tmp_path_factory.mktemp("names") / "metadata.sqlite"
    assert change(path, PutBinding(row)).bindings == [row]
    assert change(path, DeleteBinding(row)).bindings == []


def test_put_replaces_the_row_of_the_same_identity_alone(path: Path) -> None:
    change(path, *EVERYTHING)
    renamed, password = VHostRow(1, "prod"), replace(USER, password_hash="new")
    exchange, queue = replace(EXCHANGE, type="fanout"), replace(QUEUE, auto_delete=True)
    permission = replace(PERMISSION, read="")
    policy, parameter = replace(POLICY, pattern=""), replace(PARAMETER, value="{}")
    found = change(
        path,
        PutVHost(renamed),
        PutExchange(exchange),
        PutQueue(queue),
        PutBinding(BINDING),
        PutUser(password),
        PutPermission(permission),
        PutPolicy(policy),
        PutParameter(parameter),
    )
    assert found == Definitions(
        [renamed],
        [exchange],
        [queue],
        [BINDING],
        [password],
        [permission],
        [policy],
        [parameter],
        2,
        2,
    )


def test_bindings_that_differ_in_any_field_are_different(path: Path) -> None:
    bindings = [
        BINDING,
        replace(BINDING, vhost_id=2),
        replace(BINDING, source="s"),
        replace(BINDING, destination="d"),
        replace(BINDING, destination_type="exchange"),
        replace(BINDING, routing_key="k"),
        replace(BINDING, arguments=b""),
    ]
    found = change(path, *map(PutBinding, bindings))
    assert len(found.bindings) == len(bindings)
    for i, binding in enumerate(bindings, 1):
        found = change(path, DeleteBinding(binding))
        assert set(found.bindings) == set(bindings[i:])


def test_deleting_a_queue_removes_the_bindings_to_it(path: Path) -> None:
    others = [
        replace(BINDING, destination_type="exchange"),
        replace(BINDING, destination="other"),
        replace(BINDING, vhost_id=2),
    ]
    change(path, *EVERYTHING, *map(PutBinding, others))
    found = change(path, DeleteQueue(QUEUE.id))
    assert found.queues == []
    assert set(found.bindings) == set(others)


def test_deleting_an_exchange_removes_the_bindings_from_and_to_it(path: Path) -> None:
    others = [
        replace(BINDING, source="other", destination="orders"),
        replace(BINDING, vhost_id=2),
    ]
    to_it = replace(BINDING, source="other", destination="orders", destination_type="exchange")
    change(path, *EVERYTHING, PutBinding(to_it), *map(PutBinding, others))
    found = change(path, DeleteExchange(1, "orders"))
    assert found.exchanges == []
    assert set(found.bindings) == set(others)


def test_deleting_a_vhost_removes_all_in_it_but_no_user(path: Path) -> None:
    change(path, *EVERYTHING)
    other = ExchangeRow(2, "e", "direct", True, False, False)
    found = change(path, PutVHost(VHostRow(2, "two")), PutExchange(other), DeleteVHost(1))
    assert found == Definitions([VHostRow(2, "two")], [other], [], [], [USER], [], [], [], 3, 2)


def test_deleting_a_user_removes_the_permissions_of_that_user(path: Path) -> None:
    other = replace(PERMISSION, user="other")
    found = change(path, *EVERYTHING, PutPermission(other), DeleteUser("guest"))
    assert found.users == []
    assert found.permissions == [other]


def test_permission_is_deleted_in_one_vhost(path: Path) -> None:
    other = replace(PERMISSION, vhost_id=2)
    found = change(path, *EVERYTHING, PutPermission(other), DeletePermission("guest", 1))
    assert found.permissions == [other]
    assert found.users == [USER]


def test_operator_policy_is_another_than_the_policy_of_its_name(path: Path) -> None:
    operator = replace(POLICY, is_operator=True)
    found = change(path, *EVERYTHING, PutPolicy(operator))
    assert set(found.policies) == {POLICY, operator}
    assert change(path, DeletePolicy(1, "ttl", False)).policies == [operator]


def test_parameter_is_deleted_by_component_vhost_and_name(path: Path) -> None:
    others = [
        replace(PARAMETER, component="user-limits"),
        replace(PARAMETER, vhost_id=0),
        replace(PARAMETER, name="guest"),
    ]
    change(path, *EVERYTHING, *map(PutParameter, others))
    found = change(path, DeleteParameter("vhost-limits", 1, "limits"))
    assert set(found.parameters) == set(others)


def test_users_of_before_there_were_permissions_may_do_anything(path: Path) -> None:
    change(path, PutVHost(VHOST), PutVHost(VHostRow(2, "two")), PutUser(USER))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE policies")
        connection.execute("DROP TABLE parameters")
        connection.execute("DELETE FROM _sqlite_migrations WHERE name = '_add_policies'")
        connection.execute("PRAGMA user_version = 1")
        connection.commit()
    assert load(path).permissions == [
        PermissionRow("guest", 1, ".*", ".*", ".*"),
        PermissionRow("guest", 2, ".*", ".*", ".*"),
    ]


def test_ids_are_not_used_again_after_a_delete_and_a_restart(path: Path) -> None:
    change(path, PutQueue(replace(QUEUE, id=41)), PutVHost(VHostRow(7, "seven")))
    found = change(path, DeleteQueue(41), DeleteVHost(7))
    assert (found.queues, found.vhosts) == ([], [])
    assert (found.next_queue_id, found.next_vhost_id) == (42, 8)


def test_queue_declared_again_under_its_name_has_only_its_new_bindings(path: Path) -> None:
    change(path, *EVERYTHING)
    again, key = replace(QUEUE, id=2), replace(BINDING, routing_key="new")
    found = change(path, DeleteQueue(1), PutQueue(again), PutBinding(key))
    assert found.queues == [again]
    assert found.bindings == [key]


def test_changes_are_made_all_or_none(path: Path) -> None:
    store = MetadataStore(path)
    impossible = PutQueue(replace(QUEUE, id=2, name=None))  # type: ignore[arg-type]  # the point
    with pytest.raises(sqlite3.IntegrityError):
        store.apply([PutQueue(QUEUE), impossible])
    assert store.load() == NOTHING
    store.apply([PutQueue(QUEUE)])
    store.close()
    assert load(path).queues == [QUEUE]


def test_applied_changes_survive_the_kill_of_the_process(path: Path) -> None:
    script = """
import os, signal, sys
from pathlib import Path
from leveret.storage.changes import PutVHost
from leveret.storage.metadata import MetadataStore
from leveret.storage.rows import VHostRow

MetadataStore(Path(sys.argv[1])).apply([PutVHost(VHostRow(1, "/"))])
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert load(path).vhosts == [VHOST]


def test_changes_go_to_the_write_ahead_log(path: Path) -> None:
    store = MetadataStore(path)
    store.apply(EVERYTHING)
    assert path.with_name("metadata.sqlite-wal").stat().st_size > 0
    store.close()


def test_start_with_nothing_to_migrate_spares_the_import_of_sqlite_utils(path: Path) -> None:
    change(path, *EVERYTHING)
    script = """
import sys
from pathlib import Path
from leveret.storage.metadata import MetadataStore

MetadataStore(Path(sys.argv[1])).load()
sys.exit("sqlite_utils" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)


@pytest.mark.parametrize("damage", [b"no database at all", bytes(5000)])
def test_file_that_is_no_database_is_damaged(path: Path, damage: bytes) -> None:
    path.write_bytes(damage)
    with pytest.raises(MetadataDamaged) as error:
        load(path)
    assert str(error.value) == f"{path} is damaged: file is not a database"


def test_overwritten_pages_are_damage(path: Path) -> None:
    rows = [replace(QUEUE, id=i, name=f"queue {i}") for i in range(1, 1001)]
    change(path, *map(PutQueue, rows))
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(MetadataDamaged, match="is damaged: database disk image is malformed"):
        load(path)


def test_file_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataDirectoryError) as error:
        MetadataStore(tmp_path)
    assert str(error.value) == f"{tmp_path} cannot be read: unable to open database file"


FILL_AND_APPLY = """
import sys
from pathlib import Path
from leveret.storage.changes import PutQueue
from leveret.storage.errors import DiskFull
from leveret.storage.metadata import MetadataStore
from leveret.storage.rows import QueueRow

def put(first, last):
    store.apply([PutQueue(QueueRow(i, 1, 300 * "x" + str(i), "t", 1, 0)) for i in (first, last)])

store = MetadataStore(Path(sys.argv[1]) / "metadata.sqlite")
put(1, 2)
refused = 3
try:
    while True:
        put(refused, refused + 1)
        refused += 2
except DiskFull as error:
    assert "metadata.sqlite: database or disk is full" in str(error), error
(Path(sys.argv[1]) / "filler").unlink()
assert [row.id for row in store.load().queues] == list(range(1, refused))
put(refused, refused + 1)
assert len(store.load().queues) == refused + 1
store.close()
"""


def test_a_full_disk_refuses_changes_for_the_time_being(tmp_path: Path) -> None:
    with mounted(tmp_path, 512) as disk:
        disk.fill(leave=200_000)
        program = [sys.executable, "-c", FILL_AND_APPLY, str(disk.place)]
        subprocess.run([*disk.inside, *program], check=True)
