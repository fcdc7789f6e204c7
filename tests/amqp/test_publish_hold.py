"""Publishes that are held back: what overtakes them, what waits, and how it all comes out."""

import pytest
from pamqp import commands

from leveret.amqp.connection import ConnectionState
from leveret.amqp.constants import ReplyCode
from leveret.amqp.methods import build_method
from leveret.amqp.publish_hold import HOLD_LIMIT, PASSES, Admission, Barrier
from tests.amqp.recorder import (
    ALL_METHODS,
    CLOSE,
    Recorder,
    channel_frame,
    header_frame,
    method_frame,
    opened,
    plain,
    publish_frames,
)

ACK = channel_frame(1, commands.Basic.Ack)
COMMIT = channel_frame(1, commands.Tx.Commit)
GET = channel_frame(1, commands.Basic.Get)


def held(channels: int = 1, admission: Admission = Admission.HELD) -> Recorder:
    recorder = opened(channels)
    recorder.connection.admit(admission)
    return recorder


def publish(key: str, channel: int = 1, exchange: str = "", size: int = 1) -> bytes:
    return publish_frames(channel, exchange=exchange, key=key, body=bytes(size))


def declare(queue: str, channel: int = 1) -> bytes:
    values = dict(plain(commands.Queue.Declare)) | {"queue": queue}
    return method_frame(channel, build_method(commands.Queue.Declare, **values))


def take(recorder: Recorder) -> list[object]:
    """What the broker was told since the last time: names, of publishes the routing key."""
    calls, recorder.calls[:] = list(recorder.calls), []
    found: list[object] = []
    for name, *rest in calls:
        if name == "publish":
            method = rest[1]
            assert isinstance(method, bytes)
            exchange_end = 3 + method[2]
            found.append(method[exchange_end + 1 : -1].decode())
        elif name == "refuse":
            found.append(f"refuse {rest[0]}")
        else:
            found.append(name)
    return found


def test_publishes_wait_and_come_out_in_order() -> None:
    recorder = held()
    receive = recorder.connection.receive_data
    receive(publish("a") + publish("a") + publish("b"))
    receive(publish("c")[:20])
    receive(publish("c")[20:])
    assert take(recorder) == ["blocked"]
    recorder.connection.admit(Admission.FREE)
    assert take(recorder) == ["a", "a", "b", "c"]
    receive(publish("d"))
    assert take(recorder) == ["d"]
    assert recorder.sent() == []


def test_who_does_not_publish_is_not_concerned() -> None:
    recorder = held()
    recorder.connection.receive_data(ACK + GET + declare("q"))
    assert take(recorder) == ["ack", "Basic.Get", "Queue.Declare"]
    recorder.connection.admit(Admission.REFUSED)
    recorder.connection.admit(Admission.FREE)
    assert take(recorder) == []


def test_the_peer_is_told_once_an_alarm() -> None:
    recorder = held()
    receive, admit = recorder.connection.receive_data, recorder.connection.admit
    receive(publish("a"))
    receive(publish("b"))
    admit(Admission.REFUSED)
    receive(publish("c"))
    assert take(recorder) == ["blocked"]
    admit(Admission.FREE)
    admit(Admission.HELD)
    take(recorder)
    receive(publish("d"))
    assert take(recorder) == ["blocked"]


@pytest.mark.parametrize("method", ALL_METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize(
    ("before", "barrier"),
    [
        (b"", Barrier.PUBLISH),
        (GET, Barrier.METHOD),
        (COMMIT, Barrier.COMMIT),
        (GET + COMMIT + GET, Barrier.COMMIT),
    ],
)
def test_every_method_behind_a_held_publish(
    method: type[commands.Basic.Ack], before: bytes, barrier: Barrier
) -> None:
    """It overtakes all that waits, or comes behind it."""
    if method in (commands.Basic.Publish, commands.Channel.Open):
        return
    expected = opened()
    expected.connection.receive_data(publish("a") + before + channel_frame(1, method))
    recorder = held()
    recorder.connection.receive_data(publish("a") + before)
    assert take(recorder) == ["blocked"]
    recorder.connection.receive_data(channel_frame(1, method))
    if recorder.connection.state is not ConnectionState.OPEN:
        return  # not a method for a channel, nor for a server
    overtaken = take(recorder)
    if PASSES.get(method, Barrier.NOTHING) >= barrier:
        assert len(overtaken) == 1
        assert overtaken == take(expected)[-1:]
        return
    if method is commands.Channel.CloseOk:
        return
    assert overtaken == []
    recorder.connection.admit(Admission.FREE)
    assert take(recorder) == take(expected)
    assert recorder.output == expected.output


def test_a_run_of_acks_overtakes() -> None:
    recorder = held()
    ack = method_frame(1, build_method(commands.Basic.Ack, delivery_tag=7, multiple=True))
    recorder.connection.receive_data(publish("a") + ACK * 3 + ack + ACK)
    assert take(recorder) == ["blocked", "ack", "ack", "ack", "Basic.Ack", "ack"]
    recorder.connection.receive_data(COMMIT + ACK * 2)
    assert take(recorder) == []
    recorder.connection.admit(Admission.FREE)
    assert take(recorder) == ["a", "Tx.Commit", "ack", "ack"]


def test_other_channels_do_not_wait() -> None:
    recorder = held(2)
    recorder.connection.receive_data(publish("a") + declare("q", 1) + declare("q", 2))
    recorder.connection.receive_data(channel_frame(3, commands.Channel.Open) + publish("c", 3))
    assert take(recorder) == ["blocked", "Queue.Declare", "channel opened"]
    recorder.connection.receive_data(channel_frame(2, commands.Channel.Close))
    assert take(recorder) == ["channel closed"]
    recorder.connection.admit(Admission.FREE)
    assert take(recorder) == ["a", "Queue.Declare", "c"]


def test_closing_waits_for_what_is_held() -> None:
    recorder = held(2)
    receive = recorder.connection.receive_data
    receive(publish("a") + channel_frame(1, commands.Channel.Close) + publish("b", 2) + CLOSE)
    assert take(recorder) == ["blocked"]
    assert recorder.sent() == []
    recorder.connection.admit(Admission.FREE)
    assert take(recorder) == ["a", "channel closed", "b", "channel closed", "closed"]
    assert recorder.sent() == ["channel.closeok", "closeok"]
    assert recorder.connection.state is ConnectionState.CLOSED


def test_an_empty_hold_does_not_keep_a_connection_open() -> None:
    recorder = held()
    recorder.connection.receive_data(CLOSE)
    assert recorder.sent() == ["closeok"]


@pytest.mark.parametrize("end", ["lost", "our close", "our channel close"])
def test_what_is_held_goes_with_its_channel(end: str) -> None:
    recorder = held(2)
    connection = recorder.connection
    connection.receive_data(publish("a") + publish("b", 2))
    if end == "lost":
        connection.lost()
    elif end == "our close":
        connection.receive_data(b"\xff" * 8)
    else:
        connection.receive_data(header_frame(1, 1))
    take(recorder)
    connection.admit(Admission.FREE)
    assert "a" not in take(recorder)
    assert not connection.is_held


def test_an_error_of_a_held_publish_closes_its_channel_alone() -> None:
    recorder = held(2)
    connection = recorder.connection
    connection.receive_data(publish("a") + publish("b", exchange="missing") + publish("c"))
    connection.receive_data(publish("d", 2) + CLOSE)
    connection.admit(Admission.FREE)
    assert take(recorder) == [
        "blocked",
        "a",
        "channel closed",
        "d",
        "channel closed",
        "closed",
    ]
    assert recorder.sent() == [f"channel.close {ReplyCode.NOT_FOUND.value}", "closeok"]


def test_a_reply_that_waits_for_the_disk_holds_back_the_rest() -> None:
    recorder = held()
    connection = recorder.connection
    connection.receive_data(publish("a") + declare("durable") + publish("b"))
    connection.receive_data(publish("c"))
    connection.admit(Admission.FREE)
    assert take(recorder) == ["blocked", "a", "Queue.Declare"]
    connection.receive_data(publish("d"))
    assert take(recorder) == []
    connection.release()
    assert take(recorder) == ["b", "c", "d"]
    connection.receive_data(publish("e"))
    assert take(recorder) == ["e"]


# ---- the hard limit


def test_publishers_with_confirms_are_refused() -> None:
    recorder = held(2)
    connection = recorder.connection
    recorder.confirming = {1}
    connection.receive_data(publish("a") + publish("a") + publish("b", 2) + declare("q"))
    assert take(recorder) == ["blocked"]
    connection.admit(Admission.REFUSED)
    assert take(recorder) == ["refuse 1", "refuse 1", "Queue.Declare"]
    connection.receive_data(publish("c") + publish("d", 2) + GET)
    assert take(recorder) == ["refuse 1", "Basic.Get"]
    connection.admit(Admission.HELD)
    connection.receive_data(publish("e"))
    connection.admit(Admission.FREE)
    assert take(recorder) == ["e", "b", "d"]


def test_confirms_that_were_asked_for_later_do_not_count() -> None:
    recorder = held()
    connection = recorder.connection
    connection.receive_data(publish("a") + channel_frame(1, commands.Confirm.Select))
    connection.receive_data(publish("b"))
    connection.admit(Admission.REFUSED)
    assert take(recorder) == ["blocked"]
    connection.admit(Admission.FREE)
    assert take(recorder) == ["a", "Confirm.Select", "b"]


# ---- the bound


def test_no_more_is_read_when_too_much_is_held() -> None:
    recorder = held()
    connection = recorder.connection
    connection.receive_data(publish("a", size=HOLD_LIMIT // 2))
    assert not connection.is_held
    connection.receive_data(publish("b", size=HOLD_LIMIT // 2))
    assert connection.is_held
    connection.admit(Admission.FREE)
    assert not connection.is_held
    assert take(recorder) == ["blocked", "a", "b"]


def test_small_messages_count_for_more_than_their_bytes() -> None:
    recorder = held()
    count = HOLD_LIMIT // 200
    recorder.connection.receive_data(publish("a", size=0) * count)
    assert recorder.connection.is_held


def test_a_large_message_is_not_read_to_its_end() -> None:
    recorder = held()
    connection = recorder.connection
    data = publish("a", size=3 * HOLD_LIMIT)
    connection.receive_data(data[:HOLD_LIMIT])
    assert not connection.is_held
    connection.receive_data(data[HOLD_LIMIT : 2 * HOLD_LIMIT])
    assert connection.is_held
    recorder.confirming = {1}
    connection.admit(Admission.REFUSED)
    assert not connection.is_held, "it is read to its end to be refused"
    connection.receive_data(data[2 * HOLD_LIMIT :])
    assert take(recorder) == ["blocked", "refuse 1"]
