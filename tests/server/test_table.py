import json

import pytest

from leveret.server.commands.table import lines, show

ROWS: list[dict[str, object]] = [
    {"name": "jobs", "messages": 12, "policy": None, "tags": ["a", "b"], "args": {"x": True}},
    {"name": "a much longer name", "messages": 3, "policy": "p", "tags": [], "args": {}},
]


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert lines(ROWS, ("name", "messages", "policy", "tags", "args"), None) == [
        "name                messages  policy  tags  args",
        'jobs                12                a,b   {"x": true}',
        "a much longer name  3         p             {}",
    ]


def test_widest_columns_are_cut_to_fit_the_terminal() -> None:
    assert lines(ROWS, ("name", "messages"), 22) == [
        "name          messages",
        "jobs          12",
        "a much long…  3",
    ]
    narrow = lines([{"a": "x" * 30, "b": "y" * 30}], ("a", "b"), 30)
    assert narrow[1] == "x" * 13 + "…  " + "y" * 13 + "…"


def test_columns_keep_eight_characters_however_narrow_the_terminal() -> None:
    assert lines([{"a": "x" * 30, "b": "y" * 30}], ("a", "b"), 5)[1] == "xxxxxxx…  yyyyyyy…"


def test_no_rows_are_a_head() -> None:
    assert lines([], ("name", "messages"), 80) == ["name  messages"]


def test_what_would_move_the_cursor_is_not_printed() -> None:
    assert lines([{"name": "a\x1b[2Jb\n"}], ("name",), None)[1] == "a?[2Jb?"


def test_json_has_everything(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, ("name",), as_json=True)
    assert json.loads(capsys.readouterr().out) == ROWS
