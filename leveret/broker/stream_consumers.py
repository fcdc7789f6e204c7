"""What a client may do with a stream: consume from a place, with a limit and acknowledgements."""

from leveret.amqp.errors import NotImplementedByBroker, PreconditionFailed
from leveret.amqp.tables import Table
from leveret.broker.channel_session import ChannelSession
from leveret.broker.vhost import VHost
from leveret.queues.arguments import InvalidArgument, QueueType
from leveret.queues.classic import ClassicQueue
from leveret.queues.stream import StreamQueue
from leveret.queues.stream_cursor import StreamCursor


def refuse_on_stream(vhost: VHost, queue: ClassicQueue, method: str) -> None:
    """Raise NotImplementedByBroker if *queue* is a stream."""
    if queue.arguments.queue_type is QueueType.STREAM:
        raise NotImplementedByBroker(
            f"{method} not supported by stream queues queue '{queue.name}' in vhost '{vhost.name}'"
        )


def stream_cursor(
    channel: ChannelSession, queue: ClassicQueue, arguments: Table, *, no_ack: bool
) -> StreamCursor | None:
    """Where a new consumer of *queue* begins; None if that is no stream.

    Raises NotImplementedByBroker, PreconditionFailed.
    """
    if not isinstance(queue, StreamQueue):
        return None
    where = f"queue '{queue.name}' in vhost '{channel.vhost.name}'"
    if no_ack:
        raise NotImplementedByBroker(f"automatic acknowledgement not supported by stream {where}")
    if channel.shared_prefetch:
        raise NotImplementedByBroker(f"{where} does not support global qos")
    if not channel.prefetch:
        raise PreconditionFailed(f"consumer prefetch count is not set for stream {where}")
    try:
        offset = queue.place_of(arguments.get("x-stream-offset"), channel.vhost.turn.now_ms)
    except InvalidArgument as error:
        raise PreconditionFailed(f"invalid arg 'x-stream-offset' for {where}: {error}") from None
    return StreamCursor(offset)
