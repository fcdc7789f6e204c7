"""Broker process: what the one at the other end of a connection takes of this machine.

The system's tables say which process holds the socket (Linux, and only for our own processes unless
we are root).
"""

import os
import socket
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_TABLES = ("tcp", "tcp6")


def find_peer(connection: socket.socket) -> int | None:
    """The process that holds the other end of *connection*; None if it cannot be told."""
    ours, theirs = connection.getsockname(), connection.getpeername()
    if ours[0] != theirs[0]:
        return None
    with suppress(OSError):
        inode = _inode(theirs[1], ours[1])
        return _holder(f"socket:[{inode}]") if inode else None
    return None


def resident_mb(pid: int) -> float | None:
    """The resident memory of a process in units of 1,000,000 bytes; None if it has ended."""
    with suppress(OSError):
        pages = (_PROC / str(pid) / "statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return None


def cpu_s(pid: int) -> float | None:
    """The CPU time of a process, of all its threads, in seconds; None if it has ended."""
    with suppress(OSError):
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return None


def _inode(local_port: int, remote_port: int) -> str | None:
    """The number of the socket on this machine that connects these ports."""
    for table in _TABLES:
        for line in (_PROC / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            ports = [int(address.rpartition(":")[2], 16) for address in fields[1:3]]
            if ports == [local_port, remote_port]:
                return fields[9]
    return None


def _holder(link: str) -> int | None:
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            # It may be gone by now, or not be ours.
            with suppress(OSError):
                if any(os.readlink(handle) == link for handle in (entry / "fd").iterdir()):
                    return int(entry.name)
    return None
