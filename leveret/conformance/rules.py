"""The rules of AMQP 0-9-1 and of RabbitMQ's extensions to it, from `rules.csv`.

They are those of the specification's XML file, numbered in its order, each with how it can be seen
from outside and with what RabbitMQ does.
"""

import csv
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files


class Level(StrEnum):
    """How strongly a rule is meant (RFC 2119)."""

    MUST = "MUST"
    MUST_NOT = "MUST NOT"
    SHOULD = "SHOULD"
    MAY = "MAY"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `observable`: a client can see whether it is kept."""

    id: str
    """Its number; of a row of the catalogue of errors `error-N`."""
    place: str
    """Class, method and field that it speaks of."""
    name: str
    level: Level
    party: str
    """Whom it binds: client, server or both."""
    description: str
    observable: bool
    tested_how: str
    """How it can be seen, or why it cannot."""
    rabbitmq: str

    @property
    def words(self) -> str:
        """Its place and name."""
        return f"{self.place}: {self.name}"


@cache
def rules() -> dict[int, Rule]:
    """All rules by number."""
    text = files("leveret.conformance").joinpath("rules.csv").read_text(encoding="utf-8")
    return {int(rule.id): rule for rule in map(_rule, csv.DictReader(text.splitlines()))}


def _rule(row: dict[str, str]) -> Rule:
    place = " ".join(filter(None, (row["class"], row["method"], row["field"])))
    return Rule(
        row["id"],
        place,
        row["rule"],
        Level(row["level"]),
        row["party"],
        row["description"],
        row["observable"].startswith("y"),
        row["tested_how"],
        row["rabbitmq"],
    )
