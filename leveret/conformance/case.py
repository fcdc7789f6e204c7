"""Case: one thing that a broker does or does not do, and what is expected of it.

A case belongs to a rule: a number of `rules.csv` (the rules of AMQP 0-9-1 and of RabbitMQ's
extensions to it), `error-N` for a row of the catalogue of errors, or a name for a behaviour that
clients rely on though no document asks for it. Where RabbitMQ departs from the specification both
expectations are written down, and the case says which of them it saw.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any

from leveret.conformance.rules import Level, rules

if TYPE_CHECKING:
    from leveret.conformance.ground import Ground


class Profile(StrEnum):
    """Whose word counts."""

    SPEC = "spec"
    RABBITMQ = "rabbitmq"


class Need(StrEnum):
    """What a case cannot do without, beside the broker's address."""

    RESTART = "--restart-command"
    MANAGEMENT = "--management-url"


class Met(Enum):
    """Which expectation the broker met."""

    BOTH = frozenset(Profile)
    SPEC = frozenset([Profile.SPEC])
    RABBITMQ = frozenset([Profile.RABBITMQ])


@dataclass(frozen=True, slots=True)
class Seen:
    """What a case saw: the expectation that was met, and the broker's doing in a few words."""

    met: Met = Met.BOTH
    text: str = ""


class Unmet(Exception):
    """The broker did something else than anybody expects; the message says what."""


class Unavailable(Exception):
    """The case found out that something it needs is not there; the message says what."""


@dataclass(frozen=True, slots=True)
class Case:
    """A check of one rule.

    `id` is unique and stable. `spec` and `rabbitmq` say in a few words what each expects; one of
    them is empty if it has nothing to say, and then the case counts for the other profile only.
    `run` raises Unmet, CaseTimeout or Unavailable. `limit_s` is what it may take.
    """

    id: str
    rule: str
    level: Level
    title: str
    spec: str
    rabbitmq: str
    run: Callable[["Ground"], Seen | None]
    needs: frozenset[Need] = frozenset()
    limit_s: float = 10.0

    @property
    def profiles(self) -> frozenset[Profile]:
        """The profiles that it counts for."""
        said = {Profile.SPEC: self.spec, Profile.RABBITMQ: self.rabbitmq}
        return frozenset(profile for profile, text in said.items() if text)


class Chapter:
    """The cases of one module, in their order; `case` adds the function that it decorates."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cases: list[Case] = []

    def case(
        self,
        rule: int | str,
        *,
        level: Level | None = None,
        spec: str = "",
        rabbitmq: str = "",
        needs: frozenset[Need] = frozenset(),
        limit_s: float = 10.0,
    ) -> Callable[[Callable[["Ground"], Seen | None]], Callable[["Ground"], Seen | None]]:
        """Make the function below a case; its name is part of the id, its docstring the title.

        A *rule* with a number gives its level, and the expectations that are left out. Elsewhere
        *spec* alone means that RabbitMQ does the same, and the level is MUST.
        """
        known = rules()[rule] if isinstance(rule, int) else None
        if known is not None:
            level = level or known.level
            rabbitmq = rabbitmq or spec or known.rabbitmq
            spec = spec or known.description

        def add(run: Callable[["Ground"], Seen | None]) -> Callable[["Ground"], Seen | None]:
            number = f"rule-{rule}" if isinstance(rule, int) else rule
            title = (run.__doc__ or "").strip().splitlines()[0].rstrip(".")
            self.cases.append(
                Case(
                    f"{self.name}/{number}/{run.__name__.replace('_', '-')}",
                    str(rule),
                    level or Level.MUST,
                    title,
                    spec,
                    rabbitmq or spec,
                    run,
                    needs,
                    limit_s,
                )
            )
            return run

        return add


def judge(observed: object, *, spec: object = ..., rabbitmq: object = ...) -> Seen:
    """Compare what was *observed* with what either expects; raises Unmet if it is neither.

    Left out means that this one has no expectation of its own: the other's is taken.
    """
    expected_spec = rabbitmq if spec is ... else spec
    expected_rabbitmq = spec if rabbitmq is ... else rabbitmq
    is_spec, is_rabbitmq = _fits(observed, expected_spec), _fits(observed, expected_rabbitmq)
    if is_spec and is_rabbitmq:
        return Seen(Met.BOTH, str(observed))
    if is_spec:
        return Seen(Met.SPEC, str(observed))
    if is_rabbitmq:
        return Seen(Met.RABBITMQ, str(observed))
    expected = {str(expected_spec): None, str(expected_rabbitmq): None}
    raise Unmet(f"expected {' or '.join(expected)}; saw {observed}")


def _fits(observed: Any, expected: Any) -> bool:
    fits: bool = observed.fits(expected) if hasattr(observed, "fits") else observed == expected
    return fits
