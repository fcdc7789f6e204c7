"""Users: who may log in, with which password and which tags."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from leveret.broker.passwords import HashingAlgorithm, hash_password, verify_password
from leveret.storage.rows import UserRow

LOOPBACK_USERS = frozenset({"guest"})


class LoginRefusedReason(Exception):
    """Why a login was refused: for the log, as the client is told only that it was."""


@dataclass(frozen=True, slots=True)
class User:
    """A user as the definitions hold it. Tags such as "administrator" give management rights."""

    name: str
    password_hash: str
    algorithm: HashingAlgorithm
    tags: tuple[str, ...]

    @classmethod
    def with_password(cls, name: str, password: str, tags: Iterable[str] = ()) -> Self:
        """Make a user whose password is hashed here."""
        return cls(name, hash_password(password), HashingAlgorithm.SHA256, tuple(tags))

    @classmethod
    def from_row(cls, row: UserRow) -> Self:
        """Make a user from its stored form. Raises ValueError for an unknown algorithm."""
        algorithm = HashingAlgorithm(row.hashing_algorithm)
        tags = tuple(tag for tag in row.tags.split(",") if tag)
        return cls(row.name, row.password_hash, algorithm, tags)

    def to_row(self) -> UserRow:
        """The stored form."""
        return UserRow(self.name, self.password_hash, self.algorithm.value, ",".join(self.tags))


class UserStore:
    """The users of the broker, in memory."""

    def __init__(self, users: Iterable[User] = ()) -> None:
        self._users = {user.name: user for user in users}

    def __contains__(self, name: str) -> bool:
        return name in self._users

    def __iter__(self) -> Iterator[User]:
        return iter(self._users.values())

    def __len__(self) -> int:
        return len(self._users)

    def get(self, name: str) -> User | None:
        """The user called *name*."""
        return self._users.get(name)

    def add(self, user: User) -> None:
        """Add a user, or replace the one of that name."""
        self._users[user.name] = user

    def delete(self, name: str) -> None:
        """Remove a user. Raises KeyError if there is none of that name."""
        del self._users[name]

    def authenticate(self, username: str, password: str, *, is_loopback: bool) -> User:
        """The user who logs in with *password*, over the loopback interface or from elsewhere.

        Raises LoginRefusedReason. An empty password never fits, as in RabbitMQ.
        """
        user = self._users.get(username)
        if user is None:
            raise LoginRefusedReason(f"user {username!r} does not exist")
        if not password:
            raise LoginRefusedReason(f"user {username!r} gave an empty password")
        if not verify_password(password, user.password_hash, user.algorithm):
            raise LoginRefusedReason(f"user {username!r} gave a wrong password")
        if username in LOOPBACK_USERS and not is_loopback:
            raise LoginRefusedReason(f"user {username!r} can only connect via localhost")
        return user
