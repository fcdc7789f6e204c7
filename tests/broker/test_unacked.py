"""UnackedLedger against a dict of tags."""

from collections.abc import Iterable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from leveret.amqp.errors import PreconditionFailed
from leveret.broker.unacked import Delivery, Holder, UnackedLedger, grouped
from leveret.queues.classic import ClassicQueue
from leveret.queues.declaration import QueueDeclaration
from leveret.queues.memory_store import MemoryStore
from leveret.queues.ready import ReadyList


def holder(name: str) -> Holder:
    declaration = QueueDeclaration(name, False, False, False, {})
    return Holder(ClassicQueue(declaration, MemoryStore(), ReadyList(0)), None)


ONE, TWO = holder("one"), holder("two")


def add(ledger: UnackedLedger, holder: Holder, offsets: list[int]) -> int:
    first = ledger.issue(len(offsets))
    ledger.add(first, holder, offsets)
    return first


def flat(groups: Iterable[tuple[Holder, list[int]]]) -> list[Delivery]:
    return [(holder, offset) for holder, offsets in groups for offset in offsets]


def test_tags_begin_at_one_and_count_what_needs_no_ack() -> None:
    ledger = UnackedLedger()
    assert ledger.issue(3) == 1
    assert add(ledger, ONE, [7]) == 4
    assert len(ledger) == 1


def test_a_run_is_grouped_by_holder() -> None:
    ledger = UnackedLedger()
    add(ledger, ONE, [1, 2])
    add(ledger, TWO, [5])
    assert list(ledger.take([2, 1, 3])) == [(ONE, [2, 1]), (TWO, [5])]


def test_what_precedes_an_unknown_tag_is_settled() -> None:
    ledger = UnackedLedger()
    add(ledger, ONE, [1, 2])
    groups = ledger.take([1, 9])
    assert next(groups) == (ONE, [1])
    with pytest.raises(PreconditionFailed, match="unknown delivery tag 9"):
        next(groups)
    assert len(ledger) == 1


def test_many_single_acks_make_no_later_multiple_ack_slow() -> None:
    """The tags that are gone are not looked at again: this takes minutes if they are."""
    ledger = UnackedLedger()
    add(ledger, ONE, list(range(1000)))
    for _ in range(3000):
        first = add(ledger, TWO, list(range(1000)))
        list(ledger.take(list(range(first, first + 1000))))
        assert ledger.covered(1, multiple=True) == [1]


class LedgerModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ledger = UnackedLedger()
        self.model: dict[int, Delivery] = {}
        self.next_tag = 1

    @rule(count=st.integers(1, 6), holder=st.sampled_from([ONE, TWO]), no_ack=st.booleans())
    def deliver(self, count: int, holder: Holder, no_ack: bool) -> None:
        first = self.ledger.issue(count)
        assert first == self.next_tag
        self.next_tag += count
        if not no_ack:
            self.ledger.add(first, holder, range(first, first + count))
            self.model.update({tag: (holder, tag) for tag in range(first, first + count)})

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        tag = data.draw(st.integers(0, self.next_tag + 1))
        if tag in self.model:
            assert self.ledger.covered(tag, multiple=False) == [tag]
            assert flat(self.ledger.take([tag])) == [self.model.pop(tag)]
        else:
            with pytest.raises(PreconditionFailed):
                self.ledger.covered(tag, multiple=False)
            with pytest.raises(PreconditionFailed):
                list(self.ledger.take([tag]))

    @rule(data=st.data())
    def settle_multiple(self, data: st.DataObject) -> None:
        if self.model:
            tag = data.draw(st.sampled_from([0, *self.model]))
            covered = [number for number in self.model if not tag or number <= tag]
            assert self.ledger.covered(tag, multiple=True) == covered
            taken = self.ledger.take_multiple(tag)
            assert taken == [self.model.pop(number) for number in covered]
            assert flat(grouped(taken)) == taken

    @rule()
    def settle_beyond(self) -> None:
        for method in (
            lambda: self.ledger.take_multiple(self.next_tag),
            lambda: self.ledger.covered(self.next_tag, multiple=True),
        ):
            with pytest.raises(PreconditionFailed):
                method()

    @rule()
    def settle_all(self) -> None:
        assert self.ledger.take_all() == list(self.model.values())
        self.model.clear()

    @invariant()
    def counts(self) -> None:
        assert len(self.ledger) == len(self.model)


TestLedgerModel = LedgerModel.TestCase
