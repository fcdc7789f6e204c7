"""Queues: what is refused and how, and what is let pass (rows 54 to 60 and 66 to 70)."""

import pytest
from pamqp import commands

from tests.wire.raw import Refusal, frame, method, publish

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
    # 54
    *[(request, 404, MISSING) for request in (
        Declare(queue="missing", passive=True),
        Consume(queue="missing"),
        Get(queue="missing"),
        Purge(queue="missing"),
        Bind(queue="missing", exchange="amq.direct", routing_key="k"),
    )],
    # 55
    *[(request, 404, NONE_YET) for request in (
        Declare(queue="", passive=True),
        Consume(queue=""),
        Get(queue=""),
        Purge(queue=""),
        Delete(queue=""),
        Bind(queue="", exchange="amq.direct", routing_key="k"),
        Unbind(queue="", exchange="amq.direct", routing_key="k"),
    )],
    # 56
    (Declare(queue="amq.mine"), 403, "queue name 'amq.mine' contains reserved prefix 'amq.*'"),
    # 57
    (Declare(queue="plain", durable=True), 406,
     INEQUIVALENT.format("durable", "'true'", "'false'")),
    (Declare(queue="plain", auto_delete=True), 406,
     INEQUIVALENT.format("auto_delete", "'true'", "'false'")),
    # 58
    (Declare(queue="plain", arguments={"x-message-ttl": 70_000}), 406, INEQUIVALENT.format(
        "x-message-ttl", "the value '70000' of type 'signedint'", "none")),
    (Declare(queue="plain", arguments={"x-dead-letter-exchange": "dlx"}), 406, INEQUIVALENT.format(
        "x-dead-letter-exchange", "the value 'dlx' of type 'longstr'", "none")),
    # 60
    (Declare(queue="plain", exclusive=True), 405, LOCKED.format("plain")),
    # 66
    (Delete(queue="busy", if_unused=True), 406, "queue 'busy' in vhost '/' in use"),
    (Delete(queue="busy", if_empty=True), 406, "queue 'busy' in vhost '/' not empty"),
    (Delete(queue="busy", if_empty=True, if_unused=True), 406,
     "queue 'busy' in vhost '/' not empty"),
    # 69
    (Bind(queue="plain", exchange="missing", routing_key="k"), 404,
     "no exchange 'missing' in vhost '/'"),
    # 70
    (Bind(queue="amq.rabbitmq.reply-to", exchange="amq.direct", routing_key="k"), 403,
     "cannot bind or unbind to a volatile (direct reply-to) queue"),
    (Unbind(queue="amq.rabbitmq.reply-to.g1", exchange="amq.direct", routing_key="k"), 403,
     "cannot bind or unbind to a volatile (direct reply-to) queue"),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "code", "text"), CASES)
def test_the_channel_is_closed(plain, request_, code, text):
    plain.send(method(2, request_))
    ids = request_.index >> 16, request_.frame_id
    assert plain.refusal() == Refusal("channel", code, f"{NAMES[code]} - {text}", ids)


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
        (Declare(queue="plain", arguments={"x-anything": 5}), "DeclareOk", {}),
        (Declare(queue="plain", arguments={"x-queue-type": "classic"}), "DeclareOk", {}),
        (Delete(queue="missing"), "DeleteOk", {"message_count": 0}),
        (Delete(queue="busy"), "DeleteOk", {"message_count": 1}),
        (Delete(queue="plain", if_empty=True, if_unused=True), "DeleteOk", {"message_count": 0}),
        (Purge(queue="busy"), "PurgeOk", {"message_count": 1}),
        (Bind(queue="plain", exchange="amq.direct", routing_key="k"), "BindOk", {}),
        (Unbind(queue="plain", exchange="amq.direct", routing_key="no"), "UnbindOk", {}),
        (Unbind(queue="plain", exchange="missing", routing_key="k"), "UnbindOk", {}),
        (Unbind(queue="missing", exchange="amq.direct", routing_key="k"), "UnbindOk", {}),
    ],
)  # fmt: skip
def test_what_is_let_pass(plain, request_, reply, values):
    plain.send(method(2, request_))
    answer = plain.receive().method
    if isinstance(answer, commands.Basic.Cancel):  # for the consumer, before delete-ok
        answer = plain.receive().method
    assert answer.name == f"Queue.{reply}"
    assert dict(answer).items() >= values.items()


def test_integers_of_another_width_are_equal(peer):
    for value in (1000, 70_000):
        name = f"wide{value}"
        declare = Declare(queue=name, exclusive=True, arguments={"x-expires": value})
        peer.call(1, declare, commands.Queue.DeclareOk)
        # The same as a 64-bit integer, by hand.
        raw = method(1, Declare(queue=name, exclusive=True))[7:-5]
        entry = b"\x09x-expiresl" + value.to_bytes(8, "big")
        peer.send(frame(1, 1, raw + len(entry).to_bytes(4, "big") + entry))
        peer.expect(commands.Queue.DeclareOk, 1)


def test_a_generated_name_is_the_last_declared(peer):
    name = peer.call(1, Declare(queue="", exclusive=True), commands.Queue.DeclareOk).queue
    assert name.startswith("amq.gen-")
    assert len(name) == len("amq.gen-") + 22
    bind = Bind(queue="", exchange="amq.direct", routing_key="")
    peer.call(1, bind, commands.Queue.BindOk)
    peer.send(publish(1, name, b"hello", exchange="amq.direct"))
    peer.call(1, Get(queue=""), commands.Basic.GetOk)
    assert peer.expect_body() == b"hello"
