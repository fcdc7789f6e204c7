"""`leveret key`."""

import os
import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from leveret.server.commands.options import data_dir_option, json_option
from leveret.server.commands.table import show
from leveret.server.failure import Failure
from leveret.storage.errors import StorageError
from leveret.storage.files import HEADER_SIZE, check_header, is_unwritten
from leveret.storage.key_ring import KEY_SIZE, read_key_table
from leveret.storage.segment import KEY_SHIFT, KNOWN_FLAGS, LOG_MAGIC, LOG_SUFFIX


@click.group(
    epilog="""\b
    Example:
      (umask 077; leveret key new > /etc/leveret.key)
      leveret serve --encryption-key-file /etc/leveret.key
    """,
)
def key() -> None:
    """Keys for the encryption of messages on disk."""


@key.command()
def new() -> None:
    """Write a new random key."""
    click.echo(secrets.token_hex(KEY_SIZE))


@key.command("list")
@json_option
@data_dir_option
def list_(data_dir: Path, as_json: bool) -> None:
    """List the keys that messages are encrypted with, and how much of them is on disk.

    Looks at the files, whether a broker runs or not. Key 0 stands for not encrypted. A key
    without segments is not needed any more, unless it is the current one.
    """
    try:
        table = read_key_table(data_dir)
        segments, sizes = Counter[int](), Counter[int]()
        for number, size in _segments(data_dir):
            segments[number] += 1
            sizes[number] += size
    except (OSError, StorageError) as error:
        raise Failure(str(error)) from None
    fingerprints = {} if table is None else table.fingerprints
    rows = [
        {
            "key": number,
            "fingerprint": fingerprints.get(number),
            "current": number == (0 if table is None else table.current),
            "segments": segments[number],
            "bytes": sizes[number],
        }
        for number in sorted({*fingerprints, *segments})
    ]
    show(rows, ("key", "fingerprint", "current", "segments", "bytes"), as_json=as_json)


def _segments(data_dir: Path) -> Iterator[tuple[int, int]]:
    """The number of its key and the bytes of each segment that has records."""
    for directory, _, names in os.walk(data_dir):
        for name in names:
            if name.endswith(LOG_SUFFIX):
                path = Path(directory, name)
                try:
                    with path.open("rb") as file:
                        header = file.read(HEADER_SIZE)
                        size = os.fstat(file.fileno()).st_size
                except FileNotFoundError:
                    continue  # a broker that runs has deleted it
                if size > HEADER_SIZE and not is_unwritten(header, LOG_MAGIC):
                    yield check_header(path, header, LOG_MAGIC, KNOWN_FLAGS) >> KEY_SHIFT, size
