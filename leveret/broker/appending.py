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
    refused = queue.publish(messages, attributes, length, turn.now_ms)
    turn.touch(queue)
    if not refused:
        return []
    places = _try_again(queue, messages, list(refused), attributes, turn)
    if places:
        queue.refuse([messages[place] for place in places], attributes, turn.now_ms)
    return places


def _try_again(
    queue: ClassicQueue, messages: list[bytes], places: list[int], attributes: int, turn: Turn
) -> list[int]:
    while len(queue.consumers):
        waiting = queue.ready.count
        turn.work_off(queue)
        again = queue.publish([messages[place] for place in places], attributes, 0, turn.now_ms)
        turn.touch(queue)
        if len(again) == len(places) and queue.ready.count >= waiting:
            break
        places = [places[place] for place in again]
        if not places:
            break
    return places
