"""PublishHold: the publishes of one connection, held back while the broker is short of something.

They wait in memory, unrouted, and come out in order. What is behind them is worked off meanwhile,
unless it could tell that they are missing. On one channel

    basic.ack, nack, reject                         overtake all but tx.commit and tx.rollback
    basic.consume, cancel, qos, recover, channel.flow   overtake publishes
    every other method, channel.close among them    waits for what is before it

and connection.close waits for all channels. Other channels do not wait for one that does.
"""

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum, IntEnum
from functools import partial
from typing import NamedTuple, Protocol

from pamqp import commands
from pamqp.base import Frame as Method

from leveret.amqp.channel import Channel, ChannelReceiver
from leveret.amqp.fastpath import ACK, PUBLISH
from leveret.amqp.properties import Facts

HOLD_LIMIT = 1024 * 1024
"""Bytes held for a connection above which nothing more is read from it."""
OVERHEAD = 200
"""Bytes that holding costs beside the content."""


class Admission(Enum):
    """What becomes of a publish."""

    FREE = "it is routed"
    HELD = "it waits"
    REFUSED = "it is refused if its channel is in confirm mode, and waits otherwise"


class Barrier(IntEnum):
    """What waits on a channel; whoever passes one passes those before it, too."""

    NOTHING = 0
    PUBLISH = 1
    METHOD = 2
    COMMIT = 3


PASSES: Mapping[type[Method], Barrier] = {
    commands.Basic.Ack: Barrier.METHOD,
    commands.Basic.Nack: Barrier.METHOD,
    commands.Basic.Reject: Barrier.METHOD,
    commands.Basic.Consume: Barrier.PUBLISH,
    commands.Basic.Cancel: Barrier.PUBLISH,
    commands.Basic.Qos: Barrier.PUBLISH,
    commands.Basic.Recover: Barrier.PUBLISH,
    commands.Basic.RecoverAsync: Barrier.PUBLISH,
    commands.Channel.Flow: Barrier.PUBLISH,
    commands.Channel.FlowOk: Barrier.PUBLISH,
}
"""The strongest barrier that a method passes; none if it is not here."""


class HoldReceiver(Protocol):
    """The broker's side of a connection, as far as held publishes concern it."""

    def blocked(self) -> None:
        """The peer publishes though nothing is routed: tell it."""

    def is_confirming(self, number: int) -> bool:
        """Is this channel in confirm mode?"""

    def refuse(self, number: int, count: int) -> None:
        """Answer *count* publishes of a channel in confirm mode with nacks, in their order."""


class Work(NamedTuple):
    """Something held: `publishes` of them, or another method if that is 0.

    `method` are the ids of the method, `size` the bytes it costs to hold it.
    """

    method: bytes
    publishes: int
    size: int
    do: Callable[[], None]


class PublishHold:
    """What is held for one connection, and how long.

    `closes`: the peer closes the connection, once nothing is held any more. `is_due`: something
    that was held may be done now.
    """

    __slots__ = ("_receiver", "admission", "channels", "closes", "has_blocked", "is_due", "size")

    def __init__(self, receiver: HoldReceiver) -> None:
        self._receiver = receiver
        self.admission = Admission.HELD
        self.channels: dict[int, HeldChannel] = {}
        self.closes = False
        self.has_blocked = False
        self.is_due = False
        self.size = 0

    def enter(self, channel: Channel) -> None:
        """Stand between *channel* and the broker."""
        held = HeldChannel(channel, self)
        channel.inlet = held
        self.channels[channel.number] = held

    def leave(self) -> None:
        """Step aside."""
        for held in self.channels.values():
            held.channel.inlet = held.channel.receiver

    @property
    def is_empty(self) -> bool:
        """Does nothing wait?"""
        return not any(held.is_waiting for held in self.channels.values())

    @property
    def is_full(self) -> bool:
        """Is so much held, or being received, that no more should be read?"""
        unfinished = sum(
            held.channel.unfinished_size
            for number, held in self.channels.items()
            if not self.refuses(number)
        )
        return self.size + unfinished > HOLD_LIMIT

    def refuses(self, number: int) -> bool:
        """Are publishes on this channel refused?"""
        return self.admission is Admission.REFUSED and self._receiver.is_confirming(number)

    def refuse(self, number: int, count: int) -> None:
        """Have *count* publishes answered with nacks."""
        self._receiver.refuse(number, count)

    def notice(self) -> None:
        """Something was published."""
        if not self.has_blocked:
            self.has_blocked = True
            self._receiver.blocked()


class HeldChannel:
    """Stands before the receiver of a channel (`ChannelReceiver`)."""

    __slots__ = ("_barrier", "_hold", "_receiver", "_waiting", "channel")

    def __init__(self, channel: Channel, hold: PublishHold) -> None:
        self.channel = channel
        self._hold = hold
        self._receiver: ChannelReceiver = channel.receiver
        self._waiting: deque[Work] = deque()
        self._barrier = Barrier.NOTHING

    # ---- ChannelReceiver

    def publish(
        self, methods: list[bytes], facts: Facts, contents: list[bytes], content_length: int
    ) -> None:
        """Hold a run of messages, or refuse it."""
        hold, count = self._hold, len(contents)
        hold.notice()
        if not self._waiting and hold.refuses(self.channel.number):
            hold.refuse(self.channel.number, count)
            return
        size = sum(map(len, contents)) + count * OVERHEAD
        do = partial(self._receiver.publish, methods, facts, contents, content_length)
        self._wait(Barrier.PUBLISH, Work(PUBLISH, count, size, do))

    def ack(self, tags: list[int]) -> None:
        """Settle now unless that would change what a commit does."""
        if self._barrier is Barrier.COMMIT:
            self.wait(ACK, partial(self._receiver.ack, tags))
        else:
            self._receiver.ack(tags)

    def method(self, method: Method) -> None:
        """Do what may overtake; the rest waits."""
        kind = type(method)
        if self._barrier <= PASSES.get(kind, Barrier.NOTHING):
            self._receiver.method(method)
            return
        barrier = Barrier.METHOD
        if kind is commands.Tx.Commit or kind is commands.Tx.Rollback:
            barrier = Barrier.COMMIT
        work = partial(self._receiver.method, method)
        self._wait(barrier, Work(method.index.to_bytes(4, "big"), 0, OVERHEAD, work))

    def closed(self) -> None:
        """The channel is gone and what it held with it."""
        self._hold.size -= sum(work.size for work in self._waiting)
        self._waiting.clear()
        del self._hold.channels[self.channel.number]
        self._receiver.closed()

    # ---- what waits

    @property
    def is_waiting(self) -> bool:
        """Does anything wait?"""
        return bool(self._waiting)

    def wait(self, method: bytes, do: Callable[[], None]) -> None:
        """Do a method with these ids once everything before it is done."""
        self._wait(Barrier.METHOD, Work(method, 0, OVERHEAD, do))

    def _wait(self, barrier: Barrier, work: Work) -> None:
        self._waiting.append(work)
        self._barrier = max(self._barrier, barrier)
        self._hold.size += work.size

    def take(self) -> Work | None:
        """Take the first that waits, if it may be done now."""
        waiting, hold, number = self._waiting, self._hold, self.channel.number
        if not waiting:
            return None
        work = waiting[0]
        if work.publishes and hold.admission is not Admission.FREE:
            if not hold.refuses(number):
                return None
            work = work._replace(do=partial(hold.refuse, number, work.publishes))
        waiting.popleft()
        hold.size -= work.size
        if not waiting:
            self._barrier = Barrier.NOTHING
        return work
