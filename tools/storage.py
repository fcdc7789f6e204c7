"""Measure what long queues, many queues and many acknowledgements cost on this machine.

    python tools/storage.py [NAME ...]

Each figure comes from a broker of its own in an empty directory. Prints Markdown. Exit code: 0 if
all that is required is met, 1 if not. It takes some minutes and 3 GB of disk.
"""

import argparse
import random
import sys
import time
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path

from pamqp import commands

from leveret.bench.client import Address, Connection
from leveret.bench.frames import CONFIRM_SIZE, PublishBatch, encode_ack, read_confirms

# With PYTHONSAFEPATH set, as the Makefile has it, Python does not look beside the script.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from own_broker import Broker, empty_directory, markdown, verdict

BODY_BYTES = 100
BODY_FRAME = 3
QUEUE = "storage"
MEASURED_S = 4.0

Row = tuple[str, ...]


class Client:
    """One connection to *broker*; with confirms, of which *window* may be outstanding."""

    def __init__(self, broker: Broker, window: int = 20_000) -> None:
        self.connection = Connection(Address.parse(f"amqp://guest:guest@127.0.0.1:{broker.port}/"))
        self.connection.socket.settimeout(120)
        self._window = window
        self.sent = self.confirmed = 0
        self.waits_s = array("d")
        """How long each confirm was waited for, since the last `forget`."""
        self._times: array[float] = array("d")

    def declare(self, *queues: str, durable: bool = True) -> None:
        """Declare *queues*."""
        for queue in queues:
            self.connection.call(commands.Queue.Declare(queue=queue, durable=durable))

    def publish(
        self, queues: list[str], count: int, rate: float = 0, *, persistent: bool = True
    ) -> float:
        """Publish *count* messages to *queues* in turn; answers the messages per second.

        All of them are confirmed then. *rate* of 0 means as fast as it goes.
        """
        if not self.sent:
            self.connection.call(commands.Confirm.Select())
        step = 1 if rate else min(500, self._window)
        batch = PublishBatch(
            "",
            queues,
            BODY_BYTES,
            capacity=step,
            frame_max=self.connection.frame_max,
            is_persistent=persistent,
            is_unique=False,
        )
        begin = time.monotonic()
        end = self.sent + count
        while self.sent < end:
            due = begin + (self.sent - end + count) / rate if rate else 0.0
            while self.sent - self.confirmed >= self._window or time.monotonic() < due:
                self._read(due)
            frames = batch.fill(self.sent, min(step, end - self.sent), time.time_ns(), 0)
            number = len(frames) // batch.stride
            self._times.extend([time.monotonic()] * number)
            self.connection.socket.sendall(frames)
            self.sent += number
        while self.confirmed < end:
            self._read(0)
        return count / (time.monotonic() - begin)

    def _read(self, due: float) -> None:
        """Read confirms, until *due* at most."""
        left_s = due - time.monotonic()
        self.connection.socket.settimeout(max(left_s, 0.0001) if due and left_s > 0 else 120)
        try:
            self.connection.buffer.receive(self.connection.socket)
        except TimeoutError:
            return
        finally:
            self.connection.socket.settimeout(120)
        buffer = self.connection.buffer
        now = time.monotonic()
        confirms = read_confirms(buffer.data, buffer.start, buffer.end)
        buffer.start += len(confirms) * CONFIRM_SIZE
        for tag, multiple in confirms:
            assert multiple or tag == self.confirmed + 1, "confirms come in order"
            self.waits_s.extend(now - sent for sent in self._times[self.confirmed : tag])
            self.confirmed = tag

    def forget(self) -> None:
        """Measure anew from here on."""
        self.waits_s = array("d")

    def get(self, queue: str) -> bool:
        """Fetch one message; answers whether there was one."""
        reply = self.connection.call(commands.Basic.Get(queue=queue))
        return isinstance(reply, commands.Basic.GetOk)

    def take(self, queue: str, count: int) -> None:
        """Have *count* messages delivered and leave them unacknowledged."""
        self.connection.call(commands.Basic.Qos(prefetch_count=0))
        self.connection.call(commands.Basic.Consume(queue=queue))
        buffer, taken = self.connection.buffer, 0
        while taken < count:
            if (frame := buffer.take_frame()) is None:
                buffer.receive(self.connection.socket)
            else:
                taken += frame[0] == BODY_FRAME

    def acknowledge(self, tags: list[int]) -> None:
        """Acknowledge *tags*, one by one, and wait until that is done."""
        sendall = self.connection.socket.sendall
        for place in range(0, len(tags), 10_000):
            part = tags[place : place + 10_000]
            sendall(b"".join(encode_ack(tag, multiple=False) for tag in part))
        self.connection.call(commands.Basic.Qos(prefetch_count=1))

    def close(self) -> None:
        """Hang up."""
        self.connection.abort()


def long_queue() -> list[Row]:
    """10,000,000 messages in one queue."""
    million = 1_000_000
    with empty_directory() as directory:
        broker = Broker(directory)
        idle_mb = broker.resident_mb
        client = Client(broker)
        client.declare(QUEUE)
        rates = []
        for _ in range(10):
            rates.append(client.publish([QUEUE], million))
            client.forget()
        full_mb = broker.resident_mb
        client.close()
        broker.stop()
        clean_s, broker = _first_delivery_s(directory)
        broker.kill()
        kill_s, broker = _first_delivery_s(directory)
        restarted_mb = broker.resident_mb
        broker.kill()
    return [
        _row("published with confirms, the first million, msgs/s", rates[0]),
        _row("the last million to the first", rates[-1] / rates[0], "", at_least=0.9),
        _row("memory above that of an idle broker", full_mb - idle_mb, "MB", at_most=60),
        _row("the same after the restarts", restarted_mb - idle_mb, "MB", at_most=60),
        _row("clean restart to the first delivery", clean_s, "s", at_most=1),
        _row("restart after SIGKILL to the first delivery", kill_s, "s", at_most=3),
    ]


def _first_delivery_s(directory: Path) -> tuple[float, Broker]:
    begin = time.monotonic()
    broker = Broker(directory)
    client = Client(broker)
    assert client.get(QUEUE)
    passed_s = time.monotonic() - begin
    client.close()
    return passed_s, broker


def many_queues() -> list[Row]:
    """10,000 durable queues with 100 messages each."""
    names = [f"{QUEUE}-{number:05}" for number in range(10_000)]
    with empty_directory() as directory:
        broker = Broker(directory)
        client = Client(broker)
        begin = time.monotonic()
        client.declare(*names)
        declared_s = time.monotonic() - begin
        rate = client.publish(names, 100 * len(names))
        full_mb = broker.resident_mb
        client.close()
        begin = time.monotonic()
        broker.stop()
        stop_s = time.monotonic() - begin
        clean_s, clean_mb = _all_there(directory, names)
        kill_s, kill_mb = _all_there(directory, names)
    return [
        _row("declared, queues/s", len(names) / declared_s),
        _row("published with confirms to all in turn, msgs/s", rate),
        _row("memory with all of them", full_mb, "MB"),
        _row("clean stop", stop_s, "s"),
        _row("clean restart until every queue has answered", clean_s, "s", at_most=5),
        _row("memory then", clean_mb, "MB", at_most=250),
        _row("the same after SIGKILL", kill_s, "s", at_most=5),
        _row("memory then", kill_mb, "MB", at_most=250),
    ]


def _all_there(directory: Path, names: list[str]) -> tuple[float, float]:
    """Start; answers the time until each queue told its length, and the memory; kill."""
    begin = time.monotonic()
    broker = Broker(directory)
    client = Client(broker)
    for name in names:
        reply = client.connection.call(commands.Queue.Declare(queue=name, passive=True))
        assert isinstance(reply, commands.Queue.DeclareOk)
        assert reply.message_count == 100, f"{name}: {reply.message_count} messages"
    passed_s = time.monotonic() - begin
    memory_mb = broker.resident_mb
    broker.kill()
    return passed_s, memory_mb


def queues_at_once() -> list[Row]:
    """1,000 queues written at once, beside one."""
    names = [f"{QUEUE}-{number:03}" for number in range(1000)]
    rows = []
    with empty_directory() as directory:
        broker = Broker(directory)
        for window, rate in ((1000, 0.0), (1000, 5000.0)):
            client = Client(broker, window)
            client.declare(QUEUE, *names)
            waits_ms = []
            for queues in ([QUEUE], names):
                client.publish(queues, 2000)
                client.forget()
                speed = client.publish(queues, int(MEASURED_S * (rate or 20_000)), rate)
                waits = sorted(client.waits_s)
                waits_ms.append(waits[len(waits) * 99 // 100] * 1000)
                how = f"{rate:,.0f} msgs/s" if rate else "1,000 outstanding"
                rows.append(_row(f"{how}, {len(queues):,} queues: msgs/s", speed))
                rows.append(_row("confirm p99", waits_ms[-1], "ms"))
            rows.append(_row("1,000 queues to one", waits_ms[1] / waits_ms[0], "x", at_most=3))
            client.close()
        broker.kill()
    return rows


def acknowledgements() -> list[Row]:
    """1,000,000 messages acknowledged in random order."""
    rows = []
    with empty_directory() as directory:
        broker = Broker(directory)
        client = Client(broker)
        client.declare(QUEUE)
        for count in (500_000, 1_000_000):
            client.publish([QUEUE], count)
            client.close()
            client = Client(broker)
            before_mb = broker.resident_mb
            client.take(QUEUE, count)
            unacked_mb = broker.resident_mb - before_mb
            # All but the last, so that the segments stay.
            tags = list(range(1, count, 2)) + list(range(2, count, 2))
            random.Random(1).shuffle(tags)
            tags = tags[: count * 9 // 10]
            begin = time.monotonic()
            client.acknowledge(tags)
            rate = len(tags) / (time.monotonic() - begin)
            client.close()
            state_mb = sum(path.stat().st_size for path in directory.rglob("*.state")) / 1e6
            rows += [
                _row(f"{count:,} unacknowledged: memory", unacked_mb, "MB"),
                _row("acknowledged at random, one by one, acks/s", rate),
                _row("size of the states on disk", state_mb, "MB"),
            ]
            broker.kill()
            restart_s, broker = _first_delivery_s(directory)
            rows.append(_row("restart after SIGKILL to the first delivery", restart_s, "s"))
            client = Client(broker)
            client.connection.call(commands.Queue.Delete(queue=QUEUE))
            client.declare(QUEUE)
        broker.kill()
    return rows


def _row(
    title: str,
    value: float,
    unit: str = "",
    *,
    at_most: float | None = None,
    at_least: float | None = None,
) -> Row:
    shown = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    if at_most is not None:
        return title, f"{shown} {unit}", f"≤ {at_most} {unit}", verdict(is_met=value <= at_most)
    if at_least is not None:
        return title, f"{shown} {unit}", f"≥ {at_least} {unit}", verdict(is_met=value >= at_least)
    return title, f"{shown} {unit}", "", ""


FIGURES: Mapping[str, Callable[[], list[Row]]] = {
    "long": long_queue,
    "many": many_queues,
    "at-once": queues_at_once,
    "acks": acknowledgements,
}


def main() -> int:
    """Measure, print, and say whether all is met."""
    parser = argparse.ArgumentParser(description="Measure the storage.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FIGURES)}")
    names = parser.parse_args().names or list(FIGURES)
    is_met = True
    for name in names:
        rows = FIGURES[name]()
        title = (FIGURES[name].__doc__ or "").rstrip(".")
        print(markdown(f"| {title} | | required | met |", rows), flush=True)
        is_met &= not any("**no**" in row for row in rows)
    return int(not is_met)


if __name__ == "__main__":
    sys.exit(main())
