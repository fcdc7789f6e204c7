"""Modulus hash exchange: the hash of the routing key, modulo the number of bindings, picks one."""

from collections.abc import Collection

from leveret.amqp.properties import PropertyView
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange import Exchange
from leveret.exchanges.rendezvous import stable_hash


class ModulusHashExchange(Exchange):
    """Routes by hash and remainder: even, but most keys move when a binding comes or goes."""

    type_name = "x-modulus-hash"
    picks_one = True

    def destinations(self, routing_key: str, properties: PropertyView) -> Collection[Destination]:
        """The destination of the binding that *routing_key* hits."""
        bindings = self.ordered_bindings()
        if not bindings:
            return ()
        return (bindings[stable_hash(routing_key.encode()) % len(bindings)].destination,)
