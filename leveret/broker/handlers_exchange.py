"""Methods of the class exchange (§1.6, and RabbitMQ's bind and unbind)."""

from collections.abc import Callable

from pamqp import commands
from pamqp.base import Frame as Method

from leveret.amqp.errors import AccessRefused
from leveret.amqp.tables import Table
from leveret.broker.channel_session import ChannelSession


def declare(channel: ChannelSession, method: commands.Exchange.Declare) -> None:
    """Make an exchange, or check that one exists."""
    name = plain_name(method.exchange)
    check_not_default(name)
    durable = False
    if method.passive:
        channel.vhost.exchange(name)
    else:
        durable = channel.vhost.declare_exchange(
            name,
            method.exchange_type,
            durable=bool(method.durable),
            auto_delete=bool(method.auto_delete),
            internal=bool(method.internal),
            arguments=arguments_of(method.arguments),
        )
    channel.reply(commands.Exchange.DeclareOk(), nowait=bool(method.nowait), durable=durable)


def delete(channel: ChannelSession, method: commands.Exchange.Delete) -> None:
    """Remove an exchange."""
    name = plain_name(method.exchange)
    check_not_default(name)
    durable = channel.vhost.delete_exchange(name, if_unused=bool(method.if_unused))
    channel.reply(commands.Exchange.DeleteOk(), nowait=bool(method.nowait), durable=durable)


def bind(channel: ChannelSession, method: commands.Exchange.Bind) -> None:
    """Bind an exchange to an exchange."""
    check_not_default(method.source)
    check_not_default(method.destination)
    durable = channel.vhost.bind(
        plain_name(method.source),
        channel.vhost.exchange(plain_name(method.destination)),
        method.routing_key,
        arguments_of(method.arguments),
    )
    channel.reply(commands.Exchange.BindOk(), nowait=bool(method.nowait), durable=durable)


def unbind(channel: ChannelSession, method: commands.Exchange.Unbind) -> None:
    """Undo a binding between exchanges; a missing one is fine."""
    check_not_default(method.source)
    check_not_default(method.destination)
    destination = channel.vhost.exchanges.get(plain_name(method.destination))
    durable = destination is not None and channel.vhost.unbind(
        plain_name(method.source), destination, method.routing_key, arguments_of(method.arguments)
    )
    channel.reply(commands.Exchange.UnbindOk(), nowait=bool(method.nowait), durable=durable)


def plain_name(name: str) -> str:
    """A name without the line ends that RabbitMQ drops from it."""
    return name.replace("\r", "").replace("\n", "")


def check_not_default(name: str) -> None:
    """Raise AccessRefused for the default exchange."""
    if not name:
        raise AccessRefused("operation not permitted on the default exchange")


def arguments_of(arguments: object) -> Table:
    """The arguments table of a decoded method."""
    return arguments if isinstance(arguments, dict) else {}


HANDLERS: dict[type[Method], Callable[..., None]] = {
    commands.Exchange.Declare: declare,
    commands.Exchange.Delete: delete,
    commands.Exchange.Bind: bind,
    commands.Exchange.Unbind: unbind,
}
