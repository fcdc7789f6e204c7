"""A destination for routing tests, and a way to bind it in one line."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import pytest

from leveret.amqp.tables import table_of
from leveret.exchanges.binding import Binding
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange import Exchange

MakeQueue: TypeAlias = Callable[[str], Destination]
Bind: TypeAlias = Callable[..., Binding]


@dataclass(eq=False)
class FakeQueue:
    name: str


@pytest.fixture(scope="session")
def make_queue() -> MakeQueue:
    return FakeQueue


@pytest.fixture(scope="session")
def bind() -> Bind:
    def bind(exchange: Exchange, destination: Destination, key: str = "", **arguments: object):
        binding = Binding(exchange.name, destination, key, table_of(arguments))
        exchange.bind(binding)
        return binding

    return bind
