import socket
import threading
from collections.abc import Iterator

import pytest
from pamqp import commands
from pamqp.frame import marshal, unmarshal

from leveret.bench.client import Address, Connection

REPLIES = {
    "Connection.StartOk": commands.Connection.Tune(2047, 131072, 60),
    "Connection.Open": commands.Connection.OpenOk(),
    "Channel.Open": commands.Channel.OpenOk(),
    "Basic.Qos": commands.Basic.QosOk(),
    "Basic.Consume": commands.Basic.ConsumeOk("c"),
}


class ScriptedPeer:
    """The broker's end of one connection: answers methods from REPLIES up to *last*."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.socket: socket.socket | None = None

    def answer(self, last: str) -> None:
        if self.socket is None:
            self.socket, _ = self._listener.accept()
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.recv(8, socket.MSG_WAITALL)
            self.socket.sendall(marshal(commands.Connection.Start(0, 9, {}, "PLAIN", "en_US"), 0))
        name = ""
        while name != last:
            channel, name = self._read()
            if name in REPLIES:
                self.socket.sendall(marshal(REPLIES[name], channel))

    def close(self) -> None:
        self._listener.close()
        if self.socket:
            self.socket.close()

    def _read(self) -> tuple[int, str]:
        assert self.socket
        head = self.socket.recv(7, socket.MSG_WAITALL)
        rest = self.socket.recv(int.from_bytes(head[3:7]) + 1, socket.MSG_WAITALL)
        _, channel, method = unmarshal(head + rest)
        return channel, method.name


@pytest.fixture
def peer() -> Iterator[ScriptedPeer]:
    peer = ScriptedPeer()
    yield peer
    peer.close()


@pytest.fixture
def connection(peer: ScriptedPeer) -> Iterator[Connection]:
    thread = threading.Thread(target=peer.answer, args=("Channel.Open",))
    thread.start()
    connection = Connection(Address("127.0.0.1", peer.port, "guest", "guest", "/"))
    thread.join()
    yield connection
    connection.abort()
