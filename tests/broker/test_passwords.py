import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.passwords import HashingAlgorithm, hash_password, verify_password

# The example of RabbitMQ's documentation: password "test12", salt 90 8D C6 0A.
DOCUMENTED = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"


def test_hash_of_the_rabbitmq_documentation_is_understood() -> None:
    assert verify_password("test12", DOCUMENTED, HashingAlgorithm.SHA256)
    assert not verify_password("test13", DOCUMENTED, HashingAlgorithm.SHA256)
    assert not verify_password("test12", DOCUMENTED, HashingAlgorithm.SHA512)


@given(password=st.text(), algorithm=st.sampled_from(HashingAlgorithm))
def test_hash_fits_its_password_and_no_other(password: str, algorithm: HashingAlgorithm) -> None:
    password_hash = hash_password(password, algorithm)
    assert verify_password(password, password_hash, algorithm)
    assert not verify_password(password + " ", password_hash, algorithm)


@pytest.mark.parametrize(
    ("algorithm", "digest"),
    [
        ("rabbit_password_hashing_sha256", hashlib.sha256),
        ("rabbit_password_hashing_sha512", hashlib.sha512),
        ("rabbit_password_hashing_md5", hashlib.md5),
    ],
)
def test_format_is_salt_and_digest_of_salt_and_password(algorithm: str, digest) -> None:  # type: ignore[no-untyped-def]  # hashlib's constructors have no public type
    raw = base64.b64decode(hash_password("pässword", HashingAlgorithm(algorithm)))
    assert raw[4:] == digest(raw[:4] + "pässword".encode()).digest()


def test_same_password_gets_another_salt() -> None:
    assert hash_password("p") != hash_password("p")


@pytest.mark.parametrize(
    "stored", ["", "AAAA", "no base64!", "é", DOCUMENTED[:-4], DOCUMENTED + "\n"]
)
def test_hash_that_is_not_in_the_format_fits_no_password(stored: str) -> None:
    assert not verify_password("", stored, HashingAlgorithm.SHA256)
    assert not verify_password("test12", stored, HashingAlgorithm.SHA256)
