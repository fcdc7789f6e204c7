"""`leveret serve` as a process: how it starts, what it says, and how it ends."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pika.exceptions
import pytest

from leveret import __version__
from tests.conftest import BrokerProcess

STOP_LIMIT_S = 5
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"

Serve = Callable[..., "subprocess.Popen[str]"]


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "leveret.server", "serve", *options]


def failed_start(*options: str, cwd: Path) -> str:
    """Start a broker that cannot; answers the one line that it says."""
    done = subprocess.run(
        command(*options), cwd=cwd, capture_output=True, text=True, timeout=20, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    return line


@pytest.fixture
def working_directory(tmp_path: Path) -> Path:
    """An empty directory to start brokers in."""
    directory = tmp_path / "cwd"
    directory.mkdir()
    return directory


@pytest.fixture
def serve(working_directory: Path) -> Iterator[Serve]:
    """Starts brokers whose output the test reads; none of them outlives the test."""
    processes: list[subprocess.Popen[str]] = []

    def serve(*options: str, **environment: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            command(*options),
            cwd=working_directory,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        processes.append(process)
        return process

    yield serve
    for process in processes:
        process.kill()
        process.communicate()


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def stop(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Exit status, and what it said since the line that was read."""
    process.terminate()
    rest, _ = process.communicate(timeout=STOP_LIMIT_S)
    return process.returncode, rest


def port_of(ready_line: str) -> int:
    return int(ready_line.split()[3].rpartition(":")[2])


def free_port(host: str = "127.0.0.1") -> int:
    with socket.create_server((host, 0)) as probe:
        return int(probe.getsockname()[1])


def can_connect(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def pika_connection(broker: BrokerProcess) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(broker.uri))


def pump(connection: pika.BlockingConnection) -> None:
    """Do what the connection asks for, until it ends."""
    while True:
        connection.process_data_events(time_limit=STOP_LIMIT_S)


# ---- start


def test_one_line_when_it_is_ready_and_nothing_else(serve: Serve, tmp_path: Path) -> None:
    port, data_dir = free_port(), tmp_path / "data"
    broker = serve("--port", str(port), "--data-dir", str(data_dir))
    line = first_line(broker)
    assert line == f"leveret {__version__} ready: amqp://127.0.0.1:{port} data {data_dir}\n"
    assert can_connect("127.0.0.1", port)
    assert stop(broker) == (0, "")


def test_port_0_takes_a_free_port_and_says_which(serve: Serve, tmp_path: Path) -> None:
    brokers = [serve("--port", "0", "--data-dir", str(tmp_path / name)) for name in "ab"]
    ports = {port_of(first_line(broker)) for broker in brokers}
    assert len(ports) == 2
    assert all(can_connect("127.0.0.1", port) for port in ports)


def test_options_come_from_the_environment_and_the_data_lies_where_it_says(
    serve: Serve, working_directory: Path
) -> None:
    broker = serve(LEVERET_PORT="0", LEVERET_DATA_DIR="here")
    assert first_line(broker).endswith(" data here\n")
    assert (working_directory / "here" / "metadata.sqlite").exists()


@pytest.mark.parametrize("host", ["127.0.0.2", "127.0.0.1"])
def test_listens_on_the_given_host_only(serve: Serve, tmp_path: Path, host: str) -> None:
    line = first_line(serve("--host", host, "--port", "0", "--data-dir", str(tmp_path / "data")))
    port = port_of(line)
    assert f" amqp://{host}:{port} " in line
    reached = {other for other in ("127.0.0.1", "127.0.0.2") if can_connect(other, port)}
    assert reached == {host}


def test_an_ipv6_host_stands_in_brackets(serve: Serve, tmp_path: Path) -> None:
    try:
        free_port("::1")
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    line = first_line(serve("--host", "::1", "--port", "0", "--data-dir", str(tmp_path / "data")))
    assert " amqp://[::1]:" in line


def test_leaves_nothing_in_the_working_directory(
    serve: Serve, tmp_path: Path, working_directory: Path
) -> None:
    broker = serve("--port", "0", "--data-dir", str(tmp_path / "data"))
    first_line(broker)
    assert stop(broker) == (0, "")
    assert list(working_directory.iterdir()) == []


# ---- stop


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_whatever_its_clients_do(
    make_broker: Callable[..., BrokerProcess], number: signal.Signals
) -> None:
    """Clients that answer, that do not answer, that never spoke, and that stopped half way."""
    broker = make_broker().start()
    answering, deaf = pika_connection(broker), pika_connection(broker)
    address = ("127.0.0.1", broker.port)
    with (
        socket.create_connection(address, timeout=STOP_LIMIT_S) as mute,
        socket.create_connection(address, timeout=STOP_LIMIT_S) as half_open,
    ):
        half_open.sendall(PROTOCOL_HEADER)
        assert half_open.recv(1) == b"\x01"  # connection.start begins
        os.kill(broker.pid, number)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            pump(answering)
        assert broker.stop(number, timeout=STOP_LIMIT_S) == 0
        assert closed.value.reply_code == 320
        assert closed.value.reply_text.startswith("CONNECTION_FORCED - ")
        assert mute.recv(1) == b""
    assert not can_connect(*address)
    with pytest.raises(pika.exceptions.AMQPError):
        deaf.close()
    assert "Traceback" not in broker.log_path.read_text()


def test_a_signal_that_comes_with_the_ready_line_is_obeyed(serve: Serve, tmp_path: Path) -> None:
    for _ in range(3):
        broker = serve("--port", "0", "--data-dir", str(tmp_path / "data"))
        first_line(broker)
        assert stop(broker) == (0, "")


def test_a_second_signal_does_not_cut_the_shutdown_short(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    broker = make_broker().start()
    answering, deaf = pika_connection(broker), pika_connection(broker)
    os.kill(broker.pid, signal.SIGINT)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        pump(answering)
    # From here on it waits for the other one.
    assert broker.stop(signal.SIGINT, timeout=STOP_LIMIT_S) == 0
    assert "Traceback" not in broker.log_path.read_text()
    with pytest.raises(pika.exceptions.AMQPError):
        deaf.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_next_start_on_the_same_directory_and_port_succeeds(
    make_broker: Callable[..., BrokerProcess], number: signal.Signals
) -> None:
    broker = make_broker().start()
    with pytest.raises(pika.exceptions.AMQPError), pika_connection(broker):
        broker.stop(number)
    broker.start()
    with pika_connection(broker):
        pass


# ---- starts that fail


def test_a_second_process_on_the_same_data_directory(
    broker: BrokerProcess, working_directory: Path
) -> None:
    line = failed_start("--port", "0", "--data-dir", str(broker.data_dir), cwd=working_directory)
    assert line == (f"leveret: data directory {broker.data_dir} is in use by process {broker.pid}")
    with pika_connection(broker):
        pass


def test_a_port_in_use(broker: BrokerProcess, tmp_path: Path, working_directory: Path) -> None:
    options = ("--port", str(broker.port), "--data-dir", str(tmp_path / "other"))
    line = failed_start(*options, cwd=working_directory)
    assert line.startswith(f"leveret: cannot listen on 127.0.0.1:{broker.port}: ")
    assert "address already in use" in line.lower()
    with pika_connection(broker):
        pass


def test_a_host_that_is_not_of_this_machine(tmp_path: Path, working_directory: Path) -> None:
    options = ("--host", "192.0.2.1", "--port", "0", "--data-dir", str(tmp_path / "data"))
    line = failed_start(*options, cwd=working_directory)
    assert line.startswith("leveret: cannot listen on 192.0.2.1:0: ")


def test_a_data_directory_that_cannot_be_made(tmp_path: Path, working_directory: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    # Nobody can make a directory in /proc, not even root.
    for directory in (file, file / "below", Path("/proc/leveret")):
        line = failed_start("--port", "0", "--data-dir", str(directory), cwd=working_directory)
        assert line.startswith(f"leveret: data directory {directory} cannot be used: ")


def test_a_data_directory_that_cannot_be_written(tmp_path: Path, working_directory: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root writes everywhere")
    directory = tmp_path / "read only"
    directory.mkdir(mode=0o500)
    line = failed_start("--port", "0", "--data-dir", str(directory), cwd=working_directory)
    assert line.startswith(f"leveret: data directory {directory} cannot be used: ")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('{"format": 1000}', "data directory {0} has format 1000 of a newer leveret"),
        ("{", "{0}/format.json is damaged"),
    ],
)
def test_data_of_a_format_that_is_not_ours(
    tmp_path: Path, working_directory: Path, content: str, complaint: str
) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    (data_dir / "format.json").write_text(content)
    line = failed_start("--port", "0", "--data-dir", str(data_dir), cwd=working_directory)
    assert line.startswith("leveret: " + complaint.replace("{0}", str(data_dir)))


@pytest.mark.parametrize("damage", ["overwritten", "cut", "a directory"])
def test_definitions_that_are_damaged(
    broker: BrokerProcess, working_directory: Path, damage: str
) -> None:
    with pika_connection(broker) as connection:
        connection.channel().queue_declare("orders", durable=True)
    assert broker.stop() == 0
    database = broker.data_dir / "metadata.sqlite"
    content = database.read_bytes()
    database.unlink()
    if damage == "a directory":
        database.mkdir()
    else:
        database.write_bytes(b"x" * len(content) if damage == "overwritten" else content[:6000])
    line = failed_start("--port", "0", "--data-dir", str(broker.data_dir), cwd=working_directory)
    assert line.startswith("leveret: ")
    assert str(database) in line


def test_a_bad_value_in_the_configuration_file(tmp_path: Path, working_directory: Path) -> None:
    file = tmp_path / "leveret.toml"
    file.write_text('[storage]\nsync = "sometimes"\n')
    line = failed_start("--config", str(file), cwd=working_directory)
    assert line == (
        f"leveret: {file}: storage.sync: expected one of always, interval, never, got 'sometimes'"
    )
    assert list(working_directory.iterdir()) == []
