"""Acknowledged messages stay on disk, and only there."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from leveret.server.commands.client import ask
from tests.clients.blocking import PERSISTENT, ready_count
from tests.conftest import BrokerProcess
from tests.features.steps import Connect, Restart, declare, restarts
from tests.waiting import eventually

BODY = bytes(1000)
ROOM = 400_000
"""What is retained; segments are then 100 KB."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", "--segment-bytes", "1MiB")
    yield broker.start()
    broker.stop()


def row(broker: BrokerProcess, queue: str) -> dict[str, object]:
    rows = cast("list[dict[str, object]]", ask(broker.data_dir, "list_queues"))
    return next(row for row in rows if row["name"] == queue)


def retained(broker: BrokerProcess, queue: str) -> int:
    return cast("int", row(broker, queue)["retained_bytes"])


def disk_bytes(broker: BrokerProcess, queue: str) -> int:
    return cast("int", row(broker, queue)["disk_bytes"])


def on_disk(broker: BrokerProcess) -> int:
    """Bytes in the logs of all queues."""
    logs = Path(broker.data_dir).glob("vhosts/*/queues/*/*.log")
    return sum(path.stat().st_size for path in logs)


def consume(channel: BlockingChannel, queue: str, count: int) -> None:
    """Have *count* messages go through the queue."""
    channel.confirm_delivery()
    for _ in range(count):
        channel.basic_publish("", queue, BODY, PERSISTENT)
    tags = [channel.basic_get(queue)[0].delivery_tag for _ in range(count)]
    channel.basic_ack(tags[-1], multiple=True)
    assert ready_count(channel, queue) == 0


@restarts
def test_acknowledged_messages_stay_up_to_a_size(
    small: BrokerProcess, connect: Connect, restart: Restart
) -> None:
    channel = connect(small).channel()
    declare(channel, "kept", retain_bytes=ROOM)
    consume(channel, "kept", 300)
    eventually(lambda: retained(small, "kept") > ROOM // 2)
    consume(channel, "kept", 300)
    eventually(lambda: ROOM // 2 < retained(small, "kept") <= ROOM + 70_000)
    assert ROOM // 2 < on_disk(small) < ROOM + 140_000
    restart(small, channel)
    channel = connect(small).channel()
    assert ready_count(channel, "kept") == 0
    assert ROOM // 2 < retained(small, "kept") <= ROOM + 70_000
    consume(channel, "kept", 100)
    assert channel.basic_get("kept") == (None, None, None)
    channel.queue_delete("kept")


def test_a_policy_retains_and_lets_go(small: BrokerProcess, connect: Connect) -> None:
    def set_policy(**definition: object) -> None:
        ask(
            small.data_dir,
            "set_policy",
            vhost="/",
            name="r",
            pattern="^past",
            definition=definition,
        )

    channel = connect(small).channel()
    set_policy(**{"retain-age": "1h", "retain-bytes": 1_000_000})
    declare(channel, "past")
    consume(channel, "past", 700)
    assert retained(small, "past") > 690_000
    assert disk_bytes(small, "past") > 700_000
    set_policy(**{"retain-age": "1h", "retain-bytes": 300_000})
    eventually(lambda: disk_bytes(small, "past") < 370_000)
    assert retained(small, "past") > 150_000
    ask(small.data_dir, "clear_policy", vhost="/", name="r")
    eventually(lambda: retained(small, "past") == 0)
    assert disk_bytes(small, "past") < 300_000
    channel.queue_delete("past")


@pytest.mark.parametrize("value", ["1w", "D", "-1h", "1.5h", "7 D"])
def test_a_wrong_age(channel: BlockingChannel, name: str, value: str) -> None:
    with pytest.raises(Exception, match=r"invalid arg 'x-retain-age' for .*: invalid_retain_age"):
        declare(channel, name, retain_age=value)


def test_an_age_in_seconds(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, retain_age=60)
    channel.queue_declare(f"{name}-transient", exclusive=True, arguments={"x-retain-age": "1m"})
