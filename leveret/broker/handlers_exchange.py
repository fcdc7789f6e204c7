"""Methods of the class exchange (§1.6, and RabbitMQ's bind and unbind)."""

from collections.abc import Callable

from pamqp import commands
from pamqp.base import Frame as Method

from leveret.amqp.errors import AccessRefused
from leveret.amqp.tables import Table
from leveret.broker.channel_session import ChannelSession
from leveret.broker.permissions import Access, Resource
from leveret.exchanges.exchange import ALTERNATE_EXCHANGE


def declare(channel: ChannelSession, method: commands.Exchange.Declare) -> None:
    """Make an exchange, or check that one exists."""
    name = plain_name(method.exchange)
    check_not_default(name)
    durable = False
    if method.passive:
        channel.session.permissions.check_any(Resource.EXCHANGE, name)
        channel.vhost.exchange(name)
    else:
        _check_declare(channel, name, arguments_of(method.arguments))
        durable = channel.vhost.declare_exchange(
            name,
            method.exchange_type,
            durable=bool(method.durable),
            auto_delete=bool(method.auto_delete),
            internal=bool(method.internal),
            arguments=arguments_of(method.arguments),
        )
    channel.reply(commands.Exchange.DeclareOk(), nowait=bool(method.nowait), durable=durable)


def _check_declare(channel: ChannelSession, name: str, arguments: Table) -> None:
    permissions = channel.session.permissions
    permissions.check(Access.CONFIGURE, Resource.EXCHANGE, name)
    alternate = arguments.get(ALTERNATE_EXCHANGE)
    if alternate is None or name in channel.vhost.exchanges:
        return
    if isinstance(alternate.value, str):
        permissions.check(Access.READ, Resource.EXCHANGE, name)
        permissions.check(Access.WRITE, Resource.EXCHANGE, alternate.value)


def delete(channel: ChannelSession, method: commands.Exchange.Delete) -> None:
    """Remove an exchange."""
    name = plain_name(method.exchange)
    check_not_default(name)
    channel.session.permissions.check(Access.CONFIGURE, Resource.EXCHANGE, name)
    durable = channel.vhost.delete_exchange(name, if_unused=bool(method.if_unused))
    channel.reply(commands.Exchange.DeleteOk(), nowait=bool(method.nowait), durable=durable)


def bind(channel: ChannelSession, method: commands.Exchange.Bind) -> None:
    """Bind an exchange to an exchange."""
    source_name, destination_name = _ends(channel, method)
    durable = channel.vhost.bind(
        source_name,
        channel.vhost.exchange(destination_name),
        method.routing_key,
        arguments_of(method.arguments),
    )
    channel.reply(commands.Exchange.BindOk(), nowait=bool(method.nowait), durable=durable)


def unbind(channel: ChannelSession, method: commands.Exchange.Unbind) -> None:
    """Undo a binding between exchanges; a missing one is fine."""
    source_name, destination_name = _ends(channel, method)
    destination = channel.vhost.exchanges.get(destination_name)
    durable = destination is not None and channel.vhost.unbind(
        source_name, destination, method.routing_key, arguments_of(method.arguments)
    )
    channel.reply(commands.Exchange.UnbindOk(), nowait=bool(method.nowait), durable=durable)


def _ends(
    channel: ChannelSession, method: commands.Exchange.Bind | commands.Exchange.Unbind
) -> tuple[str, str]:
    """The names of source and destination, checked."""
    check_not_default(method.source)
    check_not_default(method.destination)
    source_name, destination_name = plain_name(method.source), plain_name(method.destination)
    check_binding(channel, Resource.EXCHANGE, destination_name, source_name)
    return source_name, destination_name


def check_binding(
    channel: ChannelSession, resource: Resource, destination_name: str, source_name: str
) -> None:
    """Raise AccessRefused unless the user may bind and unbind the two."""
    permissions = channel.session.permissions
    permissions.check(Access.WRITE, resource, destination_name)
    permissions.check(Access.READ, Resource.EXCHANGE, source_name)


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
