"""What the broker uses of its machine, and what it may use.

Memory counts as the kernel counts it: resident pages of this process, against the machine's memory
or what a control group allows of it. Outside of Linux memory in use is not measured.
"""

import ctypes
import os
from pathlib import Path

MIB = 1024 * 1024
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""
PROC = Path("/proc")
CONTROL_GROUPS = Path("/sys/fs/cgroup")


def free_disk_bytes(path: Path) -> int:
    """Return the bytes that this process may still write to the file system of *path*."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def resident_bytes(proc: Path = PROC) -> int:
    """Return the bytes of memory that this process takes; 0 where nobody can tell."""
    statm = proc / "self" / "statm"
    if not statm.exists():
        return 0
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def available_memory_bytes(proc: Path = PROC, control_groups: Path = CONTROL_GROUPS) -> int:
    """Return the bytes of memory of the machine, or fewer if a control group allows fewer."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    membership = proc / "self" / "cgroup"
    for line in membership.read_text().splitlines() if membership.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            limits += _group_limits(control_groups, path, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _group_limits(control_groups / "memory", path, "memory.limit_in_bytes")
    return min(limits)


def _group_limits(root: Path, path: str, name: str) -> list[int]:
    """The limits of the group at *path* and of all that it is in; within a container it is /."""
    group = root / path.lstrip("/")
    files = [parent / name for parent in (group, *group.parents) if parent.is_relative_to(root)]
    found = [file.read_text().strip() for file in files if file.exists()]
    return [int(text) for text in found if text.isdigit()]


def keep_heap() -> None:
    """Have the allocator keep what a turn frees for the next one, if it is glibc's.

    Else it may return the top of the heap to the system after every chunk from a socket, and fault
    it in again for the next one: seen with hundreds of thousands of page faults in 4 s, or with
    none, as the heap happened to lie.
    """
    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    if tune is not None:
        # Setting one ends glibc's own adjustment of both.
        tune(M_MMAP_THRESHOLD, 8 * MIB)
        tune(M_TRIM_THRESHOLD, 16 * MIB)


def trim_heap() -> None:
    """Have the allocator return free pages to the system, if it is glibc's. Blocks."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
