"""What the broker says of itself in connection.start (server-properties, §1.4.2.1).

Clients look at the capabilities, and some at product and version: kombu (Celery) changes prefetch
limits with basic.qos global=true on RabbitMQ from 3.3 up to 4.0, with global=false elsewhere.
"""

import platform
from collections.abc import Mapping
from enum import StrEnum

from leveret import __version__
from leveret.amqp.tables import Table, table_of
from leveret.broker.connections import NODE_NAME


class Advertise(StrEnum):
    """Which server to look like."""

    LEVERET = "leveret"
    RABBITMQ_3_13 = "rabbitmq-3.13"


CAPABILITIES = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}
"""Those of RabbitMQ 3.13."""


def _server_properties(
    product: str, version: str, *, runs_on: str, information: str, holders: str
) -> Table:
    return table_of(
        {
            "capabilities": CAPABILITIES,
            "cluster_name": NODE_NAME,
            "copyright": holders,
            "information": information,
            "platform": runs_on,
            "product": product,
            "version": version,
        }
    )


SERVER_PROPERTIES: Mapping[Advertise, Table] = {
    Advertise.LEVERET: _server_properties(
        "leveret",
        __version__,
        runs_on=f"Python {platform.python_version()}",
        information="Apache License 2.0",
        holders="the leveret authors",
    ),
    Advertise.RABBITMQ_3_13: _server_properties(
        "RabbitMQ",
        "3.13.7",
        runs_on="Erlang/OTP 26.2.5.3",
        information="Licensed under the MPL 2.0. Website: https://rabbitmq.com",
        holders="Copyright (c) 2007-2024 Broadcom Inc and/or its subsidiaries",
    ),
}
