"""Commands about how far the named consumers of a stream have come."""

from collections.abc import Callable

from leveret.broker.broker import Broker
from leveret.broker.commands_vhosts import find_vhost
from leveret.broker.errors import InvalidRequest, NoSuchObject
from leveret.broker.recovery import NotRecovered
from leveret.queues.stream import StreamQueue
from leveret.queues.stream_offsets import StreamOffsets


def list_stream_offsets(broker: Broker, *, vhost: str = "/", queue: str) -> list[dict[str, object]]:
    """Named consumers, where each goes on and how many messages are behind that.

    Raises InvalidRequest, NoSuchObject, NotRecovered.
    """
    stream, offsets = _find(broker, vhost, queue)
    end = stream.ready.end
    return [
        {"name": name, "offset": offset, "lag": max(end - offset, 0)}
        for name, offset in offsets.items()
    ]


def set_stream_offset(
    broker: Broker, *, vhost: str = "/", queue: str, name: str, offset: int
) -> None:
    """Have the consumer called *name* go on at *offset* when it comes next.

    Raises InvalidRequest, NoSuchObject, NotRecovered.
    """
    if not name or offset < 0:
        raise InvalidRequest("a consumer has a name, and an offset is not negative")
    stream, offsets = _find(broker, vhost, queue)
    offsets.set(name, offset)
    broker.turn.touch(stream)


def reset_stream_offset(broker: Broker, *, vhost: str = "/", queue: str, name: str) -> None:
    """Forget the consumer called *name*. Raises InvalidRequest, NoSuchObject, NotRecovered."""
    stream, offsets = _find(broker, vhost, queue)
    try:
        offsets.remove(name)
    except KeyError:
        raise NoSuchObject(f"queue '{queue}' knows no consumer called '{name}'") from None
    broker.turn.touch(stream)


def _find(broker: Broker, vhost_name: str, name: str) -> tuple[StreamQueue, StreamOffsets]:
    vhost = find_vhost(broker, vhost_name)
    queue = vhost.queues.get(name)
    if queue is None:
        raise NoSuchObject(f"queue '{name}' does not exist in vhost '{vhost_name}'")
    if queue in vhost.recovering:
        raise NotRecovered([queue])
    if not isinstance(queue, StreamQueue) or queue.offsets is None:
        raise InvalidRequest(f"queue '{name}' is not a stream that can be read")
    return queue, queue.offsets


COMMANDS: dict[str, Callable[..., object]] = {
    "list_stream_offsets": list_stream_offsets,
    "set_stream_offset": set_stream_offset,
    "reset_stream_offset": reset_stream_offset,
}
