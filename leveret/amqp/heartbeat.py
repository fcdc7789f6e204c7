"""Heartbeats: when to send one, when the peer is dead (§4.2.7, with the timing of RabbitMQ)."""

SILENT_CHECKS_OF_THE_DEAD = 2


class HeartbeatClock:
    """Watches one connection that agreed on a heartbeat every *interval_s* seconds; 0 is off.

    All times are seconds of one monotonic clock. The caller reports what it sent and received
    once a turn, not once a frame; any bytes count.
    """

    def __init__(self, interval_s: int, now: float) -> None:
        self._interval_s = interval_s
        self._sent_at = now
        self._received_at = now
        self._checked_at = now
        self._silent_checks = 0

    def sent(self, now: float) -> None:
        """Note that bytes went out."""
        self._sent_at = now

    def received(self, now: float) -> None:
        """Note that bytes came in, or that reading resumes after we had stopped it ourselves."""
        self._received_at = now

    def due(self, now: float) -> bool:
        """Return whether to send a heartbeat: nothing went out for half an interval."""
        return self._interval_s > 0 and now - self._sent_at >= self._interval_s / 2

    def is_dead(self, now: float) -> bool:
        """Return whether two checks in a row found that nothing had come in.

        Call it as often as you like: it checks once an interval. A check is silent only if the one
        before it took place, so a pause of our own process does not kill the peer.
        """
        if self._interval_s == 0 or now - self._checked_at < self._interval_s:
            return self._silent_checks >= SILENT_CHECKS_OF_THE_DEAD
        if self._received_at > self._checked_at:
            self._silent_checks = 0
        else:
            self._silent_checks += 1
        self._checked_at = now
        return self._silent_checks >= SILENT_CHECKS_OF_THE_DEAD
