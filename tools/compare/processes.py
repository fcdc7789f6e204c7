"""Processes: the tree below a broker, what memory it takes, and the ports that are free."""

import os
import socket
from collections import defaultdict
from pathlib import Path


class CompareError(Exception):
    """A measurement that cannot be done. One line of text."""


def tree(pid: int) -> list[int]:
    """The process *pid* and all below it."""
    children = defaultdict(list)
    for entry in Path("/proc").iterdir():
        # One that ends after it was listed has no parent any more.
        if entry.name.isdigit() and (known := _state_and_parent(int(entry.name))):
            children[known[1]].append(int(entry.name))
    pids = [pid]
    for parent in pids:
        pids += children[parent]
    return pids


def resident_bytes(pid: int) -> int:
    """The resident memory of *pid* and all below it; pages that several share count for each."""
    return sum(_resident_bytes(one) for one in tree(pid))


def stolen_s() -> float:
    """The CPU time since boot that the machine under this one gave to others."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


def is_free(port: int) -> bool:
    """Whether nobody listens on *port* of the loopback interface."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def is_running(pid: int) -> bool:
    """Whether the process is there and has not ended."""
    state_and_parent = _state_and_parent(pid)
    return state_and_parent is not None and state_and_parent[0] != "Z"


def _state_and_parent(pid: int) -> tuple[str, int] | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, parent, *_ = stat.rpartition(")")[2].split()
    return state, int(parent)


def _resident_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))
