from hypothesis import given
from hypothesis import strategies as st

from leveret.bench.sequence import SequenceCheck

RUNS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 20)), max_size=30)


@given(runs=RUNS)
def test_agrees_with_a_set(runs: list[tuple[int, int]]) -> None:
    check = SequenceCheck(is_ordered=True)
    seen: set[int] = set()
    duplicated = out_of_order = last = 0
    for first, count in runs:
        check.add(first, count)
        for number in range(first, first + count):
            duplicated += number in seen
            out_of_order += number < last and number not in seen
            seen.add(number)
            last = max(last, number)
    assert (check.seen, check.duplicated, check.out_of_order) == (
        len(seen),
        duplicated,
        out_of_order,
    )
    assert check.lost(100) == 100 - len(seen)


def test_order_means_nothing_between_consumers_of_one_queue() -> None:
    check = SequenceCheck(is_ordered=False)
    for number in (2, 1, 4, 3):
        check.add(number)
    assert (check.lost(4), check.duplicated, check.out_of_order) == (0, 0, 0)


@given(runs=st.lists(st.lists(st.integers(1, 200), min_size=1, max_size=40), max_size=10))
def test_numbers_in_any_order_are_counted(runs: list[list[int]]) -> None:
    check = SequenceCheck(is_ordered=False)
    for run in runs:
        check.add_each(run)
    numbers = [number for run in runs for number in run]
    assert check.seen == len(set(numbers))
    assert check.duplicated == len(numbers) - check.seen
    assert check.out_of_order == 0


def test_a_duplicate_is_known_long_after() -> None:
    check = SequenceCheck(is_ordered=True)
    for first in range(1, 3_000_000, 1000):
        check.add(first, 1000)
    check.add(5)
    check.add(2_999_000, 1001)
    assert check.lost(3_000_000) == 0
    assert check.duplicated == 1002


def test_a_gap_is_lost_until_it_is_filled() -> None:
    check = SequenceCheck(is_ordered=True)
    check.add(1, 10)
    check.add(12, 2_000_000)
    assert check.lost(2_000_011) == 1
    check.add(11)
    assert check.lost(2_000_011) == 0
    assert check.out_of_order == 1
