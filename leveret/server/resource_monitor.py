"""ResourceMonitor: measures once a second what the broker has left, and sets the alarms."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import anyio
import anyio.to_thread

from leveret.broker.alarms import Alarm, Alarms, Level
from leveret.server.config import Config
from leveret.server.option_kinds import MIB

logger = logging.getLogger(__name__)

INTERVAL_S = 1.0

CONSEQUENCES = {Level.LOW: "wait", Level.HARD: "wait, those with confirms are refused"}

Measure = Callable[[], int]
"""Answers a number of bytes. Raises OSError."""


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Where alarms begin, in bytes: of free disk space and of memory in use."""

    low_disk: int
    hard_disk: int
    low_memory: int
    hard_memory: int

    @classmethod
    def of(cls, config: Config, memory_bytes: int) -> "ResourceLimits":
        """The limits that *config* sets on a machine with *memory_bytes*.

        A hard limit on the wrong side of its watermark counts as equal to it.
        """
        low_memory = _of_memory(config.memory_high_watermark, memory_bytes)
        return cls(
            config.disk_free_limit,
            min(config.disk_free_hard_limit, config.disk_free_limit),
            low_memory,
            max(_of_memory(config.memory_hard_limit, memory_bytes), low_memory),
        )


def _of_memory(limit: float, memory_bytes: int) -> int:
    return int(limit * memory_bytes) if isinstance(limit, float) else limit


class ResourceMonitor:
    """Keeps the alarms up to date. *give_back* returns freed memory to the system."""

    def __init__(
        self,
        alarms: Alarms,
        limits: ResourceLimits,
        *,
        free_disk: Measure,
        used_memory: Measure,
        give_back: Callable[[], None],
    ) -> None:
        self._alarms = alarms
        self._limits = limits
        self._free_disk = free_disk
        self._used_memory = used_memory
        self._give_back = give_back
        self._measured = True

    async def run(self) -> None:
        """Check for as long as the task lives."""
        while True:
            await anyio.sleep(INTERVAL_S)
            self.check()
            if self._alarms.level_of(Alarm.MEMORY) is not Level.OFF:
                # What consumers have taken is free, but the allocator holds on to it.
                await anyio.to_thread.run_sync(self._give_back)

    def check(self) -> None:
        """Measure, and set the alarms accordingly; what cannot be measured stays as it is."""
        try:
            free, used = self._free_disk(), self._used_memory()
        except OSError as error:
            if self._measured:
                logger.warning("disk space and memory cannot be measured: %s", error)
            self._measured = False
            return
        self._measured = True
        limits = self._limits
        self._judge(
            Alarm.DISK_SPACE,
            _level(free < limits.low_disk, free < limits.hard_disk),
            f"{_mib(free)} free, limits {_mib(limits.low_disk)} and {_mib(limits.hard_disk)}",
        )
        self._judge(
            Alarm.MEMORY,
            _level(used > limits.low_memory, used > limits.hard_memory),
            f"{_mib(used)} in use, limits {_mib(limits.low_memory)} and {_mib(limits.hard_memory)}",
        )

    def _judge(self, alarm: Alarm, level: Level, figures: str) -> None:
        if not self._alarms.set(alarm, level):
            return
        if level is Level.OFF:
            logger.info("alarm cleared: %s: %s", alarm.value, figures)
        else:
            logger.warning(
                "alarm: %s: %s: publishers %s", alarm.value, figures, CONSEQUENCES[level]
            )


def _level(is_low: bool, is_hard: bool) -> Level:
    if is_hard:
        return Level.HARD
    return Level.LOW if is_low else Level.OFF


def _mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"
