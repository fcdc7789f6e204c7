import pytest

from leveret.amqp.tables import table_of
from leveret.broker.commands import run_command
from leveret.broker.policies import ApplyTo, InvalidPolicy, Policy, PolicySet
from leveret.broker.vhost import VHost
from leveret.queues.arguments import Overflow, QueueArguments, QueueType
from leveret.queues.classic import ClassicQueue
from leveret.queues.declaration import QueueDeclaration
from tests.broker.world import World


def policy(name: str, pattern: str = "", **definition: object) -> Policy:
    options = {
        key: definition.pop(key)
        for key in ("priority", "apply_to", "is_operator")
        if key in definition
    }
    renamed = {key.replace("_", "-"): value for key, value in definition.items()}
    return Policy.parse(name, pattern, renamed or {"max-length": 1}, **options)  # type: ignore[arg-type]  # as named


def winner(*policies: Policy, name: str = "jobs") -> str | None:
    match = PolicySet(policies).match_queue(name, QueueType.CLASSIC)
    return None if match.policy is None else match.policy.name


# ---- which policy wins


def test_pattern_is_found_anywhere_in_the_name() -> None:
    assert winner(policy("p", "ob")) == "p"
    assert winner(policy("p", "^ob")) is None
    assert winner(policy("p", "")) == "p"


def test_highest_priority_wins_and_among_equals_the_first_name() -> None:
    low, high = policy("a", priority=-1), policy("b", priority=2)
    assert winner(low, high) == winner(high, low) == "b"
    assert winner(policy("d"), policy("c"), low) == "c"
    assert winner(policy("d", "other", priority=9), policy("c")) == "c"


@pytest.mark.parametrize(
    ("apply_to", "kinds"),
    [
        ("all", {"classic_queues", "quorum_queues", "streams", "exchanges"}),
        ("queues", {"classic_queues", "quorum_queues", "streams"}),
        ("classic_queues", {"classic_queues"}),
        ("quorum_queues", {"quorum_queues"}),
        ("streams", {"streams"}),
        ("exchanges", {"exchanges"}),
    ],
)
def test_policy_is_for_what_it_applies_to(apply_to: str, kinds: set[str]) -> None:
    every = {ApplyTo(kind) for kind in ("classic_queues", "quorum_queues", "streams", "exchanges")}
    found = {kind for kind in every if policy("p", apply_to=apply_to).matches("jobs", kind)}
    assert {kind.value for kind in found} == kinds


def test_policy_of_a_name_replaces_the_one_before_but_not_the_operators() -> None:
    policies = PolicySet([policy("p", priority=1), policy("p", is_operator=True)])
    policies = policies.with_policy(policy("p", priority=2))
    assert [(p.priority, p.is_operator) for p in policies] == [(2, False), (0, True)]
    policies = policies.without("p", is_operator=False)
    assert [p.is_operator for p in policies] == [True]
    assert policies.find("p", is_operator=False) is None


# ---- what it does


def effective(declared: QueueArguments, *policies: Policy) -> QueueArguments:
    return PolicySet(policies).effective_queue_arguments(declared, "jobs")


def test_numbers_are_the_smallest_of_declaration_policy_and_operator_policy() -> None:
    of_user = policy("user", max_length=50, message_ttl=1000)
    of_operator = policy("operator", max_length=40, expires=7, is_operator=True)
    found = effective(QueueArguments(max_length=60), of_user, of_operator)
    assert (found.max_length, found.message_ttl_ms, found.expires_ms) == (40, 1000, 7)
    assert effective(QueueArguments(max_length=3), of_user, of_operator).max_length == 3
    assert effective(QueueArguments(), of_operator).max_length == 40


def test_other_values_come_from_declaration_then_operator_then_policy() -> None:
    of_user = policy("user", overflow="drop-head", dead_letter_exchange="dead")
    of_operator = policy("operator", overflow="reject-publish", is_operator=True)
    found = effective(QueueArguments(), of_user, of_operator)
    assert (found.overflow, found.dead_letter_exchange) == (Overflow.REJECT_PUBLISH, "dead")
    declared = QueueArguments(overflow=Overflow.REJECT_PUBLISH_DLX, dead_letter_exchange="mine")
    assert effective(declared, of_user, of_operator) == declared


def test_policy_without_a_match_leaves_the_declaration() -> None:
    declared = QueueArguments(max_length=5)
    assert effective(declared, policy("p", "other")) is declared


def test_queue_for_direct_replies_is_left_alone() -> None:
    match = PolicySet([policy("p")]).match_queue("amq.rabbitmq.reply-to.x", QueueType.CLASSIC)
    assert match.policy is None


def test_stored_form_comes_back() -> None:
    for one in (policy("p", "^a", apply_to="streams", priority=-3), policy("é", is_operator=True)):
        assert Policy.from_row(one.to_row(1)) == one


# ---- what is refused


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ({}, "no policy provided"),
        ({"max-len": 5}, '[{<<"max-len">>,5}] are not recognised policy settings'),
        ({"max-priority": 5}, '[{<<"max-priority">>,5}] are not recognised policy settings'),
        ({"max-length": -1}, "-1 is not a valid maximum length"),
        ({"max-length": True}, "true is not a valid maximum length"),
        ({"max-length": "5"}, '<<"5">> is not a valid maximum length'),
        ({"max-length-bytes": 1.5}, "1.5 is not a valid maximum length in bytes"),
        ({"message-ttl": [1]}, "[1] is not a valid message TTL"),
        ({"expires": 0}, "0 is not a valid queue expiry"),
        ({"overflow": "burst"}, '<<"burst">> is not a valid overflow value'),
        ({"dead-letter-exchange": 1}, "1 is not a valid dead letter exchange name"),
        ({"alternate-exchange": None}, "null is not a valid alternate exchange name"),
        ({"delayed-retry-type": "x"}, '<<"x">> is not a valid delayed-retry-type value'),
    ],
)
def test_definition_is_refused_in_the_words_of_rabbitmq(
    definition: dict[str, object], reason: str
) -> None:
    with pytest.raises(InvalidPolicy) as refused:
        Policy.parse("p", "", definition)
    assert str(refused.value) == f"Validation failed\n\n{reason}"


def test_keys_of_rabbitmq_that_mean_nothing_here_are_taken() -> None:
    Policy.parse("p", "", {"queue-mode": "lazy", "queue-version": 2})


def test_operator_policy_knows_fewer_keys() -> None:
    for key in ("max-length", "message-ttl", "expires", "delivery-limit", "max-length-bytes"):
        Policy.parse("p", "", {key: 5}, is_operator=True)
    with pytest.raises(InvalidPolicy, match="are not recognised policy settings"):
        Policy.parse("p", "", {"dead-letter-exchange": "dead"}, is_operator=True)


def test_pattern_and_target_are_checked() -> None:
    with pytest.raises(InvalidPolicy) as refused:
        Policy.parse("p", "a(b", {"max-length": 1})
    assert str(refused.value).endswith(
        "pattern should be regular expression but is invalid: missing ), "
        "unterminated subpattern at position 1"
    )
    with pytest.raises(InvalidPolicy, match="apply-to 'cats' unrecognised; should be one of: "):
        Policy.parse("p", "", {"max-length": 1}, apply_to="cats")


# ---- on a living vhost


def declare(vhost: VHost, name: str, **arguments: object) -> ClassicQueue:
    renamed = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    declaration = QueueDeclaration(
        name, durable=True, exclusive=False, auto_delete=False, arguments=table_of(renamed)
    )
    return vhost.declare_queue(declaration, None)[0]


def test_policy_comes_and_goes_on_old_and_new_queues(vhost: VHost) -> None:
    old = declare(vhost, "jobs.old", max_length=10)
    vhost.use_policies(vhost.policies.with_policy(policy("p", "^jobs", max_length=5, expires=9)))
    new = declare(vhost, "jobs.new")
    other = declare(vhost, "other")
    assert (old.arguments.max_length, old.arguments.expires_ms) == (5, 9)
    assert (new.arguments.max_length, new.arguments.expires_ms) == (5, 9)
    assert other.arguments == QueueArguments()
    vhost.use_policies(vhost.policies.without("p", is_operator=False))
    assert old.arguments == QueueArguments(max_length=10)
    assert new.arguments == QueueArguments()


def test_alternate_exchange_of_a_declaration_comes_before_that_of_a_policy(vhost: VHost) -> None:
    def make(name: str, **arguments: object) -> None:
        vhost.declare_exchange(
            name,
            "fanout",
            durable=False,
            auto_delete=False,
            internal=False,
            arguments=table_of({key.replace("_", "-"): value for key, value in arguments.items()}),
        )

    make("plain")
    make("own", alternate_exchange="mine")
    vhost.use_policies(PolicySet([policy("p", alternate_exchange="lost")]))
    make("later")
    alternates = {name: exchange.alternate_exchange for name, exchange in vhost.exchanges.items()}
    assert (alternates["plain"], alternates["own"], alternates["later"]) == ("lost", "mine", "lost")
    assert (alternates["amq.topic"], alternates[""]) == ("lost", None)
    vhost.use_policies(PolicySet())
    alternates = {name: exchange.alternate_exchange for name, exchange in vhost.exchanges.items()}
    assert (alternates["plain"], alternates["own"]) == (None, "mine")


def test_commands_set_list_and_clear_and_a_restart_keeps_the_rest(world: World) -> None:
    definition = {"max-length": 5}
    for command in ("set_policy", "set_operator_policy"):
        run_command(
            world.broker,
            command,
            {"name": "p", "pattern": "^a", "definition": definition, "priority": 3},
        )
    run_command(
        world.broker, "set_policy", {"name": "q", "pattern": "", "definition": {"expires": 1}}
    )
    run_command(world.broker, "clear_policy", {"name": "q"})
    declare(world.vhost, "a", max_length=7)
    world.commit()
    world.restart()
    row = {
        "vhost": "/",
        "name": "p",
        "pattern": "^a",
        "apply-to": "all",
        "definition": definition,
        "priority": 3,
    }
    for command in ("list_policies", "list_operator_policies"):
        assert run_command(world.broker, command, {"vhost": "/"}) == [row]
    assert world.vhost.queues["a"].arguments.max_length == 5
