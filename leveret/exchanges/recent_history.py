"""Recent history exchange: a fanout exchange that keeps the last messages for new bindings."""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.properties import PropertyView
from leveret.amqp.tables import Field
from leveret.exchanges.arguments import positive_integer
from leveret.exchanges.destination import Destination
from leveret.exchanges.erlang import as_erlang
from leveret.exchanges.exchange import Exchange

HISTORY_LENGTH = "x-recent-history-length"
DEFAULT_LENGTH = 20
NO_STORE = "x-recent-history-no-store"


@dataclass(eq=False)
class RecentHistoryExchange(Exchange):
    """Routes to all that is bound. The broker hands it what to keep, and fetches the history."""

    type_name = "x-recent-history"
    compared_arguments = (*Exchange.compared_arguments, HISTORY_LENGTH)

    _messages: deque[tuple[int, bytes]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        argument = self.arguments.get(HISTORY_LENGTH, Field("I", DEFAULT_LENGTH))
        length = positive_integer(argument)
        if length is None:
            raise PreconditionFailed(
                f"Invalid argument {as_erlang(argument.value)}, "
                f"'{HISTORY_LENGTH}' must be a positive integer"
            )
        self._messages = deque(maxlen=length)

    def destinations(self, routing_key: str, properties: PropertyView) -> Collection[Destination]:
        """All destinations."""
        return self.bindings_by_destination

    def keep(self, attributes: int, message: bytes, properties: PropertyView) -> None:
        """Remember a message published here, unless its header `x-recent-history-no-store` is true.

        The oldest one goes when there are more than `x-recent-history-length`.
        """
        no_store = (properties.headers or {}).get(NO_STORE)
        if no_store is None or no_store.value is not True:
            self._messages.append((attributes, message))

    def history(self) -> list[tuple[int, bytes]]:
        """Attributes and bytes of the messages kept, the oldest first."""
        return list(self._messages)
