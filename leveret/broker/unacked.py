"""UnackedLedger: what a channel has delivered and not yet heard of (§1.8.3.11, delivery tags).

A delivery tag is issued once per channel and settled once.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby, repeat, takewhile
from operator import itemgetter
from typing import NamedTuple

from leveret.amqp.errors import PreconditionFailed
from leveret.queues.classic import ClassicQueue
from leveret.queues.consumers import Consumer


class Holder(NamedTuple):
    """Who was sent a delivery: a consumer, or None for a basic.get, of a queue."""

    queue: ClassicQueue
    consumer: Consumer | None


Delivery = tuple[Holder, int]
"""Holder and offset in its queue."""


class UnackedLedger:
    """Delivery tag -> who holds which message."""

    __slots__ = ("_deliveries", "_expired", "_lowest", "next_tag")

    def __init__(self) -> None:
        self._deliveries: dict[int, Delivery] = {}
        self.next_tag = 1
        self._lowest = 1  # no tag below it is outstanding
        self._expired: set[int] = set()  # taken back; the client does not know it yet

    def __len__(self) -> int:
        return len(self._deliveries)

    def __contains__(self, tag: int) -> bool:
        return tag in self._deliveries

    def __iter__(self) -> Iterator[Delivery]:
        """What is outstanding, in the order it was sent."""
        return iter(self._deliveries.values())

    def issue(self, count: int) -> int:
        """Issue *count* tags; answers the first. They are outstanding only once `add`ed."""
        first = self.next_tag
        self.next_tag = first + count
        return first

    def add(self, first_tag: int, holder: Holder, offsets: Iterable[int]) -> None:
        """*holder* has been sent the messages at *offsets*, tagged from *first_tag* on."""
        tags = range(first_tag, self.next_tag)
        self._deliveries.update(zip(tags, zip(repeat(holder), offsets), strict=True))

    def take(self, tags: list[int]) -> Iterator[tuple[Holder, list[int]]]:
        """Remove the deliveries with these tags, grouped by holder.

        Raises PreconditionFailed for a tag that is not outstanding, behind the groups before it.
        """
        taken: list[Delivery] = []
        place = 0
        while place < len(tags):
            begin = len(taken)
            try:
                # What comes before a tag that is missing is taken all the same.
                taken.extend(map(self._deliveries.pop, tags[place:] if place else tags))
                break
            except KeyError:
                place += len(taken) - begin
                if tags[place] not in self._expired:
                    yield from grouped(taken)
                    raise PreconditionFailed(f"unknown delivery tag {tags[place]}") from None
                self._expired.remove(tags[place])
                place += 1
        yield from grouped(taken)

    def expire(self, tags: list[int]) -> Iterator[tuple[Holder, list[int]]]:
        """Remove these deliveries; that the client settles them later is fine, and does nothing."""
        taken = list(self.take(tags))
        self._expired.update(tags)
        yield from taken

    def take_multiple(self, tag: int) -> list[Delivery]:
        """Remove and return all deliveries up to *tag*, oldest first; 0 is all there are.

        Raises PreconditionFailed for a tag that was never issued or lies below the outstanding.
        """
        if tag == 0:
            tag = self.next_tag - 1
        elif tag >= self.next_tag or tag < self._lowest:
            raise PreconditionFailed(f"unknown delivery tag {tag}")
        remove = self._deliveries.pop
        taken = [remove(number) for number in self._up_to(tag)]
        self._lowest = max(self._lowest, tag + 1)
        if self._expired:
            self._expired = {number for number in self._expired if number > tag}
        return taken

    def take_all(self) -> list[Delivery]:
        """Remove and return everything, oldest first."""
        return self.take_multiple(0)

    def covered(self, tag: int, *, multiple: bool) -> list[int]:
        """The outstanding tags that *tag* covers; nothing is removed.

        Raises PreconditionFailed as `take` and `take_multiple` do.
        """
        if multiple:
            last = tag or self.next_tag - 1
            if last < self.next_tag and (last >= self._lowest or not tag):
                return self._up_to(last)
        elif tag in self._deliveries or tag in self._expired:
            return [tag]
        raise PreconditionFailed(f"unknown delivery tag {tag}")

    def _up_to(self, tag: int) -> list[int]:
        """The outstanding tags up to *tag*; they are in the order they were issued in."""
        return list(takewhile(tag.__ge__, self._deliveries))


def grouped(deliveries: Iterable[Delivery]) -> Iterator[tuple[Holder, list[int]]]:
    """Deliveries as (holder, offsets), in their order."""
    for holder, group in groupby(deliveries, itemgetter(0)):
        yield holder, [offset for _, offset in group]
