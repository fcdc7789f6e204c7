"""Make the data directory of this version's format: `python -m tests.storage.formats.make`.

To be run once for each format, by the last commit that writes it: what this version makes of the
file is what `test_formats.py` checks for ever after.
"""

import signal
import sqlite3
import tarfile
import tempfile
from pathlib import Path

import pika
from pika.adapters.blocking_connection import BlockingChannel

from leveret.storage.data_directory import FORMAT
from tests.conftest import BrokerProcess
from tests.waiting import eventually

HERE = Path(__file__).parent


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "data"
        broker = BrokerProcess(data, "--segment-bytes", "1MiB").start()
        connection = pika.BlockingConnection(pika.URLParameters(broker.uri))
        _fill(connection.channel())
        states = data / "vhosts" / "1" / "queues" / "3" / f"{0:020}.state"
        eventually(states.exists)
        broker.stop(signal.SIGKILL)
        for name in ("lock", "control.sock"):
            (data / name).unlink(missing_ok=True)
        with sqlite3.connect(data / "metadata.sqlite") as definitions:
            definitions.execute("pragma wal_checkpoint(truncate)")
        definitions.close()
        with tarfile.open(HERE / f"{FORMAT}.tar.xz", "w:xz") as archive:
            archive.add(data, "data")


def _fill(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    channel.exchange_declare("events", "topic", durable=True)
    channel.exchange_declare(
        "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
    )
    channel.exchange_declare(
        "once",
        "direct",
        durable=True,
        arguments={"x-message-deduplication": True, "x-cache-size": 100},
    )
    channel.queue_declare("plain", durable=True)
    channel.queue_declare("levels", durable=True, arguments={"x-max-priority": 3})
    quorum = {"x-queue-type": "quorum", "x-delivery-limit": 5}
    channel.queue_declare("quorum", durable=True, arguments=quorum)
    for queue in ("waiting", "unique", "empty"):
        channel.queue_declare(queue, durable=True)
    channel.queue_bind("plain", "events", "a.#")
    channel.queue_bind("waiting", "later", "w")
    channel.queue_bind("unique", "once", "u")

    def publish(exchange: str, key: str, body: str, mode: int = 2, **more: object) -> None:
        properties = pika.BasicProperties(delivery_mode=mode, **more)
        channel.basic_publish(exchange, key, body.encode(), properties)

    for i in range(100):
        body = f"plain {i} " + "x" * 30_000
        publish("events", f"a.{i}", body, message_id=str(i), headers={"n": i})
    for i in range(100, 105):
        publish("events", f"a.{i}", f"transient {i}", mode=1)
    for i in range(9):
        publish("", "levels", f"level {i}", priority=i % 3)
    for i in range(3):
        publish("", "quorum", f"quorum {i}")
    for i in range(4):
        publish("later", "w", f"later {i}", headers={"x-delay": 100_000_000})
    publish("once", "u", "unique", headers={"x-deduplication-header": "k1"})
    tags = [channel.basic_get("plain")[0].delivery_tag for _ in range(60)]
    for i in [*range(9, -1, -1), *range(20, 50)]:
        channel.basic_ack(tags[i])
    for _ in range(2):
        method, _, _ = channel.basic_get("quorum")
        channel.basic_nack(method.delivery_tag, requeue=True)
    channel.queue_declare("empty", passive=True)


if __name__ == "__main__":
    main()
