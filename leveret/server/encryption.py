"""Where the encryption keys come from: a file, or the environment."""

import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from leveret.server.config import KEYS_VARIABLE, Config, ConfigError
from leveret.storage.key_ring import KeyRing, UnusableKeys, open_key_ring, parse_keys

logger = logging.getLogger(__name__)


def load_key_ring(config: Config, environment: Mapping[str, str]) -> KeyRing | None:
    """Return the keys for the data directory, which is locked; None if nothing is encrypted.

    Raises ConfigError, UnusableKeys.
    """
    file, text = config.encryption_key_file, environment.get(KEYS_VARIABLE)
    if file is not None and text is not None:
        raise ConfigError(f"both encryption_key_file and {KEYS_VARIABLE} are given: take one")
    source = str(file) if file is not None else KEYS_VARIABLE
    if file is not None:
        text = _read(file)
    keys = [] if text is None else parse_keys(text, source)
    ring = open_key_ring(config.data_dir, keys, source)
    if ring is not None:
        logger.info(
            "messages are encrypted with key %d, fingerprint %s; keys given: %d",
            ring.current,
            ring.table.fingerprints[ring.current],
            len(keys),
        )
    return ring


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            content = opened.read()
    except OSError as error:
        raise UnusableKeys(f"{file}: cannot be read: {error.strerror}") from None
    if mode & stat.S_IRWXO:
        logger.warning("everybody may read or change the keys in %s: chmod 600 %s", file, file)
    # Whatever is no key is refused with the number of its line.
    return content.decode("ascii", "replace")
