"""Queues: what is refused and how, and what is let pass (rows 54 to 71)."""

import struct

import pytest
from pamqp import commands

from tests.wire.raw import Refusal, frame, method, publish
from tests.wire.rows import case, row

Declare = commands.Queue.Declare
Delete = commands.Queue.Delete
Purge = commands.Queue.Purge
Bind = commands.Queue.Bind
Unbind = commands.Queue.Unbind
Consume = commands.Basic.Consume
Get = commands.Basic.Get
NAMES = {
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
}
MISSING = "no queue 'missing' in vhost '/'"
NONE_YET = "no previously declared queue"
INEQUIVALENT = "inequivalent arg '{}' for queue 'plain' in vhost '/': received {} but current is {}"
LOCKED = (
    "cannot obtain exclusive access to locked queue '{}' in vhost '/'. It could be originally "
    "declared on another connection or the exclusive property value does not match that of the "
    "original declaration."
)


@pytest.fixture
def plain(connect):
    """A connection with the queues `plain`, and `busy` with one message and one consumer."""
    peer = connect(1, 2, 3)
    peer.call(1, Declare(queue="plain"), commands.Queue.DeclareOk)
    peer.call(1, Declare(queue="busy"), commands.Queue.DeclareOk)
    peer.call(3, commands.Basic.Qos(prefetch_count=1), commands.Basic.QosOk)
    peer.call(3, Consume(queue="busy"), commands.Basic.ConsumeOk)
    peer.send(publish(1, "busy", b"1"), publish(1, "busy", b"2"))
    peer.expect(commands.Basic.Deliver, 3)
    peer.expect_body()
    yield peer
    for name in ("plain", "busy"):
        peer.send(method(1, Delete(queue=name)))
    peer.send(method(1, commands.Channel.Close(200, "", 0, 0)))
    while not isinstance(peer.receive().method, commands.Channel.CloseOk):
        pass


CASES = [
    *[case(54, request, 404, MISSING) for request in (
        Declare(queue="missing", passive=True),
        Consume(queue="missing"),
        Get(queue="missing"),
        Purge(queue="missing"),
        Bind(queue="missing", exchange="amq.direct", routing_key="k"),
    )],
    *[case(55, request, 404, NONE_YET) for request in (
        Declare(queue="", passive=True),
        Consume(queue=""),
        Get(queue=""),
        Purge(queue=""),
        Delete(queue=""),
        Bind(queue="", exchange="amq.direct", routing_key="k"),
        Unbind(queue="", exchange="amq.direct", routing_key="k"),
    )],
    case(56, Declare(queue="amq.mine"), 403,
         "queue name 'amq.mine' contains reserved prefix 'amq.*'"),
    case(57, Declare(queue="plain", durable=True), 406,
         INEQUIVALENT.format("durable", "'true'", "'false'")),
    case(57, Declare(queue="plain", auto_delete=True), 406,
         INEQUIVALENT.format("auto_delete", "'true'", "'false'")),
    case(58, Declare(queue="plain", arguments={"x-message-ttl": 70_000}), 406, INEQUIVALENT.format(
        "x-message-ttl", "the value '70000' of type 'signedint'", "none")),
    case(58, Declare(queue="plain", arguments={"x-dead-letter-exchange": "dlx"}), 406,
         INEQUIVALENT.format(
             "x-dead-letter-exchange", "the value 'dlx' of type 'longstr'", "none")),
    case(60, Declare(queue="plain", exclusive=True), 405, LOCKED.format("plain")),
    case(66, Delete(queue="busy", if_unused=True), 406, "queue 'busy' in vhost '/' in use"),
    case(66, Delete(queue="busy", if_empty=True), 406, "queue 'busy' in vhost '/' not empty"),
    case(66, Delete(queue="busy", if_empty=True, if_unused=True), 406,
         "queue 'busy' in vhost '/' not empty"),
    case(69, Bind(queue="plain", exchange="missing", routing_key="k"), 404,
         "no exchange 'missing' in vhost '/'"),
    case(70, Bind(queue="amq.rabbitmq.reply-to", exchange="amq.direct", routing_key="k"), 403,
         "cannot bind or unbind to a volatile (direct reply-to) queue"),
    case(70, Unbind(queue="amq.rabbitmq.reply-to.g1", exchange="amq.direct", routing_key="k"), 403,
         "cannot bind or unbind to a volatile (direct reply-to) queue"),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "code", "text"), CASES)
def test_the_channel_is_closed(plain, request_, code, text):
    plain.send(method(2, request_))
    ids = request_.index >> 16, request_.frame_id
    assert plain.refusal() == Refusal("channel", code, f"{NAMES[code]} - {text}", ids)


BAD_VALUES = [
    (61, {"x-max-priority": 256}, "{max_value_exceeded,256}"),
    *[(61, {name: -1}, "{value_negative,-1}") for name in (
        "x-max-priority", "x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes",
        "x-delivery-limit", "x-consumer-timeout",
    )],
    (61, {"x-expires": 0}, "{value_zero,0}"),
    (61, {"x-message-ttl": 315_360_000_001}, "{value_too_large,315360000001}"),
    (61, {"x-expires": 315_360_000_001}, "{value_too_large,315360000001}"),
    (61, {"x-message-ttl": "10"}, '"expected integer, got longstr"'),
    (61, {"x-max-length": True}, '"expected integer, got bool"'),
    (61, {"x-max-priority": "1"}, '"expected integer, got longstr"'),
    (61, {"x-dead-letter-routing-key": "k"}, "routing_key_but_no_dlx_defined"),
    (61, {"x-dead-letter-routing-key": True, "x-dead-letter-exchange": ""},
     "{unacceptable_type,bool}"),
    (61, {"x-overflow": "drop-tail"}, "invalid_overflow"),
    (61, {"x-overflow": True}, "{unacceptable_type,bool}"),
    (61, {"x-single-active-consumer": "true"}, "{unacceptable_type,longstr}"),
    (61, {"x-queue-type": "odd"}, '"unsupported queue type \'odd\'"'),
    (61, {"x-max-age": "1w", "x-queue-type": "stream"}, "invalid_max_age"),
    (61, {"x-stream-max-segment-size-bytes": 3_000_000_001}, "{value_too_large,3000000001}"),
    (61, {"x-stream-filter-size-bytes": 15}, "{value_out_of_range,15}"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "reason"), [case(number, *values) for number, *values in BAD_VALUES]
)
def test_an_argument_is_refused(peer, arguments, reason):
    peer.send(method(1, Declare(queue="new", durable=True, arguments=arguments)))
    text = f"invalid arg '{next(iter(arguments))}' for queue 'new' in vhost '/': {reason}"
    expected = Refusal("channel", 406, f"PRECONDITION_FAILED - {text}", (50, 10))
    assert peer.refusal() == expected


QUORUM = {"x-queue-type": "quorum"}
STREAM = {"x-queue-type": "stream"}


@pytest.mark.parametrize(
    ("declare", "text"),
    [
        *[case(62, Declare(queue="new", durable=True, arguments={name: value}),
               f"invalid arg '{name}' for queue 'new' in vhost '/' "
               "of queue type rabbit_classic_queue")
          for name, value in {
              "x-max-age": "1h",
              "x-stream-max-segment-size-bytes": 1_000_000,
              "x-quorum-initial-group-size": 3,
          }.items()],
        case(62, Declare(queue="new", durable=True, arguments=QUORUM | {"x-max-age": "1h"}),
             "invalid arg 'x-max-age' for queue 'new' in vhost '/' "
             "of queue type rabbit_quorum_queue"),
        *[case(62, Declare(queue="new", durable=True, arguments=STREAM | {name: value}),
               f"invalid arg '{name}' for queue 'new' in vhost '/' "
               "of queue type rabbit_stream_queue")
          for name, value in {
              "x-message-ttl": 1000,
              "x-dead-letter-exchange": "",
              "x-overflow": "drop-head",
              "x-max-priority": 5,
              "x-single-active-consumer": True,
              "x-retain-age": "1h",
              "x-max-in-memory-length": 3,
          }.items()],
        *[row for kind in (QUORUM, STREAM) for row in (
            case(63, Declare(queue="new", durable=True, auto_delete=True, arguments=kind),
                 "invalid property 'auto-delete' for queue 'new' in vhost '/'"),
            case(63, Declare(queue="new", durable=True, exclusive=True, arguments=kind),
                 "invalid property 'exclusive-owner' for queue 'new' in vhost '/'"),
            case(63, Declare(queue="new", arguments=kind),
                 "invalid property 'non-durable' for queue 'new' in vhost '/'"),
            case(63, Declare(queue="", durable=True, arguments=kind),
                 "Cannot declare a server-named queue for type "
                 f"rabbit_{kind['x-queue-type']}_queue"),
        )],
        case(64, Declare(queue="new", arguments={"x-dead-letter-exchange": 70_000}),
             "invalid type 'signedint' for arg 'x-dead-letter-exchange' "
             "in queue 'new' in vhost '/'"),
    ],
)  # fmt: skip
def test_a_declare_is_refused(peer, declare, text):
    peer.send(method(1, declare))
    expected = Refusal("channel", 406, f"PRECONDITION_FAILED - {text}", (50, 10))
    assert peer.refusal() == expected


@pytest.mark.parametrize(
    "declare",
    [
        case(62, Declare(queue="new", durable=True, arguments={"x-delivery-limit": 3})),
        case(62, Declare(queue="new", durable=True, arguments=QUORUM | {"x-max-priority": 3})),
        case(71, Declare(queue="new")),
        case(71, Declare(queue="new", auto_delete=True)),
    ],
)
def test_what_rabbitmq_may_refuse_is_declared(peer, declare):
    peer.call(1, declare, commands.Queue.DeclareOk)
    peer.call(1, Delete(queue="new"), commands.Queue.DeleteOk)


@row(60)
@pytest.mark.parametrize(
    "request_",
    [
        Declare(queue="own", exclusive=True),
        Declare(queue="own"),
        Declare(queue="own", passive=True),
        Consume(queue="own"),
        Get(queue="own"),
        Purge(queue="own"),
        Delete(queue="own"),
        Bind(queue="own", exchange="amq.direct", routing_key="k"),
        Unbind(queue="own", exchange="amq.direct", routing_key="k"),
    ],
    ids=lambda request: request.name,
)
def test_an_exclusive_queue_is_locked_for_other_connections(connect, request_):
    owner, other = connect(1), connect(1)
    owner.call(1, Declare(queue="own", exclusive=True), commands.Queue.DeclareOk)
    other.send(method(1, request_))
    ids = request_.index >> 16, request_.frame_id
    expected = Refusal("channel", 405, "RESOURCE_LOCKED - " + LOCKED.format("own"), ids)
    assert other.refusal() == expected
    owner.call(1, Delete(queue="own"), commands.Queue.DeleteOk)


def test_an_exclusive_queue_may_be_published_to_and_goes_with_its_connection(connect):
    owner, other = connect(1), connect(1)
    owner.call(1, Declare(queue="own", exclusive=True), commands.Queue.DeclareOk)
    other.send(publish(1, "own", b"hello"))
    other.check()
    owner.call(1, Get(queue="own", no_ack=True), commands.Basic.GetOk)
    assert owner.expect_body() == b"hello"
    owner.call(0, commands.Connection.Close(200, "", 0, 0), commands.Connection.CloseOk)
    # It is gone before close-ok is sent.
    other.send(method(1, Declare(queue="own", passive=True)))
    assert other.refusal().code == 404


@pytest.mark.parametrize(
    ("request_", "reply", "values"),
    [
        (Declare(queue="plain"), "DeclareOk", {"queue": "plain", "message_count": 0}),
        (Declare(queue="busy", passive=True), "DeclareOk",
         {"message_count": 1, "consumer_count": 1}),
        (Declare(queue="plain", durable=True, passive=True), "DeclareOk", {}),
        case(59, Declare(queue="plain", arguments={"x-anything": 5}), "DeclareOk", {}),
        (Declare(queue="plain", arguments={"x-queue-type": "classic"}), "DeclareOk", {}),
        case(67, Delete(queue="missing"), "DeleteOk", {"message_count": 0}),
        (Delete(queue="busy"), "DeleteOk", {"message_count": 1}),
        (Delete(queue="plain", if_empty=True, if_unused=True), "DeleteOk", {"message_count": 0}),
        case(67, Delete(queue="missing", if_empty=True, if_unused=True), "DeleteOk",
             {"message_count": 0}),
        (Purge(queue="busy"), "PurgeOk", {"message_count": 1}),
        (Bind(queue="plain", exchange="amq.direct", routing_key="k"), "BindOk", {}),
        case(68, Unbind(queue="plain", exchange="amq.direct", routing_key="no"), "UnbindOk", {}),
        case(68, Unbind(queue="plain", exchange="missing", routing_key="k"), "UnbindOk", {}),
        case(68, Unbind(queue="missing", exchange="amq.direct", routing_key="k"), "UnbindOk", {}),
    ],
)  # fmt: skip
def test_what_is_let_pass(plain, request_, reply, values):
    plain.send(method(2, request_))
    answer = plain.receive().method
    if isinstance(answer, commands.Basic.Cancel):  # for the consumer, before delete-ok
        answer = plain.receive().method
    assert answer.name == f"Queue.{reply}"
    assert dict(answer).items() >= values.items()


def redeclare(name, entry):
    """A declare of the exclusive queue *name* with one argument, which is encoded by hand."""
    raw = method(1, Declare(queue=name, exclusive=True))[7:-5]
    return frame(1, 1, raw + len(entry).to_bytes(4, "big") + entry)


@row(59)
@pytest.mark.parametrize("value", [100, 1000, 70_000])
def test_integers_of_another_width_are_equal(peer, value):
    declare = Declare(queue="wide", exclusive=True, arguments={"x-expires": value})
    peer.call(1, declare, commands.Queue.DeclareOk)
    peer.send(redeclare("wide", b"\x09x-expiresl" + value.to_bytes(8, "big")))
    peer.expect(commands.Queue.DeclareOk, 1)


@row(58, 59)
def test_an_integer_and_a_float_differ(peer):
    peer.send(redeclare("number", b"\x09x-expiresI" + (70_000).to_bytes(4, "big")))
    peer.expect(commands.Queue.DeclareOk, 1)
    peer.send(redeclare("number", b"\x09x-expiresd" + struct.pack(">d", 70_000.5)))
    text = (
        "inequivalent arg 'x-expires' for queue 'number' in vhost '/': "
        "received '70000.5' but current is '70000'"
    )
    expected = Refusal("channel", 406, f"PRECONDITION_FAILED - {text}", (50, 10))
    assert peer.refusal() == expected


@row(58)
def test_an_argument_that_is_left_out_differs(peer):
    peer.send(redeclare("number", b"\x0dx-message-ttll" + (10).to_bytes(8, "big")))
    peer.expect(commands.Queue.DeclareOk, 1)
    peer.send(method(1, Declare(queue="number", exclusive=True)))
    text = (
        "inequivalent arg 'x-message-ttl' for queue 'number' in vhost '/': received none "
        "but current is the value '10' of type 'long'"
    )
    expected = Refusal("channel", 406, f"PRECONDITION_FAILED - {text}", (50, 10))
    assert peer.refusal() == expected


def test_a_generated_name_is_the_last_declared(peer):
    name = peer.call(1, Declare(queue="", exclusive=True), commands.Queue.DeclareOk).queue
    assert name.startswith("amq.gen-")
    assert len(name) == len("amq.gen-") + 22
    bind = Bind(queue="", exchange="amq.direct", routing_key="")
    peer.call(1, bind, commands.Queue.BindOk)
    peer.send(publish(1, name, b"hello", exchange="amq.direct"))
    peer.call(1, Get(queue=""), commands.Basic.GetOk)
    assert peer.expect_body() == b"hello"
