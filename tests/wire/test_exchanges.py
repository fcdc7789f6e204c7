"""Exchanges: what is refused and how, and what is let pass (rows 40 to 51)."""

import pytest
from pamqp import commands

from tests.wire.raw import Refusal, frame, method, publish

Declare = commands.Exchange.Declare
Delete = commands.Exchange.Delete
Bind = commands.Exchange.Bind
Unbind = commands.Exchange.Unbind
PLAIN = {"exchange": "plain", "exchange_type": "direct"}
DEFAULT = "operation not permitted on the default exchange"
X_MATCH = "expected all, any, all-with-x, or any-with-x"


@pytest.fixture
def plain(peer):
    """An exchange `plain` with a binding to `plain-target`, and an internal one `hidden`."""
    peer.call(1, Declare(**PLAIN), commands.Exchange.DeclareOk)
    peer.call(1, Declare(exchange="plain-target"), commands.Exchange.DeclareOk)
    peer.call(1, Declare(exchange="hidden", internal=True), commands.Exchange.DeclareOk)
    bind = Bind(source="plain", destination="plain-target")
    peer.call(1, bind, commands.Exchange.BindOk)
    yield peer
    for name in ("plain", "plain-target", "hidden"):
        peer.call(1, Delete(exchange=name), commands.Exchange.DeleteOk)


CASES = [
    # 40
    (Declare(exchange=""), 403, DEFAULT),
    (Declare(exchange="", passive=True), 403, DEFAULT),
    (Delete(exchange=""), 403, DEFAULT),
    (Bind(source="", destination="plain"), 403, DEFAULT),
    (Bind(source="plain", destination=""), 403, DEFAULT),
    (Unbind(source="", destination="plain"), 403, DEFAULT),
    (Unbind(source="plain", destination=""), 403, DEFAULT),
    (commands.Queue.Bind(queue="q", exchange="", routing_key="k"), 403, DEFAULT),
    (commands.Queue.Unbind(queue="q", exchange="", routing_key="k"), 403, DEFAULT),
    # 41, 42
    (Declare(exchange="amq.mine"), 403,
     "exchange name 'amq.mine' contains reserved prefix 'amq.*'"),
    (Delete(exchange="amq.direct"), 403,
     "deletion of system exchange 'amq.direct' in vhost '/' not allowed"),
    # 43, 44
    (Declare(exchange="odd", exchange_type="odd"), 406, "unknown exchange type 'odd'"),
    (Declare(exchange="missing", passive=True), 404, "no exchange 'missing' in vhost '/'"),
    # 45
    (Declare(exchange="plain", exchange_type="fanout"), 406,
     "inequivalent arg 'type' for exchange 'plain' in vhost '/': received 'fanout' but current "
     "is 'direct'"),
    (Declare(**PLAIN, durable=True), 406,
     "inequivalent arg 'durable' for exchange 'plain' in vhost '/': received 'true' but current "
     "is 'false'"),
    (Declare(**PLAIN, auto_delete=True), 406,
     "inequivalent arg 'auto_delete' for exchange 'plain' in vhost '/': received 'true' but "
     "current is 'false'"),
    (Declare(**PLAIN, internal=True), 406,
     "inequivalent arg 'internal' for exchange 'plain' in vhost '/': received 'true' but current "
     "is 'false'"),
    (Declare(**PLAIN, arguments={"alternate-exchange": "other"}), 406,
     "inequivalent arg 'alternate-exchange' for exchange 'plain' in vhost '/': received the value "
     "'other' of type 'longstr' but current is none"),
    # 46
    (Declare(exchange="new", arguments={"alternate-exchange": 70_000}), 406,
     "invalid type 'signedint' for arg 'alternate-exchange' in exchange 'new' in vhost '/'"),
    # 47
    (Delete(exchange="plain", if_unused=True), 406, "exchange 'plain' in vhost '/' in use"),
    # 51
    (Bind(source="amq.headers", destination="plain", arguments={"x-match": "x"}), 406,
     f'Invalid x-match field value <<"x">>; {X_MATCH}'),
    (Bind(source="amq.match", destination="plain", arguments={"x-match": True}), 406,
     "Invalid x-match field type bool (value true); expected longstr"),
    (Bind(source="missing", destination="plain"), 404, "no exchange 'missing' in vhost '/'"),
    (Bind(source="plain", destination="missing"), 404, "no exchange 'missing' in vhost '/'"),
]  # fmt: skip
NAMES = {403: "ACCESS_REFUSED", 404: "NOT_FOUND", 406: "PRECONDITION_FAILED"}


@pytest.mark.parametrize(("request_", "code", "text"), CASES)
def test_the_channel_is_closed(plain, request_, code, text):
    plain.call(2, commands.Channel.Open(), commands.Channel.OpenOk)
    plain.send(method(2, request_))
    ids = request_.index >> 16, request_.frame_id
    assert plain.refusal() == Refusal("channel", code, f"{NAMES[code]} - {text}", ids)


@pytest.mark.parametrize(
    ("exchange", "code", "text"),
    [
        ("missing", 404, "NOT_FOUND - no exchange 'missing' in vhost '/'"),
        (
            "hidden",
            403,
            "ACCESS_REFUSED - cannot publish to internal exchange 'hidden' in vhost '/'",
        ),
    ],
)
@pytest.mark.parametrize("body", [b"", b"body", bytes(200_000)])
def test_a_publish_is_refused(plain, exchange, code, text, body):
    plain.call(2, commands.Channel.Open(), commands.Channel.OpenOk)
    plain.send(publish(2, "k", body, exchange=exchange))
    assert plain.refusal() == Refusal("channel", code, text, (60, 40))


@pytest.mark.parametrize(
    ("request_", "reply"),
    [
        (Declare(**PLAIN), commands.Exchange.DeclareOk),
        (Declare(exchange="plain", passive=True), commands.Exchange.DeclareOk),
        (Declare(exchange="plain", exchange_type="odd", passive=True), commands.Exchange.DeclareOk),
        (Declare(exchange="amq.fanout", exchange_type="fanout", durable=True),
         commands.Exchange.DeclareOk),
        (Declare(**PLAIN, arguments={"x-anything": 5}), commands.Exchange.DeclareOk),
        (Delete(exchange="missing"), commands.Exchange.DeleteOk),
        (Delete(exchange="amq.missing"), commands.Exchange.DeleteOk),
        (Bind(source="plain", destination="plain-target"), commands.Exchange.BindOk),
        (Unbind(source="plain", destination="plain-target", routing_key="no"),
         commands.Exchange.UnbindOk),
        (Unbind(source="missing", destination="plain"), commands.Exchange.UnbindOk),
        (Unbind(source="plain", destination="missing"), commands.Exchange.UnbindOk),
    ],
)  # fmt: skip
def test_what_is_let_pass(plain, request_, reply):
    plain.call(1, request_, reply)


def test_line_ends_are_dropped_from_names(peer):
    # By hand: pamqp refuses such a name.
    arguments = b"\x00\x00\x06new\r\nx\x06direct\x04\x00\x00\x00\x00"
    peer.send(frame(1, 1, b"\x00\x28\x00\x0a" + arguments))
    peer.expect(commands.Exchange.DeclareOk, 1)
    peer.call(1, Declare(exchange="newx", passive=True), commands.Exchange.DeclareOk)
