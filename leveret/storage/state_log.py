"""State log: what became of the records of one segment.

File format: entries of 16 bytes, big endian, in the order of events.
    u32 first offset relative to the segment's base, u32 count, u32 state,
    u32 crc32 of these 12 bytes
A record that has no entry is ready. Entries may repeat and overlap; they apply in their order, so
that one replayed after it was settled is ready, and one settled after it was replayed is not.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from itertools import chain, compress
from operator import eq
from zlib import crc32

STATE_MAGIC = b"LVST"
STATE_SUFFIX = ".state"
ENTRY_SIZE = 16

_BODY = struct.Struct(">III")
_CHECKSUM = struct.Struct(">I")
_SIGNED = struct.Struct(">12sI")


class State(IntEnum):
    """What an entry says of its records."""

    DELIVERED = 1
    """Handed to a consumer at least once."""
    ACKED = 2
    """Settled for good."""
    VOLATILE = 3
    """Transient: forgotten at the next start."""
    RETURNED = 4
    """Given back by the consumer."""
    FAILED = 5
    """Came back from a consumer that did not manage, or was lost."""
    REPLAYED = 6
    """Ready again though it was settled; its tries count from here on."""
    EXPIRED = 7
    """Settled: its time was over."""
    DROPPED = 8
    """Settled: a length limit made room."""
    REJECTED = 9
    """Settled: a consumer refused it, or too many failed."""
    PURGED = 10
    """Settled: the queue was emptied."""
    MOVED = 11
    """Settled: an operator moved it."""


STATES = frozenset(State)
SETTLED = frozenset(
    (State.ACKED, State.EXPIRED, State.DROPPED, State.REJECTED, State.PURGED, State.MOVED)
)
"""States of a message that is done with."""


Entry = tuple[int, int, int]
"""First relative offset, count, state."""


def encode_entries(entries: Sequence[Entry]) -> bytes:
    """Return the bytes of *entries*, without a file header."""
    if len(entries) == 1:
        body = _BODY.pack(*entries[0])
        return body + _CHECKSUM.pack(crc32(body))
    bodies = [_BODY.pack(*entry) for entry in entries]
    checksums = map(_CHECKSUM.pack, map(crc32, bodies))
    return b"".join(chain.from_iterable(zip(bodies, checksums, strict=True)))


def decode_entries(data: bytes) -> list[Entry]:
    """Return the entries of *data* whose checksum is right, in their order."""
    whole = memoryview(data)[: len(data) // ENTRY_SIZE * ENTRY_SIZE]
    if not whole:
        return []
    bodies, checksums = zip(*_SIGNED.iter_unpack(whole), strict=True)
    return [*map(_BODY.unpack, compress(bodies, map(eq, map(crc32, bodies), checksums)))]
