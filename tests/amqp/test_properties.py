"""Properties: facts and views agree with pamqp and each other; malformed lists are refused."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, header

from leveret.amqp.errors import InternalError
from leveret.amqp.properties import (
    Facts,
    FactsReader,
    PropertyView,
    explain_expiration,
    is_expiration,
    read_expirations_ms,
    read_message_ids,
    read_priorities,
)
from leveret.amqp.tables import Field, encode_table, table_of

EMPTY = header.ContentHeader(0, 77, commands.Basic.Properties()).marshal()

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
headers = st.dictionaries(
    st.sampled_from(["CC", "BCC", "cc", "a", "é"]),
    st.integers(-(2**31), 2**31 - 1)
    | texts
    | st.sampled_from(["\x02CC", "\x03BCC"])
    | st.just({"CC": [1]}),
    max_size=3,
).map(table_of)
VALUES = {
    "content_type": texts,
    "content_encoding": texts,
    "headers": headers,
    "delivery_mode": st.integers(0, 255),
    "priority": st.integers(0, 255),
    "correlation_id": texts,
    "reply_to": texts | st.sampled_from(["amq.rabbitmq.reply-to", "amq.rabbitmq.reply-to.g1"]),
    "expiration": texts,
    "message_id": texts,
    "timestamp": st.integers(0, 2**64 - 1),
    "type": texts,
    "user_id": texts,
    "app_id": texts,
    "cluster_id": texts,
}
properties = st.fixed_dictionaries({}, optional=VALUES)


def payload_of(values) -> bytes:
    return PropertyView(EMPTY).with_changes(**values)


@given(properties)
def test_a_view_reads_what_was_written(values):
    view = PropertyView(payload_of(values))
    assert {name: getattr(view, name) for name in VALUES} == dict.fromkeys(VALUES) | values


def _invalid(expiration):
    return None if expiration is None or is_expiration(expiration) else expiration


@given(properties)
def test_a_view_of_a_checked_list_is_the_same(values):
    view = PropertyView(payload_of(values), is_checked=True)
    assert {name: getattr(view, name) for name in VALUES} == dict.fromkeys(VALUES) | values


@given(properties)
def test_the_facts_are_those_of_the_properties(values):
    table = values.get("headers", {})
    expected = Facts(
        persistent=values.get("delivery_mode") == 2,
        has_priority="priority" in values,
        expires=is_expiration(values.get("expiration", "")),
        invalid_expiration=_invalid(values.get("expiration")),
        user_id=values.get("user_id"),
        wants_direct_reply=values.get("reply_to") == "amq.rabbitmq.reply-to",
        has_copies="CC" in table or "BCC" in table,
        has_delay="x-delay" in table,
    )
    reader = FactsReader()
    assert reader.read_facts(payload_of(values)) == expected
    assert reader.read_facts(payload_of(values)) is reader.read_facts(payload_of(values))


@given(st.lists(properties), st.integers(0, 2**38) | st.none(), st.binary(max_size=9))
def test_priorities_and_expirations_are_read_in_place(messages, expiration_ms, before):
    expiration = None if expiration_ms is None else str(expiration_ms)
    alike = [{"priority": 3, "expiration": "17"}, {"priority": 200, "expiration": "18"}]
    messages = [values | {"expiration": expiration} for values in messages] + alike
    data = [before + payload_of(values) for values in messages]
    priorities = [values.get("priority", 0) for values in messages]
    assert list(read_priorities(data, len(before))) == priorities
    expirations = [expiration_ms] * (len(messages) - 2) + [17, 18]
    assert read_expirations_ms(data, len(before)) == expirations
    ids = [PropertyView(payload_of(values)).message_id for values in messages]
    expected = [None if message_id is None else message_id.encode() for message_id in ids]
    assert read_message_ids(data, len(before)) == expected


@given(st.lists(properties, max_size=12), st.integers(1, 3), st.integers(0, 40))
def test_what_a_reader_remembers_changes_no_answer(messages, capacity, max_remembered_bytes):
    reader = FactsReader(capacity=capacity, max_remembered_bytes=max_remembered_bytes)
    for values in messages * 2:
        payload = payload_of(values)
        assert reader.read_facts(payload) == FactsReader().read_facts(payload)


@given(properties)
def test_every_prefix_and_every_extension_is_refused(values):
    payload = payload_of(values)
    reader = FactsReader()
    reader.read_facts(payload)
    for malformed in [payload[:size] for size in range(len(payload))] + [payload + b"\x00"]:
        with pytest.raises(InternalError, match="cannot decode the message properties"):
            reader.read_facts(malformed)
        with pytest.raises(InternalError, match="cannot decode the message properties"):
            PropertyView(malformed)


@given(st.integers(0, 2**16 - 1), st.binary(max_size=80))
def test_facts_and_view_accept_the_same_lists(flags, content):
    payload = EMPTY[:12] + flags.to_bytes(2, "big") + content
    try:
        facts = FactsReader().read_facts(payload)
    except InternalError:
        with pytest.raises(InternalError):
            PropertyView(payload)
    else:
        view = PropertyView(payload)
        assert facts.has_priority == (view.priority is not None)
        assert facts.invalid_expiration in (view.expiration, None)
        assert [getattr(view, name) for name in VALUES]


@given(properties, st.data())
def test_facts_and_view_agree_on_changed_bytes(values, data):
    raw = bytearray(payload_of(values))
    raw[data.draw(st.integers(12, len(raw) - 1))] = data.draw(st.integers(0, 255))
    payload = bytes(raw)
    try:
        PropertyView(payload)
    except InternalError:
        with pytest.raises(InternalError):
            FactsReader().read_facts(payload)
    else:
        FactsReader().read_facts(payload)


@given(properties, properties, st.sets(st.sampled_from(sorted(VALUES))))
def test_changes_replace_add_and_remove(values, changes, removed):
    changed = PropertyView(payload_of(values)).with_changes(**changes | dict.fromkeys(removed))
    expected = {name: value for name, value in (values | changes).items() if name not in removed}
    assert changed == payload_of(expected)
    assert changed[:12] == EMPTY[:12]


def test_pamqp_and_we_write_and_read_the_same():
    theirs = commands.Basic.Properties(
        content_type="application/json",
        content_encoding="utf-8",
        headers={"name": "value"},
        delivery_mode=2,
        priority=9,
        correlation_id="c",
        reply_to="r",
        expiration="1000",
        message_id="m",
        timestamp=datetime(2026, 1, 2, tzinfo=UTC),
        message_type="t",
        user_id="guest",
        app_id="a",
    )
    payload = header.ContentHeader(0, 77, theirs).marshal()
    view = PropertyView(payload)
    ours = {name: getattr(view, name) for name in VALUES if getattr(view, name) is not None}
    assert ours["timestamp"] == 1767312000
    assert ours["type"] == "t"
    assert ours["headers"] == {"name": Field("S", "value")}
    assert payload_of(ours) == payload
    assert FactsReader().read_facts(payload) == Facts(
        True, True, True, None, "guest", False, False, False
    )


def test_untouched_properties_keep_odd_bytes():
    odd_table = b"\x00\x00\x00\x08\x01at\x07\x01at\x00"
    payload = EMPTY[:12] + b"\x30\x00" + odd_table + b"\x02"
    assert PropertyView(payload).with_changes(priority=1) == (
        EMPTY[:12] + b"\x38\x00" + odd_table + b"\x02\x01"
    )


@pytest.mark.parametrize("flags", [0x0001, 0x0002, 0x8001])
def test_a_flag_of_no_property_is_refused(flags):
    payload = EMPTY[:12] + flags.to_bytes(2, "big") + b"\x00"
    for read in (FactsReader().read_facts, PropertyView):
        with pytest.raises(InternalError, match="reserved flag"):
            read(payload)


def test_equal_facts_of_different_messages_are_one_object():
    reader = FactsReader()
    first = reader.read_facts(payload_of({"message_id": "1", "priority": 3, "delivery_mode": 2}))
    second = reader.read_facts(payload_of({"message_id": "2", "priority": 3, "delivery_mode": 2}))
    third = reader.read_facts(payload_of({"app_id": "x", "priority": 3, "delivery_mode": 2}))
    assert first is second
    assert first is third


def test_a_malformed_header_table_is_refused_after_good_ones():
    reader = FactsReader()
    good = payload_of({"headers": {"a": Field("t", True)}})
    reader.read_facts(good)
    with pytest.raises(InternalError, match="unknown type letter"):
        reader.read_facts(good.replace(b"\x01at", b"\x01aZ"))


@pytest.mark.parametrize(
    "change",
    [
        {"priority": 256},
        {"timestamp": -1},
        {"message_id": "x" * 256},
        {"headers": {"a": Field("I", 2**31)}},
        {"no_such_property": 1},
    ],
)
def test_a_change_that_does_not_fit_is_refused(change):
    with pytest.raises(ValueError):
        PropertyView(EMPTY).with_changes(**change)


def test_raw_gives_the_bytes_of_one_property():
    table = table_of({"a": 1})
    view = PropertyView(payload_of({"headers": table, "app_id": "me"}))
    assert view.raw("headers") == encode_table(table)
    assert view.raw("app_id") == b"\x02me"
    assert view.raw("priority") is None


@pytest.mark.parametrize("text", ["0", "1", "+60000", "000", "315360000000"])
def test_an_expiration_is_a_number_of_milliseconds(text):
    assert is_expiration(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("10s", '{leftover_string,"s"}'),
        ("1.5", '{leftover_string,".5"}'),
        ("abc", "no_integer"),
        ("", "no_integer"),
        (" 1", "no_integer"),
        ("-1", "{value_negative,-1}"),
        ("315360000001", "{value_too_large,315360000001}"),
        ("\u0661", "no_integer"),
    ],
)
def test_what_is_no_expiration_is_explained(text, reason):
    assert not is_expiration(text)
    assert explain_expiration(text) == reason
