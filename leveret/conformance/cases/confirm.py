"""Rules of the class confirm (136 to 139)."""

from pamqp import commands

from leveret.conformance.case import Chapter, Seen, judge
from leveret.conformance.cases.steps import await_confirms, bind, confirm, counts, publish_all
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import PERSISTENT, method, publish

chapter = Chapter("confirm")
Basic = commands.Basic
FULL = {"x-max-length": 1, "x-overflow": "reject-publish"}


@chapter.case(136, spec="a confirm for each message")
def all_are_confirmed(ground: Ground) -> Seen:
    """Each message is confirmed: persistent or not, routed or not, large or empty."""
    wire = ground.wire(1)
    durable, transient = ground.queue(wire, durable=True), ground.queue(wire)
    confirm(wire)
    kinds = [
        (key, body, properties)
        for key in (durable, transient, ground.queue_name())
        for body in (b"", b"body", bytes(200_000))
        for properties in (b"\0\0", PERSISTENT)
    ]
    for key, body, properties in kinds:
        publish_all(wire, key, body, properties=properties)
    return judge(await_confirms(wire, len(kinds)), spec=[])


@chapter.case(136, spec="messages before confirm.select have no confirm")
def numbers_begin_with_select(ground: Ground) -> Seen:
    """The first message behind confirm.select has number 1, and a second select changes nothing."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    publish_all(wire, queue, b"before")
    confirm(wire)
    publish_all(wire, queue, b"first")
    refused = await_confirms(wire, 1)
    confirm(wire)
    publish_all(wire, queue, b"second")
    return judge((refused, wire.expect(Basic.Ack, 1).delivery_tag), spec=([], 2))


@chapter.case(136, spec="each channel counts for itself")
def channels_count_for_themselves(ground: Ground) -> Seen:
    """Confirms go to the channel of the publish, whose numbers are its own."""
    wire = ground.wire(1, 2)
    queue = ground.queue(wire)
    confirm(wire, 1)
    confirm(wire, 2)
    publish_all(wire, queue, b"1")
    refused = await_confirms(wire, 1)
    publish_all(wire, queue, b"2", channel=2)
    return judge(refused + await_confirms(wire, 1, channel=2), spec=[])


@chapter.case(137, spec="nack", rabbitmq="nack, and the other queues have it")
def one_of_several_queues_refuses(ground: Ground) -> Seen:
    """A message that one of its queues refuses is not confirmed."""
    wire = ground.wire(1)
    full, durable = ground.queue(wire, arguments=FULL), ground.queue(wire, durable=True)
    exchange = ground.exchange(wire, "fanout")
    bind(wire, full, exchange)
    bind(wire, durable, exchange)
    confirm(wire)
    publish_all(wire, "", b"first", b"second", exchange=exchange, properties=PERSISTENT)
    refused = await_confirms(wire, 2)
    return judge((refused, counts(wire, durable)[0]), spec=([2], 2))


@chapter.case(137, spec="the message is in its queues by then")
def confirmed_is_in_every_queue(ground: Ground) -> Seen:
    """What is confirmed is in each of its queues, for any connection to see."""
    wire, other = ground.wire(1), ground.wire(1)
    queues = [ground.queue(wire, durable=True) for _ in range(3)]
    exchange = ground.exchange(wire, "fanout")
    for queue in queues:
        bind(wire, queue, exchange)
    confirm(wire)
    publish_all(wire, "", b"body", exchange=exchange, properties=PERSISTENT)
    await_confirms(wire, 1)
    return judge([counts(other, queue)[0] for queue in queues], spec=[1, 1, 1])


@chapter.case(138, spec="return, then ack")
def return_comes_before_its_ack(ground: Ground) -> Seen:
    """A mandatory message that goes nowhere comes back before it is confirmed."""
    wire = ground.wire(1)
    confirm(wire)
    key = ground.queue_name()
    wire.send(publish(1, key, b"lost", mandatory=True, properties=b"\x80\x00\x04text"))
    returned = wire.expect(Basic.Return, 1)
    content = wire.expect_content()
    ack = wire.expect(Basic.Ack, 1)
    seen = (returned.reply_code, returned.routing_key, content, ack.delivery_tag)
    return judge(seen, spec=(312, key, (b"\x80\x00\x04text", b"lost"), 1))


@chapter.case(138, spec="return and ack for it, ack for the others")
def returns_among_others(ground: Ground) -> Seen:
    """Among many messages each that goes nowhere comes back before a confirm covers it."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    confirm(wire)
    keys = [queue, ground.queue_name()] * 10
    wire.send(*(publish(1, key, b"%d" % n, mandatory=True) for n, key in enumerate(keys, 1)))
    returned: list[int] = []
    covered: set[int] = set()
    early: list[int] = []
    while len(covered) < len(keys):
        received = wire.receive().method
        if isinstance(received, Basic.Return):
            returned.append(int(wire.expect_body()))
            continue
        if not isinstance(received, Basic.Ack):
            return judge(received.name, spec="Basic.Return or Basic.Ack")
        tag = received.delivery_tag or 0
        settled = range(1, tag + 1) if received.multiple else (tag,)
        early += [n for n in settled if n % 2 == 0 and n not in returned]
        covered.update(settled)
    return judge((returned, early), spec=(list(range(2, 21, 2)), []))


@chapter.case("2.1-confirm-nowait", rabbitmq="no select-ok, and confirms")
def select_without_an_answer(ground: Ground) -> Seen:
    """A confirm.select with nowait is not answered and works."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    wire.send(method(1, commands.Confirm.Select(nowait=True)), publish(1, queue, b"body"))
    return judge(wire.expect(Basic.Ack, 1).delivery_tag, rabbitmq=1)
