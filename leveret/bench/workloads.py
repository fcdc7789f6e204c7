"""Workloads: what a run does, and the ones that have a name."""

from dataclasses import dataclass, replace

from leveret.bench.errors import BenchError
from leveret.bench.frames import MIN_BODY_SIZE

MAX_CONNECTIONS = 400
_MAX_BINDINGS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Who publishes what, through which exchange, and who consumes it.

    `size` is in bytes, `confirm` the most messages unconfirmed (0 for no confirms), `ack_every` 0
    for automatic acknowledgement, `rate` in messages per second over all producers (0 for as fast
    as it goes). With `fill` that many messages are published before any is consumed. `priorities`
    is the highest of the priorities that the queues tell apart, `expirations` how many different
    ones messages have, `delay_ms` the longest delay: from the half of it on, at random.
    """

    name: str = "custom"
    title: str = ""
    size: int = 16
    is_persistent: bool = False
    confirm: int = 0
    prefetch: int = 0
    ack_every: int = 0
    producers: int = 1
    consumers: int = 1
    queues: int = 1
    fanout: int = 0
    topic: int = 0
    rate: int = 0
    is_unique: bool = False
    fill: int = 0
    priorities: int = 0
    expirations: int = 0
    delay_ms: int = 0

    def check(self) -> None:
        """Raise BenchError if the parts do not fit together."""
        if self.size < MIN_BODY_SIZE:
            raise BenchError(f"--size: the message number needs {MIN_BODY_SIZE} bytes")
        if self.fanout and (self.topic or self.queues > 1):
            raise BenchError("--fanout N has N queues of its own: no --topic, no --queues")
        if self.topic > _MAX_BINDINGS or 0 < self.topic < self.queues:
            raise BenchError(f"--topic: between the number of queues and {_MAX_BINDINGS} bindings")
        if self.consumer_count < self.queue_count:
            raise BenchError(f"--consumers: each of the {self.queue_count} queues needs one")
        if max(self.producers, self.consumer_count) > MAX_CONNECTIONS:
            raise BenchError(f"at most {MAX_CONNECTIONS} producers and {MAX_CONNECTIONS} consumers")
        if 0 < self.prefetch < self.ack_every:
            raise BenchError("--prefetch below --ack-every: the consumers would wait forever")

    @property
    def is_ordered(self) -> bool:
        """Whether what is published on a lane comes in the same order from each of its queues."""
        is_shared = self.consumer_count > self.queue_count
        return not (is_shared or self.priorities or self.delay_ms)

    @property
    def queue_count(self) -> int:
        """The number of queues."""
        return self.fanout or self.queues

    @property
    def consumer_count(self) -> int:
        """The number of consumers; a fan-out has at least one for each queue."""
        return max(self.consumers, self.fanout)


_CORE = (
    Workload(name="a", title="transient, 16 B, automatic ack"),
    Workload(name="b", title="transient, 1 KiB, automatic ack", size=1024),
    Workload(
        name="c",
        title="persistent, 1 KiB, confirms, ack each",
        size=1024,
        is_persistent=True,
        confirm=1000,
        prefetch=1000,
        ack_every=1,
    ),
    Workload(
        name="d",
        title="as c, 4 producers, 4 consumers, 4 queues",
        size=1024,
        is_persistent=True,
        confirm=1000,
        prefetch=1000,
        ack_every=1,
        producers=4,
        consumers=4,
        queues=4,
    ),
    Workload(name="e", title="fan-out to 10 queues, 100 B", size=100, fanout=10),
    Workload(name="f", title="topic exchange, 1,000 bindings, 100 B", size=100, topic=1000),
    Workload(
        name="g",
        title="fill with 1,000,000 persistent x 100 B, then drain",
        size=100,
        is_persistent=True,
        confirm=1000,
        prefetch=1000,
        ack_every=1,
        fill=1_000_000,
    ),
    Workload(
        name="h",
        title="latency: as c at 1,000 messages/s",
        size=1024,
        is_persistent=True,
        confirm=1000,
        prefetch=1000,
        ack_every=1,
        rate=1000,
    ),
)
_SAFE = _CORE[2]
_FEATURES = (
    replace(_SAFE, name="priority", title="as c, 10 levels, a random one each", priorities=10),
    replace(_SAFE, name="ttl", title="as c, 100,000 different expirations", expirations=100_000),
    replace(
        _SAFE,
        name="delayed",
        title="1,000,000 x 100 B that wait for 1 to 2 minutes",
        size=100,
        fill=1_000_000,
        delay_ms=120_000,
    ),
)

CORE = tuple(workload.name for workload in _CORE)
WORKLOADS = {workload.name: workload for workload in (*_CORE, *_FEATURES)}
