"""The command against a broker: short runs of every kind of work, each message checked."""

import json
from typing import Protocol

import pytest
from click.testing import CliRunner, Result

from leveret.bench.command import command


class Broker(Protocol):
    """What is asked of the fixture."""

    uri: str


def bench(broker: Broker, *arguments: str) -> Result:
    times = ("--warmup", "0", "--duration", "0.3")
    return CliRunner().invoke(command, ["--uri", broker.uri, *times, *arguments])


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "--size 1024 --persistent --confirm 100 --prefetch 100 --ack-every 1",
        "--confirm 100 --prefetch 50 --ack-every 10 --producers 2 --consumers 3 --queues 2",
        "--fanout 3 --size 100",
        "--topic 30 --size 100",
        "--topic 30 --unique --queues 2 --consumers 2",
        "--fanout 2 --unique --persistent --confirm 100",
        "--fill 2000 --persistent --confirm 100 --prefetch 100 --ack-every 1",
        "--rate 500 --confirm 100",
        "--size 300000 --confirm 10",
        "--priorities 3 --producers 2",
        "--expirations 50 --unique --priorities 255 --persistent --confirm 100",
        "--delay 200 --rate 300 --confirm 100",
        "--delay 300 --fill 3000 --persistent --confirm 100 --prefetch 100 --ack-every 1",
        "--delay 100 --fanout 2 --rate 300",
    ],
)
def test_every_message_comes_once_and_in_order(broker: Broker, arguments: str) -> None:
    result = bench(broker, "--json", *arguments.split())
    assert result.exit_code == 0, result.output
    (figures,) = json.loads(result.output)
    assert figures["consumed"] >= figures["published"] > 0
    assert ("--confirm" in arguments) == (figures["confirmed"] == figures["published"])
    assert 0 < figures["idle_mb"] <= figures["most_mb"]
    assert figures["cpu_us"] >= 0


def test_two_brokers_are_compared(broker: Broker) -> None:
    result = bench(broker, "--against", broker.uri, "--rate", "200")
    assert result.exit_code == 0, result.output
    assert "A / B" in result.output


def test_wrong_credentials_are_one_line(broker: Broker) -> None:
    uri = broker.uri.replace("guest:guest", "guest:wrong")
    result = CliRunner().invoke(command, ["--uri", uri])
    assert result.exit_code == 2
    assert "403" in result.output
    assert result.output.count("\n") == 1
