"""Rules of the class queue: bind and unbind (70 to 84)."""

from pamqp import commands

from leveret.conformance.case import Chapter, Need, Seen, judge
from leveret.conformance.cases.steps import (
    DEFAULT_REFUSED,
    NONE_DECLARED,
    NOT_ON_DEFAULT,
    add_user,
    bind,
    drain,
    locked,
    no_exchange,
    no_queue,
    publish_all,
    reply,
    unbind,
    wire_of,
)
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import channel_closed, connection_closed

chapter = Chapter("queue-bindings")

RESTART = frozenset([Need.RESTART])
Bind = commands.Queue.Bind
Unbind = commands.Queue.Unbind


# ---- bind


@chapter.case(70, spec="one binding")
def duplicate_bindings(ground: Ground) -> Seen:
    """A second binding of a queue that is like the first is none."""
    wire = ground.wire(1)
    exchange, queue = ground.exchange(wire, "direct"), ground.queue(wire)
    for _ in range(2):
        bind(wire, queue, exchange, "k")
    publish_all(wire, "k", b"1", exchange=exchange)
    unbind(wire, queue, exchange, "k")
    publish_all(wire, "k", b"2", exchange=exchange)
    return judge(drain(wire, queue), spec=[b"1"])


@chapter.case(71, spec="one copy")
def several_matching_bindings(ground: Ground) -> Seen:
    """A queue gets a message once, however many of its bindings fit."""
    wire = ground.wire(1)
    exchange, queue = ground.exchange(wire, "topic"), ground.queue(wire)
    for key in ("a.*", "#", "a.b"):
        bind(wire, queue, exchange, key)
    publish_all(wire, "a.b", b"1", exchange=exchange)
    return judge(drain(wire, queue), spec=[b"1"])


@chapter.case(72, spec="bound")
def a_durable_queue_and_a_transient_exchange(ground: Ground) -> Seen:
    """A durable queue may be bound to a transient exchange."""
    wire = ground.wire(1)
    exchange, queue = ground.exchange(wire, "direct"), ground.queue(wire, durable=True)
    bind(wire, queue, exchange, "k")
    publish_all(wire, "k", b"1", exchange=exchange)
    return judge(drain(wire, queue), spec=[b"1"])


@chapter.case(73, spec="it is there", needs=RESTART, limit_s=90)
def durable_bindings_after_a_restart(ground: Ground) -> Seen:
    """The binding of a durable queue to a durable exchange outlives the broker."""
    wire = ground.wire(1)
    exchange = ground.exchange(wire, "direct", durable=True)
    queue = ground.queue(wire, durable=True)
    bind(wire, queue, exchange, "k")
    ground.restart()
    wire = ground.wire(1)
    publish_all(wire, "k", b"1", exchange=exchange)
    return judge(drain(wire, queue), spec=[b"1"])


@chapter.case(74, spec="5 bindings are no problem")
def many_bindings(ground: Ground) -> Seen:
    """A queue may have more than four bindings."""
    wire = ground.wire(1)
    exchange, queue = ground.exchange(wire, "direct"), ground.queue(wire)
    for key in "abcde":
        bind(wire, queue, exchange, key)
        publish_all(wire, key, key.encode(), exchange=exchange)
    return judge(drain(wire, queue), spec=[b"a", b"b", b"c", b"d", b"e"])


@chapter.case(75, spec="404 not-found")
def bind_without_a_name(ground: Ground) -> Seen:
    """A queue.bind without a name needs a queue declared on the channel."""
    wire = ground.wire(1, 2)
    ground.queue(wire, 2)
    return judge(wire.refused(1, Bind(exchange="amq.direct", routing_key="k")), spec=NONE_DECLARED)


@chapter.case(75, spec="the queue declared last")
def bind_the_queue_declared_last(ground: Ground) -> Seen:
    """A queue.bind without a name is about the queue declared last on the channel."""
    wire = ground.wire(1)
    exchange = ground.exchange(wire, "direct")
    queues = [ground.queue(wire) for _ in range(2)]
    bind(wire, "", exchange, "k")
    publish_all(wire, "k", b"1", exchange=exchange)
    return judge([drain(wire, queue) for queue in queues], spec=[[], [b"1"]])


@chapter.case(75, spec="the name is also the key")
def bind_without_name_and_key(ground: Ground) -> Seen:
    """A queue.bind without name and key takes the name of the queue declared last for both."""
    wire = ground.wire(1)
    exchange, queue = ground.exchange(wire, "direct"), ground.queue(wire)
    bind(wire, "", exchange)
    publish_all(wire, queue, b"1", exchange=exchange)
    publish_all(wire, "", b"2", exchange=exchange)
    return judge(drain(wire, queue), spec=[b"1"])


@chapter.case(76, spec="404 not-found")
def bind_a_missing_queue(ground: Ground) -> Seen:
    """A queue that does not exist cannot be bound."""
    name = ground.queue_name()
    refusal = ground.wire(1).refused(1, Bind(queue=name, exchange="amq.direct"))
    return judge(refusal, spec=no_queue(ground, name))


@chapter.case(77, spec="404 not-found")
def bind_to_a_missing_exchange(ground: Ground) -> Seen:
    """A queue cannot be bound to an exchange that does not exist."""
    wire = ground.wire(1)
    name = ground.exchange_name()
    refusal = wire.refused(1, Bind(queue=ground.queue(wire), exchange=name))
    return judge(refusal, spec=no_exchange(ground, name))


@chapter.case(78, spec="bound", rabbitmq=NOT_ON_DEFAULT)
def bind_to_the_default_exchange(ground: Ground) -> Seen:
    """A queue.bind without an exchange means the default exchange."""
    wire = ground.wire(1)
    answer = reply(wire, Bind(queue=ground.queue(wire), exchange="", routing_key="k"))
    return judge(answer, spec="Queue.BindOk", rabbitmq=DEFAULT_REFUSED)


@chapter.case(79, spec="only what has its key")
def a_direct_exchange_compares_keys(ground: Ground) -> Seen:
    """A queue bound to a direct exchange with K gets the messages with exactly that key."""
    wire = ground.wire(1)
    exchange, queue = ground.exchange(wire, "direct"), ground.queue(wire)
    bind(wire, queue, exchange, "K")
    for key in ("K", "k", "K.1", "*", "#", ""):
        publish_all(wire, key, key.encode(), exchange=exchange)
    return judge(drain(wire, queue), spec=[b"K"])


# ---- unbind


@chapter.case(80, spec="the connection is closed", rabbitmq="the channel is closed: 405")
def an_unbind_that_fails(ground: Ground) -> Seen:
    """A queue.unbind that fails ends the connection."""
    owner = ground.wire(1)
    name = ground.queue(owner)
    bind(owner, name, "amq.direct", name)
    request = Unbind(queue=name, exchange="amq.direct", routing_key=name)
    refusal = ground.wire(1).refused(1, request)
    return judge(refusal, spec=connection_closed(405), rabbitmq=locked(ground, name))


@chapter.case(
    80,
    spec="the connection is closed",
    rabbitmq="the channel is closed: 403",
    needs=frozenset([Need.MANAGEMENT]),
)
def an_unbind_that_is_not_allowed(ground: Ground) -> Seen:
    """A queue.unbind without the permission for it ends the connection."""
    owner = ground.wire(1)
    name = ground.queue(owner, durable=True)
    bind(owner, name, "amq.direct", name)
    user = add_user(ground, ".*", "^$", ".*")
    request = Unbind(queue=name, exchange="amq.direct", routing_key=name)
    refusal = wire_of(ground, user, user, 1).refused(1, request)
    return judge(refusal, spec=connection_closed(403), rabbitmq=channel_closed(403))


@chapter.case(81, spec="404 not-found")
def unbind_without_a_name(ground: Ground) -> Seen:
    """A queue.unbind without a name needs a queue declared on the channel."""
    refusal = ground.wire(1).refused(1, Unbind(exchange="amq.direct", routing_key="k"))
    return judge(refusal, spec=NONE_DECLARED)


@chapter.case(81, spec="the queue declared last")
def unbind_the_queue_declared_last(ground: Ground) -> Seen:
    """A queue.unbind without a name is about the queue declared last on the channel."""
    wire = ground.wire(1)
    exchange = ground.exchange(wire, "direct")
    queues = [ground.queue(wire) for _ in range(2)]
    for queue in queues:
        bind(wire, queue, exchange, "k")
    unbind(wire, "", exchange, "k")
    publish_all(wire, "k", b"1", exchange=exchange)
    return judge([drain(wire, queue) for queue in queues], spec=[[b"1"], []])


@chapter.case(82, spec="404 not-found", rabbitmq="unbind-ok")
def unbind_a_missing_queue(ground: Ground) -> Seen:
    """A queue that does not exist cannot be unbound."""
    request = Unbind(queue=ground.queue_name(), exchange="amq.direct", routing_key="k")
    answer = reply(ground.wire(1), request)
    return judge(answer, spec=channel_closed(404), rabbitmq="Queue.UnbindOk")


@chapter.case(83, spec="404 not-found", rabbitmq="unbind-ok")
def unbind_from_a_missing_exchange(ground: Ground) -> Seen:
    """A queue cannot be unbound from an exchange that does not exist."""
    wire = ground.wire(1)
    request = Unbind(queue=ground.queue(wire), exchange=ground.exchange_name(), routing_key="k")
    return judge(reply(wire, request), spec=channel_closed(404), rabbitmq="Queue.UnbindOk")


@chapter.case(84, spec="unbind-ok", rabbitmq=NOT_ON_DEFAULT)
def unbind_from_the_default_exchange(ground: Ground) -> Seen:
    """A queue.unbind without an exchange means the default exchange."""
    wire = ground.wire(1)
    answer = reply(wire, Unbind(queue=ground.queue(wire), exchange="", routing_key="k"))
    return judge(answer, spec="Queue.UnbindOk", rabbitmq=DEFAULT_REFUSED)
