"""pika's SelectConnection: everything under way at once."""

from collections.abc import Callable

import pika
from pika.channel import Channel
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker, StreamLostError

from tests.conftest import BrokerProcess

DEADLINE_S = 20
PERSISTENT = pika.BasicProperties(delivery_mode=2)
TRANSIENT = pika.BasicProperties(delivery_mode=1)
Finish = Callable[[], None]


def run(broker: BrokerProcess, scenario: Callable[[Channel, Finish], None]) -> Exception:
    """Run *scenario* on a new channel until it finishes; answers why the connection closed."""
    reasons: list[Exception] = []

    def on_open(connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=lambda channel: scenario(channel, connection.close))

    def on_close(connection: pika.SelectConnection, reason: Exception) -> None:
        reasons.append(reason)
        connection.ioloop.stop()

    connection = pika.SelectConnection(
        pika.URLParameters(broker.uri), on_open_callback=on_open, on_close_callback=on_close
    )
    connection.ioloop.call_later(DEADLINE_S, connection.ioloop.stop)
    connection.ioloop.start()
    connection.ioloop.close()
    assert reasons, f"not finished within {DEADLINE_S} s"
    return reasons[0]


class Confirms:
    """Which tags the broker confirmed; fails on one that was never used, or was used up."""

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.count = 0

    def publish(
        self, channel: Channel, queue: str, body: bytes, mode: pika.BasicProperties
    ) -> None:
        channel.basic_publish("", queue, body, mode, mandatory=True)
        self.count += 1
        self.open.add(self.count)

    def settle(self, frame: pika.frame.Method) -> None:
        assert isinstance(frame.method, pika.spec.Basic.Ack)
        tag = frame.method.delivery_tag
        covered = {tag}
        if frame.method.multiple:
            covered = {earlier for earlier in self.open if earlier <= tag}
        assert tag in covered
        self.open -= covered


def test_a_window_of_confirms_while_another_channel_consumes(
    shared_broker: BrokerProcess, name: str
) -> None:
    total, window = 10_000, 1000
    confirms = Confirms()
    received: list[int] = []

    def scenario(channel: Channel, finish: Finish) -> None:
        def publish(_: object = None) -> None:
            while confirms.count < total and len(confirms.open) < window:
                body = str(confirms.count).encode()
                confirms.publish(channel, name, body, PERSISTENT)

        def on_confirm(frame: pika.frame.Method) -> None:
            confirms.settle(frame)
            publish()
            finish_if_done()

        def on_message(channel: Channel, method: object, _: object, body: bytes) -> None:
            received.append(int(body))
            if len(received) % 100 == 0:
                channel.basic_ack(method.delivery_tag, multiple=True)
            finish_if_done()

        def finish_if_done() -> None:
            if len(received) == total == confirms.count and not confirms.open:
                finish()

        def consume(reader: Channel) -> None:
            reader.basic_qos(prefetch_count=500)
            reader.basic_consume(name, on_message)

        channel.queue_declare(name, durable=True)
        channel.confirm_delivery(on_confirm, callback=publish)
        channel.connection.channel(on_open_callback=consume)

    run(shared_broker, scenario)
    assert received == list(range(total))


def test_confirms_of_durable_and_transient_messages_on_one_channel(
    shared_broker: BrokerProcess, name: str
) -> None:
    confirms = Confirms()

    def scenario(channel: Channel, finish: Finish) -> None:
        def on_confirm(frame: pika.frame.Method) -> None:
            confirms.settle(frame)
            if not confirms.open:
                finish()

        def publish(_: object) -> None:
            for number in range(999):
                mode = PERSISTENT if number % 3 else TRANSIENT
                queue = (f"{name}-durable", f"{name}-transient")[number % 2]
                confirms.publish(channel, queue, b"m", mode)

        channel.queue_declare(f"{name}-durable", durable=True)
        channel.queue_declare(f"{name}-transient")
        channel.confirm_delivery(on_confirm, callback=publish)

    run(shared_broker, scenario)
    assert (confirms.count, confirms.open) == (999, set())


def test_a_return_comes_before_its_confirm(shared_broker: BrokerProcess) -> None:
    events: list[str] = []

    def scenario(channel: Channel, finish: Finish) -> None:
        confirms = Confirms()

        def on_confirm(frame: pika.frame.Method) -> None:
            confirms.settle(frame)
            events.append("confirm")
            finish()

        channel.add_on_return_callback(lambda *_: events.append("return"))
        channel.confirm_delivery(
            on_confirm,
            callback=lambda _: confirms.publish(channel, "no such queue", b"", PERSISTENT),
        )

    run(shared_broker, scenario)
    assert events == ["return", "confirm"]


def test_methods_without_wait_take_effect_in_order(shared_broker: BrokerProcess, name: str) -> None:
    """Without a callback pika sets nowait, and sends everything in one go."""
    received: list[tuple[str, bytes]] = []

    def scenario(channel: Channel, finish: Finish) -> None:
        def on_message(_: Channel, method: object, __: object, body: bytes) -> None:
            received.append((method.consumer_tag, body))
            if body == b"last":
                channel.queue_delete(name, callback=lambda _: finish())

        def publish(_: object) -> None:
            for key, body in (("a.1", b"first"), ("b.1", b"unbound"), ("a.2", b"last")):
                channel.basic_publish(name, key, body)

        def consume(_: object) -> None:
            channel.basic_cancel("gone")
            channel.basic_consume(
                name, on_message, auto_ack=True, consumer_tag="there", callback=publish
            )

        channel.exchange_declare(name, "topic", auto_delete=True)
        channel.exchange_bind(name, "amq.fanout", "")
        channel.queue_declare(name)
        channel.queue_bind(name, name, "a.*")
        channel.basic_publish(name, "a.1", b"purged")
        channel.queue_purge(name)
        channel.queue_bind(name, name, "b.*")
        channel.basic_publish(name, "b.1", b"purged too")
        channel.queue_purge(name)
        channel.queue_unbind(name, name, "b.*")  # always waits
        channel.basic_consume(name, on_message, consumer_tag="gone", callback=consume)

    run(shared_broker, scenario)
    assert received == [("there", b"first"), ("there", b"last")]


def test_fifty_channels_publish_and_consume_at_once(
    shared_broker: BrokerProcess, name: str
) -> None:
    received: dict[int, list[int]] = {}

    def scenario(first: Channel, finish: Finish) -> None:
        def use(channel: Channel) -> None:
            queue = f"{name}-{channel.channel_number}"
            mine = received.setdefault(channel.channel_number, [])

            def on_message(channel: Channel, method: object, _: object, body: bytes) -> None:
                mine.append(int(body))
                channel.basic_ack(method.delivery_tag)
                if len(received) == 50 and all(len(each) == 40 for each in received.values()):
                    finish()

            channel.queue_declare(queue, exclusive=True)
            channel.basic_qos(prefetch_count=7)
            channel.basic_consume(queue, on_message)
            for number in range(40):
                channel.basic_publish("", queue, str(number).encode())

        for _ in range(50):
            first.connection.channel(on_open_callback=use)

    run(shared_broker, scenario)
    assert list(received.values()) == [list(range(40))] * 50


def test_a_closed_channel_tells_why_and_the_next_one_works(shared_broker: BrokerProcess) -> None:
    reasons: list[Exception] = []

    def scenario(channel: Channel, finish: Finish) -> None:
        def on_close(_: Channel, reason: Exception) -> None:
            reasons.append(reason)
            channel.connection.channel(
                on_open_callback=lambda again: again.queue_declare(
                    "", exclusive=True, callback=lambda _: finish()
                )
            )

        channel.add_on_close_callback(on_close)
        for number in range(100):  # what follows the failing publish is ignored
            channel.basic_publish("no such exchange", str(number), b"body" * 100)

    run(shared_broker, scenario)
    [reason] = reasons
    assert isinstance(reason, ChannelClosedByBroker)
    assert reason.reply_code == 404


def test_a_killed_broker_is_a_lost_stream(broker: BrokerProcess) -> None:
    reason = run(
        broker, lambda channel, _: channel.queue_declare("", callback=lambda _: broker.kill())
    )
    assert isinstance(reason, StreamLostError)


def test_a_hard_error_closes_the_connection(shared_broker: BrokerProcess) -> None:
    reason = run(shared_broker, lambda channel, _: channel.basic_qos(prefetch_size=9))
    assert isinstance(reason, ConnectionClosedByBroker)
    assert reason.reply_code == 540
