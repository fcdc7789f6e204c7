"""Basic, confirm and tx: what is refused and how (rows 73 to 94)."""

import pytest
from pamqp import commands

from tests.wire.raw import PERSISTENT, Refusal, content, frame, method, publish
from tests.wire.rows import case, row

Basic = commands.Basic
Declare = commands.Queue.Declare
USER_ID = b"\x00\x10\x05other"
REPLY_TO = "amq.rabbitmq.reply-to"


@pytest.fixture
def ready(peer):
    """A connection with an exclusive queue `q` and a consumer `c` that has tags 1 to 3."""
    peer.call(1, Declare(queue="q", exclusive=True), commands.Queue.DeclareOk)
    peer.call(1, Basic.Consume(queue="q", consumer_tag="c"), Basic.ConsumeOk)
    for _ in range(3):
        peer.send(publish(1, "q", b"body"))
        peer.expect(Basic.Deliver, 1)
        peer.expect_body()
    return peer


HARD = [
    case(73, method(1, Basic.Consume(queue="q", consumer_tag="c")), 530,
         "NOT_ALLOWED - attempt to reuse consumer tag 'c'", (60, 20)),
    case(78, method(1, Basic.Qos(prefetch_size=7)), 540, "NOT_IMPLEMENTED - prefetch_size!=0 (7)",
         (60, 10)),
    case(80, method(1, Basic.Recover(requeue=False)), 540, "NOT_IMPLEMENTED - requeue=false",
         (60, 110)),
    case(80, frame(1, 1, b"\x00\x3c\x00\x64\x00"), 540, "NOT_IMPLEMENTED - requeue=false",
         (60, 100)),
]  # fmt: skip


@pytest.mark.parametrize(("data", "code", "text", "ids"), HARD)
def test_the_connection_is_closed(ready, data, code, text, ids):
    ready.send(data)
    assert ready.refusal() == Refusal("connection", code, text, ids)


UNKNOWN = "PRECONDITION_FAILED - unknown delivery tag {}"


def failing_publish(properties):
    """A publish to the queue `q` with these properties."""
    return method(1, Basic.Publish(routing_key="q")) + content(1, b"x", properties)


def expiration(text):
    """Properties with nothing else."""
    return b"\x01\x00%c%b" % (len(text), text)


def headers(entry):
    """Properties with one header."""
    return b"\x20\x00%b%b" % (len(entry).to_bytes(4, "big"), entry)


SOFT = [
    case(75, method(1, Basic.Consume(queue="q", exclusive=True)), 403,
         "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use", (60, 20)),
    case(76, method(1, Basic.Consume(queue="q", arguments={"x-priority": "high"})), 406,
         "PRECONDITION_FAILED - invalid arg 'x-priority' for queue 'q' in vhost '/': "
         '"expected integer, got longstr"', (60, 20)),
    *[case(77, data, 406, UNKNOWN.format(tag), (60, method_id)) for data, tag, method_id in (
        (method(1, Basic.Ack(4)), 4, 80),
        (method(1, Basic.Ack(0)), 0, 80),
        (method(1, Basic.Ack(1)) * 2, 1, 80),
        (method(1, Basic.Ack(2, multiple=True)) + method(1, Basic.Ack(1)), 1, 80),
        (method(1, Basic.Ack(9, multiple=True)), 9, 80),
        (method(1, Basic.Nack(5)), 5, 120),
        (method(1, Basic.Nack(0)), 0, 120),
        (method(1, Basic.Nack(5, multiple=True)), 5, 120),
        (method(1, Basic.Reject(0)), 0, 90),
        (method(1, Basic.Reject(2**62)), 2**62, 90),
    )],
    *[case(82, failing_publish(expiration(text)), 406,
           f"PRECONDITION_FAILED - invalid expiration '{text.decode()}': {reason}", (60, 40))
      for text, reason in (
          (b"10s", '{leftover_string,"s"}'), (b"abc", "no_integer"), (b"-1", "{value_negative,-1}"),
          (b"", "no_integer"), (b"315360000001", "{value_too_large,315360000001}"),
      )],
    case(83, failing_publish(USER_ID), 406,
         "PRECONDITION_FAILED - user_id property set to 'other' but authenticated user was "
         "'guest'", (60, 40)),
    case(84, failing_publish(headers(b"\x02CCS\x00\x00\x00\x01a")), 406,
         'PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,"CC",longstr}',
         (60, 40)),
    case(84, failing_publish(headers(b"\x03BCCt\x01")), 406,
         'PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,"BCC",bool}',
         (60, 40)),
    case(85, failing_publish(b"\x02\x00%c%b" % (len(REPLY_TO), REPLY_TO.encode())), 406,
         "PRECONDITION_FAILED - fast reply consumer does not exist", (60, 40)),
    case(86, method(1, Basic.Consume(queue=REPLY_TO)), 406,
         "PRECONDITION_FAILED - reply consumer cannot acknowledge", (60, 20)),
    case(93, method(1, commands.Tx.Commit()), 406,
         "PRECONDITION_FAILED - channel is not transactional", (90, 20)),
    case(93, method(1, commands.Tx.Rollback()), 406,
         "PRECONDITION_FAILED - channel is not transactional", (90, 30)),
]  # fmt: skip


@pytest.mark.parametrize(("data", "code", "text", "ids"), SOFT)
def test_the_channel_is_closed(ready, data, code, text, ids):
    ready.send(data)
    assert ready.refusal() == Refusal("channel", code, text, ids)


EXCLUSIVE = "ACCESS_REFUSED - queue '{}' in vhost '/' in exclusive use"


@row(75)
@pytest.mark.parametrize("exclusive", [False, True])
def test_nobody_may_join_an_exclusive_consumer(connect, exclusive):
    first, second = connect(1), connect(1)
    declare = Declare(queue="alone", auto_delete=True)
    first.call(1, declare, commands.Queue.DeclareOk)
    first.call(1, Basic.Consume(queue="alone", exclusive=True), Basic.ConsumeOk)
    second.send(method(1, Basic.Consume(queue="alone", exclusive=exclusive)))
    assert second.refusal() == Refusal("channel", 403, EXCLUSIVE.format("alone"), (60, 20))
    second.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    second.call(1, Basic.Get(queue="alone"), Basic.GetEmpty)


@row(75)
def test_a_queue_with_a_single_active_consumer_has_no_exclusive_one(peer):
    declare = Declare(queue="single", exclusive=True, arguments={"x-single-active-consumer": True})
    peer.call(1, declare, commands.Queue.DeclareOk)
    peer.send(method(1, Basic.Consume(queue="single", exclusive=True)))
    assert peer.refusal() == Refusal("channel", 403, EXCLUSIVE.format("single"), (60, 20))


@row(79)
def test_an_immediate_message_that_nobody_can_take_at_once_comes_back(peer):
    peer.call(1, Declare(queue="now", exclusive=True), commands.Queue.DeclareOk)
    publish_now = method(1, Basic.Publish(routing_key="now", immediate=True)) + content(1, b"x")
    peer.send(publish_now)
    returned = peer.expect(Basic.Return, 1)
    assert (returned.reply_code, returned.reply_text) == (313, "NO_CONSUMERS")
    assert peer.expect_body() == b"x"
    peer.call(1, Basic.Get(queue="now"), Basic.GetEmpty)
    peer.call(1, Basic.Qos(prefetch_count=1), Basic.QosOk)
    peer.call(1, Basic.Consume(queue="now"), Basic.ConsumeOk)
    peer.send(publish_now)
    peer.expect(Basic.Deliver, 1)
    assert peer.expect_body() == b"x"
    peer.send(publish_now)  # the consumer has as many as it wants
    assert peer.expect(Basic.Return, 1).reply_code == 313


@row(84)
def test_what_is_no_string_among_further_keys_is_no_key(peer):
    peer.call(1, Declare(queue="q", exclusive=True), commands.Queue.DeclareOk)
    keys = b"\x02CCA\x00\x00\x00\x08t\x01S\x00\x00\x00\x01q"
    peer.send(publish(1, "nowhere", b"x", properties=headers(keys)))
    peer.call(1, Basic.Get(queue="q", no_ack=True), Basic.GetOk)
    assert peer.expect_body() == b"x"


@row(85)
def test_a_direct_reply_needs_the_consumer_of_its_own_channel(connect):
    peer = connect(1, 2)
    peer.call(2, Basic.Consume(queue=REPLY_TO, no_ack=True), Basic.ConsumeOk)
    properties = b"\x02\x00%c%b" % (len(REPLY_TO), REPLY_TO.encode())
    peer.send(publish(1, "q", b"x", properties=properties))
    text = "PRECONDITION_FAILED - fast reply consumer does not exist"
    assert peer.refusal() == Refusal("channel", 406, text, (60, 40))


@row(86)
def test_a_channel_has_one_consumer_of_direct_replies(peer):
    peer.call(1, Basic.Consume(queue=REPLY_TO, no_ack=True), Basic.ConsumeOk)
    peer.send(method(1, Basic.Consume(queue=REPLY_TO, no_ack=True)))
    text = "PRECONDITION_FAILED - reply consumer already set"
    assert peer.refusal() == Refusal("channel", 406, text, (60, 20))


@pytest.fixture
def quorum(peer):
    """A connection, and the quorum queue `q` with a single active consumer."""
    arguments = {"x-queue-type": "quorum", "x-single-active-consumer": True}
    declare = Declare(queue="quorum", durable=True, arguments=arguments)
    peer.call(1, declare, commands.Queue.DeclareOk)
    yield peer
    peer.call(2, commands.Channel.Open(), commands.Channel.OpenOk)
    peer.call(2, commands.Queue.Delete(queue="quorum"), commands.Queue.DeleteOk)


@row(90)
def test_a_quorum_queue_with_a_single_active_consumer_does_not_serve_get(quorum):
    quorum.send(method(1, Basic.Get(queue="quorum")))
    text = (
        "RESOURCE_LOCKED - cannot obtain access to locked queue 'quorum' in vhost '/'. basic.get "
        "operations are not supported by quorum queues with single active consumer"
    )
    assert quorum.refusal() == Refusal("channel", 405, text, (60, 70))


@row(89)
def test_a_quorum_queue_knows_no_limit_for_a_channel(connect, quorum):
    other = connect(1)
    other.call(1, Basic.Qos(prefetch_count=5, global_=True), Basic.QosOk)
    other.send(method(1, Basic.Consume(queue="quorum")))
    text = "NOT_IMPLEMENTED - queue 'quorum' in vhost '/' does not support global qos"
    assert other.refusal() == Refusal("connection", 540, text, (60, 20))


@row(91)
@pytest.mark.parametrize("of_consumer", [False, True])
def test_a_delivery_must_be_acknowledged_in_time(peer, of_consumer):
    timeout = {"x-consumer-timeout": 50}
    declare = Declare(queue="q", exclusive=True, arguments={} if of_consumer else timeout)
    peer.call(1, declare, commands.Queue.DeclareOk)
    consume = Basic.Consume(queue="q", arguments=timeout if of_consumer else {})
    peer.call(1, consume, Basic.ConsumeOk)
    peer.send(publish(1, "q", b"body"))
    peer.expect(Basic.Deliver, 1)
    peer.expect_body()
    text = (
        "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value "
        "used: 50 ms. This timeout value can be configured, see consumers doc guide to learn more"
    )
    assert peer.refusal() == Refusal("channel", 406, text, (0, 0))


@row(94)
@pytest.mark.parametrize("properties", [b"\0\0", PERSISTENT])
def test_a_transaction_tells_that_a_queue_refused_a_message(peer, properties):
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    declare = Declare(queue="full", exclusive=True, arguments=arguments)
    peer.call(1, declare, commands.Queue.DeclareOk)
    peer.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
    peer.send(publish(1, "full", b"x", properties=properties) * 3)
    peer.send(method(1, commands.Tx.Commit()))
    text = "PRECONDITION_FAILED - partial tx completion"
    assert peer.refusal() == Refusal("channel", 406, text, (90, 20))


@row(92)
@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (commands.Confirm.Select(), commands.Tx.Select(), "from confirm to tx mode"),
        (commands.Tx.Select(), commands.Confirm.Select(), "from tx to confirm mode"),
    ],
)
def test_confirms_and_transactions_do_not_mix(peer, first, second, text):
    peer.send(method(1, first), method(1, second))
    peer.receive()
    expected = f"PRECONDITION_FAILED - cannot switch {text}"
    ids = second.index >> 16, second.frame_id
    assert peer.refusal() == Refusal("channel", 406, expected, ids)


@row(77)
def test_all_of_nothing_may_be_acknowledged(peer):
    peer.send(method(1, Basic.Ack(0, multiple=True)), method(1, Basic.Nack(0, multiple=True)))
    peer.check()


def test_an_unknown_tag_leaves_what_came_before_acknowledged(ready):
    ready.send(*(method(1, Basic.Ack(tag)) for tag in (1, 2, 9, 3)))
    assert ready.refusal().text == UNKNOWN.format(9)
    ready.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    assert ready.call(1, commands.Queue.Purge(queue="q"), commands.Queue.PurgeOk).message_count == 1


def test_a_mandatory_message_comes_back_before_its_confirm(peer):
    peer.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    peer.send(publish(1, "nowhere", b"hello", mandatory=True, properties=b"\x80\x00\x04text"))
    returned = peer.expect(Basic.Return, 1)
    assert (returned.reply_code, returned.reply_text) == (312, "NO_ROUTE")
    assert (returned.exchange, returned.routing_key) == ("", "nowhere")
    assert peer.receive().payload.endswith(b"\x80\x00\x04text")
    assert peer.receive().payload == b"hello"
    ack = peer.expect(Basic.Ack, 1)
    assert (ack.delivery_tag, ack.multiple) == (1, False)


def test_what_precedes_a_refused_publish_is_kept(peer):
    """Also if all of it comes in one piece, and is routed by the run."""
    peer.call(1, Declare(queue="kept", exclusive=True), commands.Queue.DeclareOk)
    good = publish(1, "kept", b"body")
    for before in range(1, 8):
        peer.send(good * before, publish(1, "kept", b"body", exchange="nope"), good)
        assert peer.refusal().code == 404
        peer.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
        purged = peer.call(1, commands.Queue.Purge(queue="kept"), commands.Queue.PurgeOk)
        assert purged.message_count == before
