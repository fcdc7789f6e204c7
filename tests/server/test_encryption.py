"""A broker with a data directory that is encrypted, from its keys to what lies on the disk."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.clients.blocking import Consumer, ready_count
from tests.conftest import BrokerProcess
from tests.server.test_control import complaint, connect, listed, run
from tests.server.test_process import failed_start
from tests.waiting import eventually

SECRET = b"plain-body"
SECRET_KEY = "plain.routing.key"
BIG = SECRET * 1000
OLD, NEW = "11" * 32, "22" * 32
PERSISTENT = pika.BasicProperties(delivery_mode=2, headers={"x-secret": "plain-header"})


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "keys"
    file.touch(0o600)
    return file


@pytest.fixture
def encrypted(make_broker: Callable[..., BrokerProcess], key_file: Path) -> Iterator[BrokerProcess]:
    """A broker that is not started, and whose keys are in *key_file*."""
    return make_broker(
        "--encryption-key-file", str(key_file), "--transient-bytes-per-queue", "64KiB"
    )


def refusal(broker: BrokerProcess, *options: str) -> str:
    line = failed_start("--data-dir", str(broker.data_dir), *options, cwd=broker.data_dir.parent)
    assert OLD not in line
    assert NEW not in line
    return line.removeprefix("leveret: ")


def publish(channel: BlockingChannel, exchange: str, *bodies: bytes, **properties: object) -> None:
    chosen = pika.BasicProperties(delivery_mode=2, **properties)
    for body in bodies:
        channel.basic_publish(exchange, SECRET_KEY, body, chosen)


def content(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())


def drain(channel: BlockingChannel, queue: str, count: int) -> list[bytes]:
    consumer = Consumer(channel, queue, auto_ack=True)
    consumer.wait_for(count)
    channel.basic_cancel(consumer.tag)
    return consumer.bodies


def test_no_message_is_on_the_disk_in_plain(encrypted: BrokerProcess, key_file: Path) -> None:
    key_file.write_text(OLD)
    broker = encrypted.start()
    with closing(connect(broker)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("all", "fanout", durable=True)
        channel.exchange_declare(
            "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
        )
        channel.exchange_declare(
            "once",
            "x-message-deduplication",
            durable=True,
            arguments={"x-cache-size": 9, "x-cache-persistence": "disk"},
        )
        dead = {"x-dead-letter-exchange": "once"}
        channel.queue_declare("plain", durable=True, arguments=dead)
        channel.queue_declare("levels", durable=True, arguments={"x-max-priority": 5})
        channel.queue_declare("dead", durable=True)
        channel.queue_declare("passing")
        for queue in ("plain", "levels", "passing"):
            channel.queue_bind(queue, "all")
        channel.queue_bind("dead", "once")
        channel.queue_bind("plain", "later")
        headers = {"x-secret": "plain-header"}
        publish(channel, "all", *[BIG] * 20, message_id="plain-id", headers=headers, priority=3)
        publish(channel, "later", SECRET, headers={"x-delay": 5_000_000})
        publish(channel, "once", SECRET, headers={"x-deduplication-header": "plain-dedup"})
        method, _, _ = channel.basic_get("plain")
        channel.basic_nack(method.delivery_tag, requeue=False)
        eventually(lambda: ready_count(channel, "dead") == 2)
        assert list((broker.data_dir / "transient").rglob("*.log"))
    broker.kill()
    assert b"plain" not in content(broker.data_dir / "vhosts")
    everything = content(broker.data_dir)
    for secret in (SECRET, SECRET_KEY.encode(), b"plain-header", b"plain-id", b"plain-dedup"):
        assert secret not in everything
    assert OLD.encode() not in everything
    assert bytes.fromhex(OLD) not in everything

    broker.start()
    with closing(connect(broker)) as connection:
        channel = connection.channel()
        assert drain(channel, "plain", 19) == [BIG] * 19
        assert drain(channel, "levels", 20) == [BIG] * 20
        assert sorted(drain(channel, "dead", 2)) == [SECRET, BIG]
        channel.queue_declare("passing")
        channel.queue_bind("passing", "all")
        publish(channel, "all", *[BIG] * 20)
        assert drain(channel, "passing", 20) == [BIG] * 20
    (waiting,) = listed(broker, "delayed", "list")
    assert waiting["routing_key"] == SECRET_KEY
    assert OLD not in broker.log_path.read_text()


def test_keys_change_over_restarts(encrypted: BrokerProcess, key_file: Path) -> None:
    broker = encrypted
    bodies = [b"none", b"old", b"new"]
    plain = BrokerProcess(broker.data_dir).start()
    with closing(connect(plain)) as connection:
        channel = connection.channel()
        for queue in ("kept", "gone"):
            channel.queue_declare(queue, durable=True)
        channel.basic_publish("", "kept", bodies[0], PERSISTENT)
    assert plain.stop() == 0
    for keys, body in ((OLD, b"old"), (f"{NEW}  # 2026-11\n{OLD}\n", b"new")):
        key_file.write_text(keys)
        broker.start()
        with closing(connect(broker)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("", "kept", body, PERSISTENT)
            if body == b"new":
                channel.basic_publish("", "gone", body, PERSISTENT)
        assert broker.stop() == 0
    rows = listed(broker, "key", "list")
    assert [(row["key"], row["current"], row["segments"]) for row in rows] == [
        (0, False, 1),
        (1, False, 1),
        (2, True, 2),
    ]

    # Without the old key one queue stops, and the other one does not.
    key_file.write_text(NEW)
    broker.start()
    with closing(connect(broker)) as connection:
        channel = connection.channel()
        assert drain(channel, "gone", 1) == [b"new"]
        fingerprint = rows[1]["fingerprint"]
        wrong = f"encrypted with key 1, fingerprint {fingerprint}, which was not given"
        eventually(lambda: wrong in broker.log_path.read_text())
        with pytest.raises(pika.exceptions.ChannelClosed):
            channel.basic_get("kept")
    assert broker.stop() == 0

    key_file.write_text(f"{NEW}\n{OLD}")
    broker.start()
    with closing(connect(broker)) as connection:
        assert drain(connection.channel(), "kept", 3) == bodies
    broker.restart()
    assert {row["key"]: row["segments"] for row in listed(broker, "key", "list")}[1] == 0
    key_file.write_text(NEW)
    broker.restart()
    with closing(connect(broker)) as connection:
        channel = connection.channel()
        channel.basic_publish("", "kept", b"more", PERSISTENT)
        assert drain(channel, "kept", 1) == [b"more"]


def test_forged_messages_stop_their_queue_alone(encrypted: BrokerProcess, key_file: Path) -> None:
    key_file.write_text(OLD)
    broker = encrypted.start()
    with closing(connect(broker)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for queue in ("forged", "sound"):
            channel.queue_declare(queue, durable=True)
            channel.basic_publish("", queue, SECRET, PERSISTENT)
    assert broker.stop() == 0
    forged, sound = sorted((broker.data_dir / "vhosts").rglob("*.log"))
    os.truncate(forged, 0)
    forged.write_bytes(sound.read_bytes())
    broker.start()
    with closing(connect(broker)) as connection:
        channel = connection.channel()
        assert drain(channel, "sound", 1) == [SECRET]
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="its storage failed"):
            channel.basic_get("forged")
        assert drain(connection.channel(), "sound", 0) == []
    eventually(lambda: f"{forged}: record 0: not authentic" in broker.log_path.read_text())


def test_a_start_without_the_key_of_delayed_messages_is_refused(
    encrypted: BrokerProcess, key_file: Path
) -> None:
    key_file.write_text(OLD)
    broker = encrypted.start()
    with closing(connect(broker)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare(
            "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
        )
        publish(channel, "later", SECRET, headers={"x-delay": 5_000_000})
    broker.stop()
    key_file.write_text(f"{NEW}\n{OLD}")
    broker.start().stop()
    key_file.write_text(NEW)
    option = ("--encryption-key-file", str(key_file), "--log-level", "warning")
    line = refusal(broker, *option)
    assert "delayed/00000000000000000000.log: encrypted with key 1, fingerprint " in line
    key_file.write_text(f"{NEW}\n{OLD}")
    broker.start()
    (waiting,) = listed(broker, "delayed", "list")
    assert waiting["routing_key"] == SECRET_KEY


def test_a_start_without_the_right_key_is_refused(
    encrypted: BrokerProcess, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = encrypted
    monkeypatch.setenv("LEVERET_ENCRYPTION_KEY", OLD)
    assert refusal(broker, "--encryption-key-file", str(key_file)) == (
        "both encryption_key_file and LEVERET_ENCRYPTION_KEY are given: take one"
    )
    first = BrokerProcess(broker.data_dir).start()
    assert first.stop() == 0
    assert "both" in refusal(broker, "--encryption-key-file", str(key_file))
    monkeypatch.setenv("LEVERET_ENCRYPTION_KEY", NEW)
    (row,) = listed(broker, "key", "list")
    line = refusal(broker)
    assert line.startswith(
        f"wrong key: data directory {broker.data_dir} is encrypted with the key of fingerprint "
        f"{row['fingerprint']}, and LEVERET_ENCRYPTION_KEY has "
    )
    assert line.endswith(": add that key, behind a new one if there is one")
    monkeypatch.delenv("LEVERET_ENCRYPTION_KEY")
    assert refusal(broker) == (
        f"data directory {broker.data_dir} is encrypted with the key of fingerprint "
        f"{row['fingerprint']} and no key is given: set encryption_key_file"
    )

    option = ("--encryption-key-file", str(key_file))
    assert refusal(broker, *option) == f"{key_file}: no key in it"
    key_file.write_text(f"{OLD}\n{NEW[:-1]}\n")
    assert refusal(broker, *option) == (
        f"{key_file}, line 2: expected 64 hexadecimal digits, or 32 bytes in base64"
    )
    key_file.write_bytes(b"\xff\xfe" * 32)
    assert refusal(broker, *option).startswith(f"{key_file}, line 1: expected 64 ")
    key_file.write_text(OLD)
    missing = key_file.with_name("missing")
    assert refusal(broker, "--encryption-key-file", str(missing)) == (
        f"{missing}: cannot be read: No such file or directory"
    )
    (broker.data_dir / "keys.json").write_text("{}")
    assert refusal(broker, *option) == (
        f"{broker.data_dir}/keys.json is damaged: bring it back from a backup"
    )


def test_a_file_for_everybody_to_read_is_warned_of(
    encrypted: BrokerProcess, key_file: Path
) -> None:
    key_file.write_text(OLD)
    encrypted.start().stop()
    assert "WARNING" not in encrypted.log_path.read_text()
    key_file.chmod(0o644)
    encrypted.start().stop()
    assert f"WARNING server.encryption everybody may read or change the keys in {key_file}" in (
        encrypted.log_path.read_text()
    )


def test_a_new_key_is_one_that_is_taken(encrypted: BrokerProcess, key_file: Path) -> None:
    made = [run(encrypted, "key", "new") for _ in range(2)]
    assert made[0] != made[1]
    key_file.write_text("".join(made))
    encrypted.start()
    (row,) = listed(encrypted, "key", "list")
    assert (row["key"], row["current"]) == (1, True)
    assert made[0].strip() not in encrypted.log_path.read_text()


def test_lists_of_keys(encrypted: BrokerProcess) -> None:
    assert listed(encrypted, "key", "list") == []
    encrypted.data_dir.mkdir()
    (encrypted.data_dir / "keys.json").write_text("[]")
    assert "keys.json is damaged" in complaint(encrypted, "key", "list")


def test_without_the_library_a_start_says_how_to_get_it(
    encrypted: BrokerProcess, key_file: Path, tmp_path: Path
) -> None:
    key_file.write_text(OLD)
    missing = tmp_path / "without" / "cryptography"
    missing.mkdir(parents=True)
    (missing / "__init__.py").write_text("raise ImportError('not here')")
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            "from leveret.server.main import main; main()",
            "serve",
            "--data-dir",
            str(encrypted.data_dir),
            "--encryption-key-file",
            str(key_file),
        ],
        env={**os.environ, "PYTHONPATH": str(missing.parent)},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "leveret: encryption needs the package cryptography: "
        "pip install 'leveret[encryption]' (not here)\n"
    )
