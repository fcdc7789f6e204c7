from hypothesis import given
from hypothesis import strategies as st

from leveret.storage.offset_set import OffsetSet, clip_intervals, merge_intervals

INTERVALS = st.lists(
    st.tuples(st.integers(0, 9000), st.integers(0, 5000)).map(lambda p: (p[0], p[0] + p[1])),
    max_size=12,
)


def expand(intervals: list[tuple[int, int]]) -> set[int]:
    return {offset for start, end in intervals for offset in range(start, end)}


def as_intervals(members: set[int]) -> list[tuple[int, int]]:
    starts = sorted(m for m in members if m - 1 not in members)
    ends = sorted(m + 1 for m in members if m + 1 not in members)
    return list(zip(starts, ends, strict=True))


@given(INTERVALS, st.integers(0, 14000), st.integers(0, 14000))
def test_it_is_a_set(intervals: list[tuple[int, int]], first: int, end: int) -> None:
    offsets, model = OffsetSet(), expand(intervals)
    for start, stop in intervals:
        offsets.add(start, stop)
    assert offsets.count == len(model)
    assert offsets.intervals() == as_intervals(model)
    assert offsets.gaps(first, end) == as_intervals(set(range(first, end)) - model)
    assert all((probe in offsets) == (probe in model) for probe in range(0, 14000, 61))


@given(INTERVALS, INTERVALS)
def test_what_is_discarded_is_no_member(
    added: list[tuple[int, int]], discarded: list[tuple[int, int]]
) -> None:
    offsets = OffsetSet()
    for start, stop in added:
        offsets.add(start, stop)
    for start, stop in discarded:
        offsets.discard(start, stop)
    model = expand(added) - expand(discarded)
    assert offsets.intervals() == as_intervals(model)
    assert offsets.count == len(model)


@given(INTERVALS, st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 3)), max_size=60))
def test_adding_each_is_adding_one_by_one(
    before: list[tuple[int, int]], short: list[tuple[int, int]]
) -> None:
    one_by_one, each = OffsetSet(), OffsetSet()
    added = merge_intervals(iter(sorted((start, start + length) for start, length in short)))
    for offsets in (one_by_one, each):
        for start, stop in before:
            offsets.add(start, stop)
    for start, stop in added:
        one_by_one.add(start, stop)
    each.add_each(added)
    assert each.intervals() == one_by_one.intervals()
    assert each.count == one_by_one.count


def test_neighbours_merge_in_any_order() -> None:
    offsets = OffsetSet()
    for offset in [*range(0, 10000, 2), *range(1, 10000, 2)]:
        offsets.add(offset, offset + 1)
    assert offsets.intervals() == [(0, 10000)]
    assert offsets.count == 10000


@given(INTERVALS)
def test_merging_keeps_the_members(intervals: list[tuple[int, int]]) -> None:
    assert merge_intervals(iter(sorted(intervals))) == as_intervals(expand(intervals))


@given(INTERVALS, st.integers(0, 14000), st.integers(0, 14000))
def test_clipping_keeps_what_is_within(
    intervals: list[tuple[int, int]], first: int, end: int
) -> None:
    merged = merge_intervals(iter(sorted(intervals)))
    clipped = clip_intervals(merged, first, end)
    assert clipped == as_intervals(expand(intervals) & set(range(first, end)))
