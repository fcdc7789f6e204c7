"""Sequence check: which numbers of one stream have come, and in which order."""

from collections.abc import Sequence


class SequenceCheck:
    """The numbers 1, 2, 3, ... of one stream as one queue delivers them.

    Without *is_ordered* the order means nothing: several consumers take from the queue, or the
    messages overtake each other by priority or delay.
    """

    def __init__(self, *, is_ordered: bool) -> None:
        self.seen = 0
        self.duplicated = 0
        self.out_of_order = 0
        self._is_ordered = is_ordered
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
        if self._is_ordered:
            self.out_of_order += self._marks.count(0, start, min(self._last - self._base, end))
        self._marks[start:end] = b"\x01" * count
        self._last = max(self._last, first + count - 1)
        self.seen += fresh
        self.duplicated += count - fresh
        if end > 1 << 20:
            self._forget_prefix()

    def add_each(self, numbers: Sequence[int]) -> None:
        """Take note of *numbers*, which need not follow each other."""
        if self._is_ordered:
            for number in numbers:
                self.add(number)
            return
        places = [number - self._base - 1 for number in numbers if number > self._base]
        marks = self._marks
        if places and max(places) >= len(marks):
            marks.extend(bytes(max(places) + 1 - len(marks)))
        fresh = 0
        for place in places:
            fresh += not marks[place]
            marks[place] = 1
        self.seen += fresh
        self.duplicated += len(numbers) - fresh
        if len(marks) > 1 << 20:
            self._forget_prefix()

    def lost(self, published: int) -> int:
        """How many of the numbers 1 to *published* have not come."""
        return published - self.seen

    def _forget_prefix(self) -> None:
        gap = self._marks.find(0)
        prefix = len(self._marks) if gap < 0 else gap
        del self._marks[:prefix]
        self._base += prefix
