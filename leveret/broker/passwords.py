"""Password hashes in RabbitMQ's format: base64 of a 4-byte salt and digest(salt + password)."""

import base64
import hashlib
import hmac
import os
from enum import StrEnum

SALT_SIZE = 4


class HashingAlgorithm(StrEnum):
    """The digests, under the names that RabbitMQ's definitions files have for them."""

    SHA256 = "rabbit_password_hashing_sha256"
    SHA512 = "rabbit_password_hashing_sha512"
    MD5 = "rabbit_password_hashing_md5"


def hash_password(password: str, algorithm: HashingAlgorithm = HashingAlgorithm.SHA256) -> str:
    """Hash *password* with a new random salt."""
    salt = os.urandom(SALT_SIZE)
    return base64.b64encode(salt + _digest(salt, password, algorithm)).decode()


def verify_password(password: str, password_hash: str, algorithm: HashingAlgorithm) -> bool:
    """Whether *password_hash* was made from *password*; a hash not in the format is from none.

    The time it takes does not depend on how much of the digest agrees.
    """
    try:
        raw = base64.b64decode(password_hash, validate=True)
    except ValueError:
        return False
    salt, digest = raw[:SALT_SIZE], raw[SALT_SIZE:]
    return hmac.compare_digest(digest, _digest(salt, password, algorithm))


def _digest(salt: bytes, password: str, algorithm: HashingAlgorithm) -> bytes:
    name = algorithm.removeprefix("rabbit_password_hashing_")
    return hashlib.new(name, salt + password.encode()).digest()
