import pytest

from leveret.bench.client import Address, Connection
from leveret.bench.errors import BenchError

from .conftest import ScriptedPeer


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("amqp://h", Address("h", 5672, "guest", "guest", "/")),
        ("amqp://h:1/", Address("h", 1, "guest", "guest", "/")),
        ("amqp://a%40b:c%2Fd@h/x%2Fy", Address("h", 5672, "a@b", "c/d", "x/y")),
        ("amqp://[::1]:7/%2F", Address("::1", 7, "guest", "guest", "/")),
    ],
)
def test_uri_names_the_broker(uri: str, address: Address) -> None:
    assert Address.parse(uri) == address


@pytest.mark.parametrize("uri", ["", "h:5672", "http://h/", "amqps://h/", "amqp://h:99999/"])
def test_a_wrong_uri_is_named_in_the_error(uri: str) -> None:
    with pytest.raises(BenchError, match=f"^{uri}"):
        Address.parse(uri)


def test_a_connection_that_ends_is_an_error(connection: Connection, peer: ScriptedPeer) -> None:
    peer.close()
    with pytest.raises(BenchError, match="closed the connection"):
        connection.buffer.receive(connection.socket)


def test_a_message_above_the_buffer_size_makes_it_grow(
    connection: Connection, peer: ScriptedPeer
) -> None:
    assert peer.socket
    buffer = connection.buffer
    size = len(buffer.data)
    sent = 0
    for _ in range(64):
        piece = bytes([sent % 251]) * 16384
        peer.socket.sendall(piece)
        sent += len(piece)
        while buffer.end - buffer.start < sent:
            buffer.receive(connection.socket)
    assert len(buffer.data) > size
    assert bytes(buffer.data[buffer.start : buffer.end : 16384]) == bytes(
        at % 251 for at in range(0, sent, 16384)
    )
