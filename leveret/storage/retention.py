"""Retention: how long the settled messages of a log stay on disk, for whoever reads them again.

Whole segments stay or go. Settled messages of a segment that also has unsettled ones count as
retained: they are what its compaction would take away.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar


class Holder(Protocol):
    """A segment, as far as retention looks at it."""

    @property
    def dead_bytes(self) -> int:
        """Bytes of its settled messages, about."""

    @property
    def last_timestamp_ms(self) -> int:
        """When its last message came."""


HolderT = TypeVar("HolderT", bound=Holder)


@dataclass(frozen=True, slots=True)
class Retention:
    """Settled messages up to an age in milliseconds and up to *size* bytes; None is no bound."""

    age_ms: int | None = None
    size: int | None = None

    def outdated(self, segments: Iterable[HolderT], held: int, now_ms: int) -> list[HolderT]:
        """Return those of *segments*, given oldest first, whose settled messages may go.

        *held* are the bytes of settled messages in the whole log.
        """
        found = []
        for segment in segments:
            is_excess = self.size is not None and held > self.size
            is_old = self.age_ms is not None and now_ms - segment.last_timestamp_ms > self.age_ms
            if is_excess or is_old:
                held -= segment.dead_bytes
                found.append(segment)
        return found
