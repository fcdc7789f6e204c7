"""Publishers and everybody else while the disk of the broker is almost full."""

from collections.abc import Callable, Iterator

import pytest
from pamqp import commands

from tests.conftest import BrokerProcess
from tests.small_disk import SmallDisk, mounted
from tests.waiting import eventually
from tests.wire.raw import PERSISTENT, Peer, method, publish

MIB = 1024 * 1024
ROOM = 3 * MIB
"""Free space between the watermark and the hard limit."""
LITTLE = MIB
"""Free space below the hard limit."""
LIMITS = ("--disk-free-limit", "4MiB", "--disk-free-hard-limit", "2MiB")


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    with mounted(tmp_path_factory.mktemp("blocked") / "data", 8 * 1024) as disk:
        yield disk


@pytest.fixture(scope="module")
def server(disk: SmallDisk) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(disk.place, *LIMITS, prefix=disk.inside)
    broker.start()
    yield broker
    assert broker.stop() == 0
    assert "Traceback" not in broker.log_path.read_text()


class Alarm:
    """Sets and clears the alarm of the broker by the space on its disk."""

    def __init__(self, disk: SmallDisk, broker: BrokerProcess) -> None:
        self._disk = disk
        self._log = broker.log_path
        self._is_on = False

    def set(self, leave: int) -> None:
        """Have no more than *leave* bytes free; returns once the broker knows."""
        self._change("alarm: disk space", lambda: self._disk.fill(leave=leave))
        self._is_on = True

    def clear(self) -> None:
        """Have all of it free."""
        if self._is_on:
            self._change("alarm cleared: disk space", self._disk.free)
        self._is_on = False

    def _change(self, text: str, change: Callable[[], None]) -> None:
        before = self._log.read_text().count(text)
        change()
        eventually(lambda: self._log.read_text().count(text) > before)


@pytest.fixture
def alarm(disk: SmallDisk, server: BrokerProcess) -> Iterator[Alarm]:
    alarm = Alarm(disk, server)
    yield alarm
    alarm.clear()


def prepare(peer: Peer, queue: str) -> None:
    """Declare a durable queue and enter confirm mode on channel 1."""
    peer.call(1, commands.Queue.Declare(queue=queue, durable=True), commands.Queue.DeclareOk)
    peer.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)


def test_publishers_wait_while_consumers_go_on(
    connect: Callable[..., Peer], alarm: Alarm, request: pytest.FixtureRequest
) -> None:
    queue = request.node.name
    publisher, consumer, silent = connect(1, 2), connect(1), connect(1)
    prepare(publisher, queue)
    publisher.send(publish(1, queue, b"before", properties=PERSISTENT))
    publisher.expect(commands.Basic.Ack)
    alarm.set(ROOM)
    publisher.send(publish(1, queue, b"held 1", properties=PERSISTENT))
    assert publisher.expect(commands.Connection.Blocked, 0).reason == "low on disk"
    publisher.send(publish(1, queue, b"held 2", properties=PERSISTENT))
    publisher.check(3)
    publisher.send(method(1, commands.Queue.Declare(queue=queue, passive=True)))
    got = publisher.call(2, commands.Basic.Get(queue=queue), commands.Basic.GetOk)
    assert got.message_count == 0
    assert publisher.expect_body() == b"before"
    publisher.send(method(2, commands.Basic.Nack(got.delivery_tag)))
    consumer.call(1, commands.Basic.Consume(queue=queue), commands.Basic.ConsumeOk)
    assert consumer.expect(commands.Basic.Deliver).redelivered
    assert consumer.expect_body() == b"before"
    consumer.send(method(1, commands.Basic.Ack(1)))
    consumer.check(2)
    alarm.clear()
    publisher.expect(commands.Connection.Unblocked, 0)
    received = {publisher.receive().method.name for _ in range(2)}
    assert received == {"Basic.Ack", "Queue.DeclareOk"}
    for body in (b"held 1", b"held 2"):
        consumer.expect(commands.Basic.Deliver)
        assert consumer.expect_body() == body
    silent.check(2)  # of an alarm it heard nothing


def test_at_the_hard_limit_confirms_are_nacks(
    connect: Callable[..., Peer], alarm: Alarm, request: pytest.FixtureRequest
) -> None:
    queue = request.node.name
    publisher, other = connect(1), connect(1)
    prepare(publisher, queue)
    alarm.set(ROOM)
    publisher.send(publish(1, queue, b"first", properties=PERSISTENT))
    publisher.expect(commands.Connection.Blocked)
    alarm.set(LITTLE)
    assert publisher.expect(commands.Basic.Nack).delivery_tag == 1
    publisher.send(publish(1, queue, b"second", properties=PERSISTENT) * 3)
    nack = publisher.expect(commands.Basic.Nack)
    assert (nack.delivery_tag, nack.multiple) == (4, True)
    other.send(publish(1, queue, b"without confirms"))
    other.expect(commands.Connection.Blocked)
    alarm.clear()
    publisher.expect(commands.Connection.Unblocked)
    other.expect(commands.Connection.Unblocked)
    publisher.send(publish(1, queue, b"third", properties=PERSISTENT))
    assert publisher.expect(commands.Basic.Ack).delivery_tag == 5
    for body in (b"without confirms", b"third"):
        publisher.call(1, commands.Basic.Get(queue=queue), commands.Basic.GetOk)
        assert publisher.expect_body() == body


def test_a_publisher_that_comes_during_an_alarm_waits_too(
    connect: Callable[..., Peer], alarm: Alarm
) -> None:
    alarm.set(ROOM)
    publisher = connect(1)
    publisher.send(publish(1, "nowhere", mandatory=True))
    publisher.send(method(1, commands.Channel.Close(200, "", 0, 0)))
    publisher.expect(commands.Connection.Blocked)
    alarm.clear()
    publisher.expect(commands.Connection.Unblocked)
    assert publisher.expect(commands.Basic.Return).reply_code == 312
    publisher.expect_body()
    publisher.expect(commands.Channel.CloseOk)
