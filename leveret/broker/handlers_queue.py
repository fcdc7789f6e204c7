"""Methods of the class queue (§1.7)."""

from collections.abc import Callable

from pamqp import commands
from pamqp.base import Frame as Method

from leveret.amqp.errors import AccessRefused, NotFound
from leveret.amqp.methods import build_method
from leveret.amqp.properties import DIRECT_REPLY_TO
from leveret.amqp.tables import Table
from leveret.broker.channel_session import ChannelSession
from leveret.broker.handlers_exchange import (
    arguments_of,
    check_binding,
    check_not_default,
    plain_name,
)
from leveret.broker.permissions import Access, Resource
from leveret.broker.stream_consumers import refuse_on_stream
from leveret.broker.vhost import GENERATED_PREFIX, generated_name
from leveret.queues.declaration import QueueDeclaration


def declare(channel: ChannelSession, method: commands.Queue.Declare) -> None:
    """Make a queue, or check that one exists; declare-ok tells its name and counts."""
    name = plain_name(method.queue)
    session = channel.session
    durable = False
    if name.startswith(DIRECT_REPLY_TO):
        _declare_reply_queue(channel, name, nowait=bool(method.nowait))
        return
    if method.passive:
        name = queue_name(channel, name)
        session.permissions.check_any(Resource.QUEUE, name)
        queue = channel.vhost.queue(name, session)
    else:
        _check_declare(channel, name, arguments_of(method.arguments))
        declaration = QueueDeclaration(
            name,
            durable=bool(method.durable),
            exclusive=bool(method.exclusive),
            auto_delete=bool(method.auto_delete),
            arguments=arguments_of(method.arguments),
        )
        queue, durable = channel.vhost.declare_queue(declaration, session)
    channel.last_queue_name = queue.name
    queue.used(channel.vhost.turn.now_ms)
    channel.vhost.turn.work_off(queue)
    reply = build_method(
        commands.Queue.DeclareOk,
        queue=queue.name,
        message_count=queue.ready.count,
        consumer_count=len(queue.consumers),
    )
    channel.reply(reply, nowait=bool(method.nowait), durable=durable)


def _check_declare(channel: ChannelSession, name: str, arguments: Table) -> None:
    permissions = channel.session.permissions
    # A name that is still to be generated is as good as any other of its kind.
    shown = name or generated_name(GENERATED_PREFIX)
    permissions.check(Access.CONFIGURE, Resource.QUEUE, shown)
    dead_letter_exchange = arguments.get("x-dead-letter-exchange")
    if dead_letter_exchange is None or name in channel.vhost.queues:
        return
    if isinstance(dead_letter_exchange.value, str):
        permissions.check(Access.READ, Resource.QUEUE, shown)
        permissions.check(Access.WRITE, Resource.EXCHANGE, dead_letter_exchange.value)


def _declare_reply_queue(channel: ChannelSession, name: str, *, nowait: bool) -> None:
    """Answers whether somebody waits for direct replies under *name*: a probe of RPC servers."""
    if name != DIRECT_REPLY_TO and name not in channel.vhost.queues:
        raise NotFound(f"no queue '{name}' in vhost '{channel.vhost.name}'")
    reply = build_method(commands.Queue.DeclareOk, queue=name, message_count=0, consumer_count=1)
    channel.reply(reply, nowait=nowait, durable=False)


def bind(channel: ChannelSession, method: commands.Queue.Bind) -> None:
    """Bind a queue to an exchange; no queue name is the queue declared last (§1.7.2.3)."""
    check_not_default(method.exchange)
    name = queue_name(channel, method.queue)
    _check_not_volatile(name)
    key = method.routing_key
    if not method.queue and not key:
        key = name
    exchange_name = plain_name(method.exchange)
    check_binding(channel, Resource.QUEUE, name, exchange_name)
    queue = channel.vhost.queue(name, channel.session)
    durable = channel.vhost.bind(exchange_name, queue, key, arguments_of(method.arguments))
    channel.reply(commands.Queue.BindOk(), nowait=bool(method.nowait), durable=durable)


def unbind(channel: ChannelSession, method: commands.Queue.Unbind) -> None:
    """Undo a binding; a missing binding, queue or exchange is fine."""
    check_not_default(method.exchange)
    name = queue_name(channel, method.queue)
    _check_not_volatile(name)
    key = method.routing_key
    if not method.queue and not key:
        key = name
    exchange_name = plain_name(method.exchange)
    check_binding(channel, Resource.QUEUE, name, exchange_name)
    durable = name in channel.vhost.queues and channel.vhost.unbind(
        exchange_name,
        channel.vhost.queue(name, channel.session),
        key,
        arguments_of(method.arguments),
    )
    channel.reply(commands.Queue.UnbindOk(), nowait=False, durable=durable)


def purge(channel: ChannelSession, method: commands.Queue.Purge) -> None:
    """Drop what is ready; what was delivered stays."""
    name = queue_name(channel, method.queue)
    channel.session.permissions.check(Access.READ, Resource.QUEUE, name)
    queue = channel.vhost.queue(name, channel.session)
    refuse_on_stream(channel.vhost, queue, "queue.purge")
    channel.vhost.turn.work_off(queue)
    count = queue.purge()
    channel.vhost.turn.touch(queue)
    channel.reply(commands.Queue.PurgeOk(count), nowait=bool(method.nowait), durable=False)


def delete(channel: ChannelSession, method: commands.Queue.Delete) -> None:
    """Remove a queue; delete-ok tells how many messages went with it."""
    name = queue_name(channel, method.queue)
    channel.session.permissions.check(Access.CONFIGURE, Resource.QUEUE, name)
    count, durable = channel.vhost.delete_queue(
        name,
        channel.session,
        if_unused=bool(method.if_unused),
        if_empty=bool(method.if_empty),
    )
    channel.reply(commands.Queue.DeleteOk(count), nowait=bool(method.nowait), durable=durable)


def queue_name(channel: ChannelSession, name: str) -> str:
    """*name*, or for no name the queue that this channel declared last. Raises NotFound."""
    name = plain_name(name) or channel.last_queue_name
    if not name:
        raise NotFound("no previously declared queue")
    return name


def _check_not_volatile(name: str) -> None:
    if name.startswith(DIRECT_REPLY_TO):
        raise AccessRefused("cannot bind or unbind to a volatile (direct reply-to) queue")


HANDLERS: dict[type[Method], Callable[..., None]] = {
    commands.Queue.Declare: declare,
    commands.Queue.Bind: bind,
    commands.Queue.Unbind: unbind,
    commands.Queue.Purge: purge,
    commands.Queue.Delete: delete,
}
