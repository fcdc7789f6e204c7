"""A broker that serves while a queue is being recovered, over sockets."""

import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from pamqp import commands

from leveret.server.commands.client import ask
from tests.conftest import BrokerProcess
from tests.durability.client import Delivery, RawClient, connected, encode_publish
from tests.waiting import eventually

PERSISTENT = commands.Basic.Properties(delivery_mode=2)


class HeldQueue:
    """The recovery of the first queue, until `release`: what it reads first are FIFOs."""

    def __init__(self, data_dir: Path) -> None:
        (log,) = (data_dir / "vhosts/1/queues/1").glob("*.log")
        self._fifos = [log.with_name("snapshot"), log.with_suffix(".state")]
        for path in self._fifos:
            os.mkfifo(path)

    def release(self) -> None:
        """Let it read to the end of nothing."""
        eventually(self._open)

    def _open(self) -> bool:
        for path in self._fifos:
            with contextlib.suppress(OSError):  # nobody reads this one
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                return True
        return False

    def remove(self) -> None:
        for path in self._fifos:
            path.unlink()


def publish(client: RawClient, queue: str, *bodies: bytes) -> None:
    client.publish(*(encode_publish("", queue, PERSISTENT, body) for body in bodies))


def confirmed(client: RawClient) -> int:
    event = client.next_event()
    assert isinstance(event, commands.Basic.Ack), event
    return event.delivery_tag or 0


def take(client: RawClient, queue: str, count: int) -> list[bytes]:
    client.call(commands.Basic.Consume(queue=queue, no_ack=True), commands.Basic.ConsumeOk)
    bodies = []
    for _ in range(count):
        event = client.next_event()
        assert isinstance(event, Delivery), event
        bodies.append(event.body)
    return bodies


@pytest.fixture
def broker(make_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """A stopped one with messages in `large`, the queue to be held, and `small`."""
    broker = make_broker().start()
    with connected(broker.port) as client:
        for queue in ("large", "small"):
            client.call(commands.Queue.Declare(queue=queue, durable=True), commands.Queue.DeclareOk)
        client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        publish(client, "large", b"1", b"2")
        publish(client, "small", b"s")
        while confirmed(client) < 3:
            """Each turn has its own."""
    assert broker.stop() == 0
    return broker


def test_a_queue_is_waited_for_by_those_who_name_it(broker: BrokerProcess) -> None:
    held = HeldQueue(broker.data_dir)
    broker.start()
    with connected(broker.port) as waiting, connected(broker.port) as other:
        waiting.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        publish(waiting, "large", b"3")
        publish(waiting, "small", b"behind it")
        assert take(other, "small", 1) == [b"s"]
        held.release()
        assert isinstance(other.next_event(), Delivery)
        while confirmed(waiting) < 2:
            """Each turn has its own."""
        assert take(waiting, "large", 3) == [b"1", b"2", b"3"]
    log = broker.log_path.read_text()
    assert "recovering: queues=2" in log
    assert "recovered: queues=2 messages=3" in log


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_an_end_in_the_middle_loses_nothing(broker: BrokerProcess, end: signal.Signals) -> None:
    held = HeldQueue(broker.data_dir)
    broker.start()
    with connected(broker.port) as waiting, connected(broker.port) as other:
        publish(waiting, "large", b"3")
        other.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        publish(other, "small", b"t")
        assert confirmed(other) == 1
        broker.stop(end)
    held.remove()
    broker.start()
    with connected(broker.port) as client:
        assert take(client, "large", 2) == [b"1", b"2"]
        assert take(client, "small", 2) == [b"s", b"t"]


@pytest.mark.parametrize("is_left", [False, True])
def test_a_command_waits_and_is_not_done_once_nobody_waits_for_it(
    broker: BrokerProcess, is_left: bool
) -> None:
    held = HeldQueue(broker.data_dir)
    broker.start()
    request = {"command": "move_messages", "arguments": {"queue": "small", "to_queue": "large"}}
    with socket.socket(socket.AF_UNIX) as operator:
        operator.settimeout(10)
        operator.connect(str(broker.data_dir / "control.sock"))
        operator.sendall(json.dumps(request).encode() + b"\n")
        operator.shutdown(socket.SHUT_WR)
        # Another one is asked behind it, so that it has been read.
        assert "recovering" in str(ask(broker.data_dir, "list_queues"))
        if is_left:
            operator.close()
        held.release()
        if not is_left:
            assert b'"count": 1' in operator.recv(1000)
    with connected(broker.port) as client:
        declare = commands.Queue.Declare(queue="large", durable=True)
        answer = client.call(declare, commands.Queue.DeclareOk)
        assert answer.message_count == (2 if is_left else 3)


def test_a_client_that_waits_is_let_go_when_the_broker_stops(broker: BrokerProcess) -> None:
    HeldQueue(broker.data_dir)
    broker.start()
    with connected(broker.port) as waiting:
        publish(waiting, "large", b"3")
        eventually(lambda: "connected:" in broker.log_path.read_text())
        assert broker.stop() == 0
