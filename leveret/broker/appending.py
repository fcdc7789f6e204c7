"""Appending messages to a queue that may be full."""

from typing import TypeAlias

from leveret.broker.turn import Turn
from leveret.queues.classic import ClassicQueue

Refusals: TypeAlias = dict[ClassicQueue, list[int]]
"""Queues, and the places of the messages that each refuses."""


def publish(
    queue: ClassicQueue, messages: list[bytes], attributes: int, length: int, turn: Turn
) -> list[int]:
    """Append *messages* to *queue*; answers the places of those that it refuses.

    A full queue whose consumers can take what it holds is given the time for it.
    """
    waits = len(queue.consumers) > 0
    refused = queue.publish(messages, attributes, length, turn.now_ms, in_order=waits)
    turn.touch(queue)
    if not refused:
        return []
    places = list(refused)
    if waits:
        places = _try_again(queue, messages, places, attributes, turn)
    if places:
        queue.refuse([messages[place] for place in places], attributes, turn.now_ms)
    return places


def _try_again(
    queue: ClassicQueue, messages: list[bytes], places: list[int], attributes: int, turn: Turn
) -> list[int]:
    """Let consumers make room for as long as they do; answers the places of what does not fit."""

    def append(*, in_order: bool) -> list[int]:
        rest = [messages[place] for place in places]
        left = queue.publish(rest, attributes, 0, turn.now_ms, in_order=in_order)
        turn.touch(queue)
        return [places[at] for at in left]

    is_moving = True
    while places and is_moving and queue.consumers.in_turn():
        turn.work_off(queue)
        left = append(in_order=True)
        is_moving = len(left) < len(places)
        places = left
    return append(in_order=False) if places else places
