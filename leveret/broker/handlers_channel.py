"""Methods of the classes channel, access, confirm and tx."""

from collections.abc import Callable

from pamqp import commands
from pamqp.base import Frame as Method

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.methods import Access
from leveret.broker.channel_session import ChannelSession
from leveret.broker.transactions import Transaction


def flow(channel: ChannelSession, method: commands.Channel.Flow) -> None:
    """Stop or resume deliveries to the channel (§1.5.2.3)."""
    channel.flow_active = bool(method.active)
    channel.send(commands.Channel.FlowOk(active=channel.flow_active))
    if channel.flow_active:
        channel.wake_consumers()


def flow_ok(channel: ChannelSession, method: commands.Channel.FlowOk) -> None:
    """We never send flow; an answer to nothing is ignored, as RabbitMQ does."""


def access_request(channel: ChannelSession, method: Access.Request) -> None:
    """Tickets are of AMQP 0-8; old clients want one."""
    channel.send(Access.RequestOk(ticket=1))


def confirm_select(channel: ChannelSession, method: commands.Confirm.Select) -> None:
    """Enter confirm mode."""
    if channel.publisher.transaction is not None:
        raise PreconditionFailed("cannot switch from tx to confirm mode")
    channel.publisher.confirm_select()
    if not method.nowait:
        channel.send(commands.Confirm.SelectOk())


def tx_select(channel: ChannelSession, method: commands.Tx.Select) -> None:
    """Enter transaction mode."""
    if channel.publisher.confirms is not None:
        raise PreconditionFailed("cannot switch from confirm to tx mode")
    if channel.publisher.transaction is None:
        channel.publisher.transaction = Transaction()
    channel.send(commands.Tx.SelectOk())


def tx_commit(channel: ChannelSession, method: commands.Tx.Commit) -> None:
    """Do what the transaction held; commit-ok once it is on disk."""
    publishes, settlements = _transaction(channel).take()
    results = [channel.publisher.enqueue(*held) for held in publishes]
    for settlement in settlements:
        channel.settle_one(settlement.tag, settlement.outcome)
    if not all(results):
        raise PreconditionFailed("partial tx completion")
    channel.commit_logs_then(commands.Tx.CommitOk())


def tx_rollback(channel: ChannelSession, method: commands.Tx.Rollback) -> None:
    """Forget what the transaction held; deliveries stay unacknowledged."""
    _transaction(channel).take()
    channel.send(commands.Tx.RollbackOk())


def _transaction(channel: ChannelSession) -> Transaction:
    if channel.publisher.transaction is None:
        raise PreconditionFailed("channel is not transactional")
    return channel.publisher.transaction


HANDLERS: dict[type[Method], Callable[..., None]] = {
    commands.Channel.Flow: flow,
    commands.Channel.FlowOk: flow_ok,
    Access.Request: access_request,
    commands.Confirm.Select: confirm_select,
    commands.Tx.Select: tx_select,
    commands.Tx.Commit: tx_commit,
    commands.Tx.Rollback: tx_rollback,
}
