"""Rules of the class tx (131 to 135), and what clients rely on there."""

from pamqp import commands

from leveret.conformance.case import Chapter, Seen, Unmet, judge
from leveret.conformance.cases.refusals import refused_for
from leveret.conformance.cases.steps import consume, counts, drain, publish_all
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Wire, channel_closed, method, publish

chapter = Chapter("tx")
Basic = commands.Basic
Tx = commands.Tx
NO_TX = "channel is not transactional"


def _transaction(ground: Ground) -> tuple[Wire, str]:
    """A channel with a transaction, and a queue."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    wire.call(1, Tx.Select(), Tx.SelectOk)
    return wire, queue


@chapter.case(133, spec="the return comes before commit-ok")
def mandatory_returns_come_at_commit(ground: Ground) -> Seen:
    """A mandatory message that goes nowhere comes back at the commit, not before."""
    wire, _ = _transaction(ground)
    wire.send(publish(1, ground.queue_name(), b"lost", mandatory=True))
    wire.expect_silence(1)
    wire.send(method(1, Tx.Commit()))
    returned = wire.expect(Basic.Return, 1)
    body = wire.expect_body()
    wire.expect(Tx.CommitOk, 1)
    return judge((returned.reply_code, body), spec=(312, b"lost"))


@chapter.case(134, spec="406 precondition-failed", rabbitmq=f"406 {NO_TX}")
def commit_without_select(ground: Ground) -> Seen:
    """A commit needs tx.select."""
    refusal = ground.wire(1).refused(1, Tx.Commit())
    expected = refused_for(Tx.Commit(), 406, NO_TX)
    return judge(refusal, spec=channel_closed(406), rabbitmq=expected)


@chapter.case(135, spec="406 precondition-failed", rabbitmq=f"406 {NO_TX}")
def rollback_without_select(ground: Ground) -> Seen:
    """A rollback needs tx.select."""
    refusal = ground.wire(1).refused(1, Tx.Rollback())
    expected = refused_for(Tx.Rollback(), 406, NO_TX)
    return judge(refusal, spec=channel_closed(406), rabbitmq=expected)


@chapter.case("tx-publish", spec="messages are there from the commit on")
def publishes_wait_for_the_commit(ground: Ground) -> Seen:
    """Messages of a transaction are in their queue after commit-ok, in order, and not before."""
    wire, queue = _transaction(ground)
    other = ground.wire(1)
    other.call(1, Basic.Qos(), Basic.QosOk)
    publish_all(wire, queue, b"1", b"2")
    before = counts(wire, queue)
    wire.call(1, Tx.Commit(), Tx.CommitOk)
    return judge((before, drain(wire, queue)), spec=((0, 0), [b"1", b"2"]))


@chapter.case("tx-rollback", spec="nothing is published")
def rollback_drops_publishes(ground: Ground) -> Seen:
    """Messages of a transaction that is rolled back are gone, and the next one begins."""
    wire, queue = _transaction(ground)
    publish_all(wire, queue, b"gone")
    wire.call(1, Tx.Rollback(), Tx.RollbackOk)
    publish_all(wire, queue, b"kept")
    wire.call(1, Tx.Commit(), Tx.CommitOk)
    return judge(drain(wire, queue), spec=[b"kept"])


@chapter.case("tx-acks", spec="acknowledgements wait for the commit")
def rollback_takes_acknowledgements_back(ground: Ground) -> Seen:
    """After a rollback the deliveries are outstanding again, and can be acknowledged."""
    wire, queue = _transaction(ground)
    publish_all(wire, queue, b"body")
    wire.call(1, Tx.Commit(), Tx.CommitOk)
    consume(wire, queue)
    wire.expect_delivery(1)
    wire.send(method(1, Basic.Ack(1)))
    wire.call(1, Tx.Rollback(), Tx.RollbackOk)
    wire.expect_silence(1)  # it is not delivered again of itself
    wire.send(method(1, Basic.Ack(1)))
    wire.call(1, Tx.Commit(), Tx.CommitOk)
    wire.call(1, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    wire.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    return judge(counts(wire, queue), spec=(0, 0))


@chapter.case("tx-acks", spec="acknowledgements wait for the commit")
def closing_undoes_acknowledgements(ground: Ground) -> Seen:
    """A channel that is closed before the commit has acknowledged nothing."""
    wire, queue = _transaction(ground)
    publish_all(wire, queue, b"body")
    wire.call(1, Tx.Commit(), Tx.CommitOk)
    consume(wire, queue)
    wire.expect_delivery(1)
    wire.send(method(1, Basic.Ack(1)))
    wire.call(1, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    wire.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    got = wire.call(1, Basic.Get(queue=queue), Basic.GetOk)
    wire.expect_body()
    return judge(got.redelivered, spec=True)


@chapter.case("tx-publish", spec="nothing is published")
def closing_drops_publishes(ground: Ground) -> Seen:
    """A channel that is closed before the commit has published nothing."""
    wire, queue = _transaction(ground)
    publish_all(wire, queue, b"gone")
    wire.call(1, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    wire.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    return judge(counts(wire, queue), spec=(0, 0))


@chapter.case("tx-select", spec="select-ok")
def select_twice(ground: Ground) -> None:
    """A channel with a transaction may ask for one again; what is published so far stays."""
    wire, queue = _transaction(ground)
    publish_all(wire, queue, b"body")
    wire.call(1, Tx.Select(), Tx.SelectOk)
    wire.call(1, Tx.Commit(), Tx.CommitOk)
    if drain(wire, queue) != [b"body"]:
        raise Unmet("the message before the second tx.select is gone")
