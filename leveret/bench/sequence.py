"""Sequence check: which numbers of one stream have come, and in which order."""


class SequenceCheck:
    """The numbers 1, 2, 3, ... of one stream as one queue delivers them.

    With *is_shared* several consumers take from the queue, each a part of the stream, and the order
    between them means nothing.
    """

    def __init__(self, *, is_shared: bool) -> None:
        self.seen = 0
        self.duplicated = 0
        self.out_of_order = 0
        self._is_shared = is_shared
        self._last = 0
        # One byte for each number after `_base`, 1 once it has come. All up to `_base` have.
        self._base = 0
        self._marks = bytearray()

    def add(self, first: int, count: int = 1) -> None:
        """Take note of the numbers *first*, ..., *first* + *count* - 1 in this order."""
        if first <= self._base:
            old = min(self._base + 1 - first, count)
            self.duplicated += old
            first, count = first + old, count - old
        start = first - self._base - 1
        end = start + count
        if len(self._marks) < end:
            self._marks.extend(bytes(end - len(self._marks)))
        fresh = self._marks.count(0, start, end)
        if not self._is_shared:
            self.out_of_order += self._marks.count(0, start, min(self._last - self._base, end))
        self._marks[start:end] = b"\x01" * count
        self._last = max(self._last, first + count - 1)
        self.seen += fresh
        self.duplicated += count - fresh
        if end > 1 << 20:
            self._forget_prefix()

    def lost(self, published: int) -> int:
        """How many of the numbers 1 to *published* have not come."""
        return published - self.seen

    def _forget_prefix(self) -> None:
        gap = self._marks.find(0)
        prefix = len(self._marks) if gap < 0 else gap
        del self._marks[:prefix]
        self._base += prefix
