"""Where the control socket of a broker is: in its data directory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOCKET_NAME = "control.sock"
ADDRESS_MAX = 107
"""Bytes of a path that fit into the address of a UNIX socket (unix(7))."""


@contextmanager
def socket_address(data_dir: Path) -> Iterator[str]:
    """A path of the socket that is short enough, valid in the context.

    Raises OSError if the path is too long and the directory cannot be opened.
    """
    path = str(data_dir / SOCKET_NAME)
    if len(os.fsencode(path)) <= ADDRESS_MAX:
        yield path
        return
    descriptor = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)
