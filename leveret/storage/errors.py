"""What can go wrong with bytes on disk. None of these reaches a client as such."""

from pathlib import Path


class StorageError(Exception):
    """An error of the storage layer."""


class UnsupportedFormat(StorageError):
    """A file that is not ours, or that a newer version wrote."""

    def __init__(self, path: Path, expected: str, found: bytes) -> None:
        super().__init__(f"{path}: expected {expected}, found {found.hex(' ')}")
        self.path = path


class CorruptRecord(StorageError):
    """A record whose bytes are not the ones that were written.

    `position` is the byte in the file where the record begins.
    """

    def __init__(self, path: Path, position: int, offset: int, expected: str) -> None:
        super().__init__(f"{path}: record {offset} at byte {position}: expected {expected}")
        self.path = path
        self.position = position
        self.offset = offset


class DamagedIndex(StorageError):
    """An index file that is missing or not sorted; the log can rebuild it."""


class DamagedSnapshot(StorageError):
    """A snapshot whose bytes are not the ones that were written; the state logs replace it."""


class OffsetOutOfRange(StorageError):
    """A read at an offset whose segment was deleted."""


class MissingKey(StorageError):
    """An encrypted file whose key was not given."""

    def __init__(self, path: Path, which: str) -> None:
        super().__init__(f"{path}: encrypted with {which}")
        self.path = path


class NotAuthentic(StorageError):
    """An encrypted record that is whole, but not what was written here with the key."""

    def __init__(self, path: Path, offset: int) -> None:
        super().__init__(
            f"{path}: record {offset}: not authentic: its checksum is right, but it was not "
            "encrypted here with the key of this file"
        )
        self.path = path
        self.offset = offset


class DiskFull(StorageError):
    """The file system or the quota has no room for a write, which was undone; try again later."""


class LogFailed(StorageError):
    """A log that met an error while writing. It stays closed for writing until recovery."""
