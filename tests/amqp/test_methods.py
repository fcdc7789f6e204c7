"""Methods: every class round trips, pamqp agrees where it can, nothing malformed passes."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from leveret.amqp.errors import CommandInvalid, FrameError
from leveret.amqp.methods import (
    METHOD_CLASSES,
    Access,
    decode_method,
    encode_method,
)
from leveret.amqp.tables import Field

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
VALUES = {
    "bit": st.booleans(),
    "octet": st.integers(0, 2**8 - 1),
    "short": st.integers(0, 2**16 - 1),
    "long": st.integers(0, 2**32 - 1),
    "longlong": st.integers(0, 2**64 - 1),
    "shortstr": texts,
    "longstr": st.binary(max_size=40),
    "table": st.dictionaries(
        texts,
        st.integers(-(2**31), 2**31 - 1).map(lambda value: Field("I", value))
        | texts.map(lambda text: Field("S", text)),
        max_size=3,
    ),
}


@st.composite
def methods(draw):
    cls = draw(st.sampled_from(list(METHOD_CLASSES.values())))
    method = cls.__new__(cls)
    for attribute in cls.attributes():
        setattr(method, attribute, draw(VALUES[cls.amqp_type(attribute)]))
    return method


@given(methods())
def test_a_method_survives_encoding(method):
    payload = encode_method(method)
    again = decode_method(payload)
    assert type(again) is type(method)
    assert dict(again) == dict(method)
    assert encode_method(again) == payload


@given(methods())
def test_every_prefix_and_every_extension_is_refused(method):
    payload = encode_method(method)
    for size in range(len(payload)):
        with pytest.raises(FrameError):
            decode_method(payload[:size])
    with pytest.raises(FrameError, match="cannot decode"):
        decode_method(payload + b"\x00")


@given(st.sampled_from(sorted(METHOD_CLASSES)), st.binary(max_size=80))
def test_arbitrary_arguments_decode_or_are_a_frame_error(index, arguments):
    with suppress(FrameError):
        assert encode_method(decode_method(index.to_bytes(4, "big") + arguments))


@given(st.binary(max_size=80))
def test_arbitrary_bytes_raise_only_what_is_documented(payload):
    with suppress(FrameError, CommandInvalid):
        decode_method(payload)


@given(methods())
def test_pamqp_decodes_what_we_encode(method):
    other = type(method).__new__(type(method))
    other.unmarshal(encode_method(method)[4:])
    for attribute in method.attributes():
        ours, theirs = getattr(method, attribute), getattr(other, attribute)
        if method.amqp_type(attribute) == "table":
            assert theirs == {name: field.value for name, field in ours.items()}
        elif method.amqp_type(attribute) == "longstr":
            assert (theirs.encode() if isinstance(theirs, str) else theirs) == ours
        elif method.amqp_type(attribute) == "longlong":
            # pamqp reads it as signed.
            assert theirs % 2**64 == ours
        else:
            assert theirs == ours


@pytest.mark.parametrize(
    "method",
    [
        commands.Connection.Tune(2047, 131072, 60),
        commands.Channel.Close(404, "NOT_FOUND", 50, 10),
        commands.Exchange.Declare(exchange="logs", exchange_type="topic", durable=True),
        commands.Queue.DeclareOk("q", 2**32 - 1, 3),
        commands.Basic.Publish(exchange="e", routing_key="k", immediate=True),
        commands.Basic.Deliver("ctag", 2**40, True, "e", "k"),
        commands.Basic.Nack(delivery_tag=7, requeue=False),
        commands.Tx.CommitOk(),
    ],
    ids=lambda method: method.name,
)
def test_we_encode_as_pamqp_does(method):
    assert encode_method(method) == method.index.to_bytes(4, "big") + method.marshal()


def test_the_vocabulary_is_the_specification_and_what_rabbitmq_adds():
    assert len(METHOD_CLASSES) == 66
    for index, cls in METHOD_CLASSES.items():
        assert index == cls.index
        assert index & 0xFFFF == cls.frame_id


def test_access_request_of_old_clients_decodes():
    payload = b"\x00\x1e\x00\x0a\x05/data\x1d"
    request = decode_method(payload)
    assert isinstance(request, Access.Request)
    assert dict(request) == {
        "realm": "/data",
        "exclusive": True,
        "passive": False,
        "active": True,
        "write": True,
        "read": True,
    }
    assert encode_method(Access.RequestOk()) == b"\x00\x1e\x00\x0b\x00\x01"


@pytest.mark.parametrize("name", ["é", "{}", "a b", "x" * 255, "", "\r\n"])
def test_any_name_passes(name):
    payload = b"\x00\x32\x00\x0b" + bytes([len(name.encode())]) + name.encode() + bytes(8)
    declare_ok = decode_method(payload)
    assert declare_ok.queue == name
    assert encode_method(declare_ok) == payload


def test_bits_fill_an_octet_from_the_lowest():
    payload = encode_method(commands.Queue.Declare(queue="q", passive=True, exclusive=True))
    assert payload == b"\x00\x32\x00\x0a\x00\x00\x01q\x05\x00\x00\x00\x00"
    assert decode_method(payload[:8] + b"\x1a\x00\x00\x00\x00").durable


def test_plain_arguments_and_fields_both_encode():
    method = commands.Queue.Declare(queue="q", arguments={"a": 1, "b": Field("l", 1)})
    arguments = decode_method(encode_method(method)).arguments
    assert arguments == {"a": Field("I", 1), "b": Field("l", 1)}


def test_long_strings_decode_as_bytes():
    method = commands.Connection.SecureOk(response="secret")
    assert decode_method(encode_method(method)).response == b"secret"


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("queue", "x" * 256), ("queue", "é" * 128), ("queue", None), ("ticket", 2**16)],
)
def test_an_argument_that_does_not_fit_is_refused(attribute, value):
    method = commands.Queue.Declare()
    setattr(method, attribute, value)
    with pytest.raises(ValueError):
        encode_method(method)


def test_a_missing_attribute_is_refused():
    with pytest.raises(ValueError, match=r"queue\.declare "):
        encode_method(commands.Queue.Declare.__new__(commands.Queue.Declare))


def test_an_unknown_method_is_named_by_its_numbers():
    with pytest.raises(CommandInvalid, match=r"^unknown method \(50,99\)$"):
        decode_method(b"\x00\x32\x00\x63")


def test_undecodable_arguments_are_shown():
    with pytest.raises(FrameError, match=r"^cannot decode <<0,0,5,113>>$"):
        decode_method(b"\x00\x32\x00\x0a\x00\x00\x05q")


def test_a_long_undecodable_payload_still_gives_a_reply_text():
    with pytest.raises(FrameError) as error:
        decode_method(b"\x00\x32\x00\x0a" + b"\x7f" * 100_000)
    assert len(error.value.explanation) < 1000
    assert len(error.value.reply_text) == 255


def test_malformed_utf8_in_a_short_string_is_told_apart():
    with pytest.raises(FrameError, match=r"^Malformed UTF-8 in shortstr$"):
        decode_method(b"\x00\x32\x00\x0a\x00\x00\x01\xff\x00\x00\x00\x00\x00")


def test_a_payload_without_ids_is_a_frame_error():
    with pytest.raises(FrameError, match=r"^cannot decode <<0,50,0>>$"):
        decode_method(b"\x00\x32\x00")
