import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.bench.errors import BenchError
from leveret.bench.histogram import Histogram
from leveret.bench.producer import ConfirmWindow, Pace


def settle(window: ConfirmWindow, tag: int, *, multiple: bool = False) -> int:
    return window.settle(tag, multiple=multiple, now_ns=1_000_000, measuring=True)


@given(data=st.data(), batches=st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_each_message_is_settled_once_in_any_order(data: st.DataObject, batches: list[int]) -> None:
    times = Histogram()
    window = ConfirmWindow(1000, times)
    for count in batches:
        window.add(count, 0)
    waiting = set(range(1, sum(batches) + 1))
    while waiting:
        tag = data.draw(st.sampled_from(sorted(waiting)))
        multiple = data.draw(st.booleans())
        covered = {one for one in waiting if one <= tag} if multiple else {tag}
        assert settle(window, tag, multiple=multiple) == len(covered)
        waiting -= covered
        assert window.outstanding == len(waiting)
    assert times.percentiles()


@pytest.mark.parametrize("tag", [0, 1, 4])
def test_a_confirm_of_nothing_outstanding_is_refused(tag: int) -> None:
    window = ConfirmWindow(10, Histogram())
    window.add(3, 0)
    settle(window, 1)
    with pytest.raises(BenchError, match="not outstanding"):
        settle(window, tag)


def test_a_window_opens_by_eighths() -> None:
    window = ConfirmWindow(80, Histogram())
    assert window.room(500) == 80
    window.add(80, 0)
    assert window.room(500) == 0
    settle(window, 9, multiple=True)
    assert window.room(500) == 0
    assert window.room(1) == 1
    settle(window, 10)
    assert window.room(500) == 10


def test_pace_has_messages_due_as_time_goes() -> None:
    pace = Pace(1000, 5_000_000)
    assert pace.due(4_000_000) == 0
    assert pace.due(5_000_000) == 1
    pace.sent(1)
    assert pace.due(5_500_000) == 0
    assert pace.next_due_ns == 6_000_000
    assert pace.due(15_000_000) == 10
