"""Key check: reads a key log, and finds what is wrong with it."""

from pathlib import Path

from leveret.storage.errors import UnsupportedFormat
from leveret.storage.files import HEADER_SIZE, check_header, is_unwritten
from leveret.storage.key_log import KEY_LOG_MAGIC, blocks_end, find_block
from leveret.storage.log_scan import Progress
from leveret.storage.repairs import Finding, Repairs

_REPAIR = "keys from here on are forgotten: duplicates may pass"


def check_keys(path: Path, progress: Progress) -> Finding | None:
    """Return what is wrong with the key log *path*, None if nothing is. Raises OSError."""
    data = path.read_bytes()
    progress(len(data))
    if is_unwritten(data, KEY_LOG_MAGIC):
        return Finding(path, 0, "no header", _REPAIR, is_harmless=not any(data[HEADER_SIZE:]))
    try:
        check_header(path, data, KEY_LOG_MAGIC)
    except UnsupportedFormat as error:
        wrong = str(error).removeprefix(f"{path}: ")
        return Finding(path, 0, wrong, _REPAIR, position=0)
    end = blocks_end(data)
    if end >= len(data):
        return None
    # A crash leaves a torn block or zeros, and nothing good behind them.
    is_harmless = find_block(data, end + 1) is None
    wrong = f"{len(data) - end} bytes at the end are no block"
    if not is_harmless:
        wrong = "a damaged block, in front of good ones"
    return Finding(path, 0, wrong, _REPAIR, is_harmless, position=end)


def repair_keys(path: Path, repairs: Repairs) -> None:
    """Keep the blocks in front of the first bad one. Raises OSError."""
    data = path.read_bytes()
    is_sound = True
    try:
        check_header(path, data, KEY_LOG_MAGIC)
    except UnsupportedFormat:
        is_sound = False
    end = blocks_end(data) if is_sound else 0
    if end:
        repairs.replace(path, data[:end])
    else:
        repairs.remove(path)
