"""The suite finds out what a broken broker gets wrong."""

from dataclasses import replace

import pytest

from leveret.conformance.case import Profile
from leveret.conformance.catalogue import all_cases
from leveret.conformance.ground import Facilities
from leveret.conformance.raw_client import Address
from leveret.conformance.runner import Outcome, Result, run_case
from tests.conformance.broken_broker import BrokenBroker, Fault
from tests.conformance.faults import FAULTS
from tests.conftest import BrokerProcess

CASES = {case.id.partition("/")[2]: case for case in all_cases()}
"""By rule and name: chapters are divided now and then."""

CAUGHT_BY = {
    "tells not that a message comes again": (
        "2.6-flow-of-work/a-lost-consumer-leaves-its-messages-to-others"
    ),
    "says always that a message comes again": (
        "2.6-delivery-fields/a-delivery-says-where-it-comes-from"
    ),
    "delivers in another order": "2.6-order/one-reader-gets-them-in-order",
    "delivers twice": "2.6-consume-ok-first/consume-ok-comes-first",
    "begins delivery tags with 2": "2.6-tags/tags-count-deliveries-and-gets",
    "delivers to another consumer": "2.6-delivery-fields/a-delivery-says-where-it-comes-from",
    "names another exchange": "2.6-delivery-fields/a-delivery-says-where-it-comes-from",
    "loses properties": "2.6-properties/properties-arrive-as-they-were-sent",
    "closes the connection for what concerns a channel": "rule-37/redeclare-with-another-type",
    "closes channels with another code": "rule-39/passive-declare-of-a-missing-exchange",
    "closes channels with another text": "rule-87/purge-without-a-name",
    "counts one message too many": "rule-63/passive-declare-of-an-existing-queue",
    "counts one consumer too many": "rule-63/passive-declare-of-an-existing-queue",
    "declares a queue of another name": "rule-60/generated-names",
    "purges one message too many": "rule-85/purge-leaves-what-is-unacknowledged",
    "deletes one message too many": "rule-89/the-messages-of-a-deleted-queue",
    "declares what is only asked about": "rule-63/passive-declare-of-a-missing-queue",
    "shares exclusive queues": "rule-68/an-exclusive-queue-of-another-connection",
    "keeps queues that are to be deleted": "rule-69/redeclare-auto-delete",
    "makes internal exchanges public": "rule-40/redeclare-internal",
    "deletes queues in use": "rule-92/delete-a-queue-in-use",
    "deletes queues with messages": "rule-93/delete-a-queue-with-messages",
    "deletes exchanges in use": "rule-45/delete-an-exchange-in-use",
    "does not say that a consumer is cancelled": (
        "2.6-cancel-notice/a-deleted-queue-cancels-its-consumers"
    ),
    "delivers one more than the prefetch": "2.6-prefetch/a-window-of-unacknowledged-messages",
    "lets others consume beside an exclusive consumer": (
        "2.6-get-beside-exclusive/others-may-get-beside-an-exclusive-consumer"
    ),
    "drops what is to be requeued": "2.6-redelivered-given-back/what-is-given-back-is-redelivered",
    "acknowledges one for many": "2.6-multiple-ack/multiple-covers-consumers-and-gets",
    "acknowledges many for one": "2.6-place-of-returned/acknowledged-messages-leave-gaps",
    "has several active consumers": "2.6-single-active/the-next-takes-over",
    "closes connections with another code": "error-28/unknown-method",
    "names no class and method in a close": "rule-134/commit-without-select",
    "answers no close": "rule-19/client-closes",
    "loses confirms": "rule-136/all-are-confirmed",
    "confirms before it returns": "rule-138/return-comes-before-its-ack",
    "confirms other publishes": "2.1-confirm-nowait/select-without-an-answer",
    "confirms what it refuses": "rule-137/one-of-several-queues-refuses",
    "returns for another reason": "rule-115/a-mandatory-message-without-a-route",
    "keeps what cannot be routed": "rule-138/returns-among-others",
    "takes no notice of mandatory": "rule-133/mandatory-returns-come-at-commit",
    "sends no heartbeats": "2.3-heartbeats-are-sent/idle-connection",
    "knows no locale": "rule-9/locales",
    "says nothing of itself": "2.3-capabilities/capabilities",
    "waits for acknowledgements that nobody sends": (
        "rule-102/a-consumer-without-acknowledgements"
    ),
    "requeues what is to be dropped": "2.8-death-count/deaths-of-a-kind-are-counted",
    "keeps expired messages": "2.8-queue-ttl/messages-die-after-the-ttl-of-their-queue",
    "keeps unused queues": "2.8-queue-expiry/a-queue-expires-with-what-is-in-it",
    "has no dead letters": "2.8-rejected/rejected-messages-are-dead-letters",
    "gives dead letters another key": "2.8-death-order/entries-stand-newest-first",
    "has no priorities": "2.9-message-priorities/the-highest-priority-is-first",
    "sets no limit to a queue": "2.8-drop-head/the-oldest-give-way",
    "drops where it must refuse": "2.8-reject-publish/a-full-queue-refuses",
}
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


def test_every_fault_has_a_case_that_finds_it() -> None:
    assert CAUGHT_BY.keys() == FAULTS.keys()


@pytest.mark.parametrize(("fault", "name"), CAUGHT_BY.items())
def test_fault_is_found(fault: str, name: str, one_broker: BrokerProcess) -> None:
    sound = run(name, one_broker, None, CASES[name].limit_s)
    assert sound.outcome(Profile.RABBITMQ) is Outcome.PASSED, sound
    broken = run(name, one_broker, FAULTS[fault], min(SHORT_LIMIT_S, CASES[name].limit_s))
    assert broken.outcome(Profile.RABBITMQ) is Outcome.FAILED, broken
