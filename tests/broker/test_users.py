import pytest

from leveret.broker.passwords import HashingAlgorithm, hash_password
from leveret.broker.users import LoginRefusedReason, User, UserStore
from leveret.storage.rows import UserRow

GUEST = User.with_password("guest", "guest", ["administrator"])
ALICE = User.with_password("alice", "wonderland", ["monitoring", "management"])


@pytest.fixture
def users() -> UserStore:
    return UserStore([GUEST, ALICE])


def reason(users: UserStore, username: str, password: str, *, is_loopback: bool) -> str:
    with pytest.raises(LoginRefusedReason) as refused:
        users.authenticate(username, password, is_loopback=is_loopback)
    return str(refused.value)


@pytest.mark.parametrize("is_loopback", [True, False])
def test_user_logs_in_from_anywhere(users: UserStore, is_loopback: bool) -> None:
    assert users.authenticate("alice", "wonderland", is_loopback=is_loopback) is ALICE


def test_guest_logs_in_from_loopback_only(users: UserStore) -> None:
    assert users.authenticate("guest", "guest", is_loopback=True) is GUEST
    assert reason(users, "guest", "guest", is_loopback=False) == (
        "user 'guest' can only connect via localhost"
    )


def test_login_is_refused_with_a_reason(users: UserStore) -> None:
    assert reason(users, "bob", "x", is_loopback=True) == "user 'bob' does not exist"
    assert reason(users, "alice", "x", is_loopback=True) == "user 'alice' gave a wrong password"
    assert reason(users, "alice", "", is_loopback=True) == "user 'alice' gave an empty password"


def test_reason_never_holds_the_password(users: UserStore) -> None:
    for username in ("alice", "bob"):
        assert "secret" not in reason(users, username, "secret", is_loopback=True)


def test_empty_password_never_fits() -> None:
    users = UserStore([User.with_password("empty", "")])
    reason(users, "empty", "", is_loopback=True)


def test_users_are_added_replaced_and_deleted(users: UserStore) -> None:
    new = User.with_password("alice", "other")
    users.add(new)
    assert list(users) == [GUEST, new]
    assert users.authenticate("alice", "other", is_loopback=True) is new
    users.delete("alice")
    assert "alice" not in users
    assert len(users) == 1
    with pytest.raises(KeyError):
        users.delete("alice")


@pytest.mark.parametrize("algorithm", HashingAlgorithm)
def test_every_algorithm_of_a_stored_user_is_understood(algorithm: HashingAlgorithm) -> None:
    row = UserRow("old", hash_password("p", algorithm), algorithm.value, "")
    users = UserStore([User.from_row(row)])
    assert users.authenticate("old", "p", is_loopback=False).to_row() == row


@pytest.mark.parametrize("user", [GUEST, ALICE, User.with_password("none", "x")])
def test_user_comes_back_from_its_row(user: User) -> None:
    assert User.from_row(user.to_row()) == user


def test_row_of_an_unknown_algorithm_is_refused() -> None:
    with pytest.raises(ValueError, match="rot13"):
        User.from_row(UserRow("u", "h", "rot13", ""))
