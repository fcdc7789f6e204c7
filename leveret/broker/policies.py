"""Policies: optional arguments for all queues and exchanges whose names match a pattern.

Of the policies that match a name, one acts: that of the highest priority, among equals the one
whose name sorts first. Beside it acts one operator policy, chosen in the same way: it knows fewer
keys, its numbers are upper bounds and its other values come before those of the policy.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Self

from leveret.amqp.properties import DIRECT_REPLY_TO
from leveret.broker.errors import InvalidRequest
from leveret.exchanges.exchange import ALTERNATE_EXCHANGE
from leveret.queues.arguments import RULES, InvalidArgument, QueueArguments, QueueType
from leveret.storage.rows import PolicyRow

OPERATOR_KEYS = frozenset(
    (
        "delivery-limit",
        "expires",
        "max-in-memory-bytes",
        "max-in-memory-length",
        "max-length",
        "max-length-bytes",
        "message-ttl",
        "overflow",
        "queue-version",
    )
)
"""What an operator policy may set, as in RabbitMQ."""

_WITHOUT_EFFECT = frozenset(
    (
        "max-in-memory-bytes",
        "max-in-memory-length",
        "queue-leader-locator",
        "queue-mode",
        "queue-version",
    )
)
"""Keys of RabbitMQ that say how it keeps messages; accepted, since they stand in definitions."""

_KEYS = (
    frozenset(name.removeprefix("x-") for name, rule in RULES.items() if rule.in_policies)
    | _WITHOUT_EFFECT
    | {ALTERNATE_EXCHANGE}
)

_TITLES = {
    ALTERNATE_EXCHANGE: "alternate exchange name",
    "consumer-timeout": "consumer timeout value",
    "dead-letter-exchange": "dead letter exchange name",
    "dead-letter-routing-key": "dead letter routing key",
    "delivery-limit": "delivery limit",
    "expires": "queue expiry",
    "max-age": "max age",
    "max-length": "maximum length",
    "max-length-bytes": "maximum length in bytes",
    "message-ttl": "message TTL",
    "retain-age": "retention age",
    "retain-bytes": "retention in bytes",
}
"""How RabbitMQ calls the value of a key, where it is not "KEY value"."""


class InvalidPolicy(InvalidRequest):
    """A policy that cannot be; the text is that of RabbitMQ."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Validation failed\n\n{reason}")


class ApplyTo(StrEnum):
    """What a policy is for, and what a name is of."""

    QUEUES = "queues"
    CLASSIC_QUEUES = "classic_queues"
    QUORUM_QUEUES = "quorum_queues"
    STREAMS = "streams"
    EXCHANGES = "exchanges"
    ALL = "all"

    def covers(self, kind: "ApplyTo") -> bool:
        """Is a policy for this one for an object of *kind*?"""
        return self in (kind, ApplyTo.ALL) or (
            self is ApplyTo.QUEUES and kind is not ApplyTo.EXCHANGES
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy, checked. A pattern is searched for anywhere in a name."""

    name: str
    pattern: re.Pattern[str]
    apply_to: ApplyTo
    priority: int
    definition: Mapping[str, object]
    is_operator: bool = False

    @classmethod
    def parse(
        cls,
        name: str,
        pattern: str,
        definition: Mapping[str, object],
        *,
        apply_to: str = "all",
        priority: int = 0,
        is_operator: bool = False,
    ) -> Self:
        """Check a policy that somebody wants to set. Raises InvalidPolicy."""
        try:
            target = ApplyTo(apply_to)
        except ValueError:
            raise InvalidPolicy(
                f"apply-to '{apply_to}' unrecognised; should be one of: "
                + ", ".join(f"'{choice}'" for choice in ApplyTo)
            ) from None
        _check(definition, OPERATOR_KEYS if is_operator else _KEYS)
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise InvalidPolicy(
                f"pattern should be regular expression but is invalid: {error}"
            ) from None
        return cls(name, compiled, target, priority, dict(definition), is_operator)

    @classmethod
    def from_row(cls, row: PolicyRow) -> Self:
        """Make a policy from its stored form."""
        return cls(
            row.name,
            re.compile(row.pattern),
            ApplyTo(row.apply_to),
            row.priority,
            json.loads(row.definition),
            row.is_operator,
        )

    def to_row(self, vhost_id: int) -> PolicyRow:
        """The stored form."""
        return PolicyRow(
            vhost_id,
            self.name,
            self.is_operator,
            self.pattern.pattern,
            self.apply_to.value,
            self.priority,
            json.dumps(self.definition),
        )

    def matches(self, name: str, kind: ApplyTo) -> bool:
        """Is it for the object of *kind* called *name*?"""
        return self.apply_to.covers(kind) and self.pattern.search(name) is not None


class Match(NamedTuple):
    """The policies that act on one object."""

    policy: Policy | None
    operator_policy: Policy | None

    @property
    def definition(self) -> Mapping[str, object]:
        """What both of them say together."""
        if self.operator_policy is None:
            return self.policy.definition if self.policy is not None else {}
        bounds = self.operator_policy.definition
        if self.policy is None:
            return bounds
        merged = {**self.policy.definition, **bounds}
        for key, bound in bounds.items():
            value = self.policy.definition.get(key)
            if isinstance(value, int) and isinstance(bound, int):
                merged[key] = min(value, bound)
        return merged


class PolicySet:
    """The policies of one vhost; not changed once made."""

    __slots__ = ("_operator_policies", "_policies")

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        ordered = sorted(policies, key=lambda policy: (-policy.priority, policy.name))
        self._policies = tuple(policy for policy in ordered if not policy.is_operator)
        self._operator_policies = tuple(policy for policy in ordered if policy.is_operator)

    def __iter__(self) -> Iterator[Policy]:
        yield from self._policies
        yield from self._operator_policies

    def find(self, name: str, *, is_operator: bool) -> Policy | None:
        """The policy called *name*."""
        policies = self._operator_policies if is_operator else self._policies
        return next((policy for policy in policies if policy.name == name), None)

    def with_policy(self, policy: Policy) -> "PolicySet":
        """These with *policy*, in the place of one of the same name."""
        return PolicySet([*self.without(policy.name, is_operator=policy.is_operator), policy])

    def without(self, name: str, *, is_operator: bool) -> "PolicySet":
        """These without the policy called *name*."""
        return PolicySet(
            policy for policy in self if (policy.name, policy.is_operator) != (name, is_operator)
        )

    def match_queue(self, name: str, queue_type: QueueType) -> Match:
        """The policies that act on a queue; none do on one for direct replies."""
        if name.startswith(DIRECT_REPLY_TO):
            return Match(None, None)
        return self._match(name, _KINDS[queue_type])

    def match_exchange(self, name: str) -> Match:
        """The policies that act on an exchange."""
        return self._match(name, ApplyTo.EXCHANGES)

    def _match(self, name: str, kind: ApplyTo) -> Match:
        return Match(
            next((policy for policy in self._policies if policy.matches(name, kind)), None),
            next(
                (policy for policy in self._operator_policies if policy.matches(name, kind)), None
            ),
        )

    def effective_queue_arguments(self, declared: QueueArguments, name: str) -> QueueArguments:
        """What the queue called *name* does that was declared with *declared*."""
        definition = self.match_queue(name, declared.queue_type).definition
        return declared.with_policy(definition) if definition else declared

    def alternate_exchange(self, name: str) -> str | None:
        """The alternate exchange of the exchange called *name*, if its declaration has none."""
        alternate = self.match_exchange(name).definition.get(ALTERNATE_EXCHANGE)
        return alternate if isinstance(alternate, str) else None


_KINDS = {
    QueueType.CLASSIC: ApplyTo.CLASSIC_QUEUES,
    QueueType.QUORUM: ApplyTo.QUORUM_QUEUES,
    QueueType.STREAM: ApplyTo.STREAMS,
}


def _check(definition: Mapping[str, object], keys: frozenset[str]) -> None:
    if not definition:
        raise InvalidPolicy("no policy provided")
    unknown = [(key, value) for key, value in definition.items() if key not in keys]
    if unknown:
        listed = ",".join(f"{{{_shown(key)},{_shown(value)}}}" for key, value in unknown)
        raise InvalidPolicy(f"[{listed}] are not recognised policy settings")
    for key, value in definition.items():
        if not _is_valid(key, value):
            title = _TITLES.get(key, f"{key} value")
            raise InvalidPolicy(f"{_shown(value)} is not a valid {title}")


def _is_valid(key: str, value: object) -> bool:
    if key == ALTERNATE_EXCHANGE:
        return isinstance(value, str)
    try:
        QueueArguments().with_policy({key: value})
    except InvalidArgument:
        return False
    return True


def _shown(value: object) -> str:
    """A value of JSON as Erlang prints it."""
    return f'<<"{value}">>' if isinstance(value, str) else json.dumps(value)
