"""Errors of the handshake (rows 1 to 15 of the catalogue)."""

from collections.abc import Iterable

from pamqp import commands

from leveret.conformance.case import Chapter, Met, Seen, judge
from leveret.conformance.cases.connection import (
    MANAGED,
    NO_WORD,
    close_or_end,
    greeted,
    logged_in,
)
from leveret.conformance.cases.refusals import judge_words, refusal, refused_for
from leveret.conformance.cases.tenants import arrive, new_user, new_vhost, permit
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import (
    HEARTBEAT,
    PROTOCOL_HEADER,
    Wire,
    connection_closed,
    content,
    frame,
    method,
    start_ok,
)

chapter = Chapter("errors-handshake")
Connection = commands.Connection
LOGIN_REFUSED = connection_closed(
    403,
    "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
    "For details see the broker logfile.",
)


def _expect_silence_and_the_end(ground: Ground, sent: Iterable[bytes]) -> None:
    """Send each to a connection that was greeted: there is no answer, and soon the end.

    Brokers take their time for that, so all wait together.
    """
    wires: list[Wire] = []
    for data in sent:
        wires.append(greeted(ground))
        wires[-1].send(data)
    for wire in wires:
        wire.expect_end()


@chapter.case("error-1", spec="AMQP 0 0 9 1, and the end", rabbitmq="the same; 4.x: AMQP 3 1 0 0")
def other_protocols(ground: Ground) -> Seen:
    """Whatever else begins a connection, the header of AMQP comes back."""
    seen = set()
    greetings = (
        b"GET / \r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"AMQP\x00\x00\x09\x02",
        b"AMQP\x01\x01\x00\x0a",
        b"AMQP\x09\x09\x09\x09",
        b"\0\0\0\0\0\0\0\0",
    )
    for greeting in greetings:
        wire = ground.raw()
        wire.send(greeting)
        seen.add(wire.receive_bytes())
    if seen == {b"AMQP\x03\x01\x00\x00"}:
        return Seen(Met.RABBITMQ, "AMQP 3 1 0 0")
    return judge(seen, spec={PROTOCOL_HEADER})


@chapter.case("error-2", rabbitmq="the connection ends after 10 s", limit_s=15.0)
def handshake_takes_too_long(ground: Ground) -> None:
    """A client that does not say anything, or not enough, is not waited for."""
    silent, half = ground.raw(), greeted(ground)
    silent.expect_end()
    half.expect_end()


@chapter.case("error-3", spec="no word", rabbitmq="403 Login was refused ...")
def wrong_password(ground: Ground) -> Seen:
    """A client that can take a close for a failed login gets one."""
    user = ground.facilities.address.user
    for name in (user, "conformance-nobody"):
        wire = greeted(ground)
        wire.send(method(0, start_ok(name, "wrong")))
        seen = judge(close_or_end(wire), spec=NO_WORD, rabbitmq=LOGIN_REFUSED)
    return seen


@chapter.case("error-4", spec=NO_WORD)
def wrong_password_of_an_older_client(ground: Ground) -> None:
    """Other clients with wrong credentials hear nothing."""
    wrong = start_ok(password="wrong", can_close=False)
    _expect_silence_and_the_end(ground, [method(0, wrong)])


@chapter.case("error-6", spec=NO_WORD)
def unusable_logins(ground: Ground) -> None:
    """A mechanism that was not offered and a malformed response end the connection."""
    logins = (
        start_ok(mechanism="CRAM-MD5"),
        start_ok(mechanism=""),
        start_ok(response="guest"),
    )
    _expect_silence_and_the_end(ground, (method(0, one) for one in logins))


@chapter.case(
    "error-7", spec=NO_WORD, rabbitmq="530 negotiated channel_max = 3000 ...; 3.x: no word"
)
def too_many_channels(ground: Ground) -> Seen:
    """A channel-max above the broker's, or without a limit, is refused."""
    values = {3000: "3000", 0: "0 (no limit)"}
    return _tunings(ground, [("channel_max", value, text) for value, text in values.items()])


@chapter.case("error-8", spec=NO_WORD, rabbitmq="530 negotiated frame_max = X ...; 3.x: no word")
def frames_out_of_range(ground: Ground) -> Seen:
    """A frame-max above the broker's, or without a limit, is refused."""
    values = {2**31: str(2**31), 0: "0 (no limit)"}
    return _tunings(ground, [("frame_max", value, text) for value, text in values.items()])


def _tunings(ground: Ground, asked: Iterable[tuple[str, int, str]]) -> Seen:
    """Answer to the tune each time with one value changed, which is too high."""
    observed = []
    for name, value, shown in asked:
        wire, tune = logged_in(ground)
        offered = {"channel_max": tune.channel_max, "frame_max": tune.frame_max, "heartbeat": 0}
        wire.send(method(0, Connection.TuneOk(**(offered | {name: value}))))
        text = f"negotiated {name} = {shown} is higher than the maximum allowed value "
        observed.append((wire, refusal(530, f"{text}({offered[name]})", (10, 30))))
    ends = [(close_or_end(wire), expected) for wire, expected in observed]
    if all(end == NO_WORD for end, _ in ends):
        return Seen(text=NO_WORD)
    return [judge(end, spec=NO_WORD, rabbitmq=expected) for end, expected in ends][-1]


@chapter.case("error-9", spec="402 invalid-path", rabbitmq="530 vhost v not found")
def unknown_vhost(ground: Ground) -> Seen:
    """A vhost that does not exist cannot be entered."""
    wire = arrive(ground, "conformance-missing")
    expected = refused_for(Connection.Open(), 530, "vhost conformance-missing not found")
    return judge(wire.refusal(), spec=connection_closed(402), rabbitmq=expected)


@chapter.case("error-10", rabbitmq="530 access to vhost 'v' refused for user 'u'", needs=MANAGED)
def vhost_of_others(ground: Ground) -> Seen:
    """A vhost is closed to those who have no permissions there."""
    vhost, user = new_vhost(ground), new_user(ground)
    text = f"access to vhost '{vhost}' refused for user '{user}'"
    expected = refused_for(Connection.Open(), 530, text)
    return judge(arrive(ground, vhost, user).refusal(), rabbitmq=expected)


@chapter.case("error-11", rabbitmq="530 ... connection limit (N) is reached", needs=MANAGED)
def full_vhost(ground: Ground) -> Seen:
    """A vhost lets no more connections in than its limit."""
    vhost, user = new_vhost(ground), ground.facilities.address.user
    ground.manage("PUT", "vhost-limits", vhost, "max-connections", body={"value": 0})
    text = f"access to vhost '{vhost}' refused for user '{user}': connection limit (0) is reached"
    expected = refused_for(Connection.Open(), 530, text)
    return judge(arrive(ground, vhost).refusal(), rabbitmq=expected)


@chapter.case("error-12", rabbitmq="530 ... user connection limit (N) is reached", needs=MANAGED)
def user_with_enough_connections(ground: Ground) -> Seen:
    """A user has no more connections than the limit of this user."""
    vhost, user = new_vhost(ground), new_user(ground)
    permit(ground, user, vhost)
    ground.manage("PUT", "user-limits", user, "max-connections", body={"value": 0})
    text = f"connection refused for user '{user}': user connection limit (0) is reached"
    expected = refused_for(Connection.Open(), 530, text)
    return judge(arrive(ground, vhost, user).refusal(), rabbitmq=expected)


@chapter.case("error-15", spec="504 channel-error", rabbitmq="504 unexpected method in ... state S")
def method_in_the_wrong_state(ground: Ground) -> Seen:
    """Behind the tuning a method that does not fit the state of the connection is refused."""
    vhost = ground.facilities.address.vhost
    observed = []
    for state in ("opening", "running"):
        for value in (Connection.TuneOk(2047, 131072, 0), Connection.SecureOk("x")):
            wire = ground.raw()
            wire.shake_hands()
            if state == "running":
                wire.call(0, Connection.Open(vhost), Connection.OpenOk)
            text = f"unexpected method in connection state {state}"
            observed.append((wire.refused(0, value), refused_for(value, 504, text)))
    return judge_words(observed)


@chapter.case("error-15", rabbitmq=NO_WORD)
def method_before_the_tuning(ground: Ground) -> None:
    """Before the login any other frame than start-ok ends the connection."""
    sent = [
        method(0, Connection.TuneOk(1, 131072, 0)),
        method(0, Connection.Close(200, "", 0, 0)),
        method(1, commands.Channel.Open()),
        content(1, b"body"),
        HEARTBEAT[:-1] + b"\x00",
        frame(1, 0, b"\x00\x0a\x00\x0b\xff\xff\xff\xff"),
        frame(1, 0, b"\x00\x0a\x00\xff"),
    ]
    _expect_silence_and_the_end(ground, sent)
