"""Places in the history of a queue: offsets and times as operators write them."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.server.commands.places import parse_place, readable_time
from leveret.server.failure import Failure

NOW_MS = 1_700_000_000_000


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("first", {"offset": 0}),
        ("0", {"offset": 0}),
        (" 4711 ", {"offset": 4711}),
        ("10m ago", {"time_ms": NOW_MS - 600_000}),
        ("10min ago", {"time_ms": NOW_MS - 600_000}),
        ("2 h ago", {"time_ms": NOW_MS - 7_200_000}),
        ("1w ago", {"time_ms": NOW_MS - 7 * 86_400_000}),
        ("99999999w ago", {"time_ms": 0}),
        ("1970-01-01T00:00:01Z", {"time_ms": 1000}),
        ("1970-01-01 02:00:00.250+01:00", {"time_ms": 3_600_250}),
        ("1969-01-01T00:00Z", {"time_ms": 0}),
    ],
)
def test_offsets_and_times(text: str, place: dict[str, int]) -> None:
    assert parse_place(text, NOW_MS) == place


def test_a_time_without_a_zone_is_local(berlin: None) -> None:
    summer = datetime(2026, 7, 1, 10, tzinfo=UTC).timestamp() * 1000
    assert parse_place("2026-07-01T12:00", NOW_MS) == {"time_ms": summer}
    winter = datetime(2026, 1, 31, 23, tzinfo=UTC).timestamp() * 1000
    assert parse_place("2026-02-01", NOW_MS) == {"time_ms": winter}


@pytest.mark.parametrize(
    "text", ["", "-1", "last", "yesterday", "10m", "10y ago", "2026-13-01", "1" * 20, "٣"]
)
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(Failure, match="is no place in a queue"):
        parse_place(text, NOW_MS)


@given(st.integers(0, 253_000_000_000_000))
def test_what_is_shown_can_be_asked_for(time_ms: int) -> None:
    # An hour that a clock set back repeats cannot be told from the one before.
    shown = parse_place(readable_time(time_ms), NOW_MS)["time_ms"]
    assert time_ms - shown in (0, 3_600_000)
