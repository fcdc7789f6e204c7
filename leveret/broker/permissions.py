"""Permissions: the names in a vhost that a user may configure, write and read.

Each of the three is a regular expression that is searched for anywhere in the name. An empty one
matches nothing. The default exchange goes by the name amq.default. Reply texts are those of
RabbitMQ.
"""

import re
from enum import StrEnum

from leveret.amqp.errors import AccessRefused
from leveret.broker.errors import InvalidRequest

ALL_NAMES = ".*"
DEFAULT_EXCHANGE = "amq.default"
CACHE_SIZE = 1024
"""Names whose answers are remembered, for each user and vhost."""

_NO_NAMES = re.compile("(?!)")


class InvalidPattern(InvalidRequest):
    """A pattern that is not a regular expression; the text says where it is not."""


class Access(StrEnum):
    """What a method does to a queue or an exchange."""

    CONFIGURE = "configure"
    WRITE = "write"
    READ = "read"


class Resource(StrEnum):
    """What a name is the name of."""

    QUEUE = "queue"
    EXCHANGE = "exchange"


class Permissions:
    """What one user may do in one vhost. One object for all connections: a change acts on them.

    Raises InvalidPattern.
    """

    __slots__ = ("_granted", "_matchers", "_where", "patterns", "writes_all")

    def __init__(
        self, user_name: str, vhost_name: str, configure: str, write: str, read: str
    ) -> None:
        self._where = f"in vhost '{vhost_name}' refused for user '{user_name}'"
        self.set(configure, write, read)

    def set(self, configure: str, write: str, read: str) -> None:
        """Replace the patterns. Raises InvalidPattern; then the ones before remain."""
        patterns = {Access.CONFIGURE: configure, Access.WRITE: write, Access.READ: read}
        self._matchers = {access: _compile(pattern) for access, pattern in patterns.items()}
        self.patterns = patterns
        self.writes_all = write == ALL_NAMES
        """May every exchange be published to? Then nothing need be asked."""
        self._granted: set[tuple[Access, str]] = set()

    def clear(self) -> None:
        """Nothing is allowed any more."""
        self.set("", "", "")

    def may(self, access: Access, name: str) -> bool:
        """Is *access* to the queue or exchange called *name* allowed?"""
        if (access, name) in self._granted:
            return True
        if self._matchers[access].search(name or DEFAULT_EXCHANGE) is None:
            return False
        if len(self._granted) >= CACHE_SIZE:
            self._granted.clear()
        self._granted.add((access, name))
        return True

    def check(self, access: Access, resource: Resource, name: str) -> None:
        """Raise AccessRefused unless *access* is allowed."""
        if not self.may(access, name):
            raise self._refused(access, resource, name)

    def check_any(self, resource: Resource, name: str) -> None:
        """Raise AccessRefused unless some access is allowed, as a passive declare needs."""
        if not any(self.may(access, name) for access in Access):
            raise self._refused(Access.CONFIGURE, resource, name)

    def _refused(self, access: Access, resource: Resource, name: str) -> AccessRefused:
        shown = name or DEFAULT_EXCHANGE
        return AccessRefused(f"{access} access to {resource} '{shown}' {self._where}")


def _compile(pattern: str) -> re.Pattern[str]:
    if not pattern:
        return _NO_NAMES
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidPattern(f"invalid regular expression '{pattern}': {error}") from None
