"""Index file: sorted pairs of numbers in memory, and behind them on disk.

What the two sparse indexes of a segment share. Keys never fall, values always rise.
"""

import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable
from itertools import islice
from operator import ge, gt
from pathlib import Path

from leveret.storage.errors import DamagedIndex
from leveret.storage.files import HEADER_SIZE, LogFile, check_header


class IndexFile:
    """Pairs of a key and a value; a prefix of them is in the file.

    `unload` drops the pairs from memory; the next use loads them from the file.
    """

    __slots__ = ("_entry", "_file", "_keys", "_loaded", "_values", "_written")

    def __init__(self, path: Path, magic: bytes, entry: struct.Struct) -> None:
        self._file = LogFile(path, magic)
        self._entry = entry
        self._keys = array("Q")
        self._values = array("Q")
        self._written = 0
        self._loaded = True

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def __len__(self) -> int:
        self._ensure_loaded()
        return len(self._keys)

    def append(self, key: int, value: int) -> None:
        """Add a pair in memory; a key lower than the last one counts as the last one."""
        self._ensure_loaded()
        self._keys.append(max(key, self._keys[-1]) if self._keys else key)
        self._values.append(value)

    def find(self, key: int) -> tuple[int, int] | None:
        """Return the last pair whose key is at most *key*."""
        self._ensure_loaded()
        at = bisect_right(self._keys, key)
        return (self._keys[at - 1], self._values[at - 1]) if at else None

    def last(self) -> tuple[int, int] | None:
        """Return the last pair."""
        self._ensure_loaded()
        return (self._keys[-1], self._values[-1]) if self._keys else None

    def count_below(self, value: int) -> int:
        """Return how many pairs have a lower value."""
        self._ensure_loaded()
        return bisect_right(self._values, value - 1)

    def cut(self, count: int) -> None:
        """Keep the first *count* pairs; `trim` is for the file."""
        self._ensure_loaded()
        del self._keys[count:], self._values[count:]
        self._written = min(self._written, count)

    def trim(self) -> None:
        """Cut the file behind the pairs that it shall have. Raises OSError."""
        if not self._written:
            self._file.delete()
        elif self._file.size > HEADER_SIZE + self._written * self._entry.size:
            self._file.truncate(HEADER_SIZE + self._written * self._entry.size)
            self._file.close()

    def write(self, count: int) -> None:
        """Bring the file up to the first *count* pairs. Raises DiskFull, OSError."""
        pending = slice(self._written, count)
        pairs = zip(self._keys[pending], self._values[pending], strict=True)
        data = b"".join(self._entry.pack(*pair) for pair in pairs)
        if not data:
            return
        try:
            self._file.append([data])
        finally:
            self._file.close()
        self._written = count

    @property
    def is_written(self) -> bool:
        """Whether the file has all pairs."""
        return not self._loaded or self._written == len(self._keys)

    def unwritten(self, count: int) -> int:
        """Return how many of the first *count* pairs the file lacks."""
        return count - self._written

    def load(self) -> None:
        """Read the file. A torn entry at its end is ignored.

        Raises DamagedIndex if there is no file or its pairs are not sorted, UnsupportedFormat for
        a file that a newer version wrote.
        """
        path, size = self._file.path, self._entry.size
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise DamagedIndex(f"{path}: missing") from error
        if len(data) < HEADER_SIZE or not data.startswith(self._file.magic):
            raise DamagedIndex(f"{path}: expected a header, found {data[:HEADER_SIZE].hex(' ')}")
        check_header(path, data[:HEADER_SIZE], self._file.magic)
        count = (len(data) - HEADER_SIZE) // size
        pairs = self._entry.iter_unpack(data[HEADER_SIZE : HEADER_SIZE + count * size])
        keys, values = zip(*pairs, strict=True) if count else ((), ())
        if any(map(gt, keys, islice(keys, 1, None))) or any(
            map(ge, values, islice(values, 1, None))
        ):
            raise DamagedIndex(f"{path}: expected sorted entries")
        self._keys, self._values = array("Q", keys), array("Q", values)
        self._file.size = HEADER_SIZE + count * size
        self._written = count
        self._loaded = True

    def keep(self, is_right: Callable[[int, int], bool]) -> bool:
        """Drop the pairs that are not right, from memory; answers whether there are any.

        Only for an index that is complete: its file stays as it is.
        """
        self._ensure_loaded()
        right = [pair for pair in zip(self._keys, self._values, strict=True) if is_right(*pair)]
        if len(right) == len(self._keys):
            return False
        self._keys = array("Q", [key for key, _ in right])
        self._values = array("Q", [value for _, value in right])
        self._written = len(right)
        return True

    def unload(self) -> None:
        """Drop the pairs from memory; all of them must be in the file."""
        assert not self._loaded or self._written == len(self._keys)
        self._keys, self._values = array("Q"), array("Q")
        self._loaded = False

    def share(self, copy: "IndexFile") -> None:
        """Give *copy* the pairs of this one, for a reader in another thread."""
        self._ensure_loaded()
        copy._keys, copy._values = self._keys[:], self._values[:]

    def replace(self, path: Path) -> None:
        """Put the file at *path* in the place of this one, to be loaded when needed.

        Raises OSError.
        """
        path.replace(self.path)
        self._keys, self._values = array("Q"), array("Q")
        self._loaded = False

    def clear(self) -> None:
        """Forget everything; `trim` is for the file."""
        self._keys, self._values = array("Q"), array("Q")
        self._written = 0
        self._loaded = True

    def delete(self) -> None:
        """Remove the file."""
        self._file.delete()

    @property
    def is_loaded(self) -> bool:
        """Whether the pairs are in memory."""
        return self._loaded

    def _ensure_loaded(self) -> None:
        if not self._loaded:
            self.load()
