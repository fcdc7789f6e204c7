"""Rendezvous hashing: every node draws a number for a key, and the best number gets the key.

A node draws -log(u) / weight, with u from (0, 1] that depends on the key and the node's name alone.
Such draws are exponentially distributed with the weight as their rate, so the smallest of all is a
node's with the probability weight / sum of weights. When a node comes, goes or changes its weight,
only keys to or from that node move. Where a key leads depends on the set of nodes and not on the
order in which they came: it is the same after a restart.
"""

from hashlib import blake2b
from math import log
from typing import Generic, TypeVar

Node = TypeVar("Node")

_MASK = (1 << 64) - 1
# Odd and without a pattern: spreads the low bits of seed xor key over the high ones.
_MULTIPLIER = 0x9E3779B97F4A7C15
_UNIT = 2.0**-64


def stable_hash(key: bytes) -> int:
    """Return 64 bits that depend on *key* only, in every process and version."""
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big")


class RendezvousHash(Generic[Node]):
    """Nodes with weights, among which keys are distributed."""

    __slots__ = ("_nodes",)

    def __init__(self) -> None:
        # Node -> seed and weight.
        self._nodes: dict[Node, tuple[int, int]] = {}

    def add(self, node: Node, name: str, weight: int) -> None:
        """Give *node* so much more weight. *name* tells it from the others."""
        seed, present = self._nodes.get(node) or (stable_hash(name.encode()), 0)
        self._nodes[node] = seed, present + weight

    def remove(self, node: Node, weight: int) -> None:
        """Take so much weight from *node*, which must have it; without any it is gone."""
        seed, present = self._nodes.pop(node)
        if present > weight:
            self._nodes[node] = seed, present - weight

    def owner(self, key: bytes) -> Node | None:
        """The node that *key* leads to, None if there is no node."""
        hashed = stable_hash(key)
        owner = None
        shortest = float("inf")
        for node, (seed, weight) in self._nodes.items():
            draw = -log((((hashed ^ seed) * _MULTIPLIER & _MASK) + 0.5) * _UNIT) / weight
            if draw < shortest:
                shortest = draw
                owner = node
        return owner
