from dataclasses import dataclass, field

import pytest
from pamqp import commands

from leveret.broker.alarms import Alarm, Alarms, Level
from tests.broker.peer import Peer
from tests.broker.world import World


@dataclass(eq=False)
class Listener:
    """Notes how things stand whenever they change (`AlarmListener`)."""

    alarms: Alarms
    heard: list[tuple[Level, str]] = field(default_factory=list)

    def alarms_changed(self) -> None:
        self.heard.append((self.alarms.level, self.alarms.reason))


@pytest.mark.parametrize(
    ("on", "reason"),
    [
        ([], ""),
        ([Alarm.MEMORY], "low on memory"),
        ([Alarm.DISK_SPACE], "low on disk"),
        ([Alarm.DISK_FULL], "low on disk"),
        ([Alarm.DISK_FULL, Alarm.DISK_SPACE], "low on disk"),
        ([Alarm.DISK_FULL, Alarm.MEMORY], "low on memory & disk"),
        ([Alarm.DISK_SPACE, Alarm.MEMORY], "low on memory & disk"),
    ],
)
def test_the_reason_names_what_is_short(on: list[Alarm], reason: str) -> None:
    alarms = Alarms()
    for alarm in on:
        alarms.set(alarm, Level.LOW)
    assert alarms.reason == reason
    assert alarms.level is (Level.LOW if on else Level.OFF)


def test_the_strongest_alarm_counts() -> None:
    alarms = Alarms()
    levels = []
    for alarm, level in [
        (Alarm.MEMORY, Level.HARD),
        (Alarm.DISK_SPACE, Level.LOW),
        (Alarm.MEMORY, Level.OFF),
        (Alarm.DISK_SPACE, Level.OFF),
    ]:
        alarms.set(alarm, level)
        levels.append((alarms.level, alarms.level_of(alarm)))
    assert levels == [
        (Level.HARD, Level.HARD),
        (Level.HARD, Level.LOW),
        (Level.LOW, Level.OFF),
        (Level.OFF, Level.OFF),
    ]


def test_listeners_are_told_of_changes_only() -> None:
    alarms = Alarms()
    listener = Listener(alarms)
    alarms.listen(listener)
    assert not alarms.set(Alarm.MEMORY, Level.OFF)
    assert alarms.set(Alarm.MEMORY, Level.LOW)
    assert not alarms.set(Alarm.MEMORY, Level.LOW)
    assert alarms.set(Alarm.MEMORY, Level.HARD)
    assert alarms.set(Alarm.DISK_FULL, Level.HARD)
    alarms.set(Alarm.MEMORY, Level.OFF)
    alarms.ignore(listener)
    alarms.ignore(listener)
    alarms.set(Alarm.DISK_FULL, Level.OFF)
    assert listener.heard == [
        (Level.LOW, "low on memory"),
        (Level.HARD, "low on memory"),
        (Level.HARD, "low on memory & disk"),
        (Level.HARD, "low on disk"),
    ]


# ---- what it means to a connection


def test_a_client_that_knows_nothing_of_alarms_waits_in_silence(world: World) -> None:
    peer = Peer(world)
    peer.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    peer.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    world.broker.alarms.set(Alarm.MEMORY, Level.LOW)
    world.run()
    assert peer.session.state == "running"
    peer.publish(1, "q", b"held")
    assert peer.session.state == "blocked"
    assert peer.receive() == []
    world.broker.alarms.set(Alarm.MEMORY, Level.OFF)
    world.run()
    assert peer.session.state == "running"
    peer.call(1, commands.Queue.Delete(queue="q"), commands.Queue.DeleteOk)


def test_nacks_come_behind_the_confirms_of_what_was_published_before(world: World) -> None:
    peer = Peer(world)
    peer.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    peer.call(1, commands.Queue.Declare(queue="q", durable=True), commands.Queue.DeclareOk)
    peer.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    peer.publish(1, "q", b"1", b"2")
    assert [type(one.method) for one in peer.receive()] == [commands.Basic.Ack]
    world.broker.alarms.set(Alarm.DISK_FULL, Level.LOW)
    world.run()
    peer.publish(1, "q", b"3")
    peer.publish(1, "q", b"4")
    assert peer.receive() == []
    world.broker.alarms.set(Alarm.DISK_FULL, Level.HARD)
    world.run()
    (nack,) = (one.method for one in peer.receive())
    assert isinstance(nack, commands.Basic.Nack)
    assert (nack.delivery_tag, nack.multiple) == (4, True)
    world.broker.alarms.set(Alarm.DISK_FULL, Level.OFF)
    world.run()
    peer.publish(1, "q", b"5")
    (ack,) = (one.method for one in peer.receive())
    assert isinstance(ack, commands.Basic.Ack)
    assert ack.delivery_tag == 5
    found = peer.call(1, commands.Queue.Purge(queue="q"), commands.Queue.PurgeOk)
    assert found.message_count == 3


def test_a_closed_connection_hears_of_no_alarm(world: World) -> None:
    peer = Peer(world)
    peer.send(0, commands.Connection.Close(200, "", 0, 0))
    peer.receive()
    world.broker.alarms.set(Alarm.MEMORY, Level.LOW)
    world.run()
    assert peer.receive() == []


def test_an_error_of_a_held_method_names_it(world: World) -> None:
    peer = Peer(world)
    peer.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    world.broker.alarms.set(Alarm.MEMORY, Level.LOW)
    world.run()
    peer.publish(1, "q", b"held")
    peer.send(1, commands.Basic.Get(queue="q"))
    assert peer.receive() == []
    world.broker.alarms.set(Alarm.MEMORY, Level.OFF)
    world.run()
    (close,) = (one.method for one in peer.receive())
    assert isinstance(close, commands.Channel.Close)
    assert (close.class_id, close.method_id) == (60, 70)
