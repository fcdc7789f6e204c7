"""Tuning: the peer may lower what is offered, never raise it; heartbeats are its choice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.amqp.errors import NotAllowed
from leveret.amqp.tuning import Tuning

OFFER = Tuning(2047, 131072, 60)


@given(st.integers(1, 2047), st.integers(4096, 131072), st.integers(0, 65535))
def test_what_is_within_the_offer_is_agreed(channel_max, frame_max, heartbeat_s):
    agreed = OFFER.agreed(channel_max, frame_max, heartbeat_s)
    assert agreed == Tuning(channel_max, frame_max, heartbeat_s)


@pytest.mark.parametrize(
    ("channel_max", "frame_max", "text"),
    [
        (3000, 131072, "channel_max = 3000 is higher than the maximum allowed value (2047)"),
        (0, 131072, "channel_max = 0 (no limit) is higher than the maximum allowed value (2047)"),
        (2047, 131073, "frame_max = 131073 is higher than the maximum allowed value (131072)"),
        (2047, 0, "frame_max = 0 (no limit) is higher than the maximum allowed value (131072)"),
        (2047, 4095, "frame_max = 4095 is lower than the minimum allowed value (4096)"),
        (2047, 1, "frame_max = 1 is lower than the minimum allowed value (4096)"),
    ],
)
def test_what_is_outside_is_refused_with_both_numbers(channel_max, frame_max, text):
    with pytest.raises(NotAllowed) as refusal:
        OFFER.agreed(channel_max, frame_max, 60)
    assert refusal.value.explanation == f"negotiated {text}"


@given(st.integers(0, 65535), st.integers(4096, 2**32 - 1) | st.just(0))
def test_an_offer_without_limits_is_taken_at_any_value(channel_max, frame_max):
    assert Tuning(0, 0, 0).agreed(channel_max, frame_max, 5) == Tuning(channel_max, frame_max, 5)
