"""What the clients of a broker that may be killed at any moment know of each message."""

import threading
import zlib
from dataclasses import dataclass, field
from enum import IntEnum

from pamqp import commands

from tests.durability.client import Delivery, encode_properties


class Ack(IntEnum):
    """What became of the acknowledgement of a message."""

    NONE = 0
    SENT = 1
    PROVEN = 2
    """A later method of the same channel was answered: the broker has worked off the ack."""


@dataclass(slots=True)
class Entry:
    """One message in one queue."""

    producer: str
    sequence: int
    confirmed: bool = False
    delivered: bool = False
    ack: Ack = Ack.NONE


def message_id(producer: str, sequence: int) -> str:
    return f"{producer}.{sequence}"


def make_message(identity: str, max_body: int) -> tuple[commands.Basic.Properties, bytes]:
    """The message with this id: properties and body follow from it."""
    seed = zlib.crc32(identity.encode())
    body = f"{identity}|".encode() * (1 + max_body // 16)
    body = body[: len(identity) + 1 + seed % max_body]
    properties = commands.Basic.Properties(delivery_mode=2, message_id=identity)
    if seed % 3 == 1:
        properties.headers = {"id": identity, "seed": seed, "nested": {"flag": True, "none": None}}
    if seed % 3 == 2:
        properties.content_type = "text/plain"
        properties.priority = seed % 10
        properties.correlation_id = "c" * (seed % 200)
        properties.reply_to = "answers"
    return properties, body


@dataclass(slots=True)
class Journal:
    """Thread-safe; complains by AssertionError."""

    max_body: int
    queues: dict[str, dict[str, Entry]] = field(default_factory=dict)
    confirmed: int = 0
    _condition: threading.Condition = field(default_factory=threading.Condition)

    def sent(self, queues: tuple[str, ...], producer: str, sequence: int) -> None:
        """A message is about to be published to *queues*."""
        for queue in queues:
            identity = message_id(producer, sequence)
            self.queues[queue][identity] = Entry(producer, sequence)

    def confirm(self, messages: list[tuple[tuple[str, ...], str]]) -> None:
        """The broker has confirmed these (queues, id)."""
        for queues, identity in messages:
            for queue in queues:
                self.queues[queue][identity].confirmed = True
        with self._condition:
            self.confirmed += len(messages)
            self._condition.notify_all()

    def wait_for_confirms(self, number: int) -> None:
        """Wait until *number* messages in all have been confirmed."""
        with self._condition:
            assert self._condition.wait_for(lambda: self.confirmed >= number, timeout=20)

    def delivered(self, queue: str, delivery: Delivery) -> str:
        """Check a delivery against what is known; answers the id of the message."""
        identity = delivery.body.partition(b"|")[0].decode()
        entry = self.queues[queue].get(identity)
        assert entry is not None, f"{identity} was never published to {queue}"
        properties, body = make_message(identity, self.max_body)
        assert delivery.body == body, f"{identity} has another body"
        assert delivery.header == encode_properties(properties, len(body)), identity
        assert entry.ack < Ack.PROVEN, f"{identity} was acknowledged and came back to {queue}"
        assert delivery.method.redelivered or not entry.delivered, (
            f"{identity} came again to {queue}, but not as redelivered"
        )
        entry.delivered = True
        return identity

    def acked(self, queue: str, identities: list[str], ack: Ack) -> None:
        for identity in identities:
            self.queues[queue][identity].ack = ack

    def check_contents(self, queue: str, identities: list[str]) -> None:
        """Check that *identities*, in this order, may be all that *queue* holds."""
        assert len(identities) == len(set(identities)), f"duplicates in {queue}"
        entries = self.queues[queue]
        last: dict[str, int] = {}
        for identity in identities:
            entry = entries[identity]
            assert last.get(entry.producer, -1) < entry.sequence, (
                f"{queue}: {identity} out of order"
            )
            last[entry.producer] = entry.sequence
        held = set(identities)
        lost = [
            identity
            for identity, entry in entries.items()
            if entry.confirmed and entry.ack is Ack.NONE and identity not in held
        ]
        assert not lost, f"{len(lost)} confirmed messages lost from {queue}: {lost[:5]}"

    def forget_missing(self, queue: str, identities: list[str]) -> None:
        """Go on with what *queue* holds; whatever else was said of it is settled."""
        entries = self.queues[queue]
        self.queues[queue] = {identity: entries[identity] for identity in identities}
