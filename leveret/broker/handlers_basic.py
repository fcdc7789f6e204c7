"""Methods of the class basic, all but publish and the plain ack (§1.8)."""

from collections.abc import Callable

from pamqp import commands
from pamqp.base import Frame as Method

from leveret.amqp.errors import AccessRefused, NotAllowed, NotImplementedByBroker
from leveret.amqp.fastpath import encode_get_ok
from leveret.amqp.message import head_length
from leveret.amqp.methods import build_method
from leveret.broker.channel_session import ChannelSession
from leveret.broker.handlers_queue import queue_name
from leveret.broker.unacked import Holder
from leveret.broker.vhost import generated_name
from leveret.queues.consumers import Consumer


def qos(channel: ChannelSession, method: commands.Basic.Qos) -> None:
    """Limit what may be unacknowledged: each later consumer, or with global the whole channel."""
    if method.prefetch_size:
        raise NotImplementedByBroker(f"prefetch_size!=0 ({method.prefetch_size})")
    count = method.prefetch_count or 0
    if method.global_:
        channel.shared_prefetch = count
        channel.wake_consumers()
    else:
        channel.prefetch = count
    channel.send(commands.Basic.QosOk())


def consume(channel: ChannelSession, method: commands.Basic.Consume) -> None:
    """Add a consumer; consume-ok precedes its first delivery."""
    queue = channel.vhost.queue(queue_name(channel, method.queue), channel.session)
    tag = method.consumer_tag or generated_name("amq.ctag-")
    if tag in channel.consumers:
        raise NotAllowed(f"attempt to reuse consumer tag '{tag}'")
    if queue.consumers.is_exclusive or (method.exclusive and len(queue.consumers)):
        raise AccessRefused(
            f"queue '{queue.name}' in vhost '{channel.vhost.name}' in exclusive use"
        )
    consumer = Consumer(
        channel,
        tag,
        no_ack=bool(method.no_ack),
        exclusive=bool(method.exclusive),
        prefetch=channel.prefetch,
    )
    channel.consumers[tag] = (consumer, queue, Holder(queue, consumer))
    if not method.nowait:
        channel.send(build_method(commands.Basic.ConsumeOk, consumer_tag=tag))
    queue.consumers.add(consumer)
    channel.vhost.turn.touch(queue)


def cancel(channel: ChannelSession, method: commands.Basic.Cancel) -> None:
    """Remove a consumer; what it was sent stays unacknowledged. An unknown tag is fine."""
    entry = channel.consumers.pop(method.consumer_tag or "", None)
    if entry is not None:
        consumer, queue, _ = entry
        channel.vhost.cancel(queue, consumer)
    if not method.nowait:
        channel.send(build_method(commands.Basic.CancelOk, consumer_tag=method.consumer_tag))


def cancel_ok(channel: ChannelSession, method: commands.Basic.CancelOk) -> None:
    """The client has seen that we cancelled its consumer."""


def get(channel: ChannelSession, method: commands.Basic.Get) -> None:
    """Fetch one message."""
    queue = channel.vhost.queue(queue_name(channel, method.queue), channel.session)
    no_ack = bool(method.no_ack)
    channel.vhost.turn.flush(queue)
    taken = queue.get(no_ack=no_ack)
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
    _settle(channel, method.delivery_tag or 0, multiple=bool(method.multiple), requeue=False)


def nack(channel: ChannelSession, method: commands.Basic.Nack) -> None:
    """Refuse one or more deliveries."""
    _settle(
        channel,
        method.delivery_tag or 0,
        multiple=bool(method.multiple),
        requeue=bool(method.requeue),
    )


def reject(channel: ChannelSession, method: commands.Basic.Reject) -> None:
    """Refuse one delivery."""
    _settle(channel, method.delivery_tag or 0, multiple=False, requeue=bool(method.requeue))


def _settle(channel: ChannelSession, tag: int, *, multiple: bool, requeue: bool) -> None:
    if channel.transaction is not None:
        channel.transaction.settle(channel.unacked, tag, multiple=multiple, requeue=requeue)
    elif multiple:
        channel.settle_up_to(tag, requeue=requeue)
    else:
        channel.settle_one(tag, requeue=requeue)


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
