"""ReadyList against a set of offsets."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leveret.queues.ready import ReadyList, ReadyRange, ranges_of, within


def test_a_backlog_is_one_range() -> None:
    ready = ReadyList(0)
    ready.extend(1_000_000)
    assert ready.peek(10) == ReadyRange(0, 10, False)
    ready.take(10)
    assert ready.peek(2_000_000) == ReadyRange(10, 1_000_000, False)
    assert ready.count == 999_990


def test_what_returns_goes_before_what_is_new() -> None:
    ready = ReadyList(0)
    ready.extend(10)
    ready.take(8)
    ready.put_back([6, 2, 3])
    assert ready.peek(9) == ReadyRange(2, 4, True)
    ready.take(3)
    assert ready.peek(9) == ReadyRange(3, 4, True)
    ready.take(4)
    assert ready.peek(9) == ReadyRange(6, 7, True)
    ready.take(7)
    assert ready.peek(9) == ReadyRange(8, 10, False)


def test_offsets_within_ranges_are_found() -> None:
    assert within([1, 2, 4, 5, 6, 9], [(2, 5), (6, 8)]) == [2, 4, 6]
    assert within([1], []) == []


@pytest.mark.parametrize(
    ("offsets", "ranges"),
    [
        ([4], [(4, 5)]),
        ([3, 1, 2], [(1, 4)]),
        ([9, 1, 2, 5], [(1, 3), (5, 6), (9, 10)]),
    ],
)
def test_offsets_become_ranges(offsets: list[int], ranges: list[tuple[int, int]]) -> None:
    assert ranges_of(offsets) == ranges


class ReadyListModel(RuleBasedStateMachine):
    """The model: the ready offsets, those that are out, and those that were out before."""

    def __init__(self) -> None:
        super().__init__()
        self.ready: set[int] = set()
        self.out: set[int] = set()
        self.delivered: set[int] = set()

    @initialize(states=st.lists(st.sampled_from(["ready", "delivered", "acked"]), max_size=30))
    def recover(self, states: list[str]) -> None:
        self.list = ReadyList(len(states))
        self.end = len(states)
        self.ready = {at for at, state in enumerate(states) if state != "acked"}
        self.delivered = {at for at, state in enumerate(states) if state == "delivered"}
        self.list.restore(
            ranges_of(list(self.ready)) if self.ready else [],
            ranges_of(list(self.delivered)) if self.delivered else [],
        )

    @rule(count=st.integers(0, 20))
    def extend(self, count: int) -> None:
        self.ready.update(range(self.end, self.end + count))
        self.end += count
        self.list.extend(self.end)

    @rule(limit=st.integers(1, 25), data=st.data())
    def hand_out(self, limit: int, data: st.DataObject) -> None:
        found = self.list.peek(limit)
        if not self.ready:
            assert found is None
            return
        assert found is not None
        assert found.start == min(self.ready)
        assert 0 < found.stop - found.start <= limit
        offsets = set(range(found.start, found.stop))
        assert offsets <= self.ready
        assert {offset in self.delivered for offset in offsets} == {found.redelivered}
        stop = data.draw(st.integers(found.start + 1, found.stop))
        self.list.take(stop)
        taken = set(range(found.start, stop))
        self.ready -= taken
        self.out |= taken
        self.delivered |= taken

    @rule(data=st.data())
    def put_back(self, data: st.DataObject) -> None:
        if self.out:
            back = data.draw(st.lists(st.sampled_from(sorted(self.out)), min_size=1, unique=True))
            self.out.difference_update(back)
            self.ready.update(back)
            self.list.put_back(back)

    @rule(start=st.integers(0, 40), size=st.integers(0, 40))
    def look(self, start: int, size: int) -> None:
        pieces = self.list.within(start, start + size)
        assert pieces == sorted(pieces)
        found = [at for piece in pieces for at in range(piece.start, piece.stop)]
        assert found == sorted(at for at in self.ready if start <= at < start + size)
        assert self.list.next_from(start) == min(
            (at for at in self.ready if at >= start), default=None
        )
        for piece in pieces:
            alike = {at in self.delivered for at in range(piece.start, piece.stop)}
            assert alike == {piece.redelivered}

    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        if self.ready:
            start = data.draw(st.sampled_from(sorted(self.ready)))
            stop = start + 1
            while stop in self.ready and data.draw(st.booleans()):
                stop += 1
            self.list.withdraw(start, stop)
            self.ready.difference_update(range(start, stop))

    @rule()
    def clear(self) -> None:
        ranges = self.list.clear()
        assert {o for start, stop in ranges for o in range(start, stop)} == self.ready
        assert sum(stop - start for start, stop in ranges) == len(self.ready)
        self.ready = set()

    @invariant()
    def counts(self) -> None:
        if hasattr(self, "list"):
            assert self.list.count == len(self.ready)


TestReadyListModel = ReadyListModel.TestCase
