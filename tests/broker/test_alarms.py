from dataclasses import dataclass, field

import pytest

from leveret.broker.alarms import Alarm, Alarms, Level


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
