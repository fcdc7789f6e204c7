"""How cases are run: within their time, each on its own ground, whatever becomes of them."""

from collections.abc import Callable
from threading import Barrier

import pytest
from pamqp import commands

from leveret.conformance.case import Case, Met, Need, Profile, Seen, Unmet
from leveret.conformance.ground import Facilities, Ground
from leveret.conformance.raw_client import Address, channel_closed
from leveret.conformance.rules import Level
from leveret.conformance.runner import WORKERS, Outcome, Result, is_passed, run_case, run_cases
from tests.conftest import BrokerProcess


@pytest.fixture
def facilities(one_broker: BrokerProcess) -> Facilities:
    return Facilities(Address.parse(one_broker.uri))


def case_of(
    run: Callable[[Ground], Seen | None],
    *,
    name: str = "test/rule-1/a",
    level: Level = Level.MUST,
    needs: frozenset[Need] = frozenset(),
    limit_s: float = 10.0,
) -> Case:
    return Case(name, "1", level, "A title", "this", "that", run, needs, limit_s)


def exists(facilities: Facilities, queue: str) -> bool:
    ground = Ground(facilities, 10)
    try:
        declare = commands.Queue.Declare(queue=queue, passive=True)
        answer = ground.wire(1).answer(1, declare)
        return not channel_closed(404).fits(answer) and isinstance(answer, commands.Queue.DeclareOk)
    finally:
        ground.close()


def test_what_is_seen_passes_in_the_profile_whose_expectation_it_is(
    facilities: Facilities,
) -> None:
    result = run_case(case_of(lambda ground: Seen(Met.RABBITMQ, "that")), facilities)
    assert result.outcome(Profile.RABBITMQ) is Outcome.PASSED
    assert result.outcome(Profile.SPEC) is Outcome.FAILED
    assert result.text == "that"


def test_what_nobody_expects_fails_with_the_frames_as_evidence(facilities: Facilities) -> None:
    def run(ground: Ground) -> Seen | None:
        ground.wire(1)
        raise Unmet("saw something else")

    result = run_case(case_of(run), facilities)
    assert {result.outcome(profile) for profile in Profile} == {Outcome.FAILED}
    assert result.text == "saw something else"
    assert any("Channel.OpenOk" in line for line in result.evidence)


def test_no_password_is_in_the_evidence(facilities: Facilities) -> None:
    def log_in(ground: Ground) -> Seen | None:
        ground.wire(1)
        return None

    result = run_case(case_of(log_in), facilities)
    (login,) = (line for line in result.evidence if "StartOk" in line)
    assert "response=(hidden)" in login
    assert "guest" not in login


def test_a_case_ends_with_its_time(facilities: Facilities) -> None:
    def wait(ground: Ground) -> Seen | None:
        ground.wire(1).receive()
        raise AssertionError("nothing comes")

    result = run_case(case_of(wait, limit_s=0.2), facilities)
    assert result.outcome(Profile.SPEC) is Outcome.FAILED
    assert result.text == "nothing came"


def test_an_erring_case_is_an_error_and_leaves_nothing_behind(facilities: Facilities) -> None:
    names: list[str] = []

    def err(ground: Ground) -> Seen | None:
        names.append(ground.queue(ground.wire(1), durable=True))
        assert exists(facilities, names[0])
        raise LookupError("a fault of the case")

    result = run_case(case_of(err), facilities)
    assert result.outcome(Profile.RABBITMQ) is Outcome.ERROR
    assert "LookupError: a fault of the case" in result.text
    assert not exists(facilities, names[0])


def test_a_case_without_what_it_needs_is_skipped(facilities: Facilities) -> None:
    needs = frozenset([Need.RESTART, Need.MANAGEMENT])
    result = run_case(case_of(lambda ground: None, needs=needs), facilities)
    assert result.outcome(Profile.RABBITMQ) is Outcome.SKIPPED
    assert result.text == "needs --management-url and --restart-command"


def test_cases_run_beside_each_other_and_are_answered_in_their_order(
    facilities: Facilities,
) -> None:
    barrier = Barrier(WORKERS)

    def meet(ground: Ground) -> Seen | None:
        barrier.wait(10)
        return None

    cases = [case_of(meet, name=f"test/rule-1/{number}") for number in range(2 * WORKERS)]
    done: list[Result] = []
    results = run_cases(cases, facilities, done.append)
    assert [result.case.id for result in results] == [case.id for case in cases]
    assert {result.outcome(Profile.SPEC) for result in results} == {Outcome.PASSED}
    assert len(done) == len(cases)


def test_a_case_that_restarts_the_broker_runs_last_and_alone(facilities: Facilities) -> None:
    begun: list[str] = []

    def note(name: str) -> Callable[[Ground], Seen | None]:
        return lambda ground: begun.append(name)

    restarting = case_of(
        note("restart"), name="test/rule-1/restart", needs=frozenset([Need.RESTART])
    )
    others = [case_of(note("other"), name=f"test/rule-1/{number}") for number in range(20)]
    with_restart = Facilities(facilities.address, restart_command="true")
    results = run_cases([restarting, *others], with_restart, lambda result: None)
    assert begun == ["other"] * 20 + ["restart"]
    assert results[0].case is restarting


@pytest.mark.parametrize(
    ("level", "is_kept"),
    [(Level.MUST, False), (Level.MUST_NOT, False), (Level.SHOULD, True), (Level.MAY, True)],
)
def test_only_a_must_decides(facilities: Facilities, level: Level, is_kept: bool) -> None:
    def fail(ground: Ground) -> Seen | None:
        raise Unmet("no")

    results = [run_case(case_of(fail, level=level), facilities)]
    assert is_passed(results, Profile.RABBITMQ) is is_kept
