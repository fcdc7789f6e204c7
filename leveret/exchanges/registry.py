"""Registry of exchange types, and the exchanges that every vhost begins with (§3.1.3)."""

from collections.abc import Mapping
from typing import NamedTuple

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.tables import Table
from leveret.exchanges.delayed import DelayedExchange
from leveret.exchanges.exchange import Exchange
from leveret.exchanges.immediate_types import IMMEDIATE_TYPES


class PredeclaredExchange(NamedTuple):
    """A durable exchange that is there without a declare."""

    name: str
    type_name: str
    internal: bool = False


EXCHANGE_TYPES: Mapping[str, type[Exchange]] = {
    **IMMEDIATE_TYPES,
    DelayedExchange.type_name: DelayedExchange,
}

PREDECLARED = (
    PredeclaredExchange("amq.direct", "direct"),
    PredeclaredExchange("amq.fanout", "fanout"),
    PredeclaredExchange("amq.topic", "topic"),
    PredeclaredExchange("amq.headers", "headers"),
    PredeclaredExchange("amq.match", "headers"),
    PredeclaredExchange("amq.rabbitmq.trace", "topic", internal=True),
)


def create_exchange(
    type_name: str,
    name: str,
    *,
    vhost_name: str = "/",
    durable: bool = False,
    auto_delete: bool = False,
    internal: bool = False,
    arguments: Table | None = None,
) -> Exchange:
    """Make an exchange of the type named *type_name*.

    Raises PreconditionFailed if there is no such type, or for arguments that do not fit it.
    """
    exchange_type = EXCHANGE_TYPES.get(type_name)
    if exchange_type is None:
        raise PreconditionFailed(f"unknown exchange type '{type_name}'")
    return exchange_type(
        name,
        vhost_name=vhost_name,
        durable=durable,
        auto_delete=auto_delete,
        internal=internal,
        arguments=arguments or {},
    )
