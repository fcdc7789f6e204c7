import logging
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from leveret.broker.alarms import Alarm, Alarms, Level
from leveret.server.config import Config
from leveret.server.option_kinds import GIB, MIB
from leveret.server.resource_monitor import ResourceLimits, ResourceMonitor
from leveret.server.resources import (
    available_memory_bytes,
    free_disk_bytes,
    resident_bytes,
    trim_heap,
)

LIMITS = ResourceLimits(low_disk=100 * MIB, hard_disk=50 * MIB, low_memory=GIB, hard_memory=2 * GIB)


class Machine:
    """A machine whose figures are set by the test."""

    def __init__(self) -> None:
        self.free_disk = 200 * MIB
        self.used_memory = 0
        self.is_readable = True
        self.trims = 0
        self.alarms = Alarms()
        self.monitor = ResourceMonitor(
            self.alarms,
            LIMITS,
            free_disk=lambda: self._read(self.free_disk),
            used_memory=lambda: self._read(self.used_memory),
            give_back=self._give_back,
        )

    def _read(self, value: int) -> int:
        if not self.is_readable:
            raise OSError(5, "Input/output error")
        return value

    def _give_back(self) -> None:
        self.trims += 1
        self.used_memory = 0

    def levels(self) -> tuple[Level, Level]:
        self.monitor.check()
        return self.alarms.level_of(Alarm.DISK_SPACE), self.alarms.level_of(Alarm.MEMORY)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.mark.parametrize(
    ("free", "level"),
    [
        (100 * MIB, Level.OFF),
        (100 * MIB - 1, Level.LOW),
        (50 * MIB, Level.LOW),
        (50 * MIB - 1, Level.HARD),
        (0, Level.HARD),
    ],
)
def test_little_free_disk_space_is_an_alarm(machine: Machine, free: int, level: Level) -> None:
    machine.free_disk = free
    assert machine.levels() == (level, Level.OFF)


@pytest.mark.parametrize(
    ("used", "level"),
    [
        (GIB, Level.OFF),
        (GIB + 1, Level.LOW),
        (2 * GIB, Level.LOW),
        (2 * GIB + 1, Level.HARD),
    ],
)
def test_much_memory_in_use_is_an_alarm(machine: Machine, used: int, level: Level) -> None:
    machine.used_memory = used
    assert machine.levels() == (Level.OFF, level)


def test_changes_are_logged_with_figures(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for free, used in [(90, 1), (90, 1), (10, 1500), (10, 1500), (200, 1)]:
        machine.free_disk, machine.used_memory = free * MIB, used * MIB
        machine.monitor.check()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "WARNING",
            "alarm: disk space: 90.0 MiB free, limits 100.0 MiB and 50.0 MiB: publishers wait",
        ),
        (
            "WARNING",
            "alarm: disk space: 10.0 MiB free, limits 100.0 MiB and 50.0 MiB: "
            "publishers wait, those with confirms are refused",
        ),
        (
            "WARNING",
            "alarm: memory: 1500.0 MiB in use, limits 1024.0 MiB and 2048.0 MiB: publishers wait",
        ),
        (
            "INFO",
            "alarm cleared: disk space: 200.0 MiB free, limits 100.0 MiB and 50.0 MiB",
        ),
        ("INFO", "alarm cleared: memory: 1.0 MiB in use, limits 1024.0 MiB and 2048.0 MiB"),
    ]


def test_what_cannot_be_measured_stays_as_it_is(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.free_disk = 0
    assert machine.levels() == (Level.HARD, Level.OFF)
    caplog.clear()
    machine.free_disk = GIB
    machine.is_readable = False
    assert [machine.levels() for _ in range(3)] == [(Level.HARD, Level.OFF)] * 3
    (record,) = caplog.records
    assert "Input/output error" in record.getMessage()
    machine.is_readable = True
    assert machine.levels() == (Level.OFF, Level.OFF)


def test_freed_memory_is_given_back_while_it_is_short(machine: Machine) -> None:
    machine.used_memory = 3 * GIB
    cleared = anyio.Event()

    class Listener:
        def alarms_changed(self) -> None:
            if machine.alarms.level is Level.OFF:
                cleared.set()

    async def watch() -> None:
        machine.alarms.listen(Listener())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(machine.monitor.run)
            with anyio.fail_after(15):
                await cleared.wait()
            tasks.cancel_scope.cancel()

    anyio.run(watch)
    assert machine.trims == 1


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({}, ResourceLimits(256 * MIB, 64 * MIB, int(0.6 * GIB), int(0.8 * GIB))),
        (
            {"disk_free_limit": 9, "memory_high_watermark": 0.9},
            ResourceLimits(9, 9, *[int(0.9 * GIB)] * 2),
        ),
        (
            {"memory_high_watermark": 100 * MIB, "memory_hard_limit": 200 * MIB},
            ResourceLimits(256 * MIB, 64 * MIB, 100 * MIB, 200 * MIB),
        ),
    ],
)
def test_limits_are_fractions_or_sizes(options: dict[str, int], limits: ResourceLimits) -> None:
    assert ResourceLimits.of(Config(**options), GIB) == limits  # type: ignore[arg-type]  # mixed kinds


# ---- the real machine


def test_the_real_machine_is_measured(tmp_path: Path) -> None:
    assert free_disk_bytes(tmp_path) > 0
    assert MIB < resident_bytes() < available_memory_bytes()
    trim_heap()


def test_elsewhere_memory_in_use_is_not_known(tmp_path: Path) -> None:
    assert resident_bytes(tmp_path) == 0
    assert available_memory_bytes(tmp_path, tmp_path) == available_memory_bytes()


Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return write


def test_a_control_group_sets_less(tmp_path: Path, write: Write) -> None:
    write("self/cgroup", "0::/system.slice/leveret.service\n")
    write("memory.max", "1\n")  # of the machine, not of a group
    write("groups/system.slice/memory.max", f"{300 * MIB}\n")
    write("groups/system.slice/leveret.service/memory.max", "max\n")
    assert available_memory_bytes(tmp_path, tmp_path / "groups") == 300 * MIB
    write("groups/system.slice/leveret.service/memory.max", f"{200 * MIB}\n")
    assert available_memory_bytes(tmp_path, tmp_path / "groups") == 200 * MIB


def test_a_control_group_of_the_first_version_sets_less(tmp_path: Path, write: Write) -> None:
    write("self/cgroup", "5:cpu,cpuacct:/\n4:memory:/docker/abc\n0::/\n")
    write("groups/memory/memory.limit_in_bytes", f"{200 * MIB}\n")
    assert available_memory_bytes(tmp_path, tmp_path / "groups") == 200 * MIB
    write("groups/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert available_memory_bytes(tmp_path, tmp_path / "groups") == available_memory_bytes()
