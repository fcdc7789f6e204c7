"""A destination for routing tests, and a way to bind it in one line."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import pytest

from leveret.amqp.properties import NO_PROPERTIES, PropertyView
from leveret.amqp.tables import table_of
from leveret.exchanges.binding import Binding
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange import Exchange

WithHeaders: TypeAlias = Callable[..., PropertyView]
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


@pytest.fixture(scope="session")
def with_headers() -> WithHeaders:
    def with_headers(**headers: object) -> PropertyView:
        return PropertyView(NO_PROPERTIES.with_changes(headers=table_of(headers)))

    return with_headers
