"""The two ways in which kombu changes the prefetch limit of a worker, each with its broker."""

from collections.abc import Callable
from pathlib import Path

import pytest

from leveret import __version__
from tests.conftest import BrokerProcess
from tests.programs import Program

PROGRAM = Path(__file__).parent / "programs" / "use_prefetch.py"
CAPABILITIES = (
    "authentication_failure_close basic.nack connection.blocked consumer_cancel_notify "
    "consumer_priorities direct_reply_to exchange_exchange_bindings per_consumer_qos "
    "publisher_confirms"
)


@pytest.mark.parametrize(
    ("advertised", "identity", "unsettled"),
    [
        (
            "leveret",
            [
                f"leveret {__version__.partition('.')[0]}",
                "Python | Apache License 2.0",
                "the leveret authors",
            ],
            [
                "[1, 1, 0]",
                "[3, 3, 0]",
                "[3, 3, 3]",
                "[3, 3, 3]",
                "[2, 2, 3]",
                "[1, 1, 1]",
                "[5, 5, 5]",
                "[17, 17, 17]",
            ],
        ),
        (
            "rabbitmq-3.13",
            [
                "RabbitMQ 3",
                "Erlang/OTP | Licensed under the MPL 2.0. Website: https://rabbitmq.com",
                "Copyright (c) 2007-2024 Broadcom Inc and/or its subsidiaries",
            ],
            ["1", "3", "3", "3", "1", "1", "5", "57"],
        ),
    ],
)
def test_kombu_changes_the_prefetch_limit_of_consumers_that_there_are(
    run: Callable[..., Program],
    make_broker: Callable[..., BrokerProcess],
    advertised: str,
    identity: list[str],
    unsettled: list[str],
) -> None:
    broker = make_broker("--advertise", advertised).start()
    assert run(str(PROGRAM), broker.uri).finish() == [*identity, CAPABILITIES, *unsettled]


def test_an_unknown_server_cannot_be_advertised(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    broker = make_broker("--advertise", "rabbitmq-4")
    with pytest.raises(AssertionError) as failure:
        broker.start()
    assert "--advertise: expected one of leveret, rabbitmq-3.13, got 'rabbitmq-4'" in str(failure)
