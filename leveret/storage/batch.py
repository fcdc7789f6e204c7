"""Batch: consecutive messages of one log that share their attributes.

Messages move in batches from the socket to the log and from the log to the socket, so that the
work that is the same for all of them is done once.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Batch:
    """Payloads at offsets `first_offset`, `first_offset + 1`, ...

    `attributes` is a u64 that the log keeps beside each payload and does not interpret.
    `payload_length` is the length in bytes of every payload, or 0 if they differ.
    """

    first_offset: int
    timestamp_ms: int
    attributes: int
    payloads: list[bytes]
    payload_length: int

    @property
    def next_offset(self) -> int:
        """The offset behind the last payload."""
        return self.first_offset + len(self.payloads)
