"""Direct reply-to, alternate exchanges, copies, policies (behaviours)."""

from pamqp import commands
from pamqp.common import FieldTable

from leveret.conformance.case import Chapter, Need, Seen, judge
from leveret.conformance.cases.messages import (
    delivery,
    fill,
    hold,
    reject,
    returned,
    tell,
    until,
    x,
)
from leveret.conformance.cases.steps import (
    bind,
    cancel,
    consume,
    counts,
    drain,
    named,
    properties,
    publish_all,
    remove,
)
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Wire, channel_closed, publish

chapter = Chapter("misc")

REPLY_TO = "amq.rabbitmq.reply-to"
MANAGEMENT = frozenset([Need.MANAGEMENT])


# ---- direct reply-to


def _ask(wire: Wire, queue: str, body: bytes = b"?") -> str:
    """Ask on channel 1, which consumes the replies; answers the name that the server sees."""
    sent = properties(reply_to=REPLY_TO, correlation_id="c")
    publish_all(wire, queue, body, properties=sent)
    until(lambda: counts(wire, queue)[0] == 1)
    question = hold(wire, queue)
    tell(wire, commands.Basic.Ack(question.tag))
    return question.properties.reply_to or ""


@chapter.case("2.9-reply-to", rabbitmq="a name of its own, under which the answer comes")
def question_and_answer(ground: Ground) -> Seen:
    """What is sent to the name that a server finds in reply-to comes to the asking channel."""
    wire, server = ground.wire(1), ground.wire(1)
    queue = ground.queue(wire, durable=True)
    consume(wire, REPLY_TO, no_ack=True)
    name = _ask(wire, queue)
    judge(name.startswith(f"{REPLY_TO}."), rabbitmq=True)
    answer = properties(correlation_id="c", headers={"n": 1})
    publish_all(server, name, b"answer", properties=answer)
    reply = delivery(wire)
    judge((reply.exchange, reply.routing_key, reply.raw), rabbitmq=("", name, answer))
    return judge(reply.body, rabbitmq=b"answer")


@chapter.case("2.9-reply-to-rules", rabbitmq="406 for each")
def what_it_is_not_for(ground: Ground) -> Seen:
    """Replies cannot be acknowledged, have one consumer a channel, and go to who asks."""
    wire = ground.wire(1, 2, 3)
    queue = ground.queue(wire)
    consume(wire, REPLY_TO, no_ack=True)
    texts = []
    for channel, no_ack in ((2, False), (1, True)):
        request = commands.Basic.Consume(queue=REPLY_TO, consumer_tag="n", no_ack=no_ack)
        texts.append(wire.refused(channel, request))
    wire.send(publish(3, queue, b"?", properties=properties(reply_to=REPLY_TO)))
    texts.append(wire.refusal())
    judge(_drain_later(wire, queue), rabbitmq=[])
    expected = (
        "reply consumer cannot acknowledge",
        "reply consumer already set",
        "fast reply consumer does not exist",
    )
    for refusal, text in zip(texts, expected, strict=True):
        judge(refusal, rabbitmq=channel_closed(406, f"PRECONDITION_FAILED - {text}"))
    return Seen(text="3 of 3")


def _drain_later(wire: Wire, queue: str) -> list[bytes]:
    """Take all messages of a queue on a channel that is opened for it."""
    wire.call(9, commands.Channel.Open(), commands.Channel.OpenOk)
    return drain(wire, queue, 9)


@chapter.case("2.9-reply-to-declare", rabbitmq="0 messages and 1 consumer; 404 when it is gone")
def a_server_can_ask_whether_somebody_waits(ground: Ground) -> Seen:
    """A declare of the name, passive or not, tells whether somebody waits for the answer."""
    wire, server = ground.wire(1), ground.wire(1)
    queue = ground.queue(wire, durable=True)
    tag = consume(wire, REPLY_TO, no_ack=True)
    name = _ask(wire, queue)
    for is_passive in (True, False):
        server.send(named(1, commands.Queue.Declare(queue="NAME", passive=is_passive), name))
        told = server.expect(commands.Queue.DeclareOk, 1)
        counted = (told.queue, told.message_count, told.consumer_count)
        judge(counted, rabbitmq=(name, 0, 1))
    cancel(wire, tag)
    server.send(named(1, commands.Queue.Declare(queue="NAME", passive=True), name))
    return judge(server.refusal(), rabbitmq=channel_closed(404))


@chapter.case("2.9-reply-to-late", rabbitmq="dropped")
def an_answer_to_nobody_is_dropped(ground: Ground) -> Seen:
    """An answer to somebody who has left is dropped, and nothing is kept for it."""
    wire, server = ground.wire(1, 2), ground.wire(1)
    queue = ground.queue(wire, durable=True)
    consume(wire, REPLY_TO, no_ack=True)
    name = _ask(wire, queue)
    wire.call(1, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    fill(server, name, b"late")
    wire.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    consume(wire, REPLY_TO, no_ack=True)
    new = _ask(wire, queue)
    publish_all(server, new, b"in time")
    return judge(delivery(wire).body, rabbitmq=b"in time")


@chapter.case("2.9-reply-to-other", rabbitmq="as it is")
def another_name_stays_as_it_is(ground: Ground) -> Seen:
    """Any other reply-to is left alone."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    publish_all(wire, queue, b"", properties=properties(reply_to="mine"))
    return judge(hold(wire, queue).properties.reply_to, rabbitmq="mine")


# ---- copies


@chapter.case("2.9-copies", rabbitmq="each key is a route; BCC is taken off")
def each_key_of_cc_and_bcc_is_a_route(ground: Ground) -> Seen:
    """The headers CC and BCC name more routing keys; readers see CC and not BCC."""
    wire = ground.wire(1)
    queues = [ground.queue(wire) for _ in range(3)]
    sent = properties(headers={"CC": queues[1:2], "BCC": queues[2:], "mine": 1})
    fill(wire, queues[0], b"1", properties=sent)
    headers = [hold(wire, queue).headers for queue in queues]
    return judge(headers, rabbitmq=[{"CC": queues[1:2], "mine": 1}] * 3)


@chapter.case("2.9-copies-once", rabbitmq="one copy")
def each_queue_gets_one_copy(ground: Ground) -> Seen:
    """A queue that several keys lead to gets one copy."""
    wire = ground.wire(1)
    exchange, queue = ground.exchange(wire, "topic"), ground.queue(wire)
    bind(wire, queue, exchange, "a.#")
    bind(wire, queue, exchange, "#.b")
    sent = properties(headers={"CC": ["a", "b", "a.b"], "BCC": ["x.b"]})
    publish_all(wire, "a.b", b"1", exchange=exchange, properties=sent)
    publish_all(wire, "a.b", b"2", exchange=exchange)
    until(lambda: counts(wire, queue)[0] >= 2)
    return judge(drain(wire, queue), rabbitmq=[b"1", b"2"])


@chapter.case("2.9-copies-values", rabbitmq="406")
def copies_are_an_array(ground: Ground) -> Seen:
    """A CC or BCC that is no array closes the channel."""
    wire = ground.wire(1, 2)
    queue = ground.queue(wire)
    for channel, name in ((1, "CC"), (2, "BCC")):
        sent = properties(headers={name: "no array"})
        wire.send(publish(channel, queue, b"", properties=sent))
        judge(wire.refusal(), rabbitmq=channel_closed(406))
    return Seen(text="2 of 2")


# ---- alternate exchanges


def _with_alternate(ground: Ground, wire: Wire, kind: str, alternate: str) -> str:
    name = ground.exchange_name()
    arguments: FieldTable = {"alternate-exchange": alternate}
    declare = commands.Exchange.Declare(exchange=name, exchange_type=kind, arguments=arguments)
    wire.call(1, declare, commands.Exchange.DeclareOk)
    return name


@chapter.case("2.9-alternate", rabbitmq="only what has no route")
def what_has_no_route_goes_to_the_alternate(ground: Ground) -> Seen:
    """An alternate exchange gets what its exchange has no route for, with the same key."""
    wire = ground.wire(1)
    last = ground.exchange(wire, "topic")
    middle = _with_alternate(ground, wire, "direct", last)
    first = _with_alternate(ground, wire, "direct", middle)
    queues = [ground.queue(wire) for _ in range(3)]
    bind(wire, queues[0], first, "one")
    bind(wire, queues[1], middle, "two")
    bind(wire, queues[2], last, "#")
    for key in ("one", "two", "three"):
        publish_all(wire, key, key.encode(), exchange=first)
    until(lambda: all(counts(wire, queue)[0] for queue in queues))
    message = hold(wire, queues[2])
    judge((message.exchange, message.routing_key), rabbitmq=(first, "three"))
    return judge([drain(wire, queue) for queue in queues], rabbitmq=[[b"one"], [b"two"], []])


@chapter.case("2.9-alternate-missing", rabbitmq="no route; none either in a cycle")
def a_missing_alternate_or_a_cycle_is_no_route(ground: Ground) -> Seen:
    """An alternate exchange that does not exist is no route, nor are alternates in a ring."""
    wire = ground.wire(1)
    missing = _with_alternate(ground, wire, "fanout", ground.exchange_name())
    itself = ground.exchange_name()
    arguments: FieldTable = {"alternate-exchange": itself}
    declare = commands.Exchange.Declare(
        exchange=itself, exchange_type="fanout", arguments=arguments
    )
    wire.call(1, declare, commands.Exchange.DeclareOk)
    for name in (missing, itself):
        wire.send(publish(1, "k", b"1", exchange=name, mandatory=True))
        judge(returned(wire)[0].reply_code, rabbitmq=312)
    return Seen(text="returned, both")


@chapter.case("2.9-alternate-of-a-bound-exchange", rabbitmq="of any exchange on the way")
def alternates_of_exchanges_on_the_way(ground: Ground) -> Seen:
    """An exchange that another one leads to uses its own alternate too."""
    wire = ground.wire(1)
    alternate = ground.exchange(wire, "fanout")
    source, inner = (
        ground.exchange(wire, "fanout"),
        _with_alternate(ground, wire, "direct", alternate),
    )
    wire.call(1, commands.Exchange.Bind(0, inner, source, ""), commands.Exchange.BindOk)
    queue = ground.queue(wire)
    bind(wire, queue, alternate)
    publish_all(wire, "k", b"1", exchange=source)
    until(lambda: counts(wire, queue)[0] == 1)
    return judge(drain(wire, queue), rabbitmq=[b"1"])


# ---- priorities of messages


@chapter.case("2.9-message-priorities", rabbitmq="the highest first; none is 0, more is the most")
def the_highest_priority_is_first(ground: Ground) -> Seen:
    """A queue with x-max-priority gives out the highest priority first, equals in order."""
    wire = ground.wire(1)
    queue = ground.queue(wire, arguments=x(max_priority=5))
    for priority, body in ((1, b"1"), (3, b"3"), (9, b"9"), (5, b"5"), (0, b"0"), (3, b"3b")):
        fill(wire, queue, body, properties=properties(priority=priority))
    fill(wire, queue, b"none")
    expected = [b"9", b"5", b"3", b"3b", b"1", b"0", b"none"]
    return judge(drain(wire, queue), rabbitmq=expected)


@chapter.case("2.9-no-priorities", rabbitmq="no meaning without x-max-priority")
def without_the_argument_priorities_mean_nothing(ground: Ground) -> Seen:
    """In a queue without x-max-priority messages stay in their order."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    for priority in (1, 9, 5):
        fill(wire, queue, b"%d" % priority, properties=properties(priority=priority))
    return judge(drain(wire, queue), rabbitmq=[b"1", b"9", b"5"])


@chapter.case("2.9-returned-priority", rabbitmq="back in its level")
def a_returned_message_keeps_its_priority(ground: Ground) -> Seen:
    """A message that is given back stands before others of its priority, behind higher ones."""
    wire = ground.wire(1)
    queue = ground.queue(wire, arguments=x(max_priority=5))
    for priority, body in ((2, b"2a"), (2, b"2b"), (1, b"1")):
        fill(wire, queue, body, properties=properties(priority=priority))
    held = hold(wire, queue)
    fill(wire, queue, b"5", properties=properties(priority=5))
    tell(wire, commands.Basic.Nack(held.tag, False, True))
    until(lambda: counts(wire, queue)[0] == 4)
    return judge(drain(wire, queue), rabbitmq=[b"5", b"2a", b"2b", b"1"])


# ---- policies


def _policy(ground: Ground, queue: str, **definition: object) -> None:
    """Set a policy for *queue* alone; it is removed afterwards."""
    path = "policies", ground.facilities.address.vhost, queue
    body = {
        "pattern": f"^{queue}$",
        "definition": {name.replace("_", "-"): value for name, value in definition.items()},
        "apply-to": "queues",
    }
    ground.manage("PUT", *path, body=body)
    remove(ground, *path)


@chapter.case("2.9-policy-length", rabbitmq="at once", needs=MANAGEMENT)
def a_policy_limits_a_queue_that_is_there(ground: Ground) -> Seen:
    """A policy with max-length drops what is too much in a queue that exists already."""
    wire = ground.wire(1)
    queue = ground.queue(wire, durable=True)
    fill(wire, queue, b"1", b"2", b"3")
    _policy(ground, queue, max_length=1)
    until(lambda: counts(wire, queue)[0] == 1)
    fill(wire, queue, b"4")
    return judge(drain(wire, queue), rabbitmq=[b"4"])


@chapter.case("2.9-policy-dead-letters", rabbitmq="from the next death on", needs=MANAGEMENT)
def a_policy_names_an_exchange_for_dead_letters(ground: Ground) -> Seen:
    """A policy's dead-letter-exchange holds from the next death on, until it is taken back."""
    wire = ground.wire(1)
    queue, dead = ground.queue(wire, durable=True), ground.queue(wire)

    def makes_letters() -> bool:
        fill(wire, queue, b"1")
        reject(wire, queue)
        fill(wire, queue, b"2")
        judge(drain(wire, queue), rabbitmq=[b"2"])
        return bool(drain(wire, dead))

    judge(makes_letters(), rabbitmq=False)
    _policy(ground, queue, dead_letter_exchange="", dead_letter_routing_key=dead)
    until(makes_letters)
    ground.manage("DELETE", "policies", ground.facilities.address.vhost, queue)
    until(lambda: not makes_letters())
    return Seen()


@chapter.case("2.9-policy-and-argument", rabbitmq="the lower limit", needs=MANAGEMENT)
def the_lower_of_policy_and_argument_counts(ground: Ground) -> Seen:
    """Where a policy and an argument both set a limit, the lower one counts."""
    wire = ground.wire(1)
    arguments = x(max_length=2)
    queue = ground.queue(wire, durable=True, arguments=arguments)
    _policy(ground, queue, max_length=5, message_ttl=60000)
    fill(wire, queue, b"1", b"2", b"3", b"4")
    return judge(drain(wire, queue), rabbitmq=[b"3", b"4"])
