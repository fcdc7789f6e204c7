"""Cipher: turns the payloads of a batch into ones that only the holder of the key can read.

An encrypted payload:
    12 bytes nonce, random
    the payload, encrypted with AES-256-GCM
    16 bytes tag

The tag also covers the record's timestamp, attributes and offset, 8 bytes each, big endian. So a
record that was changed, or moved within its segment, does not pass; nor does one of another
segment, which has another key (see key_ring.py). Bit 62 of the attributes says that the record is
encrypted: the number of the key is in the header of the file, which has no checksum.
"""

import os
import struct
from collections.abc import Iterator
from itertools import chain, repeat
from operator import add, itemgetter
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from leveret.storage.batch import Batch
from leveret.storage.errors import NotAuthentic
from leveret.storage.key_ring import OVERHEAD
from leveret.storage.record import ENCRYPTED, Picked

NONCE_SIZE = 12

_BINDING = struct.Struct(">QQQ")
_NONCE = struct.Struct(f"{NONCE_SIZE}s")
_nonce_of = itemgetter(slice(NONCE_SIZE))
_rest_of = itemgetter(slice(NONCE_SIZE, None))
_FORGED = (InvalidTag, ValueError)
"""What the library raises for a bad tag, and for a payload too short to have one."""


class Cipher:
    """Encrypts and decrypts the payloads of one segment with *key*, 32 bytes."""

    __slots__ = ("_aead",)

    def __init__(self, key: bytes) -> None:
        self._aead = AESGCM(key)

    def encrypt(self, batch: Batch) -> Batch:
        """Return *batch* as it is to be written."""
        random = os.urandom(NONCE_SIZE * len(batch.payloads))
        nonces = list(chain.from_iterable(_NONCE.iter_unpack(random)))
        attributes = batch.attributes | ENCRYPTED
        bindings = _bindings(batch, attributes)
        encrypted = map(self._aead.encrypt, nonces, batch.payloads, bindings)
        return _changed(batch, list(map(add, nonces, encrypted)), attributes, OVERHEAD)

    def decrypt(self, batch: Batch, path: Path) -> Batch:
        """Return what `encrypt` made *batch* of, up to a message that is not authentic.

        Raises NotAuthentic if that is the first one; *path* is for the message.
        """
        payloads = batch.payloads
        decrypt = self._aead.decrypt
        nonces, rests = map(_nonce_of, payloads), map(_rest_of, payloads)
        try:
            plain = list(map(decrypt, nonces, rests, _bindings(batch, batch.attributes)))
        except _FORGED:
            plain = list(self._decrypt_each(batch, path))
        return _changed(batch, plain, batch.attributes & ~ENCRYPTED, -OVERHEAD)

    def decrypt_one(self, picked: Picked, path: Path) -> Picked:
        """Return what was to be written as *picked*. Raises NotAuthentic."""
        offset, timestamp_ms, attributes, payload = picked
        binding = _BINDING.pack(timestamp_ms, attributes, offset)
        try:
            plain = self._aead.decrypt(payload[:NONCE_SIZE], payload[NONCE_SIZE:], binding)
        except _FORGED:
            raise NotAuthentic(path, offset) from None
        return offset, timestamp_ms, attributes & ~ENCRYPTED, plain

    def _decrypt_each(self, batch: Batch, path: Path) -> Iterator[bytes]:
        for offset, payload in enumerate(batch.payloads, batch.first_offset):
            picked = offset, batch.timestamp_ms, batch.attributes, payload
            try:
                yield self.decrypt_one(picked, path)[-1]
            except NotAuthentic:
                if offset == batch.first_offset:
                    raise
                return


def _bindings(batch: Batch, attributes: int) -> Iterator[bytes]:
    offsets = range(batch.first_offset, batch.next_offset)
    return map(_BINDING.pack, repeat(batch.timestamp_ms), repeat(attributes), offsets)


def _changed(batch: Batch, payloads: list[bytes], attributes: int, growth: int) -> Batch:
    length = batch.payload_length and batch.payload_length + growth
    return Batch(batch.first_offset, batch.timestamp_ms, attributes, payloads, length)
