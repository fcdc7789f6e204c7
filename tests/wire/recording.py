"""Recorder: stands between clients and a broker, and keeps what the clients send."""

import socket
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector
from threading import Thread

from leveret.conformance.clients import use_pika_blocking as scenarios

RECORDED = (
    scenarios.publish_and_consume,
    scenarios.confirms,
    scenarios.mandatory_return,
    scenarios.nack_and_requeue,
    scenarios.prefetch,
    scenarios.rpc,
    scenarios.transactions,
    scenarios.errors,
    scenarios.reopen,
)


class Recorder:
    """Passes connections on to the broker at *port*; `streams` is what each client has sent."""

    def __init__(self, port: int) -> None:
        self.streams: list[bytearray] = []
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads: list[Thread] = []
        self._start(self._accept)

    def close(self) -> None:
        """Take no more connections, and wait for the end of those there are."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _start(self, run, *arguments) -> None:
        self._threads.append(Thread(target=run, args=arguments))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self._target))
                self.streams.append(bytearray())
                self._start(pass_on, client, broker, self.streams[-1])


def pass_on(client: socket.socket, broker: socket.socket, sent: bytearray) -> None:
    """Pass bytes on between both until one of them hangs up; *sent* gets the client's."""
    with client, broker, suppress(ConnectionError), DefaultSelector() as selector:
        selector.register(client, EVENT_READ, (client, broker, sent))
        selector.register(broker, EVENT_READ, (broker, client, bytearray()))
        while True:
            for key, _ in selector.select():
                source, target, kept = key.data
                data = source.recv(65536)
                if not data:
                    return
                kept += data
                target.sendall(data)


def record(port: int) -> list[bytes]:
    """What pika sends to a broker in everyday scenarios, a stream for each connection."""
    recorder = Recorder(port)
    try:
        for scenario in RECORDED:
            scenario(f"amqp://guest:guest@127.0.0.1:{recorder.port}/")
    finally:
        recorder.close()
    return [bytes(stream) for stream in recorder.streams]
