"""Key ring: the keys that messages on disk are encrypted with, and the numbers they go by.

A segment has one key, whose number is in the header of its `.log`; 0 stands for not encrypted.
`keys.json` in the data directory says which key has which number, and holds no key:

    {"version": 1, "salt": 16 bytes, "keys": {"1": fingerprint, ...}, "current": 1}

Derived keys, with HKDF-SHA256 (RFC 5869) of salt and key:
    fingerprint   8 bytes   info "leveret fingerprint"
    of a segment  32 bytes  info "leveret segment <path of the .log in the data directory>"

Salt and fingerprints are in hex. The first offset of a segment is part of its path, so that no key
encrypts more messages than a segment has, and random nonces do not repeat.
"""

import base64
import hmac
import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from leveret.storage.data_directory import DataDirectoryError
from leveret.storage.errors import MissingKey
from leveret.storage.files import replace_file

if TYPE_CHECKING:
    from leveret.storage.cipher import Cipher

KEYS_NAME = "keys.json"
KEY_SIZE = 32
OVERHEAD = 28
"""Bytes by which an encrypted payload is longer than the message (see cipher.py)."""
LAST_NUMBER = 255
"""The number of a key has one byte in the header of a file."""

_SALT_SIZE = 16
_FINGERPRINT_SIZE = 8
_HEX_KEY = re.compile("[0-9A-Fa-f]{64}")
_BASE64_KEY = re.compile("[0-9A-Za-z+/]{43}=")


class UnusableKeys(DataDirectoryError):
    """The keys that were given do not fit; the message is one line, without any key."""


def parse_keys(text: str, source: str) -> list[bytes]:
    """Return the keys in *text*, one a line; `#` begins a comment.

    Raises UnusableKeys, which names *source*.
    """
    keys = []
    for number, line in enumerate(text.splitlines(), 1):
        written = line.partition("#")[0].strip()
        if _HEX_KEY.fullmatch(written):
            keys.append(bytes.fromhex(written))
        elif _BASE64_KEY.fullmatch(written):
            keys.append(base64.b64decode(written))
        elif written:
            expected = "64 hexadecimal digits, or 32 bytes in base64"
            raise UnusableKeys(f"{source}, line {number}: expected {expected}")
    if not keys:
        raise UnusableKeys(f"{source}: no key in it")
    return keys


def fingerprint_of(key: bytes, salt: bytes) -> str:
    """What stands for *key* in the data directory that has *salt*."""
    return _expand(_extract(salt, key), "leveret fingerprint", _FINGERPRINT_SIZE).hex()


@dataclass(frozen=True, slots=True)
class KeyTable:
    """What `keys.json` says: fingerprints by number, and the number of the current key."""

    salt: bytes
    fingerprints: Mapping[int, str]
    current: int

    def encode(self) -> bytes:
        """The bytes of the file."""
        document = {
            "version": 1,
            "salt": self.salt.hex(),
            "keys": {str(number): text for number, text in self.fingerprints.items()},
            "current": self.current,
        }
        return json.dumps(document, indent=2).encode() + b"\n"


def read_key_table(data_dir: Path) -> KeyTable | None:
    """Return what is in the file, None if there is none. Raises UnusableKeys."""
    path = data_dir / KEYS_NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnusableKeys(f"{path} cannot be read: {error.strerror}") from error
    try:
        document = json.loads(content)
        version = document["version"]
        salt = bytes.fromhex(document["salt"])
        fingerprints = {int(number): str(text) for number, text in document["keys"].items()}
        table = KeyTable(salt, fingerprints, int(document["current"]))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UnusableKeys(f"{path} is damaged: bring it back from a backup") from None
    if version != 1:
        raise UnusableKeys(f"{path} has version {version} of a newer leveret; this one reads 1")
    is_sound = all(1 <= number <= LAST_NUMBER for number in fingerprints)
    if not is_sound or table.current not in fingerprints or len(salt) != _SALT_SIZE:
        raise UnusableKeys(f"{path} is damaged: bring it back from a backup")
    return table


class KeyRing:
    """The keys of the data directory *data_dir*: those of *keys* by what *table* calls them."""

    __slots__ = ("_data_dir", "_roots", "table")

    def __init__(self, data_dir: Path, table: KeyTable, keys: Iterable[bytes]) -> None:
        self.table = table
        self._data_dir = data_dir
        roots = {fingerprint_of(key, table.salt): _extract(table.salt, key) for key in keys}
        self._roots = {
            number: roots[fingerprint]
            for number, fingerprint in table.fingerprints.items()
            if fingerprint in roots
        }

    @property
    def current(self) -> int:
        """The number of the key for new segments."""
        return self.table.current

    def __contains__(self, number: int) -> bool:
        return number in self._roots

    def require(self, number: int, path: Path) -> None:
        """Make sure that the key with *number* was given, which *path* needs; 0 is none.

        Raises MissingKey.
        """
        if number and number not in self._roots:
            fingerprint = self.table.fingerprints.get(number)
            if fingerprint is None:
                raise MissingKey(path, f"key {number}, which {KEYS_NAME} does not know")
            raise MissingKey(path, f"key {number}, fingerprint {fingerprint}, which was not given")

    def cipher(self, number: int, path: Path) -> "Cipher":
        """What encrypts the segment whose `.log` is at *path* with the key *number*.

        Raises MissingKey.
        """
        from leveret.storage.cipher import Cipher

        self.require(number, path)
        info = f"leveret segment {path.relative_to(self._data_dir).as_posix()}"
        return Cipher(_expand(self._roots[number], info, KEY_SIZE))


def open_key_ring(data_dir: Path, keys: Sequence[bytes], source: str) -> KeyRing | None:
    """Return the ring of *keys*, the first of them current; None if there are none, nor ever were.

    Gives a new key a number, durably. *source* is where the keys come from. Raises UnusableKeys
    if that cannot be written, and unless the key that was current until now is among them.
    """
    table = read_key_table(data_dir)
    if not keys:
        if table is None:
            return None
        raise UnusableKeys(
            f"data directory {data_dir} is encrypted with the key of fingerprint "
            f"{table.fingerprints[table.current]} and no key is given: set encryption_key_file"
        )
    _require_library()
    known = table or KeyTable(secrets.token_bytes(_SALT_SIZE), {}, 0)
    given = [fingerprint_of(key, known.salt) for key in keys]
    if table is not None and table.fingerprints[table.current] not in given:
        raise UnusableKeys(
            f"wrong key: data directory {data_dir} is encrypted with the key of fingerprint "
            f"{table.fingerprints[table.current]}, and {source} has {', '.join(given)}: add that "
            "key, behind a new one if there is one"
        )
    known = _with_current(known, given[0])
    if known != table:
        _write(data_dir / KEYS_NAME, known)
    return KeyRing(data_dir, known, keys)


def _with_current(table: KeyTable, fingerprint: str) -> KeyTable:
    for number, text in table.fingerprints.items():
        if text == fingerprint:
            return KeyTable(table.salt, table.fingerprints, number)
    number = max(table.fingerprints, default=0) + 1
    if number > LAST_NUMBER:
        raise UnusableKeys(f"{KEYS_NAME} has {LAST_NUMBER} keys, and there can be no more")
    return KeyTable(table.salt, {**table.fingerprints, number: fingerprint}, number)


def _write(path: Path, table: KeyTable) -> None:
    try:
        replace_file(path, table.encode())
    except OSError as error:
        raise UnusableKeys(f"{path} cannot be written: {error.strerror}") from error


def _require_library() -> None:
    try:
        import leveret.storage.cipher  # noqa: F401  # what it imports may be missing
    except ImportError as error:
        raise UnusableKeys(
            "encryption needs the package cryptography: pip install 'leveret[encryption]' "
            f"({error})"
        ) from None


def _extract(salt: bytes, key: bytes) -> bytes:
    return hmac.digest(salt, key, "sha256")


def _expand(root: bytes, info: str, size: int) -> bytes:
    """The one step of HKDF's expansion that up to 32 bytes take."""
    return hmac.digest(root, info.encode() + b"\x01", "sha256")[:size]
