"""Stamping: every message of a stream carries its offset, and is otherwise what it was."""

from leveret.amqp.message import encode_message, split_message
from leveret.amqp.properties import NO_PROPERTIES, PropertyChanges, PropertyView
from leveret.amqp.tables import Field
from leveret.queues.stream_stamp import stamp

BASE = 10_000_000_000


def message(body: bytes, **changes: object) -> tuple[int, bytes]:
    header = NO_PROPERTIES.with_changes(**PropertyChanges(**changes))  # type: ignore[typeddict-item]
    header = header[:4] + len(body).to_bytes(8, "big") + header[12:]
    return encode_message("exchange", "key", header, body, 0)


def check(messages: list[tuple[int, bytes]]) -> None:
    attributes = messages[0][0]
    stamped, length = stamp([content for _, content in messages], attributes, BASE)
    assert length == (len(stamped[0]) if len(set(map(len, stamped))) == 1 else 0)
    for number, (one, (_, before)) in enumerate(zip(stamped, messages, strict=True)):
        new, old = split_message(attributes, one), split_message(attributes, before)
        assert new[:2] == old[:2]
        assert new.body == old.body
        view, was = PropertyView(new.header), PropertyView(old.header)
        headers = dict(view.headers or {})
        assert headers.pop("x-stream-offset") == Field("l", BASE + number)
        kept = dict(was.headers or {})
        kept.pop("x-stream-offset", None)
        assert headers == kept
        for name in ("content_type", "content_encoding", "priority", "message_id", "delivery_mode"):
            assert view.raw(name) == was.raw(name)


def test_messages_that_are_alike() -> None:
    check([message(b"x" * 100) for _ in range(5)])
    check([message(b"x", content_type="text/plain", delivery_mode=2) for _ in range(5)])
    check([message(b"x", headers={"a": Field("I", 1)}, message_id=f"{n}") for n in range(5)])


def test_messages_that_differ() -> None:
    check(
        [
            message(b""),
            message(b"abc", content_type="text/plain", content_encoding="gzip", priority=3),
            message(b"abc", headers={"a": Field("I", 1), "b": Field("S", "two")}),
            message(b"abcd", headers={}),
            message(b"abcd", headers={}, content_encoding="gzip"),
            message(b"x-stream-offset " * 20, delivery_mode=2),
        ]
    )


def test_a_header_of_that_name_is_replaced() -> None:
    check(
        [
            message(b"abc", headers={"a": Field("I", 1), "x-stream-offset": Field("S", "mine")}),
            message(b"abc", headers={"a": Field("S", "\x0fx-stream-offset")}),
            message(b"abc", headers={"x-stream-offset": Field("l", 5)}),
        ]
    )
