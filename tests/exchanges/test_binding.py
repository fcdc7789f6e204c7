"""Identity of bindings."""

import pytest

from leveret.amqp.tables import Field, Table, table_of
from leveret.exchanges.binding import Binding


def test_same_four_parts_are_one_binding(make_queue):
    queue = make_queue("q")
    first = Binding("e", queue, "k", table_of({"a": 1, "b": "x"}))
    second = Binding("e", queue, "k", table_of({"b": "x", "a": 1}))
    assert first == second
    assert hash(first) == hash(second)


def test_each_of_the_four_parts_counts(make_queue):
    queue = make_queue("q")
    bindings = {
        Binding("e", queue, "k"),
        Binding("f", queue, "k"),
        Binding("e", make_queue("q"), "k"),
        Binding("e", queue, "l"),
        Binding("e", queue, "k", table_of({"a": 1})),
    }
    assert len(bindings) == 5


@pytest.mark.parametrize("tag", list("bBsuIilL"))
def test_width_of_an_integer_does_not_count(make_queue, tag):
    queue = make_queue("q")
    nested = Field("F", {"n": Field("A", [Field(tag, 5)])})
    wide = Field("F", {"n": Field("A", [Field("l", 5)])})
    assert Binding("e", queue, "", {"a": Field(tag, 5), "t": nested}) == Binding(
        "e", queue, "", {"a": Field("l", 5), "t": wide}
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"a": Field("t", True)},
        {"a": Field("d", 1.0)},
        {"a": Field("T", 1)},
        {"a": Field("S", "1")},
        {"a": Field("A", [Field("I", 1)])},
        {"a": Field("F", {})},
        {"a": Field("V", None)},
    ],
)
def test_other_types_differ_from_an_integer(make_queue, arguments: Table):
    queue = make_queue("q")
    assert Binding("e", queue, "", arguments) != Binding("e", queue, "", {"a": Field("I", 1)})
