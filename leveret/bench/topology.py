"""Topology of a run: its exchange, queues and bindings, and which producer feeds which of them."""

from dataclasses import dataclass

from pamqp import commands
from pamqp.common import FieldTable

from leveret.bench.client import Connection
from leveret.bench.frames import KEY_NUMBER
from leveret.bench.workloads import Workload


@dataclass(frozen=True, slots=True)
class Lane:
    """What one producer publishes to the same queues. Its messages are one stream."""

    stream: int
    keys: tuple[str, ...]
    queues: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """The names of one run. They begin with *prefix*, which no other run has."""

    workload: Workload
    prefix: str

    @property
    def exchange_name(self) -> str:
        """The exchange published to; empty for the default exchange."""
        return f"{self.prefix}.exchange" if self._exchange_type else ""

    @property
    def queue_names(self) -> list[str]:
        """The queues, by their index."""
        return [f"{self.prefix}.{index}" for index in range(self.workload.queue_count)]

    def declare(self, connection: Connection) -> None:
        """Create everything."""
        durable = self.workload.is_persistent
        if self._exchange_type:
            connection.call(
                commands.Exchange.Declare(
                    exchange=self.exchange_name,
                    exchange_type="x-delayed-message" if self._is_delayed else self._exchange_type,
                    durable=durable,
                    arguments={"x-delayed-type": self._exchange_type} if self._is_delayed else {},
                )
            )
        levels = self.workload.priorities
        arguments: FieldTable = {"x-max-priority": levels} if levels else {}
        for name in self.queue_names:
            connection.call(
                commands.Queue.Declare(queue=name, durable=durable, arguments=arguments)
            )
        for name, key in self._bindings():
            connection.call(
                commands.Queue.Bind(queue=name, exchange=self.exchange_name, routing_key=key)
            )

    def delete(self, connection: Connection) -> None:
        """Remove everything, if it is there."""
        for name in self.queue_names:
            connection.call(commands.Queue.Delete(queue=name))
        if self._exchange_type:
            connection.call(commands.Exchange.Delete(exchange=self.exchange_name))

    def lanes(self, producer: int) -> list[Lane]:
        """What the producer of this index publishes."""
        workload = self.workload
        queues = range(workload.queue_count)
        if workload.fanout:
            key = KEY_NUMBER if workload.is_unique else ""
            return [Lane(producer, (key,), tuple(queues))]
        if workload.topic:
            mine = queues
            keys = [self._topic_keys(queue) for queue in queues]
        else:
            # Queues are shared out among the producers, or producers among the queues.
            mine = range(producer % len(queues), len(queues), workload.producers)
            keys = [(name,) for name in self.queue_names]
        return [Lane(producer * len(queues) + queue, keys[queue], (queue,)) for queue in mine]

    @property
    def _exchange_type(self) -> str:
        workload = self.workload
        if workload.fanout:
            return "fanout"
        return "topic" if workload.topic else "direct" if self._is_delayed else ""

    @property
    def _is_delayed(self) -> bool:
        return self.workload.delay_ms > 0

    def _topic_keys(self, queue: int) -> tuple[str, ...]:
        room = KEY_NUMBER if self.workload.is_unique else "room"
        indices = range(queue, self.workload.topic, self.workload.queues)
        return tuple(f"dev.{index:05}.{room}.temp" for index in indices)

    def _bindings(self) -> list[tuple[str, str]]:
        names = self.queue_names
        if self.workload.fanout:
            return [(name, "") for name in names]
        if self._exchange_type == "direct":
            return [(name, name) for name in names]
        return [
            (names[index % len(names)], _binding_key(index, is_unique=self.workload.is_unique))
            for index in range(self.workload.topic)
        ]


def _binding_key(index: int, *, is_unique: bool) -> str:
    """A third of the bindings with `*`, a third with `#`, a third without (if that can match)."""
    device = f"dev.{index:05}"
    if index % 3 == 0:
        return f"{device}.*.temp"
    return f"{device}.#" if index % 3 == 1 or is_unique else f"{device}.room.temp"
