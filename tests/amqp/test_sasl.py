"""SASL responses: the accepted shapes, and that no other shape or secret gets through."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.amqp.sasl import (
    Credentials,
    MalformedResponse,
    parse_amqplain,
    parse_external,
    parse_plain,
)
from leveret.amqp.tables import Field, encode_table

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(texts, texts)
def test_plain_gives_name_and_password(username, password):
    response = b"\0" + username.encode() + b"\0" + password.encode()
    assert parse_plain(response) == Credentials(username, password)


@pytest.mark.parametrize(
    "response",
    [b"", b"\0", b"\0guest", b"guest\0guest", b"admin\0guest\0guest", b"\0a\0b\0", b"\0\xff\0a"],
)
def test_plain_of_another_shape_is_malformed(response):
    with pytest.raises(MalformedResponse):
        parse_plain(response)


@given(texts, texts)
def test_amqplain_gives_name_and_password(username, password):
    table = {"LOGIN": Field("S", username), "PASSWORD": Field("S", password)}
    assert parse_amqplain(encode_table(table)[4:]) == Credentials(username, password)


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"LOGIN": Field("S", "guest")},
        {"LOGIN": Field("S", "guest"), "PASSWORD": Field("I", 5)},
        {"LOGIN": Field("S", b"\xff"), "PASSWORD": Field("S", "guest")},
    ],
)
def test_amqplain_without_both_strings_is_malformed(table):
    with pytest.raises(MalformedResponse):
        parse_amqplain(encode_table(table)[4:])


@given(st.binary())
def test_arbitrary_responses_are_malformed_or_read(response):
    for parse in (parse_plain, parse_amqplain, parse_external):
        with suppress(MalformedResponse):
            parse(response)


def test_external_gives_the_identity_asked_for():
    assert parse_external(b"") == ""
    assert parse_external(b"CN=client") == "CN=client"


def test_the_password_is_not_shown():
    assert "secret" not in repr(parse_plain(b"\0user\0secret"))
    with pytest.raises(MalformedResponse) as error:
        parse_plain(b"\0user\0secret\xff")
    assert "secret" not in str(error.value)
    assert error.value.__suppress_context__
