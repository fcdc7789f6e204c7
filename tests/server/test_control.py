"""Commands of operators: the control socket, and the command line that asks it."""

import json
import os
import re
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing

import pika
import pika.exceptions
import pytest

from leveret.broker.commands import COMMANDS
from tests.clients.blocking import PERSISTENT, publish, ready_count
from tests.conftest import ROOT, BrokerProcess
from tests.waiting import eventually


def leveret(
    broker: BrokerProcess, *arguments: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    program = "from leveret.server.main import main; main(prog_name='leveret')"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "LEVERET_DATA_DIR": str(broker.data_dir)},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )


def run(broker: BrokerProcess, *arguments: str, stdin: str = "") -> str:
    """What a command that works prints."""
    done = leveret(broker, *arguments, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def listed(broker: BrokerProcess, *arguments: str) -> list[dict[str, object]]:
    answer: list[dict[str, object]] = json.loads(run(broker, *arguments, "--json"))
    return answer


def complaint(broker: BrokerProcess, *arguments: str) -> str:
    done = leveret(broker, *arguments)
    assert (done.returncode, done.stdout) == (1, ""), done
    (line,) = done.stderr.splitlines()
    return line


def connect(broker: BrokerProcess, **changes: object) -> pika.BlockingConnection:
    parameters = pika.URLParameters(broker.uri)
    for name, value in changes.items():
        setattr(parameters, name, value)
    return pika.BlockingConnection(parameters)


def ask(broker: BrokerProcess, *requests: bytes) -> list[dict[str, object]]:
    """Answers of the socket itself."""
    path = broker.data_dir / "control.sock"
    with closing(socket.socket(socket.AF_UNIX)) as client:
        client.settimeout(10)
        client.connect(str(path))
        client.sendall(b"".join(requests))
        with client.makefile("rb") as answers:
            return [json.loads(answers.readline()) for _ in requests]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("control") / "data").start()
    yield broker
    broker.kill()


# ---- the socket


def test_socket_is_for_its_owner_alone(shared: BrokerProcess) -> None:
    status = (shared.data_dir / "control.sock").stat()
    assert stat.S_ISSOCK(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o600


def test_socket_goes_at_a_stop_and_one_left_by_a_kill_is_replaced(broker: BrokerProcess) -> None:
    path = broker.data_dir / "control.sock"
    broker.kill()
    assert path.exists()
    assert complaint(broker, "queue", "list") == (
        f"leveret: no broker is running on data directory {broker.data_dir}"
    )
    broker.start()
    run(broker, "queue", "list")
    broker.stop()
    assert not path.exists()
    assert "no broker is running" in complaint(broker, "queue", "list")


def test_data_directory_may_have_a_path_too_long_for_a_socket(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    broker = make_broker(name="d" * 120).start()
    assert run(broker, "vhost", "list").splitlines()[1].startswith("/ ")
    broker.stop()
    assert not (broker.data_dir / "control.sock").exists()


@pytest.mark.parametrize(
    ("request_line", "answer"),
    [
        (b"hello", {"error": 'expected {"command": NAME, "arguments": {...}}'}),
        (b"[1]", {"error": 'expected {"command": NAME, "arguments": {...}}'}),
        (b'{"command": "dance"}', {"error": "unknown command 'dance'"}),
        (
            b'{"command": "add_vhost"}',
            {"error": "add_vhost: argument 'name' is missing"},
        ),
        (
            b'{"command": "add_vhost", "arguments": {"name": 1}}',
            {"error": "add_vhost: argument 'name' is of another type"},
        ),
        (
            b'{"command": "list_vhosts", "arguments": {"name": "x"}}',
            {"error": "list_vhosts: unknown argument 'name'"},
        ),
    ],
)
def test_bad_request_is_answered_and_the_next_one_is_read(
    shared: BrokerProcess, request_line: bytes, answer: dict[str, object]
) -> None:
    first, second = ask(shared, request_line + b"\n", b'{"command": "list_users"}\n')
    assert first == answer
    assert second == {"result": [{"user": "guest", "tags": ["administrator"]}]}


def test_request_of_more_than_a_mebibyte_is_refused(shared: BrokerProcess) -> None:
    (answer,) = ask(shared, b" " * (8 * 1024 * 1024))
    assert answer == {"error": "the request is too long"}


# ---- errors of the command line


def test_errors_are_one_line(shared: BrokerProcess) -> None:
    assert complaint(shared, "queue", "list", "--vhost", "x") == (
        "leveret: vhost 'x' does not exist"
    )
    assert complaint(shared, "policy", "set", "p", "a[", '{"max-length": 1}') == (
        "leveret: Validation failed: pattern should be regular expression but is invalid: "
        "unterminated character set at position 1"
    )
    assert complaint(shared, "policy", "set", "p", "a", "{") == (
        "leveret: the definition is not JSON: Expecting property name enclosed in double quotes: "
        "line 1 column 2 (char 1)"
    )
    assert complaint(shared, "policy", "clear", "p") == (
        "leveret: policy 'p' does not exist in vhost '/'"
    )
    assert complaint(shared, "limits", "set", "max-queues", "1") == (
        "leveret: say whose limits: either --vhost or --user"
    )


def test_groups_have_help_with_examples(shared: BrokerProcess) -> None:
    text = run(shared, "policy", "set", "--help")
    assert "leveret policy set ttl '^jobs[.]' '{\"message-ttl\": 60000}' --apply-to queues" in text
    assert "  user             Add, change and remove users.\n" in run(shared, "--help")


def test_every_command_is_documented() -> None:
    text = (ROOT / "docs" / "control.md").read_text()
    assert [name for name in COMMANDS if f"`{name}`" not in text] == []


# ---- what the commands do


def test_vhost_comes_and_goes_with_its_connections(shared: BrokerProcess) -> None:
    run(shared, "vhost", "add", "shop")
    assert complaint(shared, "vhost", "add", "shop") == "leveret: vhost 'shop' already exists"
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError) as refused:
        connect(shared, virtual_host="shop")
    assert "access to vhost 'shop' refused for user 'guest'" in str(refused.value)
    run(shared, "user", "set-permissions", "guest", ".*", ".*", ".*", "--vhost", "shop")
    connection = connect(shared, virtual_host="shop")
    channel = connection.channel()
    channel.queue_declare("jobs", durable=True)
    publish(channel, "jobs", "one")
    assert [
        (row["vhost"], row["user"], row["channels"])
        for row in listed(shared, "connection", "list", "--vhost", "shop")
    ] == [("shop", "guest", 1)]
    run(shared, "vhost", "delete", "shop")
    with pytest.raises(pika.exceptions.ConnectionClosed) as closed:
        connection.process_data_events(time_limit=10)
    assert closed.value.reply_code == 320
    assert closed.value.reply_text == "CONNECTION_FORCED - vhost 'shop' is deleted"
    assert [row["name"] for row in listed(shared, "vhost", "list")] == ["/"]
    assert {row["vhost"] for row in listed(shared, "user", "list-permissions")} == {"/"}


def test_user_comes_changes_and_goes(shared: BrokerProcess) -> None:
    run(shared, "user", "add", "alice", "--tag", "monitoring", stdin="wonder\n")
    assert {"user": "alice", "tags": ["monitoring"]} in listed(shared, "user", "list")
    run(shared, "user", "set-tags", "alice", "management", "policymaker")
    run(shared, "user", "set-permissions", "alice", "^a", "", ".*")
    assert {
        "user": "alice",
        "vhost": "/",
        "configure": "^a",
        "write": "",
        "read": ".*",
    } in listed(shared, "user", "list-permissions", "alice")
    credentials = pika.PlainCredentials("alice", "wonder")
    connection = connect(shared, credentials=credentials)
    run(shared, "user", "set-password", "alice", "--password", "land")
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        connect(shared, credentials=credentials)
    connect(shared, credentials=pika.PlainCredentials("alice", "land")).close()
    run(shared, "user", "delete", "alice")
    with pytest.raises(pika.exceptions.ConnectionClosed) as closed:
        connection.process_data_events(time_limit=10)
    assert closed.value.reply_text == "CONNECTION_FORCED - user 'alice' was deleted"
    assert [row["user"] for row in listed(shared, "user", "list")] == ["guest"]


def test_limits_are_set_listed_and_lifted(shared: BrokerProcess) -> None:
    run(shared, "limits", "set", "--vhost", "/", "max-queues", "5000")
    run(shared, "limits", "set", "--user", "guest", "max-channels", "900")
    assert run(shared, "limits", "list").splitlines() == [
        "vhost  user   limits",
        '/             {"max-queues": 5000}',
        '       guest  {"max-channels": 900}',
    ]
    assert complaint(shared, "limits", "set", "--vhost", "/", "max-sheep", "1") == (
        "leveret: Unrecognised vhost limit 'max-sheep'; should be one of: "
        "max-connections, max-queues"
    )
    run(shared, "limits", "clear", "--vhost", "/", "max-queues")
    run(shared, "limits", "clear", "--user", "guest")
    assert listed(shared, "limits", "list") == []


def test_lists_show_queues_and_exchanges(shared: BrokerProcess) -> None:
    run(shared, "policy", "set", "bound", "^list", '{"max-length": 3}')
    with closing(connect(shared)) as connection:
        channel = connection.channel()
        channel.queue_declare("list.jobs", durable=True)
        channel.confirm_delivery()
        publish(channel, "list.jobs", "one", "two")
        channel.basic_get("list.jobs")
        head, row = run(shared, "queue", "list", "--vhost", "/").splitlines()
        assert re.split(r"  +", head) == [
            *("name", "type", "policy", "ready", "unacked"),
            *("consumers", "on disk", "retained", "state"),
        ]
        *start, disk_bytes, retained_bytes, state = row.split()
        assert start == ["list.jobs", "classic", "bound", "1", "1", "0"]
        assert (int(disk_bytes) > 50, retained_bytes, state) == (True, "0", "running")
        channel.queue_delete("list.jobs")
    run(shared, "policy", "clear", "bound")
    assert "amq.topic" in run(shared, "exchange", "list")


# ---- effects, and what a restart keeps


def test_policy_acts_on_queues_that_are_there_on_new_ones_and_after_a_restart(
    broker: BrokerProcess,
) -> None:
    with closing(connect(broker)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("old", durable=True)
        publish(channel, "old", "1", "2", "3", "4")
        run(broker, "policy", "set", "short", ".", '{"max-length": 2}', "--apply-to", "queues")
        eventually(lambda: ready_count(channel, "old") == 2)
        channel.queue_declare("new", durable=True)
        publish(channel, "new", "1", "2", "3", "4")
        assert ready_count(channel, "new") == 2
    broker.restart()
    assert [row["name"] for row in listed(broker, "policy", "list")] == ["short"]
    with closing(connect(broker)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        publish(channel, "new", "5")
        assert ready_count(channel, "new") == 2
        run(broker, "operator-policy", "set", "shorter", "", '{"max-length": 1}')
        eventually(lambda: ready_count(channel, "new") == 1)
        run(broker, "policy", "clear", "short")
        run(broker, "operator-policy", "clear", "shorter")
        publish(channel, "new", "6", "7")
        assert ready_count(channel, "new") == 3


def test_policy_gives_an_exchange_its_alternate(broker: BrokerProcess) -> None:
    with closing(connect(broker)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("orders", "direct", durable=True)
        channel.exchange_declare("lost", "fanout", durable=True)
        channel.queue_declare("found", durable=True)
        channel.queue_bind("found", "lost")
        definition = '{"alternate-exchange": "lost"}'
        run(broker, "policy", "set", "catch", "^orders$", definition, "--apply-to", "exchanges")
        channel.basic_publish("orders", "nobody", b"1", PERSISTENT, mandatory=True)
        assert ready_count(channel, "found") == 1
    broker.restart()
    with closing(connect(broker)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("orders", "nobody", b"2", PERSISTENT, mandatory=True)
        assert ready_count(channel, "found") == 2
        run(broker, "policy", "clear", "catch")
        with pytest.raises(pika.exceptions.UnroutableError):
            channel.basic_publish("orders", "nobody", b"3", PERSISTENT, mandatory=True)


def test_vhosts_users_permissions_and_limits_survive_a_kill(broker: BrokerProcess) -> None:
    run(broker, "vhost", "add", "shop")
    run(broker, "user", "add", "bob", "--password", "builder")
    run(broker, "user", "set-permissions", "bob", ".*", ".*", ".*", "--vhost", "shop")
    run(broker, "user", "delete", "guest")
    run(broker, "limits", "set", "--vhost", "shop", "max-queues", "0")
    run(broker, "limits", "set", "--user", "bob", "max-connections", "1")
    run(broker, "vhost", "delete", "/")
    broker.kill()
    broker.start()
    assert [row["name"] for row in listed(broker, "vhost", "list")] == ["shop"]
    assert [row["user"] for row in listed(broker, "user", "list")] == ["bob"]
    credentials = pika.PlainCredentials("bob", "builder")
    with closing(connect(broker, credentials=credentials, virtual_host="shop")) as connection:
        with pytest.raises(pika.exceptions.ProbableAccessDeniedError) as refused:
            connect(broker, credentials=credentials, virtual_host="shop")
        assert "user connection limit (1) is reached" in str(refused.value)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
            connection.channel().queue_declare("q")
        assert closed.value.reply_text == (
            "PRECONDITION_FAILED - cannot declare queue 'q': queue limit in vhost 'shop' (0) "
            "is reached"
        )
