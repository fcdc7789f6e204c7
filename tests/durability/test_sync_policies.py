"""When each policy forces what to the disk."""

from collections.abc import Callable

import pytest
from pamqp import commands, frame
from pamqp.base import Frame as Method

from tests.durability.client import Delivery, RawClient, connected, encode_publish
from tests.durability.conftest import Disk, LocalBroker
from tests.waiting import eventually

Start = Callable[..., LocalBroker]
PUBLISH = encode_publish("", "one", commands.Basic.Properties(delivery_mode=2), b"body")


def prepare(client: RawClient, disk: Disk) -> None:
    client.call(commands.Queue.Declare(queue="one", durable=True), commands.Queue.DeclareOk)
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    disk.synced.clear()


def next_method(client: RawClient) -> Method:
    event = client.next_event()
    assert event is not None
    assert not isinstance(event, Delivery)
    return event


@pytest.mark.parametrize(
    "method",
    [
        commands.Queue.Declare(queue="one", passive=True),
        commands.Queue.Declare(queue="one", durable=True),
        commands.Queue.Purge(queue="one"),
        commands.Basic.Qos(),
    ],
    ids=lambda method: type(method).__qualname__,
)
def test_always_syncs_before_the_confirm(local_broker: Start, disk: Disk, method: Method) -> None:
    """Whatever else looks at the queue in the same turn."""
    broker = local_broker(sync="always")
    with connected(broker.port) as client:
        prepare(client, disk)
        client.publish(PUBLISH, frame.marshal(method, 1))
        answers = [next_method(client), next_method(client)]
        assert disk.has_synced(".log")
        assert any(isinstance(answer, commands.Basic.Ack) for answer in answers)


def test_always_syncs_states_behind_the_back(local_broker: Start, disk: Disk) -> None:
    broker = local_broker(sync="always")
    with connected(broker.port) as client:
        prepare(client, disk)
        client.publish(PUBLISH)
        next_method(client)
        assert not disk.has_synced(".state")
        client.call(commands.Basic.Consume(queue="one"), commands.Basic.ConsumeOk)
        assert isinstance(client.next_event(), Delivery)
        client.send(commands.Basic.Ack(1))
        eventually(lambda: disk.has_synced(".state"))


def test_interval_syncs_soon_after_the_confirm(local_broker: Start, disk: Disk) -> None:
    broker = local_broker(sync="interval", sync_interval_ms=1)
    with connected(broker.port) as client:
        prepare(client, disk)
        client.publish(PUBLISH)
        next_method(client)
        eventually(lambda: disk.has_synced(".log"))


def test_interval_does_not_sync_for_the_confirm(local_broker: Start, disk: Disk) -> None:
    broker = local_broker(sync="interval", sync_interval_ms=60_000)
    with connected(broker.port) as client:
        prepare(client, disk)
        client.publish(PUBLISH)
        next_method(client)
        assert not disk.has_synced(".log")
    local_broker()
    assert disk.has_synced(".log"), "the end of the broker syncs what the interval has not"


def test_never_syncs_no_log(local_broker: Start, disk: Disk) -> None:
    broker = local_broker(sync="never")
    with connected(broker.port) as client:
        prepare(client, disk)
        client.publish(PUBLISH)
        next_method(client)
        client.call(commands.Queue.Declare(queue="two", durable=True), commands.Queue.DeclareOk)
    local_broker()
    assert not disk.has_synced(".log")
