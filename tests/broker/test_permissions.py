import pytest
from pamqp import commands
from pamqp.base import Frame as Method

from leveret.amqp.errors import AccessRefused
from leveret.broker.commands import run_command
from leveret.broker.errors import RequestError
from leveret.broker.permissions import Access, InvalidPattern, Permissions, Resource
from tests.broker.peer import Peer
from tests.broker.world import World


def permissions(configure: str = "", write: str = "", read: str = "") -> Permissions:
    return Permissions("alice", "/", configure, write, read)


def test_pattern_is_found_anywhere_and_an_empty_one_nowhere() -> None:
    found = permissions(configure="ob", write="^job$")
    assert found.may(Access.CONFIGURE, "jobs")
    assert not found.may(Access.WRITE, "jobs")
    assert found.may(Access.WRITE, "job")
    assert not found.may(Access.READ, "job")
    assert not found.may(Access.READ, "")


def test_default_exchange_goes_by_its_other_name() -> None:
    assert permissions(write=r"^amq\.default$").may(Access.WRITE, "")
    with pytest.raises(AccessRefused) as refused:
        permissions().check(Access.WRITE, Resource.EXCHANGE, "")
    assert str(refused.value) == (
        "write access to exchange 'amq.default' in vhost '/' refused for user 'alice'"
    )


def test_change_acts_on_answers_already_given() -> None:
    found = permissions(read=".*")
    assert found.may(Access.READ, "jobs")
    found.set("", "", "^other$")
    assert not found.may(Access.READ, "jobs")


def test_pattern_that_cannot_be_leaves_those_before() -> None:
    found = permissions(read=".*")
    with pytest.raises(InvalidPattern) as refused:
        found.set("", "", "a(")
    assert str(refused.value) == (
        "invalid regular expression 'a(': missing ), unterminated subpattern at position 1"
    )
    assert found.may(Access.READ, "jobs")


@pytest.fixture
def alice(world: World) -> Peer:
    """May configure what begins with c, write what begins with w, read what begins with r."""
    run_command(world.broker, "add_user", {"name": "alice", "password": "alice"})
    allow(world, "^c", "^w", "^r")
    guest = Peer(world)
    guest.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    for name in ("c", "w", "r"):
        guest.call(1, commands.Queue.Declare(queue=name), commands.Queue.DeclareOk)
        declare = commands.Exchange.Declare(exchange=name, exchange_type="fanout")
        guest.call(1, declare, commands.Exchange.DeclareOk)
    peer = Peer(world, user="alice")
    peer.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    return peer


def allow(world: World, configure: str, write: str, read: str) -> None:
    run_command(
        world.broker,
        "set_permissions",
        {"user": "alice", "configure": configure, "write": write, "read": read},
    )


@pytest.mark.parametrize(
    "method",
    [
        commands.Queue.Declare(queue="c"),
        commands.Queue.Declare(queue="w", passive=True),
        commands.Queue.Declare(queue="r", passive=True),
        commands.Queue.Delete(queue="c"),
        commands.Queue.Purge(queue="r"),
        commands.Queue.Bind(queue="w", exchange="r"),
        commands.Queue.Unbind(queue="w", exchange="r"),
        commands.Basic.Get(queue="r"),
        commands.Basic.Consume(queue="r"),
        commands.Exchange.Declare(exchange="c", exchange_type="fanout"),
        commands.Exchange.Declare(exchange="w", passive=True),
        commands.Exchange.Delete(exchange="c"),
        commands.Exchange.Bind(destination="w", source="r"),
        commands.Exchange.Unbind(destination="w", source="r"),
    ],
    ids=lambda method: method.name,
)
def test_method_is_allowed(alice: Peer, method: Method) -> None:
    alice.send(1, method)
    assert not isinstance(alice.receive()[-1].method, commands.Channel.Close)


@pytest.mark.parametrize(
    ("method", "refused"),
    [
        (commands.Queue.Declare(queue="w"), "configure access to queue 'w'"),
        (commands.Queue.Declare(queue="x", passive=True), "configure access to queue 'x'"),
        (commands.Queue.Delete(queue="r"), "configure access to queue 'r'"),
        (commands.Queue.Purge(queue="c"), "read access to queue 'c'"),
        (commands.Queue.Bind(queue="r", exchange="r"), "write access to queue 'r'"),
        (commands.Queue.Bind(queue="w", exchange="w"), "read access to exchange 'w'"),
        (commands.Queue.Unbind(queue="r", exchange="r"), "write access to queue 'r'"),
        (
            commands.Queue.Declare(queue="cr", arguments={"x-dead-letter-exchange": "w"}),
            "read access to queue 'cr'",
        ),
        (commands.Basic.Get(queue="w"), "read access to queue 'w'"),
        (commands.Basic.Consume(queue="w"), "read access to queue 'w'"),
        (commands.Exchange.Declare(exchange="w"), "configure access to exchange 'w'"),
        (
            commands.Exchange.Declare(exchange="x", passive=True),
            "configure access to exchange 'x'",
        ),
        (commands.Exchange.Delete(exchange="w"), "configure access to exchange 'w'"),
        (commands.Exchange.Bind(destination="r", source="r"), "write access to exchange 'r'"),
        (commands.Exchange.Bind(destination="w", source="w"), "read access to exchange 'w'"),
        (
            commands.Exchange.Declare(exchange="cx", arguments={"alternate-exchange": "w"}),
            "read access to exchange 'cx'",
        ),
    ],
)
def test_method_is_refused(alice: Peer, method: Method, refused: str) -> None:
    assert alice.closed(1, method) == (
        f"ACCESS_REFUSED - {refused} in vhost '/' refused for user 'alice'"
    )


def test_name_to_be_generated_needs_the_right_to_configure_such_names(
    world: World, alice: Peer
) -> None:
    declare = commands.Queue.Declare(queue="", exclusive=True)
    assert "configure access to queue 'amq.gen-" in alice.closed(1, declare)
    allow(world, r"^amq\.gen-", "", "")
    alice.call(1, declare, commands.Queue.DeclareOk)


def test_dead_letters_need_the_right_to_write_where_they_go(world: World, alice: Peer) -> None:
    allow(world, "^c", "^w", "^c")
    declare = commands.Queue.Declare(queue="c2", arguments={"x-dead-letter-exchange": "r"})
    assert "write access to exchange 'r'" in alice.closed(1, declare)
    declare = commands.Queue.Declare(queue="c2", arguments={"x-dead-letter-exchange": "w"})
    alice.call(1, declare, commands.Queue.DeclareOk)


def test_permissions_that_are_cleared_shut_out_also_who_is_in(world: World, alice: Peer) -> None:
    run_command(world.broker, "clear_permissions", {"user": "alice"})
    assert "refused" in alice.closed(1, commands.Basic.Get(queue="r"))
    answer = Peer(world, user="alice", refused=True).receive()[-1].method
    assert isinstance(answer, commands.Connection.Close)
    assert answer.reply_text == "NOT_ALLOWED - access to vhost '/' refused for user 'alice'"


def test_permissions_and_users_are_kept_over_a_restart(world: World) -> None:
    run_command(world.broker, "add_user", {"name": "alice", "password": "alice", "tags": ["a"]})
    run_command(world.broker, "add_vhost", {"name": "shop"})
    for vhost in ("/", "shop"):
        run_command(
            world.broker,
            "set_permissions",
            {"user": "alice", "vhost": vhost, "configure": "c", "write": "w", "read": "r"},
        )
    run_command(world.broker, "clear_permissions", {"user": "alice"})
    run_command(world.broker, "clear_permissions", {"user": "guest"})
    world.commit()
    world.restart()
    assert run_command(world.broker, "list_permissions", {}) == [
        {"user": "alice", "vhost": "shop", "configure": "c", "write": "w", "read": "r"}
    ]
    Peer(world, user="alice", vhost="shop")


def test_everybody_may_be_deleted_and_nobody_comes_back(world: World) -> None:
    peer = Peer(world)
    peer.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    peer.call(1, commands.Queue.Declare(queue="q", durable=True), commands.Queue.DeclareOk)
    peer.publish(1, "q", b"message")
    directory = world.directory / "vhosts" / "1"
    assert directory.exists()
    run_command(world.broker, "delete_user", {"name": "guest"})
    run_command(world.broker, "delete_vhost", {"name": "/"})
    world.commit()
    world.restart()
    assert run_command(world.broker, "list_users", {}) == []
    assert run_command(world.broker, "list_vhosts", {}) == []
    assert not directory.exists()


@pytest.mark.parametrize(
    ("command", "arguments", "reason"),
    [
        ("add_user", {"name": "guest", "password": "x"}, "user 'guest' already exists"),
        ("add_user", {"name": "", "password": "x"}, "a user needs a name"),
        ("add_user", {"name": "bob", "password": ""}, "a user needs a password"),
        ("set_user_tags", {"name": "guest", "tags": ["a,b"]}, "'a,b' cannot be a tag"),
        ("set_user_tags", {"name": "guest", "tags": [1]}, "argument 'tags' is of another type"),
        ("delete_user", {"name": "bob"}, "user 'bob' does not exist"),
        ("add_vhost", {"name": ""}, "the name of a vhost has 1 to 255 bytes"),
        ("delete_vhost", {"name": "x"}, "vhost 'x' does not exist"),
        ("clear_permissions", {"user": "guest", "vhost": "x"}, "vhost 'x' does not exist"),
    ],
)
def test_command_that_cannot_be_done_says_why(
    world: World, command: str, arguments: dict[str, object], reason: str
) -> None:
    with pytest.raises(RequestError) as refused:
        run_command(world.broker, command, arguments)
    assert reason in str(refused.value)
