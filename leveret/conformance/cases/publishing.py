"""Publisher confirms, returns and transactions (behaviours)."""

from pamqp import commands

from leveret.conformance.case import Chapter, Need, Seen, Unmet, judge
from leveret.conformance.cases.messages import (
    fill,
    hold,
    hold_each,
    is_empty,
    returned,
    stay_quiet,
    tell,
    x,
)
from leveret.conformance.cases.steps import (
    await_confirms,
    bind,
    confirm,
    counts,
    drain,
    open_channel,
    properties,
    publish_all,
)
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Wire, channel_closed, method, publish

chapter = Chapter("publishing")

Ack, Nack, Publish = commands.Basic.Ack, commands.Basic.Nack, commands.Basic.Publish
Confirm = commands.Basic.Ack | commands.Basic.Nack


def _next_confirm(wire: Wire, channel: int = 1) -> tuple[str, int, bool]:
    """Name, tag and flag multiple of the next confirm."""
    received = wire.receive()
    told = received.method
    if received.channel != channel or not isinstance(told, Confirm):
        raise Unmet(f"expected a confirm, saw {received}")
    return told.name.removeprefix("Basic."), told.delivery_tag or 0, bool(told.multiple)


def _full(ground: Ground, wire: Wire) -> str:
    """A queue that refuses whatever is published to it."""
    return ground.queue(wire, arguments=x(max_length=0, overflow="reject-publish"))


# ---- confirms


@chapter.case("2.7-select-again", rabbitmq="the numbers go on")
def selecting_twice_changes_nothing(ground: Ground) -> Seen:
    """A second confirm.select is answered, and the numbers go on."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    confirm(wire)
    publish_all(wire, queue, b"1")
    first = _next_confirm(wire)
    confirm(wire)
    publish_all(wire, queue, b"2")
    return judge([first, _next_confirm(wire)], rabbitmq=[("Ack", 1, False), ("Ack", 2, False)])


@chapter.case("2.7-numbers", rabbitmq="1 is the first publish after confirm.select")
def numbers_begin_with_the_first_publish_after_select(ground: Ground) -> Seen:
    """Publishes before confirm.select, and those of other channels, have no number."""
    wire = ground.wire(1, 2)
    queue = ground.queue(wire)
    publish_all(wire, queue, b"1", b"2")
    confirm(wire)
    confirm(wire, 2)
    publish_all(wire, queue, b"3")
    first = _next_confirm(wire)
    publish_all(wire, queue, b"4", channel=2)
    second = _next_confirm(wire, 2)
    return judge([first, second], rabbitmq=[("Ack", 1, False)] * 2)


@chapter.case("2.7-select-nowait", rabbitmq="no select-ok")
def select_without_waiting(ground: Ground) -> Seen:
    """confirm.select with no-wait has no answer, and acts."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    tell(wire, commands.Confirm.Select(nowait=True))
    publish_all(wire, queue, b"1")
    return judge(_next_confirm(wire), rabbitmq=("Ack", 1, False))


@chapter.case("2.7-unroutable", rabbitmq="confirmed")
def what_has_no_route_is_confirmed(ground: Ground) -> Seen:
    """A message without a route is confirmed like any other."""
    wire = ground.wire(1)
    confirm(wire)
    publish_all(wire, ground.queue_name(), b"1")
    return judge(_next_confirm(wire), rabbitmq=("Ack", 1, False))


@chapter.case("2.7-return-then-ack", rabbitmq="returned, then confirmed")
def the_return_comes_before_the_confirm(ground: Ground) -> Seen:
    """A mandatory message without a route comes back before it is confirmed."""
    wire = ground.wire(1)
    confirm(wire)
    wire.send(publish(1, ground.queue_name(), b"1", mandatory=True))
    judge(returned(wire)[1].body, rabbitmq=b"1")
    return judge(_next_confirm(wire), rabbitmq=("Ack", 1, False))


@chapter.case("2.7-each-once", rabbitmq="each once")
def every_publish_is_settled_once(ground: Ground) -> Seen:
    """Among many confirms, multiple or not, each number is covered exactly once."""
    wire = ground.wire(1)
    transient, durable = ground.queue(wire), ground.queue(wire, durable=True)
    full, total = _full(ground, wire), 400
    confirm(wire)
    persistent = properties(delivery_mode=2)
    pieces = [
        publish(1, transient, b"t"),
        publish(1, durable, b"d", properties=persistent),
        publish(1, full, b"r"),
        publish(1, ground.queue_name(), b"u"),
    ]
    wire.send(*pieces * (total // 4))
    open_numbers, settled = set(range(1, total + 1)), dict[int, str]()
    while open_numbers:
        name, tag, is_multiple = _next_confirm(wire)
        covered = {number for number in open_numbers if number <= tag} if is_multiple else {tag}
        if not covered <= open_numbers or not covered:
            raise Unmet(f"{name} {tag} covers {covered - open_numbers}, which was settled before")
        settled |= dict.fromkeys(covered, name)
        open_numbers -= covered
    wire.send(publish(1, transient, b"last"))
    judge(_next_confirm(wire), rabbitmq=("Ack", total + 1, False))
    refused = [number for number, name in settled.items() if name == "Nack"]
    return judge(sorted(refused) == list(range(3, total + 1, 4)), rabbitmq=True)


@chapter.case("2.7-persistent", rabbitmq="confirmed, also while nothing follows")
def persistent_messages_are_confirmed(ground: Ground) -> Seen:
    """A persistent message to several durable queues is confirmed once."""
    wire = ground.wire(1)
    exchange = ground.exchange(wire, "fanout")
    for _ in range(3):
        bind(wire, ground.queue(wire, durable=True), exchange)
    confirm(wire)
    publish_all(wire, "", b"1", exchange=exchange, properties=properties(delivery_mode=2))
    first = _next_confirm(wire)
    publish_all(wire, "", b"2", exchange=exchange)
    return judge([first, _next_confirm(wire)], rabbitmq=[("Ack", 1, False), ("Ack", 2, False)])


@chapter.case(
    "2.7-confirmed-survives", rabbitmq="there", needs=frozenset([Need.RESTART]), limit_s=90
)
def what_was_confirmed_survives(ground: Ground) -> Seen:
    """Persistent messages that were confirmed are there after a restart, in their order."""
    wire = ground.wire(1)
    queue = ground.queue(wire, durable=True)
    confirm(wire)
    bodies = [b"%d" % number for number in range(100)]
    publish_all(wire, queue, *bodies, properties=properties(delivery_mode=2))
    judge(await_confirms(wire, 100), rabbitmq=[])
    ground.restart()
    return judge(drain(ground.wire(1), queue) == bodies, rabbitmq=True)


@chapter.case("2.7-refused-by-one", rabbitmq="one nack, and the others keep it")
def one_queue_refuses(ground: Ground) -> Seen:
    """A message that one of its queues refuses is nacked; the other queues keep it."""
    wire = ground.wire(1)
    exchange, queue = ground.exchange(wire, "fanout"), ground.queue(wire)
    for each in (queue, _full(ground, wire), _full(ground, wire)):
        bind(wire, each, exchange)
    confirm(wire)
    publish_all(wire, "", b"1", exchange=exchange)
    refused = _next_confirm(wire)[:2]
    judge(drain(wire, queue), rabbitmq=[b"1"])
    return judge(refused, rabbitmq=("Nack", 1))


@chapter.case("2.7-refused-and-mandatory", rabbitmq="nacked, not returned")
def a_queue_that_refuses_is_a_route(ground: Ground) -> Seen:
    """A mandatory message that its only queue refuses is nacked and does not come back."""
    wire = ground.wire(1)
    queue = _full(ground, wire)
    confirm(wire)
    wire.send(publish(1, queue, b"1", mandatory=True))
    return judge(_next_confirm(wire)[:2], rabbitmq=("Nack", 1))


@chapter.case("2.7-closed-channel", rabbitmq="no confirms; the next channel begins at 1")
def a_failed_publish_ends_the_channel(ground: Ground) -> Seen:
    """A publish to no exchange closes the channel; opened again it has no confirms and number 1."""
    wire = ground.wire(1)
    queue, exchange = ground.queue(wire), ground.exchange_name()
    confirm(wire)
    publish_all(wire, queue, b"1")
    judge(_next_confirm(wire), rabbitmq=("Ack", 1, False))
    wire.send(publish(1, "k", b"2", exchange=exchange), publish(1, queue, b"3"))
    text = f"NOT_FOUND - no exchange '{exchange}' in vhost '{ground.facilities.address.vhost}'"
    seen = judge(wire.refusal(), rabbitmq=channel_closed(404, text))
    open_channel(wire, 1)
    judge(drain(wire, queue), rabbitmq=[b"1"])
    confirm(wire)
    publish_all(wire, queue, b"4")
    judge(_next_confirm(wire), rabbitmq=("Ack", 1, False))
    return seen


# ---- returns


@chapter.case("2.7-return", spec="312, with exchange, key and the whole content")
def a_return_is_complete(ground: Ground) -> Seen:
    """An unroutable mandatory message comes back with its code, names, properties and body."""
    wire = ground.wire(1)
    exchange, body = ground.exchange(wire, "direct"), bytes(200_000)
    sent = properties(content_type="a/b", headers={"n": 1}, correlation_id="c", delivery_mode=2)
    wire.send(publish(1, "k", body, exchange=exchange, mandatory=True, properties=sent))
    told, message = returned(wire)
    judge((message.exchange, message.routing_key), spec=(exchange, "k"))
    judge(message.raw, spec=sent)
    judge(message.body == body, spec=True)
    return judge((told.reply_code, told.reply_text), spec=(312, "NO_ROUTE"))


@chapter.case("2.7-return-alternate", rabbitmq="a route as any other")
def an_alternate_exchange_is_a_route(ground: Ground) -> Seen:
    """A mandatory message that an alternate exchange routes does not come back."""
    wire = ground.wire(1)
    alternate, queue = ground.exchange(wire, "fanout"), ground.queue(wire)
    name = ground.exchange_name()
    declare = commands.Exchange.Declare(
        exchange=name, exchange_type="direct", arguments={"alternate-exchange": alternate}
    )
    wire.call(1, declare, commands.Exchange.DeclareOk)
    wire.send(publish(1, "k", b"lost", exchange=name, mandatory=True))
    judge(returned(wire)[0].exchange, rabbitmq=name)
    bind(wire, queue, alternate)
    wire.send(publish(1, "k", b"found", exchange=name, mandatory=True))
    stay_quiet(wire, queue)
    return judge(drain(wire, queue), rabbitmq=[b"found"])


# ---- transactions


def _select(wire: Wire, channel: int = 1) -> None:
    wire.call(channel, commands.Tx.Select(), commands.Tx.SelectOk)


def _commit(wire: Wire) -> None:
    wire.call(1, commands.Tx.Commit(), commands.Tx.CommitOk)


def _rollback(wire: Wire) -> None:
    wire.call(1, commands.Tx.Rollback(), commands.Tx.RollbackOk)


@chapter.case("2.7-tx-publish", spec="at the commit, in order; never after a rollback")
def publishes_wait_for_the_commit(ground: Ground) -> Seen:
    """What is published in a transaction is in the queue when it is committed, and not before."""
    wire = ground.wire(1, 2)
    queue = ground.queue(wire)
    _select(wire)
    publish_all(wire, queue, b"1")
    judge(counts(wire, queue)[0], spec=0)
    _rollback(wire)
    publish_all(wire, queue, b"2", b"3")
    _commit(wire)
    return judge(drain(wire, queue, 2), spec=[b"2", b"3"])


@chapter.case("2.7-tx-ack", spec="at the commit; a rollback takes it back")
def acks_wait_for_the_commit(ground: Ground) -> Seen:
    """After a rollback a message is unacknowledged again and is not redelivered."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    fill(wire, queue, b"1", b"2")
    _select(wire)
    settled = Ack(hold(wire, queue).tag), commands.Basic.Reject(hold(wire, queue).tag, True)
    tell(wire, *settled)
    _rollback(wire)
    judge(is_empty(wire, queue), spec=True)
    tell(wire, *settled)
    judge(is_empty(wire, queue), spec=True)
    _commit(wire)
    again = hold(wire, queue)
    return judge((again.body, again.redelivered), spec=(b"2", True))


@chapter.case("2.7-tx-close", spec="rolled back")
def closing_rolls_back(ground: Ground) -> Seen:
    """A channel that closes rolls its transaction back."""
    wire = ground.wire(1, 2)
    queue = ground.queue(wire)
    fill(wire, queue, b"1", b"2")
    _select(wire)
    tags = hold_each(wire, queue, 2)
    tell(wire, Ack(tags[0]), Ack(tags[1]))
    publish_all(wire, queue, b"3")
    wire.call(1, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    return judge([hold(wire, queue, 2).body for _ in range(2)], spec=[b"1", b"2"])


@chapter.case("2.7-tx-errors", rabbitmq="at once")
def errors_do_not_wait_for_the_commit(ground: Ground) -> Seen:
    """A publish to an exchange that does not exist is refused at once, not at the commit."""
    wire = ground.wire(1, 2)
    queue, exchange = ground.queue(wire), ground.exchange_name()
    _select(wire)
    publish_all(wire, queue, b"1")
    wire.send(publish(1, "k", b"2", exchange=exchange))
    refusal = wire.refusal()
    judge(counts(wire, queue, 2)[0], rabbitmq=0)
    return judge(refusal, rabbitmq=channel_closed(404))


@chapter.case("2.7-tx-return", rabbitmq="returned before commit-ok")
def returns_come_with_the_commit(ground: Ground) -> Seen:
    """A mandatory message without a route has come back when the commit is answered."""
    wire = ground.wire(1)
    _select(wire)
    wire.send(publish(1, ground.queue_name(), b"1", mandatory=True))
    wire.send(method(1, commands.Tx.Commit()))
    judge(returned(wire)[1].body, rabbitmq=b"1")
    wire.expect(commands.Tx.CommitOk, 1)
    return Seen()


@chapter.case("2.7-tx-survives", spec="there", needs=frozenset([Need.RESTART]), limit_s=90)
def what_was_committed_survives(ground: Ground) -> Seen:
    """Persistent messages and acks of a committed transaction outlive a restart."""
    wire = ground.wire(1)
    queue = ground.queue(wire, durable=True)
    persistent = properties(delivery_mode=2)
    fill(wire, queue, b"1", properties=persistent)
    _select(wire)
    tell(wire, Ack(hold(wire, queue).tag))
    publish_all(wire, queue, b"2", properties=persistent)
    _commit(wire)
    ground.restart()
    return judge(drain(ground.wire(1), queue), spec=[b"2"])
