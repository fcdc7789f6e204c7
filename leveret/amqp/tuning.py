"""Tuning: the limits of a connection, offered by us and lowered by the peer (§1.4.2.5)."""

from dataclasses import dataclass

from leveret.amqp.constants import (
    DEFAULT_CHANNEL_MAX,
    DEFAULT_FRAME_MAX,
    DEFAULT_HEARTBEAT_S,
    FRAME_MIN_SIZE,
)
from leveret.amqp.errors import NotAllowed


@dataclass(frozen=True, slots=True)
class Tuning:
    """Channel numbers up to `channel_max`, frames of up to `frame_max` bytes; 0 is no limit."""

    channel_max: int = DEFAULT_CHANNEL_MAX
    frame_max: int = DEFAULT_FRAME_MAX
    heartbeat_s: int = DEFAULT_HEARTBEAT_S

    def agreed(self, channel_max: int, frame_max: int, heartbeat_s: int) -> "Tuning":
        """What the peer answered to this offer. Raises NotAllowed where it asks for more.

        Heartbeat: whatever the peer says, also more, or 0 for none.
        """
        _check_limit("channel_max", channel_max, self.channel_max)
        _check_limit("frame_max", frame_max, self.frame_max)
        if frame_max and frame_max < FRAME_MIN_SIZE:
            raise NotAllowed(
                f"negotiated frame_max = {frame_max} is lower than the minimum allowed value "
                f"({FRAME_MIN_SIZE})"
            )
        return Tuning(channel_max, frame_max, heartbeat_s)


def _check_limit(name: str, asked: int, limit: int) -> None:
    if limit and (asked > limit or not asked):
        shown = asked or "0 (no limit)"
        raise NotAllowed(
            f"negotiated {name} = {shown} is higher than the maximum allowed value ({limit})"
        )
