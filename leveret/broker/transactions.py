"""Transaction: publishes and settlements of a channel held until tx.commit (§1.9).

Exchanges and permissions are checked and routes are found when a message is published, delivery
tags when they are settled; what commit then does can only fail with the storage.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.properties import Facts
from leveret.broker.routes import Routed
from leveret.broker.unacked import UnackedLedger
from leveret.queues.outcome import Outcome


class HeldPublish(NamedTuple):
    """A routed run of messages."""

    run: Routed
    facts: Facts


class HeldSettlement(NamedTuple):
    """The end of one delivery."""

    tag: int
    outcome: Outcome


@dataclass(slots=True)
class Transaction:
    """What a channel has done since tx.select, the last commit or rollback."""

    publishes: list[HeldPublish] = field(default_factory=list)
    settlements: list[HeldSettlement] = field(default_factory=list)
    _settled: set[int] = field(default_factory=set)

    def publish(self, run: Routed, facts: Facts) -> None:
        """Hold a run of messages."""
        self.publishes.append(HeldPublish(run, facts))

    def settle(self, ledger: UnackedLedger, tag: int, outcome: Outcome, *, multiple: bool) -> None:
        """Hold a settlement. Raises PreconditionFailed for a tag that is not outstanding."""
        tags = ledger.covered(tag, multiple=multiple)
        if not multiple and tag in self._settled:
            raise PreconditionFailed(f"unknown delivery tag {tag}")
        # One entry a tag: what is delivered behind a multiple ack is not covered by it.
        self.settlements += [
            HeldSettlement(number, outcome) for number in tags if number not in self._settled
        ]
        self._settled.update(tags)

    def has_settled(self, tag: int) -> bool:
        """Is a settlement of *tag* held?"""
        return tag in self._settled

    def take(self) -> tuple[list[HeldPublish], list[HeldSettlement]]:
        """Begin anew; answers what was held."""
        held = self.publishes, self.settlements
        self.publishes = []
        self.settlements = []
        self._settled = set()
        return held
