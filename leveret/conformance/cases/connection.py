"""Rules of the class connection (5 to 20): greeting, login, vhosts, the end."""

import time

from pamqp import commands

from leveret.conformance.case import Chapter, Met, Need, Seen, Unmet, judge
from leveret.conformance.cases.refusals import judge_words, refusal, refused_for
from leveret.conformance.cases.steps import drain, enqueue, get, publish_all
from leveret.conformance.cases.tenants import arrive, enter, new_user, new_vhost
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import (
    HEARTBEAT,
    PROTOCOL_HEADER,
    Ended,
    Refusal,
    Wire,
    channel_closed,
    frame,
    method,
    start_ok,
)

chapter = Chapter("connection")
Connection = commands.Connection
CLOSE = Connection.Close(200, "", 0, 0)
MANAGED = frozenset([Need.MANAGEMENT])
NO_WORD = "the connection ends without a word"


def greeted(ground: Ground) -> Wire:
    """A connection that the broker has greeted."""
    wire = ground.raw()
    wire.start()
    return wire


def login(wire: Wire) -> commands.Connection.StartOk:
    """The start-ok of our user."""
    return start_ok(wire.address.user, wire.address.password)


def logged_in(ground: Ground) -> tuple[Wire, commands.Connection.Tune]:
    """A connection behind its start-ok, and what the broker proposes."""
    wire = greeted(ground)
    return wire, wire.call(0, login(wire), Connection.Tune)


def close_or_end(wire: Wire) -> Refusal | str:
    """How the broker ends the connection."""
    try:
        return wire.refusal()
    except Ended:
        return NO_WORD


# ---- greeting and login


@chapter.case(5, spec="AMQP 0 0 9 1, then the end", rabbitmq="the same; AMQP 3 1 0 0 since 4.0")
def another_protocol(ground: Ground) -> Seen:
    """A header of another protocol is answered by the broker's own, and the connection ends."""
    seen = set()
    # Eight octets each: if more stayed unread, the reset might cost us the answer.
    for greeting in (b"GET / \r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01", b"AMQP\x00\x00\x08\x00"):
        wire = ground.raw()
        wire.send(greeting)
        seen.add(wire.receive_bytes())
    if seen == {b"AMQP\x03\x01\x00\x00"}:
        return Seen(Met.RABBITMQ, "AMQP 3 1 0 0, then the end")
    return judge(seen, spec={PROTOCOL_HEADER})


@chapter.case(6, spec="no version above the one that was asked for")
def versions_offered(ground: Ground) -> None:
    """A client that asks for AMQP 0-8 or 0-9 is offered that version, or refused."""
    for header, version in ((b"AMQP\x01\x01\x08\x00", (8, 0)), (b"AMQP\x01\x01\x00\x09", (0, 9))):
        wire = ground.raw()
        wire.send(header)
        if wire.socket.recv(1) == b"\x01":  # a method frame, and no header
            wire = ground.raw()
            wire.send(header)
            start = wire.expect(Connection.Start, 0)
            judge((start.version_major, start.version_minor), spec=version)


@chapter.case(
    8,
    spec="host, product, version, platform, copyright, information",
    rabbitmq="the same without host, and cluster_name",
)
def properties_of_the_server(ground: Ground) -> Seen:
    """The broker says what it is."""
    wire = greeted(ground)
    common = {"product", "version", "platform", "copyright", "information"}
    told = set(wire.server_properties)
    if not common <= told:
        raise Unmet(f"only {', '.join(sorted(told))}")
    more = sorted(told - common - {"capabilities"})
    return judge(", ".join(more), spec="host", rabbitmq="cluster_name")


@chapter.case(9, spec="en_US")
def locales(ground: Ground) -> Seen:
    """The messages can be had in en_US."""
    locales = (ground.raw().start().locales or "").split()
    return judge("en_US" in locales, spec=True)


@chapter.case("2.3-mechanisms", rabbitmq="PLAIN and AMQPLAIN")
def mechanisms(ground: Ground) -> Seen:
    """The login may be PLAIN or AMQPLAIN."""
    offered = set((ground.raw().start().mechanisms or "").split())
    return judge(offered & {"PLAIN", "AMQPLAIN"}, rabbitmq={"PLAIN", "AMQPLAIN"})


@chapter.case("2.3-version", spec="0-9")
def version_of_the_protocol(ground: Ground) -> Seen:
    """The greeting has version 0-9."""
    start = ground.raw().start()
    return judge((start.version_major, start.version_minor), spec=(0, 9))


@chapter.case("2.3-capabilities", rabbitmq="all nine that clients ask for")
def capabilities(ground: Ground) -> Seen:
    """The broker tells which extensions it has, by which clients decide what they use."""
    wire = greeted(ground)
    has = wire.server_properties.get("capabilities")
    told = {name for name, is_on in has.items() if is_on} if isinstance(has, dict) else set()
    return judge(
        told,
        rabbitmq={
            "authentication_failure_close",
            "basic.nack",
            "connection.blocked",
            "consumer_cancel_notify",
            "consumer_priorities",
            "direct_reply_to",
            "exchange_exchange_bindings",
            "per_consumer_qos",
            "publisher_confirms",
        },
    )


@chapter.case("2.3-amqplain", rabbitmq="the login works")
def amqplain(ground: Ground) -> None:
    """The login may come as a table of LOGIN and PASSWORD."""
    wire = greeted(ground)
    fields = {"LOGIN": wire.address.user, "PASSWORD": wire.address.password}
    response = "".join(
        f"{chr(len(name))}{name}S\0\0\0{chr(len(value))}{value}" for name, value in fields.items()
    )
    wire.call(0, start_ok(mechanism="AMQPLAIN", response=response), Connection.Tune)


@chapter.case("2.3-client-properties", spec="any table is taken")
def client_without_properties(ground: Ground) -> None:
    """A client may say nothing of itself."""
    wire = greeted(ground)
    address = wire.address
    answer = Connection.StartOk({}, "PLAIN", f"\0{address.user}\0{address.password}", "en_US")
    wire.call(0, answer, Connection.Tune)


@chapter.case(12, spec=NO_WORD)
def mechanism_that_was_not_offered(ground: Ground) -> None:
    """A mechanism that was not offered ends the connection, without a close."""
    wire = greeted(ground)
    wire.send(method(0, start_ok(mechanism="BOGUS")))
    wire.expect_end()


@chapter.case("2.3-pipelined-handshake", spec="the whole of it is answered in order")
def handshake_in_pieces(ground: Ground) -> None:
    """A handshake may come in one write, or byte by byte."""
    address = ground.facilities.address
    whole = b"".join(
        [
            PROTOCOL_HEADER,
            method(0, start_ok(address.user, address.password)),
            method(0, Connection.TuneOk(2047, 131072, 0)),
            method(0, Connection.Open(address.vhost)),
            method(1, commands.Channel.Open()),
        ]
    )
    for pieces in ([whole], [whole[at : at + 1] for at in range(len(whole))]):
        wire = ground.raw()
        for piece in pieces:
            wire.send(piece)
        for expected in (Connection.Start, Connection.Tune, Connection.OpenOk):
            wire.expect(expected, 0)
        wire.expect(commands.Channel.OpenOk, 1)


@chapter.case("2.3-before-login", rabbitmq=NO_WORD)
def large_frame_before_the_login(ground: Ground) -> None:
    """Who has not logged in cannot send a frame of more than 8192 octets."""
    wire = greeted(ground)
    wire.send(frame(1, 0, bytes(8193)))
    wire.expect_end()


# ---- vhosts


@chapter.case(17, spec="each has its own queues", needs=MANAGED)
def vhosts_are_separate(ground: Ground) -> Seen:
    """Queues of the same name in two vhosts hold different messages."""
    vhost = new_vhost(ground)
    here, there = ground.wire(1), enter(ground, vhost, None, 1)
    name = ground.queue(here)
    declare = commands.Queue.Declare(queue=name, exclusive=True)
    there.call(1, declare, commands.Queue.DeclareOk)
    publish_all(here, name, b"here")
    publish_all(there, name, b"there", b"there")
    return judge((drain(here, name), drain(there, name)), spec=([b"here"], [b"there"] * 2))


@chapter.case(18, spec="refused", rabbitmq="530 access to vhost 'v' refused", needs=MANAGED)
def vhost_without_permission(ground: Ground) -> Seen:
    """A vhost is closed to a user without permissions in it."""
    vhost, user = new_vhost(ground), new_user(ground)
    text = f"access to vhost '{vhost}' refused for user '{user}'"
    expected = refused_for(Connection.Open(), 530, text)
    return judge_words([(arrive(ground, vhost, user).refusal(), expected)])


# ---- the end


@chapter.case(19, spec="all else is ignored, a close gets its close-ok")
def methods_behind_a_close(ground: Ground) -> None:
    """Behind its close the broker ignores everything; a close of the client is confirmed."""
    wire = ground.wire(1)
    wire.send(method(1, commands.Channel.Open()))
    wire.expect(Connection.Close, 0)
    wire.send(method(1, commands.Basic.Qos()), HEARTBEAT, method(2, commands.Channel.Open()))
    wire.call(0, CLOSE, Connection.CloseOk)


@chapter.case(19, spec="close-ok")
def client_closes(ground: Ground) -> None:
    """A close of the client is confirmed, whatever is under way."""
    wire = ground.wire(1, 2)
    unfinished = method(2, commands.Basic.Publish(routing_key="k"))
    wire.send(unfinished, method(0, CLOSE), method(1, commands.Basic.Qos()))
    wire.expect(Connection.CloseOk, 0)


@chapter.case("2.3-close-and-exclusive-queues", rabbitmq="gone before close-ok")
def exclusive_queues_go_before_close_ok(ground: Ground) -> Seen:
    """After close-ok the exclusive queues of the connection are gone for everybody."""
    wire, other = ground.wire(1), ground.wire(1)
    queue = ground.queue(wire)
    wire.call(0, CLOSE, Connection.CloseOk)
    refused = other.refused(1, commands.Queue.Declare(queue=queue, passive=True))
    return judge(refused, rabbitmq=channel_closed(404))


@chapter.case("2.3-error-and-exclusive-queues", rabbitmq="gone before the close")
def exclusive_queues_go_before_the_close_of_the_broker(ground: Ground) -> Seen:
    """When the broker closes a connection its exclusive queues are gone already."""
    wire, other = ground.wire(1), ground.wire(1)
    queue = ground.queue(wire)
    wire.send(method(1, commands.Channel.Open()))
    wire.expect(Connection.Close, 0)
    refused = other.refused(1, commands.Queue.Declare(queue=queue, passive=True))
    return judge(refused, rabbitmq=channel_closed(404))


@chapter.case("2.3-lost-connection", spec="exclusive queues go")
def exclusive_queues_of_a_lost_connection(ground: Ground) -> None:
    """A connection that is lost loses its exclusive queues, sooner or later."""
    wire, other = ground.wire(1), ground.wire()
    queue = ground.queue(wire)
    wire.abort()
    for channel in range(1, 2047):
        other.call(channel, commands.Channel.Open(), commands.Channel.OpenOk)
        request = commands.Queue.Declare(queue=queue, passive=True)
        if other.refused(channel, request).code == 404:
            return
    judge("still there", spec="gone")


@chapter.case("2.3-lost-connection", spec="what it had not acknowledged is in the queue again")
def deliveries_of_a_lost_connection(ground: Ground) -> Seen:
    """Who waits for messages gets those that a lost connection had, in their order."""
    lost, wire = ground.wire(1), ground.wire(1)
    queue = ground.queue(wire, durable=True)
    enqueue(wire, queue, b"1", b"2")
    for _ in range(2):
        get(lost, queue, no_ack=False)
    wire.call(1, commands.Basic.Consume(queue=queue, no_ack=True), commands.Basic.ConsumeOk)
    lost.abort()
    return judge([wire.expect_delivery(1)[1] for _ in range(2)], spec=[b"1", b"2"])


@chapter.case("2.3-update-secret", rabbitmq="update-secret-ok")
def secret_is_updated(ground: Ground) -> None:
    """A client may renew the secret of its login."""
    wire = ground.wire()
    secret = wire.address.password
    wire.call(0, Connection.UpdateSecret(secret, "renewed"), Connection.UpdateSecretOk)


@chapter.case(
    "2.3-shutdown",
    spec="320 connection-forced",
    rabbitmq="320 broker forced connection closure with reason 'shutdown'",
    needs=frozenset([Need.RESTART]),
    limit_s=90.0,
)
def broker_stops(ground: Ground) -> Seen:
    """A broker that stops closes its connections."""
    wire = ground.wire(1)
    ground.restart()
    expected = refusal(320, "broker forced connection closure with reason 'shutdown'")
    return judge_words([(wire.refusal(), expected)])


@chapter.case(
    "2.3-operator",
    spec="320 connection-forced",
    rabbitmq="320 Closed via management plugin",
    needs=MANAGED,
)
def operator_closes(ground: Ground) -> Seen:
    """An operator can close a connection by the management API."""
    wire = ground.wire(1)
    (our_host, our_port), (host, port) = wire.socket.getsockname(), wire.socket.getpeername()
    name = f"{our_host}:{our_port} -> {host}:{port}"
    while not _is_closed_by_hand(ground, name):
        wire.check()  # until the time is over
        time.sleep(0.1)
    return judge_words([(wire.refusal(), refusal(320, "Closed via management plugin"))])


def _is_closed_by_hand(ground: Ground, name: str) -> bool:
    """Close a connection, which the management API may learn of only after some seconds."""
    try:
        ground.manage("DELETE", "connections", name)
    except Unmet:
        return False
    return True
