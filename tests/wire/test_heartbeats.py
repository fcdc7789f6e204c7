"""Heartbeats over a real socket, with the shortest interval that can be agreed on."""

from tests.wire.raw import HEARTBEAT


def test_one_is_sent_in_every_interval(connect):
    """A client that hears nothing for two of them takes the broker for dead."""
    received = connect(1, heartbeat=1).receive_bytes()  # until we are taken for dead ourselves
    assert received in (HEARTBEAT * 2, HEARTBEAT * 3)
