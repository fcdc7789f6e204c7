import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.amqp.delay_header import MAX_DELAY_MS, asked_delay_ms, begin_delays, with_delay_over
from leveret.amqp.message import encode_content, header_payload
from leveret.amqp.properties import NO_PROPERTIES, PropertyView
from leveret.amqp.tables import Field, Table

DELAYS = st.integers(1, 5000).map(lambda delay: Field("I", delay)) | st.integers(1, 2**62).map(
    lambda delay: Field("l", delay)
)
OTHERS = st.dictionaries(
    st.sampled_from(["a", "x-delay2", "x"]),
    st.sampled_from([Field("S", "x-delay"), Field("F", {"x-delay": Field("I", 5)})]),
)


def content(headers: Table | None, body: bytes = b"body", message_id: str | None = None) -> bytes:
    payload = NO_PROPERTIES.with_changes(headers=headers, message_id=message_id, delivery_mode=2)
    return encode_content(payload, body, 3, 0)


def headers_of(content: bytes) -> Table | None:
    return PropertyView(header_payload(content, 0)).headers


@given(st.lists(st.tuples(OTHERS, DELAYS, OTHERS, st.text("ab\u00e9", max_size=3)), min_size=1))
def test_a_run_is_read_and_changed_as_each_message_by_itself(
    messages: list[tuple[Table, Field, Table, str]],
) -> None:
    tables = [{**before, "x-delay": delay, **behind} for before, delay, behind, _ in messages]
    contents = [
        content(table, message_id=identity)
        for table, (*_, identity) in zip(tables, messages, strict=True)
    ]
    begun = begin_delays(contents)
    assert begun is not None
    delays_ms, over = begun
    assert delays_ms == [asked_delay_ms(table) for table in tables]
    for before, after, table in zip(contents, over, tables, strict=True):
        delay = table["x-delay"]
        assert isinstance(delay.value, int)
        changed = headers_of(after)
        assert changed == {**table, "x-delay": Field(delay.tag, -delay.value)}
        assert list(changed) == list(table)
        assert PropertyView(header_payload(after, 0)).message_id is not None
        assert len(before) == len(after)
        assert after.endswith(b"body\xce")


@pytest.mark.parametrize(
    "headers",
    [
        None,
        {},
        {"delay": Field("I", 5)},
        {"x-delay": Field("I", 0)},
        {"x-delay": Field("I", -(2**31))},
        {"x-delay": Field("S", "5")},
        {"x-delay": Field("d", 5.0)},
        {"x-delay": Field("u", 5)},
        {"a": Field("F", {"x-delay": Field("I", 5)})},
    ],
)
def test_a_run_with_another_kind_of_message_is_not_begun(headers: Table | None) -> None:
    usual = content({"x-delay": Field("I", 5)})
    assert begin_delays([content(headers), usual]) is None
    assert begin_delays([usual, usual, content(headers)]) is None


def test_of_two_delays_the_last_counts() -> None:
    one = content({"x-delay": Field("I", 5), "x-delaz": Field("I", 7)})
    twice = one.replace(b"x-delaz", b"x-delay")
    begun = begin_delays([twice])
    assert begun is not None
    assert begun[0] == [7]
    assert headers_of(begun[1][0]) == {"x-delay": Field("I", -7)}


def test_no_delay_is_longer_than_ten_years() -> None:
    begun = begin_delays([content({"x-delay": Field("l", 2**63 - 1)})])
    assert begun is not None
    assert begun[0] == [MAX_DELAY_MS] == [asked_delay_ms({"x-delay": Field("l", 2**63 - 1)})]


@pytest.mark.parametrize("tag", "bBsuIilL")
def test_an_integer_of_any_width_becomes_negative(tag: str) -> None:
    over = with_delay_over(content({"x-delay": Field(tag, 100), "a": Field("S", "b")}), 0)
    assert headers_of(over) == {"x-delay": Field("l", -100), "a": Field("S", "b")}
