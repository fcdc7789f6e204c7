"""Topic trie: finds the patterns of words that match a routing key.

Words are separated by dots. `*` stands for one word, `#` for any number of words, none included.
The empty key has no words; two dots in a row have an empty word between them.

A match goes through the key word by word and keeps the nodes reached so far, each once: several
`#` in a pattern do not multiply the work.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic

from leveret.exchanges.destination_set import DestinationSet, T


class TopicTrie(Generic[T]):
    """Patterns with their destinations."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Node[T] = _Node(is_hash=False)

    def __bool__(self) -> bool:
        """Whether there is any pattern."""
        return not self._root.is_empty()

    def add(self, pattern: str, destination: T) -> None:
        """Let *pattern* lead to *destination* once more."""
        words, ends_in_hash = _split_pattern(pattern)
        node = self._root
        for word in words:
            child = node.child(word)
            if child is None:
                child = _Node(is_hash=word == "#")
                node.set_child(word, child)
            node = child
        node.add(destination, is_tail=ends_in_hash)

    def remove(self, pattern: str, destination: T) -> None:
        """Undo one `add` of the same pattern and destination, which must have happened."""
        words, ends_in_hash = _split_pattern(pattern)
        node = self._root
        path = []
        for word in words:
            path.append((node, word))
            child = node.child(word)
            assert child is not None, pattern
            node = child
        node.remove(destination, is_tail=ends_in_hash)
        while path and node.is_empty():
            node, word = path.pop()
            node.set_child(word, None)

    def match(self, routing_key: str) -> Collection[T]:
        """The destinations of all patterns that match *routing_key*, each once.

        The answer may be a stored collection: valid until the next `add` or `remove`.
        """
        # One flat function: this is the hot path of every topic exchange. While there is one way
        # to go it follows one node; from the first wildcard on, a list of them.
        words = iter(routing_key.split(".") if routing_key else ())
        node = self._root
        while node.is_plain:
            word = next(words, None)
            if word is None:
                return node.destinations
            child = node.words.get(word)
            if child is None:
                return ()
            node = child
        nodes = [node]
        found: list[DestinationSet[T]] = []
        for word in words:
            following: list[_Node[T]] = []
            for node in nodes:
                child = node.words.get(word)
                if child is not None:
                    following.append(child)
                if node.is_plain:
                    continue
                if node.star is not None:
                    following.append(node.star)
                if node.tail:
                    found.append(node.tail)
                if node.hash is not None and node.hash not in nodes:
                    nodes.append(node.hash)  # its turn comes in this same loop
                if node.is_hash:
                    following.append(node)
            nodes = following
            if not nodes:
                break
        for node in nodes:
            if node.destinations:
                found.append(node.destinations)
            if node.is_plain:
                continue
            if node.tail:
                found.append(node.tail)
            if node.hash is not None and node.hash not in nodes:
                nodes.append(node.hash)
        if len(found) == 1:
            return found[0]
        merged: dict[T, int] = {}
        for destinations in found:
            merged |= destinations
        return merged


class _Node(Generic[T]):
    """What may follow after some words of a pattern."""

    __slots__ = ("destinations", "hash", "is_hash", "is_plain", "star", "tail", "words")

    def __init__(self, *, is_hash: bool) -> None:
        self.words: dict[str, _Node[T]] = {}
        self.star: _Node[T] | None = None
        # Behind a `#` that is not the last word; a node with is_hash stays reached by every
        # further word.
        self.hash: _Node[T] | None = None
        self.is_hash = is_hash
        # Of the pattern that ends here, and of the one that has only a last `#` to come.
        self.destinations: DestinationSet[T] = DestinationSet()
        self.tail: DestinationSet[T] = DestinationSet()
        # No wildcard here or next: `words` and `destinations` say it all.
        self.is_plain = not is_hash

    def add(self, destination: T, *, is_tail: bool) -> None:
        """Count one more pattern that ends here, or with a last `#` after this node."""
        (self.tail if is_tail else self.destinations).add(destination)
        self._update_is_plain()

    def remove(self, destination: T, *, is_tail: bool) -> None:
        """Undo one `add`."""
        (self.tail if is_tail else self.destinations).remove(destination)
        self._update_is_plain()

    def is_empty(self) -> bool:
        """Whether no pattern goes through this node or ends in it."""
        return not (self.words or self.star or self.hash or self.destinations or self.tail)

    def child(self, word: str) -> _Node[T] | None:
        """The node behind one word of a pattern."""
        if word == "*":
            return self.star
        if word == "#":
            return self.hash
        return self.words.get(word)

    def set_child(self, word: str, node: _Node[T] | None) -> None:
        """Put *node* behind one word of a pattern, or take away what is there."""
        if word == "*":
            self.star = node
        elif word == "#":
            self.hash = node
        elif node is None:
            del self.words[word]
        else:
            self.words[word] = node
        self._update_is_plain()

    def _update_is_plain(self) -> None:
        self.is_plain = not (self.is_hash or self.star or self.hash or self.tail)


def _split_pattern(pattern: str) -> tuple[list[str], bool]:
    """The words of *pattern* but for a last `#`, and whether there was one."""
    words = pattern.split(".") if pattern else []
    ends_in_hash = words[-1:] == ["#"]
    return (words[:-1] if ends_in_hash else words), ends_in_hash
