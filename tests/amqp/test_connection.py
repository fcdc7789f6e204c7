"""Connection: every state and every input, and the same however the bytes are cut (§2.2.4)."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from leveret.amqp.connection import (
    BLIND_LINGER_S,
    CLOSE_OK_LIMIT_S,
    INITIAL_FRAME_MAX,
    ConnectionState,
)
from leveret.amqp.constants import PROTOCOL_HEADER
from leveret.amqp.errors import HardError, LoginRefused, NotFound
from leveret.amqp.frames import HEARTBEAT_FRAME, encode_frame
from leveret.amqp.methods import build_method, decode_method
from leveret.amqp.tuning import Tuning
from tests.amqp.recorder import (
    ALL_METHODS,
    CLOSE,
    CLOSE_OK,
    HANDSHAKE,
    OPEN,
    START_OK,
    TUNE_OK,
    Recorder,
    channel_frame,
    cut,
    header_frame,
    in_state,
    method_frame,
    opened,
    plain,
    publish_frames,
)

State = ConnectionState


def outcome(state: State, data: bytes) -> str:
    """What is sent, how the broker hangs up and which state follows, in one line."""
    recorder = in_state(state)
    recorder.connection.receive_data(data)
    words = recorder.sent()
    if recorder.lingers:
        words.append(f"linger {recorder.lingers[-1]:g}")
    if recorder.connection.state is not state:
        words.append(recorder.connection.state.name)
    return ", ".join(words)


SILENCE = f"linger {BLIND_LINGER_S:g}, CLOSED"
ON_CHANNEL_0 = {
    (State.AWAIT_START_OK, "Connection.StartOk"): "tune, AWAIT_TUNE_OK",
    (State.AWAIT_TUNE_OK, "Connection.TuneOk"): "AWAIT_OPEN",
    (State.AWAIT_OPEN, "Connection.Open"): "openok, OPEN",
    (State.AWAIT_OPEN, "Connection.Close"): "closeok, linger 0, CLOSED",
    (State.OPEN, "Connection.Close"): "closeok, linger 0, CLOSED",
    (State.OPEN, "Connection.UpdateSecret"): "updatesecretok",
    (State.CLOSING, "Connection.Close"): "closeok, linger 0, CLOSED",
    (State.CLOSING, "Connection.CloseOk"): "linger 0, CLOSED",
}
# What any other frame leads to.
ELSE = {
    State.AWAIT_HEADER: "header, linger 0, CLOSED",
    State.AWAIT_START_OK: SILENCE,
    State.AWAIT_VERDICT: SILENCE,
    State.AWAIT_TUNE_OK: SILENCE,
    State.AWAIT_OPEN: "close {code}, linger {linger}, CLOSING",
    State.OPEN: "close {code}, linger {linger}, CLOSING",
    State.CLOSING: "",
    State.CLOSED: "",
}


def otherwise(state: State, code: int, linger: float = CLOSE_OK_LIMIT_S) -> str:
    return ELSE[state].format(code=code, linger=f"{linger:g}")


@pytest.mark.parametrize("state", State)
def test_every_method_on_channel_0(state):
    for cls in ALL_METHODS:
        expected = ON_CHANNEL_0.get((state, cls.name)) or otherwise(state, 504)
        assert outcome(state, channel_frame(0, cls)) == expected, cls.name


@pytest.mark.parametrize("state", [state for state in State if state is not State.OPEN])
def test_every_method_on_a_channel_before_and_after_the_connection_is_open(state):
    for cls in ALL_METHODS:
        assert outcome(state, channel_frame(1, cls)) == otherwise(state, 505), cls.name


# The code of the connection.close once there is somebody to tell; "." for what is let pass.
OTHER_INPUT = {
    "heartbeat": (HEARTBEAT_FRAME, "."),
    "heartbeat on a channel": (encode_frame(8, 1, b""), "505"),
    "header on channel 0": (header_frame(0, 1), "505"),
    "body on channel 0": (encode_frame(3, 0, b"body"), "505"),
    "no method": (encode_frame(1, 0, b""), "501"),
    "unknown method": (encode_frame(1, 0, b"\x00\x0a\x00\x63"), "503"),
    "unknown class": (encode_frame(1, 0, b"\x00\x63\x00\x0a"), "503"),
    "undecodable method": (encode_frame(1, 0, b"\x00\x0a\x00\x28\x05a"), "501"),
}
# The same for what makes it impossible to say where the next frame begins.
BROKEN_FRAMES = {
    "unknown type": b"\x00\x00\x00\x00\x00\x00\x00\xce",
    "wrong end": HEARTBEAT_FRAME[:-1] + b"\x00",
    "too large": b"\x01\x00\x00\xff\xff\xff\xff",
    "text": b"GET / HTTP/1.1\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "header again": PROTOCOL_HEADER,
}


@pytest.mark.parametrize("name", OTHER_INPUT)
def test_every_other_frame(name):
    data, code = OTHER_INPUT[name]
    for state in State:
        lets_pass = code == "." and state is not State.AWAIT_HEADER
        expected = "" if lets_pass else otherwise(state, int(code.replace(".", "0")))
        assert outcome(state, data) == expected, state


@pytest.mark.parametrize("name", BROKEN_FRAMES)
def test_every_broken_frame(name):
    for state in State:
        expected = otherwise(state, 501, BLIND_LINGER_S)
        if state is State.AWAIT_HEADER and name == "header again":
            expected = "start, AWAIT_START_OK"
        assert outcome(state, BROKEN_FRAMES[name]) == expected, state


def test_nothing_is_read_behind_a_broken_frame():
    for state in State:
        recorder = in_state(state)
        recorder.connection.receive_data(BROKEN_FRAMES["unknown type"])
        recorder.sent()
        recorder.calls.clear()
        recorder.connection.receive_data(HANDSHAKE + CLOSE + CLOSE_OK)
        assert recorder.sent() == []
        assert recorder.calls == []


def test_the_end_of_the_socket_is_noticed_once_in_every_state():
    for state in State:
        recorder = in_state(state)
        recorder.connection.lost()
        recorder.connection.lost()
        told = {State.OPEN: [("channel closed", 1), ("closed",)]}.get(state, [("closed",)])
        assert recorder.calls == ([] if state in (State.CLOSING, State.CLOSED) else told), state
        assert recorder.connection.state is State.CLOSED


def test_a_close_of_ours_goes_out_once_in_every_state():
    for state in State:
        recorder = in_state(state)
        recorder.connection.close(HardError("stop"))
        recorder.connection.close(HardError("stop"))
        over = state in (State.CLOSING, State.CLOSED)
        assert recorder.sent() == ([] if over else ["close 541"])
        assert recorder.connection.channels == {}


# ---- handshake


def test_a_client_may_send_its_whole_handshake_at_once():
    recorder = Recorder()
    recorder.connection.receive_data(HANDSHAKE + channel_frame(1, commands.Channel.Open))
    assert recorder.sent() == ["start", "tune", "openok", "channel.openok"]


def test_any_octet_that_is_not_the_header_is_answered_by_it_at_once():
    for place in range(len(PROTOCOL_HEADER)):
        right = PROTOCOL_HEADER[:place]
        recorder = Recorder()
        recorder.connection.receive_data(right)
        assert recorder.sent() == []
        recorder.connection.receive_data(bytes([PROTOCOL_HEADER[place] ^ 1]))
        assert recorder.sent() == ["header"]
        assert recorder.lingers == [0]


def test_the_verdict_may_come_late():
    recorder = in_state(State.AWAIT_VERDICT)
    recorder.connection.accept_login()
    recorder.connection.accept_login()
    assert recorder.sent() == ["tune"]
    recorder.connection.receive_data(TUNE_OK + OPEN)
    assert recorder.sent() == ["openok"]


def test_a_refused_login_is_explained_to_who_can_take_it():
    recorder = in_state(State.AWAIT_VERDICT)
    recorder.connection.refuse_login(LoginRefused("no"))
    close = decode_method(cut(recorder.output)[0][2])
    assert (close.reply_code, close.reply_text) == (403, "ACCESS_REFUSED - no")
    assert (close.class_id, close.method_id) == (0, 0)


def test_a_refused_login_is_silent_otherwise():
    recorder = in_state(State.AWAIT_VERDICT)
    recorder.connection.refuse_login(None)
    recorder.connection.receive_data(TUNE_OK)
    assert recorder.sent() == []
    assert recorder.lingers == [BLIND_LINGER_S]


@pytest.mark.parametrize("refuse", [True, False])
def test_a_verdict_that_comes_too_late_changes_nothing(refuse):
    recorder = in_state(State.AWAIT_VERDICT)
    recorder.connection.lost()
    if refuse:
        recorder.connection.refuse_login(LoginRefused("no"))
    else:
        recorder.connection.accept_login()
    assert recorder.sent() == []
    assert recorder.connection.state is State.CLOSED


def tune_ok(channel_max, frame_max):
    return method_frame(
        0,
        build_method(
            commands.Connection.TuneOk, channel_max=channel_max, frame_max=frame_max, heartbeat=5
        ),
    )


def test_too_much_asked_in_tune_ok_is_refused_in_the_name_of_tune():
    recorder = in_state(State.AWAIT_TUNE_OK)
    recorder.connection.receive_data(tune_ok(3000, 131072))
    close = decode_method(cut(recorder.output)[0][2])
    assert close.reply_code == 530
    assert close.reply_text.startswith("NOT_ALLOWED - negotiated channel_max = 3000 is higher")
    assert (close.class_id, close.method_id) == (10, 30)


def test_an_unknown_vhost_closes_the_connection():
    recorder = in_state(State.AWAIT_OPEN)
    missing = build_method(
        commands.Connection.Open, virtual_host="missing", capabilities="", insist=False
    )
    recorder.connection.receive_data(method_frame(0, missing))
    close = decode_method(cut(recorder.output)[0][2])
    assert (close.reply_code, close.class_id, close.method_id) == (530, 10, 40)
    assert close.reply_text == "NOT_ALLOWED - vhost missing not found"


def test_frames_are_small_until_the_tuning():
    for state in (State.AWAIT_START_OK, State.AWAIT_VERDICT, State.AWAIT_TUNE_OK, State.AWAIT_OPEN):
        recorder = in_state(state)
        recorder.connection.receive_data(b"\x01\x00\x00" + INITIAL_FRAME_MAX.to_bytes(4, "big"))
        assert recorder.connection.state is state
        recorder = in_state(state)
        size = (INITIAL_FRAME_MAX + 1).to_bytes(4, "big")
        recorder.connection.receive_data(b"\x01\x00\x00" + size)
        assert recorder.connection.state in (State.CLOSING, State.CLOSED)


# ---- open


@pytest.mark.parametrize("cuts", ["whole", "by the frame"])
@pytest.mark.parametrize(("excess", "sent"), [(0, []), (1, ["close 501"])])
def test_a_payload_up_to_frame_max_is_taken_however_it_was_received(excess, sent, cuts):
    recorder = Recorder()
    recorder.connection.receive_data(
        PROTOCOL_HEADER + START_OK + tune_ok(10, 4096) + OPEN + channel_frame(1, CHANNEL_OPEN)
    )
    recorder.sent()
    data = publish_frames(1, body=bytes(4096 + excess))
    for _ in range(2):
        frames = [encode_frame(*frame) for frame in cut(data)]
        for piece in frames if cuts == "by the frame" else [data]:
            recorder.connection.receive_data(piece)
    assert recorder.sent() == sent


CHANNEL_OPEN = commands.Channel.Open


def test_channels_are_as_many_as_negotiated():
    recorder = opened(channels=0, tuning=Tuning(channel_max=10))
    for number in range(1, 11):
        recorder.connection.receive_data(channel_frame(number, CHANNEL_OPEN))
    assert recorder.sent() == ["channel.openok"] * 10
    recorder.connection.receive_data(channel_frame(11, CHANNEL_OPEN))
    close = decode_method(cut(recorder.output)[0][2])
    assert close.reply_text == (
        "NOT_ALLOWED - number of channels opened (10) has reached the negotiated channel_max (10)"
    )
    assert (close.class_id, close.method_id) == (20, 10)


def test_a_close_ends_a_connection_in_the_middle_of_a_content():
    recorder = opened()
    recorder.connection.receive_data(channel_frame(1, commands.Basic.Publish) + header_frame(1, 9))
    recorder.connection.receive_data(CLOSE + encode_frame(3, 1, bytes(9)))
    assert recorder.sent() == ["closeok"]
    assert recorder.calls == [("channel closed", 1), ("closed",)]


def test_a_soft_error_closes_its_channel_alone():
    recorder = opened(channels=2)
    recorder.connection.close_channel(1, NotFound("gone"), 50, 10)
    assert recorder.sent() == ["channel.close 404"]
    assert recorder.calls == [("channel closed", 1)]
    assert recorder.connection.channels[2].is_open
    assert recorder.connection.state is State.OPEN


def declare(name: str) -> bytes:
    method = plain(commands.Queue.Declare)
    method.queue = name
    return method_frame(1, method)


def test_a_held_connection_reads_nothing_until_it_is_released():
    recorder = opened()
    recorder.connection.receive_data(declare("durable") + declare("a") + declare("durable")[:5])
    recorder.connection.receive_data(declare("durable")[5:] + publish_frames(1))
    assert [call[2]["queue"] for call in recorder.calls] == ["durable"]
    assert recorder.connection.is_held
    recorder.connection.release()
    assert [call[2]["queue"] for call in recorder.calls] == ["durable", "a", "durable"]
    assert recorder.connection.is_held
    recorder.connection.release()
    assert not recorder.connection.is_held
    assert recorder.calls[-1][0] == "publish"


def test_a_held_connection_that_is_lost_reads_nothing_more():
    recorder = opened()
    recorder.connection.receive_data(declare("durable") + declare("a"))
    recorder.connection.lost()
    recorder.calls.clear()
    recorder.connection.release()
    assert recorder.calls == []


def test_a_held_connection_that_we_close_reads_on_for_the_answer():
    recorder = opened()
    recorder.connection.receive_data(declare("durable") + declare("a"))
    recorder.connection.close(HardError("stop"))
    recorder.connection.receive_data(CLOSE_OK)
    assert recorder.connection.state is State.CLOSED
    assert [call[0] for call in recorder.calls] == ["Queue.Declare", "channel closed", "closed"]


def test_a_fault_of_ours_ends_the_connection_and_nothing_else():
    class Faulty(Recorder):
        def open_channel(self, number):
            raise RuntimeError("a bug")

    recorder = Faulty()
    recorder.connection.receive_data(HANDSHAKE)
    recorder.sent()
    recorder.connection.receive_data(
        channel_frame(1, CHANNEL_OPEN) + channel_frame(2, CHANNEL_OPEN)
    )
    assert recorder.sent() == ["close 541"]
    assert recorder.connection.state is State.CLOSING


# ---- the same however the bytes are cut


def steps() -> st.SearchStrategy[bytes]:
    """A frame or a few, most of them welcome."""
    channels = st.integers(0, 3)
    small = st.integers(0, 40).map(bytes)
    return st.one_of(
        st.builds(
            publish_frames,
            channels,
            st.sampled_from(["", "e", "missing"]),
            st.sampled_from(["q", "a.b", "é"]),
            small,
        ),
        st.builds(
            lambda number, tag, multiple: method_frame(
                number, commands.Basic.Ack(tag, multiple=multiple)
            ),
            channels,
            st.integers(0, 5),
            st.booleans(),
        ),
        st.builds(channel_frame, channels, st.sampled_from(ALL_METHODS)),
        st.builds(
            channel_frame,
            channels,
            st.sampled_from([CHANNEL_OPEN, commands.Channel.Close, commands.Channel.CloseOk]),
        ),
        st.sampled_from(["missing", "hard", "durable", "a"]).map(declare),
        st.sampled_from([data for data, _ in OTHER_INPUT.values()]),
        st.sampled_from(list(BROKEN_FRAMES.values())),
        st.just(HEARTBEAT_FRAME),
        st.binary(max_size=20),
    )


def run_of(pieces, *, is_open):
    """What is sent, what the broker is told, and how it ends."""
    recorder = opened(channels=2) if is_open else Recorder()
    for piece in pieces:
        recorder.connection.receive_data(piece)
        while recorder.connection.is_held:
            recorder.connection.release()
    return shown(recorder.output), recorder.calls, recorder.connection.state, recorder.lingers


def shown(output):
    """The methods sent. An unknown type is refused at once, with as many octets as are there."""
    if output.startswith(b"AMQP"):
        return output
    methods = [(number, decode_method(payload)) for _, number, payload in cut(output)]
    octets = re.compile("first 16 octets = .*>>")
    return [(number, method.name, octets.sub("", str(dict(method)))) for number, method in methods]


@st.composite
def conversations(draw):
    """Bytes of a client, of which any prefix may be missing, and where to cut them."""
    is_open = draw(st.booleans())
    frames = [] if is_open else [PROTOCOL_HEADER, START_OK, TUNE_OK, OPEN]
    frames = frames[: draw(st.integers(0, 4))] if draw(st.integers(0, 4)) == 0 else frames
    data = b"".join(frames + draw(st.lists(steps(), max_size=12)))
    cuts = draw(st.lists(st.integers(0, len(data)), max_size=8).map(sorted))
    return is_open, data, cuts


@settings(max_examples=150)
@given(conversations())
def test_calls_and_bytes_are_the_same_however_the_input_is_cut(conversation):
    is_open, data, cuts = conversation
    whole = run_of([data], is_open=is_open)
    bounds = [0, *cuts, len(data)]
    pieces = [data[start:stop] for start, stop in pairwise(bounds)]
    assert run_of(pieces, is_open=is_open) == whole
    assert run_of([bytes([octet]) for octet in data], is_open=is_open) == whole
