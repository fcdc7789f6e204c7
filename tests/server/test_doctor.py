"""`leveret doctor` beside a broker: refused while it runs, then on what it left."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest
from click.testing import CliRunner, Result
from pika.adapters.blocking_connection import BlockingChannel

from leveret.server.main import main
from tests.conftest import BrokerProcess
from tests.storage.data_dirs import fingerprints, make_data_dir, queue_dir

MESSAGES = 60
BODY = b"%d:" + b"x" * 30_000


def doctor(data_dir: Path, *options: str) -> Result:
    """Run it, and see that what it says is for people."""
    done = CliRunner().invoke(main, ["doctor", str(data_dir), *options])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert "Traceback" not in done.output
    if "--json" not in options:
        assert all(len(line) <= 100 for line in done.stdout.splitlines())
    return done


@contextmanager
def channel_of(broker: BrokerProcess) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.uri))
    try:
        yield connection.channel()
    finally:
        connection.close()


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


def test_on_what_a_broker_left(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker("--segment-bytes", "1MiB").start()
    data_dir = broker.data_dir
    with channel_of(broker) as channel:
        channel.confirm_delivery()
        for queue in ("damaged", "sound"):
            channel.queue_declare(queue, durable=True)
            for number in range(MESSAGES):
                channel.basic_publish(
                    "", queue, BODY % number, pika.BasicProperties(delivery_mode=2)
                )
    done = doctor(data_dir)
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert line == f"leveret: data directory {data_dir} is in use by process {broker.pid}"
    broker.kill()
    done = doctor(data_dir)
    assert (done.exit_code, done.stdout.splitlines()[-1][:18]) == (0, "checked 2 queues, ")

    log = next(data_dir.glob(f"vhosts/1/queues/1/{0:020}.log"))
    data = bytearray(log.read_bytes())
    data[data.index(b"7:xxx")] ^= 1
    log.write_bytes(data)
    before = fingerprints(data_dir)
    done = doctor(data_dir)
    assert fingerprints(data_dir) == before
    assert done.exit_code == 1
    words = " ".join(done.stdout.split())
    assert "queue 'damaged' in vhost '/':" in words
    assert "damaged: message 7; the queue stops at message 7" in words
    assert words.endswith(": 1 damaged message in 1 queue")
    assert "sound" not in words

    done = doctor(data_dir, "--repair")
    assert done.exit_code == 0
    assert f"what was removed or replaced is in {data_dir}/removed/" in " ".join(
        done.stdout.split()
    )
    done = doctor(data_dir)
    assert (done.exit_code, done.stdout.count("\n")) == (0, 1)
    assert done.stdout.endswith(": sound\n")
    with channel_of(broker.start()) as channel:
        assert bodies(channel, "sound") == [BODY % number for number in range(MESSAGES)]
        assert bodies(channel, "damaged") == [BODY % n for n in range(MESSAGES) if n != 7]
    assert (data_dir / "removed").is_dir()


def test_json_has_every_finding_and_the_summary(tmp_path: Path) -> None:
    data_dir = make_data_dir(tmp_path / "data")
    (queue_dir(data_dir) / "snapshot").write_bytes(b"LVSN")
    done = doctor(data_dir, "--json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    (finding,) = found["findings"]
    assert finding == {
        "kind": "queue",
        "vhost": "/",
        "queue": "orders",
        "path": "vhosts/1/queues/1/snapshot",
        "offset": 0,
        "position": None,
        "wrong": finding["wrong"],
        "repair": "the one before or the state logs tell the same",
        "harmless": False,
    }
    assert found["summary"]["queues"] == 2
    assert found["summary"]["sound"] is False


def test_damaged_definitions_are_told_with_all_the_rest(tmp_path: Path) -> None:
    data_dir = make_data_dir(tmp_path / "data")
    (data_dir / "metadata.sqlite").write_bytes(b"no database" * 100)
    for options in ((), ("--repair",), ("--json",)):
        done = doctor(data_dir, *options)
        assert done.exit_code == 2
        assert "metadata.sqlite is damaged" in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout


@pytest.mark.parametrize("name", ["", "missing"])
def test_what_is_no_data_directory(tmp_path: Path, name: str) -> None:
    done = doctor(tmp_path / name)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("leveret: ")
    assert list(tmp_path.iterdir()) == []
