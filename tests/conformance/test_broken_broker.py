"""The suite finds out what a broken broker gets wrong."""

from dataclasses import replace

import pytest

from leveret.conformance.case import Profile
from leveret.conformance.cases import all_cases
from leveret.conformance.ground import Facilities
from leveret.conformance.raw_client import Address
from leveret.conformance.runner import Outcome, Result, run_case
from tests.conformance.broken_broker import BrokenBroker, Fault
from tests.conformance.faults import FAULTS
from tests.conftest import BrokerProcess

CASES = {case.id: case for case in all_cases()}

CAUGHT_BY: dict[str, str] = {}
"""What is wrong, and the case that must find it."""

SHORT_LIMIT_S = 2.0
"""For a case that waits for what does not come."""


def run(name: str, broker: BrokerProcess, fault: Fault | None, limit_s: float) -> Result:
    proxy = BrokenBroker(broker.port, fault)
    try:
        address = Address("127.0.0.1", proxy.port, "guest", "guest", "/")
        return run_case(replace(CASES[name], limit_s=limit_s), Facilities(address))
    finally:
        proxy.close()


@pytest.mark.parametrize(("fault", "name"), CAUGHT_BY.items())
def test_fault_is_found(fault: str, name: str, one_broker: BrokerProcess) -> None:
    sound = run(name, one_broker, None, CASES[name].limit_s)
    assert sound.outcome(Profile.RABBITMQ) is Outcome.PASSED, sound
    broken = run(name, one_broker, FAULTS[fault], min(SHORT_LIMIT_S, CASES[name].limit_s))
    assert broken.outcome(Profile.RABBITMQ) is Outcome.FAILED, broken
