"""Methods of the class basic, all but publish and the plain ack (§1.8)."""

from collections.abc import Callable

from pamqp import commands
from pamqp.base import Frame as Method

from leveret.amqp.errors import (
    AccessRefused,
    NotAllowed,
    NotFound,
    NotImplementedByBroker,
    PreconditionFailed,
    ResourceLocked,
)
from leveret.amqp.fastpath import encode_get_ok
from leveret.amqp.message import head_length
from leveret.amqp.methods import build_method
from leveret.amqp.properties import DIRECT_REPLY_TO
from leveret.amqp.tables import Field, Table
from leveret.broker.channel_session import ChannelSession
from leveret.broker.handlers_exchange import arguments_of
from leveret.broker.handlers_queue import queue_name
from leveret.broker.permissions import Access, Resource
from leveret.broker.stream_consumers import refuse_on_stream, stream_cursor
from leveret.broker.unacked import Holder
from leveret.broker.vhost import generated_name
from leveret.queues.arguments import InvalidArgument, QueueType, integer, natural
from leveret.queues.classic import ClassicQueue
from leveret.queues.consumers import Consumer
from leveret.queues.outcome import Outcome
from leveret.storage.errors import StorageError


def qos(channel: ChannelSession, method: commands.Basic.Qos) -> None:
    """Limit what may be unacknowledged: each later consumer, or with global the whole channel.

    py-amqp (kombu, Celery) relies on the letter of the specification: it changes the limit of the
    consumers that there are.
    """
    if method.prefetch_size:
        raise NotImplementedByBroker(f"prefetch_size!=0 ({method.prefetch_size})")
    count = method.prefetch_count or 0
    if method.global_:
        channel.shared_prefetch = count
        channel.wake_consumers()
    else:
        channel.prefetch = count
        if channel.session.wants_live_prefetch:
            for consumer, _, _ in channel.consumers.values():
                consumer.prefetch = count
            channel.wake_consumers()
    channel.send(commands.Basic.QosOk())


def consume(channel: ChannelSession, method: commands.Basic.Consume) -> None:
    """Add a consumer; consume-ok precedes its first delivery."""
    name = queue_name(channel, method.queue)
    tag = method.consumer_tag or generated_name("amq.ctag-")
    if tag in channel.consumers:
        raise NotAllowed(f"attempt to reuse consumer tag '{tag}'")
    channel.session.check_consumer(len(channel.consumers))
    if name == DIRECT_REPLY_TO:
        queue = _reply_queue(channel, no_ack=bool(method.no_ack))
    else:
        channel.session.permissions.check(Access.READ, Resource.QUEUE, name)
        queue = channel.vhost.queue(name, channel.session)
    consumer = _consumer(channel, queue, tag, method)
    channel.consumers[tag] = (consumer, queue, Holder(queue, consumer))
    if not method.nowait:
        channel.send(build_method(commands.Basic.ConsumeOk, consumer_tag=tag))
    queue.consumers.add(consumer)
    channel.vhost.turn.touch(queue)


def _consumer(
    channel: ChannelSession, queue: ClassicQueue, tag: str, method: commands.Basic.Consume
) -> Consumer:
    vhost_name = channel.vhost.name
    is_single = queue.arguments.single_active_consumer
    if queue.consumers.is_exclusive or (method.exclusive and (len(queue.consumers) or is_single)):
        raise AccessRefused(f"queue '{queue.name}' in vhost '{vhost_name}' in exclusive use")
    if queue.arguments.queue_type is QueueType.QUORUM and channel.shared_prefetch:
        raise NotImplementedByBroker(
            f"queue '{queue.name}' in vhost '{vhost_name}' does not support global qos"
        )
    arguments = arguments_of(method.arguments)
    cursor = stream_cursor(channel, queue, tag, method)
    priority = _argument(arguments, "x-priority", integer, queue, vhost_name)
    own_timeout_ms = _argument(arguments, "x-consumer-timeout", natural, queue, vhost_name)
    timeouts_ms = [own_timeout_ms, queue.arguments.consumer_timeout_ms]
    return Consumer(
        channel,
        tag,
        no_ack=bool(method.no_ack),
        exclusive=bool(method.exclusive),
        prefetch=channel.prefetch,
        priority=priority or 0,
        timeout_ms=min((timeout for timeout in timeouts_ms if timeout), default=None),
        cursor=cursor,
    )


def _argument(
    arguments: Table,
    name: str,
    check: Callable[[Field], int],
    queue: ClassicQueue,
    vhost_name: str,
) -> int | None:
    field = arguments.get(name)
    try:
        return None if field is None else check(field)
    except InvalidArgument as error:
        raise PreconditionFailed(
            f"invalid arg '{name}' for queue '{queue.name}' in vhost '{vhost_name}': {error}"
        ) from None


def _reply_queue(channel: ChannelSession, *, no_ack: bool) -> ClassicQueue:
    """The queue behind amq.rabbitmq.reply-to of this channel (direct reply-to)."""
    if not no_ack:
        raise PreconditionFailed("reply consumer cannot acknowledge")
    if channel.publisher.reply_to:
        raise PreconditionFailed("reply consumer already set")
    queue = channel.vhost.add_reply_queue()
    channel.publisher.reply_to = queue.name
    return queue


def cancel(channel: ChannelSession, method: commands.Basic.Cancel) -> None:
    """Remove a consumer; what it was sent stays unacknowledged. An unknown tag is fine."""
    entry = channel.remove_consumer(method.consumer_tag or "")
    if entry is not None:
        consumer, queue, _ = entry
        if queue.name == channel.publisher.reply_to:
            channel.publisher.reply_to = ""
        channel.vhost.cancel(queue, consumer)
    if not method.nowait:
        channel.send(build_method(commands.Basic.CancelOk, consumer_tag=method.consumer_tag))


def cancel_ok(channel: ChannelSession, method: commands.Basic.CancelOk) -> None:
    """The client has seen that we cancelled its consumer."""


def get(channel: ChannelSession, method: commands.Basic.Get) -> None:
    """Fetch one message."""
    name = queue_name(channel, method.queue)
    channel.session.permissions.check(Access.READ, Resource.QUEUE, name)
    queue = channel.vhost.queue(name, channel.session)
    if queue.arguments.queue_type is QueueType.QUORUM and queue.arguments.single_active_consumer:
        raise ResourceLocked(
            f"cannot obtain access to locked queue '{queue.name}' in vhost "
            f"'{channel.vhost.name}'. basic.get operations are not supported by quorum queues "
            "with single active consumer"
        )
    refuse_on_stream(channel.vhost, queue, "basic.get")
    no_ack = bool(method.no_ack)
    queue.used(channel.vhost.turn.now_ms)
    channel.vhost.turn.work_off(queue)
    try:
        taken = queue.get(no_ack=no_ack)
    except (OSError, StorageError) as error:
        channel.vhost.fail_queue(queue, error)
        raise NotFound(queue.stopped) from error
    if taken is None:
        channel.send(commands.Basic.GetEmpty())
        return
    batch, redelivered = taken
    message = channel.addressed(batch)[0][0]
    if redelivered:
        message = b"\x01" + message[1:]
    tag = channel.unacked.issue(1)
    if not no_ack:
        channel.unacked.add(tag, Holder(queue, None), [batch.first_offset])
        channel.fetched += 1
    length = head_length(batch.attributes)
    channel.session.send(encode_get_ok(channel.number, tag, message, length, queue.ready.count))
    channel.vhost.turn.touch(queue)


def ack(channel: ChannelSession, method: commands.Basic.Ack) -> None:
    """Acknowledge everything up to a tag."""
    _settle(channel, method.delivery_tag, Outcome.ACKED, multiple=bool(method.multiple))


def nack(channel: ChannelSession, method: commands.Basic.Nack) -> None:
    """Refuse one or more deliveries."""
    outcome = Outcome.RETURNED if method.requeue else Outcome.REJECTED
    _settle(channel, method.delivery_tag, outcome, multiple=bool(method.multiple))


def reject(channel: ChannelSession, method: commands.Basic.Reject) -> None:
    """Refuse one delivery."""
    outcome = Outcome.FAILED if method.requeue else Outcome.REJECTED
    _settle(channel, method.delivery_tag, outcome, multiple=False)


def _settle(channel: ChannelSession, tag: int | None, outcome: Outcome, *, multiple: bool) -> None:
    if channel.publisher.transaction is not None:
        channel.publisher.transaction.settle(channel.unacked, tag or 0, outcome, multiple=multiple)
    elif multiple:
        channel.settle_up_to(tag or 0, outcome)
    else:
        channel.settle_one(tag or 0, outcome)


def recover(channel: ChannelSession, method: commands.Basic.Recover) -> None:
    """Requeue everything outstanding, and say so."""
    _recover(channel, requeue=bool(method.requeue))
    channel.send(commands.Basic.RecoverOk())


def recover_async(channel: ChannelSession, method: commands.Basic.RecoverAsync) -> None:
    """Requeue everything outstanding."""
    _recover(channel, requeue=bool(method.requeue))


def _recover(channel: ChannelSession, *, requeue: bool) -> None:
    if not requeue:
        raise NotImplementedByBroker("requeue=false")
    channel.requeue_all()


HANDLERS: dict[type[Method], Callable[..., None]] = {
    commands.Basic.Qos: qos,
    commands.Basic.Consume: consume,
    commands.Basic.Cancel: cancel,
    commands.Basic.CancelOk: cancel_ok,
    commands.Basic.Get: get,
    commands.Basic.Ack: ack,
    commands.Basic.Nack: nack,
    commands.Basic.Reject: reject,
    commands.Basic.Recover: recover,
    commands.Basic.RecoverAsync: recover_async,
}
