"""Limits: how many connections, channels, queues and exchanges there may be.

Those of vhosts and users are set while the broker runs and stored under RabbitMQ's names, those of
the node are configuration. Whatever is counted is counted when something new is asked for.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from leveret.broker.errors import InvalidRequest

NO_VHOST = 0
"""In place of the id of a vhost, for what is not set for one."""


class InvalidLimit(InvalidRequest):
    """A limit that cannot be set."""


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """Limits of the broker as a whole; 0 is none."""

    connections: int = 0
    channels: int = 0
    consumers_per_channel: int = 0
    exchanges: int = 0


@dataclass(frozen=True, slots=True)
class _Limits:
    """None: no limit. 0: not one."""

    component: ClassVar[str]
    """What RabbitMQ calls this kind of parameter."""
    kind: ClassVar[str]
    names: ClassVar[tuple[str, ...]]

    @classmethod
    def parse(cls, limits: Mapping[str, object]) -> Self:
        """Check limits by name; a negative number stands for none. Raises InvalidLimit."""
        values = {}
        for name, value in limits.items():
            if name not in cls.names:
                raise InvalidLimit(
                    f"Unrecognised {cls.kind} limit '{name}'; should be one of: "
                    + ", ".join(cls.names)
                )
            if isinstance(value, bool) or not isinstance(value, int):
                raise InvalidLimit(f"{name} should be a number, actually was {json.dumps(value)}")
            values[name.replace("-", "_")] = value if value >= 0 else None
        return cls(**values)

    def to_dict(self) -> dict[str, int]:
        """The limits that there are, by name."""
        values = {name: getattr(self, name.replace("-", "_")) for name in self.names}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class VHostLimits(_Limits):
    """Limits of one vhost."""

    component: ClassVar[str] = "vhost-limits"
    kind: ClassVar[str] = "vhost"
    names: ClassVar[tuple[str, ...]] = ("max-connections", "max-queues")

    max_connections: int | None = None
    max_queues: int | None = None


@dataclass(frozen=True, slots=True)
class UserLimits(_Limits):
    """Limits of one user, in all vhosts together."""

    component: ClassVar[str] = "user-limits"
    kind: ClassVar[str] = "user"
    names: ClassVar[tuple[str, ...]] = ("max-connections", "max-channels")

    max_connections: int | None = None
    max_channels: int | None = None
