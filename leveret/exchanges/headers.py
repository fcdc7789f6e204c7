"""Headers exchange: the headers of the message match the arguments of the binding (§3.1.3.4).

The argument `x-match` of a binding says how: `all` of the other arguments (which it is if left
out) or `any` of them must be among the headers. Arguments whose names begin with `x-` count only
under `all-with-x` and `any-with-x`. An argument without a value (void) asks for presence alone.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.properties import PropertyView
from leveret.amqp.tables import Field, Table, type_name
from leveret.exchanges.binding import Binding
from leveret.exchanges.destination import Destination
from leveret.exchanges.erlang import as_erlang
from leveret.exchanges.exchange import Exchange

X_MATCH = "x-match"


class MatchRule(NamedTuple):
    """What a value of `x-match` means."""

    combine: Callable[[Iterable[bool]], bool]
    includes_x: bool


MATCH_RULES = {
    "all": MatchRule(all, includes_x=False),
    "any": MatchRule(any, includes_x=False),
    "all-with-x": MatchRule(all, includes_x=True),
    "any-with-x": MatchRule(any, includes_x=True),
}


class HeadersMatcher:
    """The arguments of one binding, made ready to be compared with the headers of messages.

    Raises PreconditionFailed for a value of `x-match` that is none of `MATCH_RULES`.
    """

    __slots__ = ("_combine", "_pattern")

    def __init__(self, arguments: Table) -> None:
        rule = _match_rule(arguments)
        self._combine = rule.combine
        self._pattern = [
            (name, value)
            for name, value in arguments.items()
            if name != X_MATCH and (rule.includes_x or not name.startswith("x-"))
        ]

    def matches(self, headers: Table) -> bool:
        """Whether a message with *headers* goes through this binding."""
        return self._combine(_accepts(value, headers.get(name)) for name, value in self._pattern)


@dataclass(eq=False)
class HeadersExchange(Exchange):
    """Routes by headers: asks the matcher of every binding."""

    type_name = "headers"
    uses_properties = True

    _matchers: dict[Binding, HeadersMatcher] = field(init=False, repr=False, default_factory=dict)

    def destinations(self, routing_key: str, properties: PropertyView) -> Collection[Destination]:
        """Destinations of the bindings that match the headers among *properties*."""
        headers = properties.headers or {}
        return dict.fromkeys(
            binding.destination
            for binding, matcher in self._matchers.items()
            if matcher.matches(headers)
        )

    def bind(self, binding: Binding) -> bool:
        """Add *binding*; False if it was there already.

        Raises PreconditionFailed for an unknown `x-match`.
        """
        matcher = HeadersMatcher(binding.arguments)
        if not super().bind(binding):
            return False
        self._matchers[binding] = matcher
        return True

    def unbind(self, binding: Binding) -> bool:
        """Remove the binding equal to *binding*; False if there was none."""
        if not super().unbind(binding):
            return False
        del self._matchers[binding]
        return True


def _match_rule(arguments: Table) -> MatchRule:
    x_match = arguments.get(X_MATCH, Field("S", "all"))
    text = as_erlang(x_match.value)
    if x_match.tag != "S":
        raise PreconditionFailed(
            f"Invalid x-match field type {type_name(x_match)} (value {text}); expected longstr"
        )
    rule = MATCH_RULES.get(str(x_match.value))
    if rule is None:
        raise PreconditionFailed(
            f"Invalid x-match field value {text}; expected all, any, all-with-x, or any-with-x"
        )
    return rule


def _accepts(pattern: Field, header: Field | None) -> bool:
    if header is None:
        return False
    if pattern.tag == "V":
        return True
    # Numbers compare by value whatever their width; but Python takes True for 1.
    return pattern.value == header.value and (pattern.tag == "t") == (header.tag == "t")
