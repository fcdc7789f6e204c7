"""QueueDeclaration: what a client asked of a queue, and whether another one asks the same."""

from dataclasses import dataclass

from leveret.amqp.equivalence import inequivalent
from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.tables import INTEGER_TAGS, Field, Table

COMPARED_ARGUMENTS = (
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-overflow",
    "x-single-active-consumer",
    "x-delivery-limit",
    "x-dead-letter-strategy",
    "x-delayed-retry-type",
    "x-delayed-retry-min",
    "x-delayed-retry-max",
    "x-consumer-timeout",
    "x-consumer-timeout-action",
    "x-message-deduplication",
    "x-cache-size",
    "x-cache-ttl",
    "x-deduplication-header",
    "x-retain-age",
    "x-retain-bytes",
    "x-max-age",
    "x-stream-max-segment-size-bytes",
    "x-stream-filter-size-bytes",
    "x-queue-type",
)
"""Other arguments may differ on a second declare, as in RabbitMQ."""


@dataclass(frozen=True, slots=True)
class QueueDeclaration:
    """The properties of a queue that never change."""

    name: str
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: Table

    @property
    def is_durable(self) -> bool:
        """Does it outlive the broker? An exclusive queue does not outlive its connection."""
        return self.durable and not self.exclusive

    def check_lasting(self, vhost: str) -> None:
        """Raise PreconditionFailed for what a quorum queue or a stream cannot be."""
        for is_wrong, what in (
            (self.auto_delete, "auto-delete"),
            (self.exclusive, "exclusive-owner"),
            (not self.durable, "non-durable"),
        ):
            if is_wrong:
                raise PreconditionFailed(
                    f"invalid property '{what}' for queue '{self.name}' in vhost '{vhost}'"
                )

    def check_equivalent(self, other: "QueueDeclaration", vhost: str) -> None:
        """Raise PreconditionFailed unless *other* asks for the same queue as this one."""
        where = f"queue '{self.name}' in vhost '{vhost}'"
        if self.is_durable != other.is_durable:
            raise inequivalent("durable", where, other.is_durable, self.is_durable)
        if self.auto_delete != other.auto_delete:
            raise inequivalent("auto_delete", where, other.auto_delete, self.auto_delete)
        for key in COMPARED_ARGUMENTS:
            current_field = self.arguments.get(key, _default(key))
            received_field = other.arguments.get(key, _default(key))
            if not _same(current_field, received_field):
                raise inequivalent(key, where, received_field, current_field)


def _default(key: str) -> Field | None:
    return Field("S", "classic") if key == "x-queue-type" else None


def _same(one: Field | None, other: Field | None) -> bool:
    if one is None or other is None:
        return one is other
    if one.tag in INTEGER_TAGS and other.tag in INTEGER_TAGS:
        return one.value == other.value
    return one == other
