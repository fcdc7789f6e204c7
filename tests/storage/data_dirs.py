"""Data directories made of files alone: two queues, delayed messages, remembered keys."""

import os
from pathlib import Path

from leveret.storage.changes import PutQueue, PutVHost
from leveret.storage.data_directory import check_format
from leveret.storage.due_run import DueRun
from leveret.storage.key_log import KeyLog
from leveret.storage.metadata import MetadataStore
from leveret.storage.recovery import recover
from leveret.storage.rows import QueueRow, VHostRow
from leveret.storage.state_log import State
from tests.storage.log_files import SMALL, append, mark, new_log, payload_at, read_all, sync

MESSAGES = 150
ACKED = frozenset((*range(3), *range(10, 30), 60, 61, *range(110, 115)))
SIZES = (40, 76, 120, 76, 10)


def make_data_dir(directory: Path) -> Path:
    """Several segments, some messages done with; a snapshot; stopped cleanly."""
    directory.mkdir()
    check_format(directory)
    store = MetadataStore(directory / "metadata.sqlite")
    store.apply([PutVHost(VHostRow(1, "/"))])
    rows = [QueueRow(1, 1, "orders", "classic", True, False)]
    rows.append(QueueRow(2, 1, "others", "classic", True, False))
    store.apply([PutQueue(row) for row in rows])
    store.close()
    for path in (queue_dir(directory), queue_dir(directory, 2), delayed_dir(directory)):
        write_log(path)
    DueRun.write(delayed_dir(directory), 0, 50, [(i, i) for i in range(50)], set())
    keys = KeyLog(keys_path(directory), b"b" * 16)
    for block in range(4):
        keys.append({b"%016d" % (block * 5 + i): 8 for i in range(5)})
    keys.close()
    return directory


def queue_dir(directory: Path, number: int = 1) -> Path:
    return directory / "vhosts" / "1" / "queues" / str(number)


def delayed_dir(directory: Path) -> Path:
    return directory / "vhosts" / "1" / "delayed"


def keys_path(directory: Path) -> Path:
    return directory / "vhosts" / "1" / "duplicates" / ("0" * 64 + ".keys")


def write_log(directory: Path) -> None:
    log = new_log(directory)
    for size in SIZES:
        append(log, *(5,) * (MESSAGES // len(SIZES) // 5), size=size)
        sync(log)
    mark(log, State.DELIVERED, (5, 20))
    mark(log, State.ACKED, *((offset, offset + 1) for offset in sorted(ACKED)))
    sync(log)
    log.take_snapshot()
    mark(log, State.DELIVERED, (100, 120))
    sync(log)
    log.close()


def content(offset: int) -> bytes:
    return payload_at(offset, SIZES[offset * len(SIZES) // MESSAGES])


def ready_messages(directory: Path) -> dict[int, bytes]:
    """What recovery gives to consumers, by offset."""
    log, found = recover(directory, SMALL, lambda: 0)
    try:
        payloads = read_all(log, found.ready)
    finally:
        log.close()
    offsets = [offset for start, end in found.ready for offset in range(start, end)]
    return dict(zip(offsets, payloads, strict=True))


def fingerprints(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and time of change of every file, and of the directories that they are in."""
    found: dict[str, tuple[bytes, int]] = {}
    for root, _, names in os.walk(directory):
        found[root] = b"", os.stat(root).st_mtime_ns
        for name in names:
            path = Path(root) / name
            data = path.read_bytes() if path.is_file() else b""
            found[str(path)] = data, path.stat().st_mtime_ns
    return found
