"""What a disk that refuses to write does to one queue, to its clients and to the others."""

import resource
import sqlite3
from collections.abc import Callable, Sequence

import pytest
from pamqp import commands

from leveret.storage.changes import Change
from leveret.storage.metadata import MetadataStore
from tests.conftest import BrokerProcess
from tests.durability.client import Closed, Delivery, RawClient, connected, encode_publish
from tests.durability.conftest import Disk, LocalBroker

PERSISTENT = commands.Basic.Properties(delivery_mode=2)
Start = Callable[..., LocalBroker]


def declare(client: RawClient, *queues: str) -> None:
    for queue in queues:
        client.call(commands.Queue.Declare(queue=queue, durable=True), commands.Queue.DeclareOk)


def select_confirms(client: RawClient) -> None:
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)


def publish(client: RawClient, queue: str, body: bytes = b"body") -> None:
    client.publish(encode_publish("", queue, PERSISTENT, body))


def wait_for_confirm(client: RawClient) -> None:
    event = client.next_event()
    assert isinstance(event, commands.Basic.Ack), event


def is_refused(port: int, queue: str) -> bool:
    """Does publishing to *queue* end the connection with 541?"""
    with connected(port) as client:
        select_confirms(client)
        publish(client, queue)
        with pytest.raises(Closed) as closed:
            client.next_event()
        return closed.value.code == 541


def fill(client: RawClient, queue: str) -> int:
    """Publish numbered messages until the broker refuses; answers how many were confirmed."""
    for number in range(3000):
        publish(client, queue, b"%d" % number + bytes(1000))
        try:
            wait_for_confirm(client)
        except Closed as closed:
            return number if closed.code == 541 else -1
    return -1


def read_all(port: int, queue: str) -> list[bytes]:
    with connected(port) as client:
        found = client.call(
            commands.Queue.Declare(queue=queue, passive=True), commands.Queue.DeclareOk
        )
        client.call(commands.Basic.Consume(queue=queue), commands.Basic.ConsumeOk)
        bodies = []
        for _ in range(found.message_count or 0):
            event = client.next_event()
            assert isinstance(event, Delivery), event
            bodies.append(event.body)
        return bodies


@pytest.mark.slow
def test_a_queue_that_cannot_be_written_stops_and_the_others_go_on(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    broker = make_broker().start()
    with connected(broker.port) as client:
        declare(client, "large", "small")
    limit = 2 * 1024 * 1024
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    with connected(broker.port) as client, connected(broker.port) as other:
        select_confirms(client)
        select_confirms(other)
        confirmed = fill(client, "large")
        assert 1000 < confirmed < 3000
        publish(other, "small")
        wait_for_confirm(other)
    assert is_refused(broker.port, "large")
    with connected(broker.port) as client:
        with pytest.raises(Closed, match="queue 'large' in vhost '/' has stopped") as closed:
            declare(client, "large")
        assert closed.value.code == 404
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    broker.restart()
    numbers = [int(body.rstrip(b"\0")) for body in read_all(broker.port, "large")]
    assert numbers[:confirmed] == list(range(confirmed))
    assert read_all(broker.port, "small") == [b"body"]


def test_nothing_is_confirmed_that_could_not_be_synced(local_broker: Start, disk: Disk) -> None:
    broker = local_broker()
    with connected(broker.port) as client:
        declare(client, "one", "two")
        select_confirms(client)
        publish(client, "one", b"before")
        wait_for_confirm(client)
        disk.failing = "/queues/1/"
        publish(client, "one", b"lost?")
        with pytest.raises(Closed) as closed:
            client.next_event()
        assert closed.value.code == 541
    # What a failed sync has dropped, no later one can bring back.
    disk.failing = ""
    assert is_refused(broker.port, "one")
    with connected(broker.port) as client:
        select_confirms(client)
        publish(client, "two")
        wait_for_confirm(client)
    broker = local_broker()
    assert b"before" in read_all(broker.port, "one")
    assert read_all(broker.port, "two") == [b"body"]


def test_a_commit_fails_with_its_log(local_broker: Start, disk: Disk) -> None:
    broker = local_broker()
    with connected(broker.port) as client:
        declare(client, "one")
        client.call(commands.Tx.Select(), commands.Tx.SelectOk)
        disk.failing = "/queues/1/"
        publish(client, "one")
        client.send(commands.Tx.Commit())
        with pytest.raises(Closed) as closed:
            client.next_event()
        assert closed.value.code == 541


def test_a_consumer_of_a_stopped_queue_is_cancelled(local_broker: Start, disk: Disk) -> None:
    broker = local_broker(sync_interval_ms=1, sync="interval")
    with connected(broker.port) as client, connected(broker.port) as publisher:
        declare(client, "one")
        client.call(
            commands.Basic.Consume(queue="one", consumer_tag="tag"), commands.Basic.ConsumeOk
        )
        disk.failing = "/queues/1/"
        publish(publisher, "one")
        assert isinstance(client.next_event(), Delivery)
        event = client.next_event()
        assert isinstance(event, commands.Basic.Cancel), event
        assert event.consumer_tag == "tag"


def test_a_stopped_queue_can_be_deleted_and_made_anew(local_broker: Start, disk: Disk) -> None:
    broker = local_broker()
    with connected(broker.port) as client:
        declare(client, "one")
    disk.failing = "/queues/1/"
    assert is_refused(broker.port, "one")
    with connected(broker.port) as client:
        client.call(commands.Queue.Delete(queue="one"), commands.Queue.DeleteOk)
        declare(client, "one")
        select_confirms(client)
        publish(client, "one", b"new")
        wait_for_confirm(client)
    assert read_all(broker.port, "one") == [b"new"]


def test_a_queue_that_cannot_be_opened_keeps_its_files(local_broker: Start) -> None:
    broker = local_broker()
    with connected(broker.port) as client:
        declare(client, "one", "two")
        select_confirms(client)
        publish(client, "one", b"kept")
        wait_for_confirm(client)
    directory = broker.data_dir / "vhosts/1/queues/1"
    broker.halt()
    (log,) = directory.glob("*.log")
    good = log.read_bytes()
    log.write_bytes(b"XXXX" + good[4:])
    broker = local_broker()
    assert is_refused(broker.port, "one")
    with connected(broker.port) as client, pytest.raises(Closed):
        declare(client, "one")
    with connected(broker.port) as client:
        declare(client, "two")
    broker.halt()
    log.write_bytes(good)
    broker = local_broker()
    assert read_all(broker.port, "one") == [b"kept"]


def test_definitions_that_were_refused_are_written_before_a_confirm_relies_on_them(
    local_broker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = local_broker(sync="never")
    apply = MetadataStore.apply

    def refuse(store: MetadataStore, changes: Sequence[Change]) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with connected(broker.port) as client:
        monkeypatch.setattr(MetadataStore, "apply", refuse)
        with pytest.raises(Closed) as closed:
            declare(client, "one")
        assert closed.value.code == 541
    assert is_refused(broker.port, "one")
    monkeypatch.setattr(MetadataStore, "apply", apply)
    with connected(broker.port) as client:
        select_confirms(client)
        publish(client, "one", b"confirmed")
        wait_for_confirm(client)
    broker = local_broker()
    assert b"confirmed" in read_all(broker.port, "one")
