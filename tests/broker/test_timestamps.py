"""Timestamps of the broker: on all messages, on those without, and on none."""

import pytest

from leveret.amqp.message import body_size, header_payload, split_message
from leveret.amqp.properties import PropertyView
from leveret.amqp.tables import Field
from leveret.broker.timestamps import Timestamping
from tests.broker.peer import Peer
from tests.broker.test_duplicates import declare, open_channel
from tests.broker.world import World


@pytest.mark.parametrize(
    ("rule", "own", "expected"),
    [
        (Timestamping.NEVER, None, None),
        (Timestamping.MISSING, None, 1000),
        (Timestamping.MISSING, 77, 77),
        (Timestamping.ALWAYS, 77, 1000),
    ],
)
def test_messages_are_stamped_as_asked(
    world: World, rule: Timestamping, own: int | None, expected: int | None
) -> None:
    world.timestamping = rule
    peer: Peer = open_channel(world)
    declare(peer, "q")
    peer.publish(1, "q", b"one", b"two", headers={"k": "v"}, timestamp=own)
    taken = world.vhost.queues["q"].get(no_ack=True)
    assert taken is not None
    batch = taken[0]
    properties = PropertyView(header_payload(batch.payloads[0], batch.attributes))
    assert properties.timestamp == expected
    headers = properties.headers or {}
    assert headers["k"] == Field("S", "v")
    is_ours = expected == 1000
    assert headers.get("timestamp_in_ms") == (Field("l", 1_000_000) if is_ours else None)
    assert split_message(batch.attributes, batch.payloads[0]).body == b"one"
    assert body_size(batch.payloads[0], batch.attributes) == 3
