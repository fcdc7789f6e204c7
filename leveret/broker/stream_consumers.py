"""What a client may do with a stream: consume from a place, with a limit and acknowledgements."""

from pamqp import commands

from leveret.amqp.constants import SHORT_STRING_MAX
from leveret.amqp.errors import NotImplementedByBroker, PreconditionFailed
from leveret.amqp.tables import Field, Table
from leveret.broker.channel_session import ChannelSession
from leveret.broker.handlers_exchange import arguments_of
from leveret.broker.vhost import VHost
from leveret.queues.arguments import InvalidArgument, QueueType
from leveret.queues.classic import ClassicQueue
from leveret.queues.stream import StreamQueue
from leveret.queues.stream_cursor import StreamCursor
from leveret.queues.stream_filter import StreamFilter

CONSUMER_NAME = "x-stream-consumer-name"
FILTER = "x-stream-filter"


def refuse_on_stream(vhost: VHost, queue: ClassicQueue, method: str) -> None:
    """Raise NotImplementedByBroker if *queue* is a stream."""
    if queue.arguments.queue_type is QueueType.STREAM:
        raise NotImplementedByBroker(
            f"{method} not supported by stream queues queue '{queue.name}' in vhost '{vhost.name}'"
        )


def stream_cursor(
    channel: ChannelSession, queue: ClassicQueue, tag: str, method: commands.Basic.Consume
) -> StreamCursor | None:
    """Where the new consumer *tag* of *queue* begins; None if that is no stream.

    Raises NotImplementedByBroker, PreconditionFailed.
    """
    if not isinstance(queue, StreamQueue):
        return None
    where = f"queue '{queue.name}' in vhost '{channel.vhost.name}'"
    if method.no_ack:
        raise NotImplementedByBroker(f"automatic acknowledgement not supported by stream {where}")
    if channel.shared_prefetch:
        raise NotImplementedByBroker(f"{where} does not support global qos")
    if not channel.prefetch:
        raise PreconditionFailed(f"consumer prefetch count is not set for stream {where}")
    arguments = arguments_of(method.arguments)
    argument = CONSUMER_NAME
    try:
        name = _consumer_name(arguments, tag if method.consumer_tag else "")
        argument = FILTER
        wanted = _filter(arguments)
        argument = "x-stream-offset"
        cursor = queue.open_cursor(arguments.get(argument), name, channel.vhost.turn.now_ms)
    except InvalidArgument as error:
        raise PreconditionFailed(f"invalid arg '{argument}' for {where}: {error}") from None
    cursor.filter = wanted
    return cursor


def _consumer_name(arguments: Table, tag: str) -> str:
    """The name under which it is kept how far a consumer has come; empty if it is not kept.

    *tag* is the consumer tag that the client chose, if it did.
    """
    field = arguments.get(CONSUMER_NAME)
    if field is None:
        is_tracked = arguments.get("x-stream-automatic-offset-tracking") == Field("t", True)
        return tag if is_tracked else ""
    if not (isinstance(field.value, str) and 0 < len(field.value.encode()) <= SHORT_STRING_MAX):
        raise InvalidArgument(f"not a name of 1 to {SHORT_STRING_MAX} bytes")
    return field.value


def _filter(arguments: Table) -> StreamFilter | None:
    """What x-stream-filter asks for: a string, or some of them."""
    field = arguments.get(FILTER)
    if field is None:
        return None
    fields = field.value if isinstance(field.value, list) else [field]
    values = [one.value for one in fields if isinstance(one.value, str)]
    if len(values) < len(fields) or not values:
        raise InvalidArgument("not a string, nor an array of strings")
    match_unfiltered = arguments.get("x-stream-match-unfiltered") == Field("t", True)
    return StreamFilter(values, match_unfiltered=match_unfiltered)
