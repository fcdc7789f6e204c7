"""Channel: state and frame order of one channel (§2.2.4, §4.2.6).

    OPEN --channel.close sent--> CLOSING --close-ok or close received--> gone

A closing channel discards everything but close and close-ok (§1.5.2.5). A channel that is not
there is one that was never opened; its number may be used again.
"""

from enum import Enum
from typing import Protocol

from pamqp import commands
from pamqp.base import Frame as Method

from leveret.amqp.constants import FrameType
from leveret.amqp.content import ContentAssembler, ContentState
from leveret.amqp.errors import UnexpectedFrame
from leveret.amqp.fastpath import PUBLISH
from leveret.amqp.methods import decode_method
from leveret.amqp.properties import Facts, FactsReader

CLOSE = b"\x00\x14\x00\x28"
CLOSE_OK = b"\x00\x14\x00\x29"
NO_METHOD_FRAME = "expected method frame, got non method frame instead"


class ChannelState(Enum):
    """Where the channel is in its life."""

    OPEN = "open"
    CLOSING = "closing"


class ChannelReceiver(Protocol):
    """What the broker does with what arrives on one channel."""

    def publish(
        self, methods: list[bytes], facts: Facts, contents: list[bytes], content_length: int
    ) -> None:
        """Messages in one run: argument bytes of each basic.publish, facts, content frames.

        *content_length* is the length of each content, or 0 if they differ.
        """

    def ack(self, tags: list[int]) -> None:
        """basic.ack of single deliveries, in the order received."""

    def method(self, method: Method) -> None:
        """Any other method."""

    def closed(self) -> None:
        """The channel is gone: requeue what was delivered, cancel what consumes."""


class Channel:
    """One open channel of a connection.

    What arrives goes to `inlet`: that is `receiver`, unless somebody stands before it.
    """

    __slots__ = ("_assembler", "_facts_reader", "_publish", "inlet", "number", "receiver", "state")

    def __init__(
        self, number: int, receiver: ChannelReceiver, facts_reader: FactsReader, max_body: int
    ) -> None:
        self.number = number
        self.receiver = receiver
        self.inlet = receiver
        self.state = ChannelState.OPEN
        self._assembler = ContentAssembler(max_body)
        self._facts_reader = facts_reader
        self._publish = b""

    @property
    def is_open(self) -> bool:
        """May methods be sent on it?"""
        return self.state is ChannelState.OPEN

    @property
    def is_idle(self) -> bool:
        """Is it open and between methods, so that a run may be handed straight to the receiver?"""
        return self.state is ChannelState.OPEN and self._assembler.state is ContentState.IDLE

    @property
    def is_in_content(self) -> bool:
        """Is a publish under way, so that header or body frames must follow?"""
        return self._assembler.state is not ContentState.IDLE

    @property
    def unfinished_size(self) -> int:
        """Bytes received of a publish that is under way."""
        return self._assembler.size

    def receive(self, kind: int, payload: bytes) -> None:
        """Take one frame of this channel. Raises the errors of frame order and of the receiver."""
        if self.is_in_content:
            content = self._assembler.feed(kind, self.number, payload)
            if content is not None:
                self._published(content)
        elif kind != FrameType.METHOD:
            raise UnexpectedFrame(NO_METHOD_FRAME)
        elif payload.startswith(PUBLISH):
            decode_method(payload)  # for its errors; the receiver reads the bytes
            self._publish = payload[4:]
            self._assembler.start()
        else:
            method = decode_method(payload)
            if isinstance(method, commands.Basic.Ack) and not method.multiple:
                self.inlet.ack([method.delivery_tag or 0])
            else:
                self.inlet.method(method)

    def _published(self, content: bytes) -> None:
        size = int.from_bytes(content[3:7], "big")
        facts = self._facts_reader.read_facts(content[7 : 7 + size])
        self.inlet.publish([self._publish], facts, [content], len(content))
