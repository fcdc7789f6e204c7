"""Variety: values that differ from message to message, chosen at random and encoded beforehand."""

import random
import struct
from collections.abc import Callable

_VALUES = 65536
_SEED = 1
# With these a message outlives every run, and all have as many digits.
_SHORTEST_EXPIRATION_MS = 1_000_000_000


class Cycle:
    """Values of *width* bytes, given as *packed*, over and over."""

    def __init__(self, packed: bytes, width: int) -> None:
        self._packed = packed
        self._width = width
        self._at = 0

    def take(self, count: int) -> bytes:
        """The next *count* values; fewer than there are."""
        end = self._at + count * self._width
        if end > len(self._packed):
            self._at, end = 0, count * self._width
        taken = self._packed[self._at : end]
        self._at = end
        return taken


def priorities(highest: int) -> Cycle:
    """Octets from 0 to *highest*."""
    return Cycle(bytes(_some(lambda choice: choice.randint(0, highest))), 1)


def expirations(different: int) -> Cycle:
    """So many *different* expirations, as 10 digits each."""
    values = list(range(_SHORTEST_EXPIRATION_MS, _SHORTEST_EXPIRATION_MS + different))
    random.Random(_SEED).shuffle(values)
    values *= -(-_VALUES // different)
    return Cycle(b"".join(b"%d" % value for value in values), 10)


def delays(longest_ms: int) -> Cycle:
    """Delays from the half of *longest_ms* to all of it, as i32."""
    values = _some(lambda choice: choice.randint(longest_ms // 2, longest_ms))
    return Cycle(struct.pack(f">{_VALUES}i", *values), 4)


def _some(choose: Callable[[random.Random], int]) -> list[int]:
    choice = random.Random(_SEED)
    return [choose(choice) for _ in range(_VALUES)]
