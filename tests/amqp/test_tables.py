"""Field tables: what is read is what was written, and nothing else is accepted."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import decode as pamqp_decode
from pamqp import encode as pamqp_encode

from leveret.amqp.tables import (
    MAX_DEPTH,
    TYPE_NAMES,
    Field,
    MalformedTable,
    encode_table,
    find_field,
    patch_table,
    plain,
    read_entries,
    read_table,
    table_of,
    type_name,
    validate_table,
)


def integers(letter: str, bits: int, signed: bool) -> st.SearchStrategy[Field]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.integers(low, high).map(lambda value: Field(letter, value))


def decimal(scale: int, unscaled: int) -> Field:
    return Field("D", Decimal((0, tuple(map(int, str(unscaled))), -scale)))


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
leaves = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])).map(lambda text: Field("S", text)),
    st.binary().map(lambda raw: Field("x", raw)),
    st.booleans().map(lambda value: Field("t", value)),
    integers("b", 8, True),
    integers("B", 8, False),
    integers("s", 16, True),
    integers("u", 16, False),
    integers("I", 32, True),
    integers("i", 32, False),
    integers("l", 64, True),
    integers("L", 64, True),
    integers("T", 64, False),
    st.floats(allow_nan=False).map(lambda value: Field("d", value)),
    st.floats(allow_nan=False, width=32).map(lambda value: Field("f", value)),
    st.builds(decimal, st.integers(0, 255), st.integers(0, 2**32 - 1)),
    st.just(Field("V", None)),
)
fields = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda items: Field("A", items))
        | st.dictionaries(names, inner, max_size=4).map(lambda table: Field("F", table))
    ),
    max_leaves=12,
)
tables = st.dictionaries(names, fields, max_size=6)


def read(raw: bytes) -> dict[str, Field]:
    table, position = read_table(raw, 0, len(raw))
    assert position == len(raw)
    return table


def nested(depth: int, wrap: str) -> bytes:
    """Return a table with *depth* levels in it, the outermost counted."""
    raw = b"\x00\x00\x00\x00"
    for _ in range(depth - 1):
        content = (b"\x01a" if wrap == "F" else b"") + wrap.encode() + raw
        raw = len(content).to_bytes(4, "big") + content
    return raw


@given(tables)
def test_a_table_survives_encoding_with_its_letters_and_order(table):
    raw = encode_table(table)
    again = read(raw)
    assert again == table
    assert list(again) == list(table)
    assert encode_table(again) == raw


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_table_or_malformed_and_both_readers_agree(content):
    raw = len(content).to_bytes(4, "big") + content
    try:
        read_table(raw, 0, len(raw))
    except MalformedTable:
        with pytest.raises(MalformedTable):
            validate_table(raw, 0, len(raw))
    else:
        assert validate_table(raw, 0, len(raw)) == len(raw)


@given(tables, st.data())
def test_a_changed_byte_gives_a_table_or_malformed_and_both_readers_agree(table, data):
    raw = bytearray(encode_table(table))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    changed = bytes(raw)
    try:
        _, position = read_table(changed, 0, len(changed))
    except MalformedTable:
        with pytest.raises(MalformedTable):
            validate_table(changed, 0, len(changed))
    else:
        assert validate_table(changed, 0, len(changed)) == position


@given(tables)
def test_every_prefix_of_a_table_is_malformed(table):
    raw = encode_table(table)
    for size in range(len(raw)):
        with pytest.raises(MalformedTable):
            read_table(raw, 0, size)
        with pytest.raises(MalformedTable):
            validate_table(raw, 0, size)


@given(tables, st.binary(max_size=9), st.binary(max_size=9))
def test_a_table_is_read_from_between_other_bytes(table, before, behind):
    raw = before + encode_table(table) + behind
    end = len(raw) - len(behind)
    assert read_table(raw, len(before), len(raw)) == (table, end)
    assert validate_table(raw, len(before), len(raw)) == end


pamqp_letters = st.dictionaries(
    names.filter(lambda name: 0 < len(name.encode()) < 128),
    st.text(st.characters(exclude_categories=["Cs"]))
    | st.booleans()
    | st.integers(-(2**31), 2**31 - 1)
    | st.none(),
)


@given(pamqp_letters)
def test_pamqp_reads_what_we_write(values):
    raw = encode_table(table_of(values))
    assert pamqp_decode.field_table(raw) == (len(raw), values)


@given(pamqp_letters)
def test_we_read_what_pamqp_writes(values):
    assert plain(read(pamqp_encode.field_table(values))) == values


def test_each_letter_reads_as_its_type():
    entries = [
        (b"S\x00\x00\x00\x02hi", Field("S", "hi"), "longstr"),
        (b"S\x00\x00\x00\x01\xff", Field("S", b"\xff"), "longstr"),
        (b"x\x00\x00\x00\x02hi", Field("x", b"hi"), "binary"),
        (b"t\x01", Field("t", True), "bool"),
        (b"t\x00", Field("t", False), "bool"),
        (b"b\xff", Field("b", -1), "byte"),
        (b"B\xff", Field("B", 255), "unsignedbyte"),
        (b"s\xff\xff", Field("s", -1), "short"),
        (b"u\xff\xff", Field("u", 65535), "unsignedshort"),
        (b"I\xff\xff\xff\xff", Field("I", -1), "signedint"),
        (b"i\xff\xff\xff\xff", Field("i", 2**32 - 1), "unsignedint"),
        (b"l" + b"\xff" * 8, Field("l", -1), "long"),
        (b"L" + b"\xff" * 8, Field("L", -1), "long"),
        (b"T" + b"\xff" * 8, Field("T", 2**64 - 1), "timestamp"),
        (b"f\x3f\x80\x00\x00", Field("f", 1.0), "float"),
        (b"d\x3f\xf0" + bytes(6), Field("d", 1.0), "double"),
        (b"D\x02\x00\x00\x01\x3b", Field("D", Decimal("3.15")), "decimal"),
        (b"V", Field("V", None), "void"),
        (b"F\x00\x00\x00\x00", Field("F", {}), "table"),
        (b"A\x00\x00\x00\x02t\x01", Field("A", [Field("t", True)]), "array"),
    ]
    for raw, field, name in entries:
        content = b"\x01k" + raw
        data = len(content).to_bytes(4, "big") + content
        assert read(data) == {"k": field}
        assert encode_table({"k": field}) == data
        assert type_name(field) == name
    assert {field.tag for _, field, _ in entries} == set(TYPE_NAMES)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\x00\x00", "size cut short at byte 0"),
        (b"\x00\x00\x00\x05\x01kt\x01", "size of 5 bytes exceeds the 4 left at byte 0"),
        (b"\x00\x00\x00\x02\x05k", "name cut short at byte 4"),
        (b"\x00\x00\x00\x02\x01k", "value missing at byte 6"),
        (b"\x00\x00\x00\x04\x01\xfft\x01", "name is not UTF-8 at byte 4"),
        (b"\x00\x00\x00\x04\x01kZ\x01", "unknown type letter b'Z' at byte 6"),
        (b"\x00\x00\x00\x04\x01kI\x01", "value cut short at byte 7"),
    ],
)
def test_the_error_says_what_is_wrong_and_where(raw, text):
    with pytest.raises(MalformedTable, match=f"^{text}$"):
        read_table(raw, 0, len(raw))


def test_a_value_may_not_reach_past_its_table():
    raw = b"\x00\x00\x00\x08\x01kS\x00\x00\x00\x02hi"
    for reader in (read_table, validate_table):
        with pytest.raises(MalformedTable, match="exceeds the 1 left"):
            reader(raw, 0, len(raw))


def test_nesting_is_limited_to_what_our_stack_bears():
    deepest = nested(MAX_DEPTH, "F")
    assert encode_table(read(deepest)) == deepest
    assert validate_table(deepest, 0, len(deepest)) == len(deepest)
    arrays = b"\x01aA" + nested(999, "A")
    for raw in (
        nested(MAX_DEPTH + 1, "F"),
        nested(1000, "F"),
        len(arrays).to_bytes(4, "big") + arrays,
    ):
        for reader in (read_table, validate_table):
            with pytest.raises(MalformedTable, match="nested more than 128 levels deep"):
                reader(raw, 0, len(raw))


def test_plain_values_take_the_letters_that_clients_choose():
    values = {
        "bool": True,
        "small": -(2**31),
        "big": 2**31,
        "text": "é",
        "bytes": b"\xff",
        "float": 0.5,
        "none": None,
        "decimal": Decimal("1.5"),
        "table": {"a": 1},
        "array": [1, "b"],
    }
    table = table_of(values)
    assert "".join(field.tag for field in table.values()) == "tIlSSdVDFA"
    assert plain(read(encode_table(table))) == values


def test_a_field_among_plain_values_keeps_its_letter():
    assert table_of({"time": Field("T", 5)}) == {"time": Field("T", 5)}


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, object(), {1, 2}])
def test_a_plain_value_without_a_letter_is_refused(value):
    with pytest.raises(ValueError):
        table_of({"k": value})


def test_plain_values_nested_too_deep_are_refused():
    for wrap in (lambda inner: [inner], lambda inner: {"a": inner}):
        value = wrap(None)
        for _ in range(1000):
            value = wrap(value)
        with pytest.raises(ValueError, match="nested"):
            table_of({"k": value})


@pytest.mark.parametrize(
    "field",
    [
        Field("I", 2**31),
        Field("B", -1),
        Field("S", 5),
        Field("S", "\ud800"),
        Field("F", "text"),
        Field("A", None),
        Field("V", 0),
        Field("D", Decimal("-1")),
        Field("D", Decimal("NaN")),
        Field("D", 1),
        Field("?", 1),
    ],
)
def test_a_value_that_its_letter_cannot_carry_is_refused(field):
    with pytest.raises(ValueError):
        encode_table({"k": field})


def test_a_name_above_255_bytes_is_refused():
    assert read(encode_table({"n" * 255: Field("V", None)}))
    with pytest.raises(ValueError, match="name of 256 bytes"):
        encode_table({"n" * 254 + "é": Field("V", None)})


@given(tables, names, fields)
def test_patching_equals_changing_the_table(table, name, field):
    raw = encode_table(table)
    assert read(patch_table(raw, name, field)) == table | {name: field}
    assert list(read(patch_table(raw, name, field))) == list(table | {name: field})
    without = {key: value for key, value in table.items() if key != name}
    assert patch_table(raw, name, None) == encode_table(without)
    for present in table:
        assert patch_table(raw, present, table[present]) == raw


@given(tables, names, fields)
def test_a_field_is_found_where_it_stands(table, name, field):
    assert find_field(encode_table({k: v for k, v in table.items() if k != name}), name) is None
    table[name] = field
    raw = encode_table(table)
    found = find_field(raw, name)
    assert found is not None
    assert encode_table({name: field}).endswith(raw[slice(*found)])
    assert raw[: found[0]].endswith(name.encode())


def test_patching_leaves_other_bytes_and_drops_duplicates():
    odd_bool = b"\x01bt\x07"
    content = b"\x01at\x01" + odd_bool + b"\x01at\x00"
    raw = len(content).to_bytes(4, "big") + content
    assert patch_table(raw, "a", Field("V", None)) == b"\x00\x00\x00\x07\x01aV" + odd_bool
    assert patch_table(raw, "a", None) == b"\x00\x00\x00\x04" + odd_bool


def test_entries_without_a_size_are_read():
    raw = encode_table({"LOGIN": Field("S", "guest")})[4:]
    assert read_entries(raw, 0, len(raw)) == {"LOGIN": Field("S", "guest")}


def test_infinities_and_nan_pass():
    raw = encode_table({"a": Field("d", math.inf), "b": Field("d", math.nan)})
    table = read(raw)
    assert table["a"].value == math.inf
    assert math.isnan(table["b"].value)
    assert encode_table(table) == raw
