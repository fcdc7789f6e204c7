"""Which queues that are being recovered a method has to wait for."""

from typing import TYPE_CHECKING

from pamqp import commands
from pamqp.base import Frame as Method

from leveret.broker.postings import history_of
from leveret.queues.classic import ClassicQueue

if TYPE_CHECKING:
    from leveret.broker.channel_session import ChannelSession


def awaited_queues(channel: "ChannelSession", method: Method) -> list[ClassicQueue]:
    """The queues that *method* names or may publish to, as far as they are being recovered."""
    if isinstance(method, commands.Tx.Commit):
        return _targets(channel)
    if isinstance(method, commands.Exchange.Bind):
        return _replayed(channel, method)
    name = getattr(method, "queue", None)
    if name is None:
        return []
    queue = channel.vhost.queues.get(name.strip("\r\n") or channel.last_queue_name)
    return [queue] if queue is not None and queue in channel.vhost.recovering else []


def _targets(channel: "ChannelSession") -> list[ClassicQueue]:
    """The queues that what the transaction holds goes to; all if some of it is yet to be routed."""
    transaction, recovering = channel.publisher.transaction, channel.vhost.recovering
    targets = [held.run.queues for held in transaction.publishes] if transaction else []
    if None in targets:
        return list(recovering)
    return [queue for queues in targets for queue in queues or () if queue in recovering]


def _replayed(channel: "ChannelSession", method: commands.Exchange.Bind) -> list[ClassicQueue]:
    """All, if a history is sent on to wherever the destination routes it."""
    source = channel.vhost.exchanges.get(method.source)
    if source is None or history_of(source) is None:
        return []
    return list(channel.vhost.recovering)
