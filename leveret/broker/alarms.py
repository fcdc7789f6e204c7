"""Alarms: what the broker is short of, and so how it treats publishers.

    OFF    publishes are routed
    LOW    a watermark is passed: publishes are held back, all else goes on
    HARD   the hard limit is passed: those who publish with confirms get nacks instead

The strongest alarm counts. Reasons are RabbitMQ's (connection.blocked).
"""

from enum import Enum, IntEnum
from typing import Protocol


class Alarm(Enum):
    """What can be on."""

    MEMORY = "memory"
    """The process is too large."""
    DISK_SPACE = "disk space"
    """The file system of the data directory is almost full."""
    DISK_FULL = "full disk"
    """A write was refused for lack of space, whatever the measured space says."""


RESOURCES = {Alarm.MEMORY: "memory", Alarm.DISK_SPACE: "disk", Alarm.DISK_FULL: "disk"}
"""What clients are told."""


class Level(IntEnum):
    """How far an alarm has gone."""

    OFF = 0
    LOW = 1
    HARD = 2


class AlarmListener(Protocol):
    """Somebody who publishes, or lets others do so."""

    def alarms_changed(self) -> None:
        """The level or the reason is another one than before."""


class Alarms:
    """The alarms of one broker and those who are told when they change."""

    __slots__ = ("_levels", "_listeners", "level")

    def __init__(self) -> None:
        self._levels: dict[Alarm, Level] = {}
        self._listeners: dict[AlarmListener, None] = {}
        self.level = Level.OFF

    def set(self, alarm: Alarm, level: Level) -> bool:
        """*alarm* is at *level* from now on; answers whether that is news."""
        if level is self.level_of(alarm):
            return False
        if level is Level.OFF:
            del self._levels[alarm]
        else:
            self._levels[alarm] = level
        self.level = max(self._levels.values(), default=Level.OFF)
        for listener in list(self._listeners):
            listener.alarms_changed()
        return True

    def level_of(self, alarm: Alarm) -> Level:
        """How far *alarm* has gone."""
        return self._levels.get(alarm, Level.OFF)

    @property
    def reason(self) -> str:
        """What the broker is short of, as clients are told; empty if it is short of nothing."""
        resources = {RESOURCES[alarm]: None for alarm in Alarm if alarm in self._levels}
        return "low on " + " & ".join(resources) if resources else ""

    def listen(self, listener: AlarmListener) -> None:
        """Tell *listener* of changes."""
        self._listeners[listener] = None

    def ignore(self, listener: AlarmListener) -> None:
        """Tell *listener* no more. Idempotent."""
        self._listeners.pop(listener, None)
