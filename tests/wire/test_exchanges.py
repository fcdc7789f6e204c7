"""Exchanges: what is refused and how, and what is let pass (rows 40 to 52)."""

import pytest
from pamqp import commands

from tests.wire.raw import Refusal, frame, method, publish
from tests.wire.rows import case

Declare = commands.Exchange.Declare
Delete = commands.Exchange.Delete
Bind = commands.Exchange.Bind
Unbind = commands.Exchange.Unbind
PLAIN = {"exchange": "plain", "exchange_type": "direct"}
DEFAULT = "operation not permitted on the default exchange"
INEQUIVALENT = (
    "inequivalent arg '{}' for exchange 'plain' in vhost '/': received {} but current is {}"
)
X_MATCH = "expected all, any, all-with-x, or any-with-x"


@pytest.fixture
def plain(peer):
    """Exchanges: `plain` with a binding to `plain-target`, an internal `hidden`, and `hash`."""
    peer.call(1, Declare(**PLAIN), commands.Exchange.DeclareOk)
    peer.call(1, Declare(exchange="plain-target"), commands.Exchange.DeclareOk)
    peer.call(1, Declare(exchange="hidden", internal=True), commands.Exchange.DeclareOk)
    hashing = Declare(exchange="hash", exchange_type="x-consistent-hash")
    peer.call(1, hashing, commands.Exchange.DeclareOk)
    bind = Bind(source="plain", destination="plain-target")
    peer.call(1, bind, commands.Exchange.BindOk)
    yield peer
    for name in ("plain", "plain-target", "hidden", "hash"):
        peer.call(1, Delete(exchange=name), commands.Exchange.DeleteOk)


CASES = [
    *[case(40, request, 403, DEFAULT) for request in (
        Declare(exchange=""),
        Declare(exchange="", passive=True),
        Delete(exchange=""),
        Bind(source="", destination="plain"),
        Bind(source="plain", destination=""),
        Unbind(source="", destination="plain"),
        Unbind(source="plain", destination=""),
        commands.Queue.Bind(queue="q", exchange="", routing_key="k"),
        commands.Queue.Unbind(queue="q", exchange="", routing_key="k"),
    )],
    case(41, Declare(exchange="amq.mine"), 403,
         "exchange name 'amq.mine' contains reserved prefix 'amq.*'"),
    case(42, Delete(exchange="amq.direct"), 403,
         "deletion of system exchange 'amq.direct' in vhost '/' not allowed"),
    case(42, Delete(exchange="amq.missing"), 403,
         "deletion of system exchange 'amq.missing' in vhost '/' not allowed"),
    case(43, Declare(exchange="odd", exchange_type="odd"), 406, "unknown exchange type 'odd'"),
    case(44, Declare(exchange="missing", passive=True), 404,
         "no exchange 'missing' in vhost '/'"),
    case(45, Declare(exchange="plain", exchange_type="fanout"), 406,
         INEQUIVALENT.format("type", "'fanout'", "'direct'")),
    case(45, Declare(**PLAIN, durable=True), 406,
         INEQUIVALENT.format("durable", "'true'", "'false'")),
    case(45, Declare(**PLAIN, auto_delete=True), 406,
         INEQUIVALENT.format("auto_delete", "'true'", "'false'")),
    case(45, Declare(**PLAIN, internal=True), 406,
         INEQUIVALENT.format("internal", "'true'", "'false'")),
    case(45, Declare(**PLAIN, arguments={"alternate-exchange": "other"}), 406,
         INEQUIVALENT.format("alternate-exchange", "the value 'other' of type 'longstr'", "none")),
    case(46, Declare(exchange="new", arguments={"alternate-exchange": 70_000}), 406,
         "invalid type 'signedint' for arg 'alternate-exchange' in exchange 'new' in vhost '/'"),
    case(47, Delete(exchange="plain", if_unused=True), 406,
         "exchange 'plain' in vhost '/' in use"),
    case(51, Bind(source="amq.headers", destination="plain", arguments={"x-match": "x"}), 406,
         f'Invalid x-match field value <<"x">>; {X_MATCH}'),
    case(51, Bind(source="amq.match", destination="plain", arguments={"x-match": True}), 406,
         "Invalid x-match field type bool (value true); expected longstr"),
    case(51, Bind(source="amq.match", destination="plain", arguments={"x-match": 70_000}), 406,
         "Invalid x-match field type signedint (value 70000); expected longstr"),
    case(52, Bind(source="hash", destination="plain", routing_key="x"), 406,
         'The binding key must be an integer: <<"x">>'),
    case(52, Bind(source="hash", destination="plain", routing_key=""), 406,
         'The binding key must be an integer: <<>>'),
    case(52, Bind(source="hash", destination="plain", routing_key="0"), 406,
         "The binding key must be greater than 0"),
    case(52, Bind(source="hash", destination="plain", routing_key="-1"), 406,
         "The binding key must be greater than 0"),
    case(69, Bind(source="missing", destination="plain"), 404,
         "no exchange 'missing' in vhost '/'"),
    case(69, Bind(source="plain", destination="missing"), 404,
         "no exchange 'missing' in vhost '/'"),
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
        case(49, "missing", 404, "NOT_FOUND - no exchange 'missing' in vhost '/'"),
        case(50, "hidden", 403,
             "ACCESS_REFUSED - cannot publish to internal exchange 'hidden' in vhost '/'"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("body", [b"", b"body", bytes(200_000)])
def test_a_publish_is_refused(plain, exchange, code, text, body):
    plain.call(2, commands.Channel.Open(), commands.Channel.OpenOk)
    plain.send(publish(2, "k", body, exchange=exchange))
    assert plain.refusal() == Refusal("channel", code, text, (60, 40))


@pytest.mark.parametrize(
    ("request_", "reply"),
    [
        (Declare(**PLAIN), "DeclareOk"),
        (Declare(exchange="plain", passive=True), "DeclareOk"),
        (Declare(exchange="plain", exchange_type="odd", passive=True), "DeclareOk"),
        case(41, Declare(exchange="amq.fanout", exchange_type="fanout", durable=True),
             "DeclareOk"),
        (Declare(**PLAIN, arguments={"x-anything": 5}), "DeclareOk"),
        case(48, Delete(exchange="missing"), "DeleteOk"),
        case(48, Delete(exchange="missing", if_unused=True), "DeleteOk"),
        (Bind(source="plain", destination="plain-target"), "BindOk"),
        case(68, Unbind(source="plain", destination="plain-target", routing_key="no"),
             "UnbindOk"),
        case(68, Unbind(source="missing", destination="plain"), "UnbindOk"),
        case(68, Unbind(source="plain", destination="missing"), "UnbindOk"),
    ],
)  # fmt: skip
def test_what_is_let_pass(plain, request_, reply):
    plain.call(1, request_, getattr(commands.Exchange, reply))


def test_line_ends_are_dropped_from_names(peer):
    # By hand: pamqp refuses such a name.
    arguments = b"\x00\x00\x06new\r\nx\x06direct\x04\x00\x00\x00\x00"
    peer.send(frame(1, 1, b"\x00\x28\x00\x0a" + arguments))
    peer.expect(commands.Exchange.DeclareOk, 1)
    peer.call(1, Declare(exchange="newx", passive=True), commands.Exchange.DeclareOk)
