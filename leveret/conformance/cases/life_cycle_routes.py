"""What clients rely on in the life of exchanges and bindings, and of policies on queues."""

from itertools import pairwise

from pamqp import commands
from pamqp.common import FieldTable

from leveret.conformance.case import Chapter, Need, Seen, judge
from leveret.conformance.cases.steps import (
    bind,
    bind_exchange,
    drain,
    enqueue,
    fan,
    get,
    no_exchange,
    publish_all,
    remove,
    unbind,
    unbind_exchange,
)
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Wire, method

chapter = Chapter("life-cycle-routes")

Declare = commands.Exchange.Declare
DeclareOk = commands.Exchange.DeclareOk
Delete = commands.Exchange.Delete
DeleteOk = commands.Exchange.DeleteOk
MANAGED = frozenset([Need.MANAGEMENT])


def check_there(wire: Wire, exchange: str) -> None:
    """Check that there is such an exchange."""
    wire.call(1, Declare(exchange=exchange, passive=True), DeclareOk)


def check_gone(ground: Ground, exchange: str) -> Seen:
    """Check that there is no such exchange any more."""
    refusal = ground.wire(1).refused(1, Declare(exchange=exchange, passive=True))
    return judge(refusal, spec=no_exchange(ground, exchange))


# ---- exchanges that go


@chapter.case("2.5-auto-delete-exchange", rabbitmq="gone with its last binding")
def auto_delete_after_the_queue(ground: Ground) -> Seen:
    """An auto-delete exchange goes when the last queue bound to it is deleted."""
    wire = ground.wire(1)
    exchange = ground.exchange(wire, "fanout", auto_delete=True)
    queues = fan(ground, wire, exchange, "", "")
    wire.call(1, commands.Queue.Delete(queue=queues[0]), commands.Queue.DeleteOk)
    check_there(wire, exchange)
    wire.call(1, commands.Queue.Delete(queue=queues[1]), commands.Queue.DeleteOk)
    return check_gone(ground, exchange)


@chapter.case("2.5-auto-delete-exchange", rabbitmq="gone with its last binding")
def auto_delete_after_the_connection(ground: Ground) -> Seen:
    """An auto-delete exchange goes when the last queue bound to it goes with its connection."""
    wire = ground.wire(1)
    exchange = ground.exchange(wire, "fanout", auto_delete=True)
    fan(ground, wire, exchange, "")
    wire.call(0, commands.Connection.Close(200, "", 0, 0), commands.Connection.CloseOk)
    return check_gone(ground, exchange)


@chapter.case("2.5-auto-delete-exchange", rabbitmq="gone with its last binding")
def auto_delete_after_an_exchange(ground: Ground) -> Seen:
    """An auto-delete exchange goes when the last exchange bound to it is unbound."""
    wire = ground.wire(1)
    exchange = ground.exchange(wire, "fanout", auto_delete=True)
    destination = ground.exchange(wire, "fanout")
    bind_exchange(wire, destination, exchange)
    unbind_exchange(wire, destination, exchange)
    return check_gone(ground, exchange)


@chapter.case("2.5-auto-delete-exchange", rabbitmq="only bindings to others count")
def auto_delete_of_a_destination(ground: Ground) -> None:
    """An auto-delete exchange stays when it is unbound from another one."""
    wire = ground.wire(1)
    source = ground.exchange(wire, "fanout")
    exchange = ground.exchange(wire, "fanout", auto_delete=True)
    bind_exchange(wire, exchange, source)
    unbind_exchange(wire, exchange, source)
    check_there(wire, exchange)


@chapter.case("2.5-auto-delete-exchange", rabbitmq="one after the other")
def auto_delete_of_a_chain(ground: Ground) -> None:
    """With the last queue goes a whole chain of auto-delete exchanges."""
    wire = ground.wire(1)
    chain = [ground.exchange(wire, "fanout", auto_delete=True) for _ in range(3)]
    for source, destination in pairwise(chain):
        bind_exchange(wire, destination, source)
    (queue,) = fan(ground, wire, chain[-1], "")
    publish_all(wire, "", b"1", exchange=chain[0])
    judge(drain(wire, queue), spec=[b"1"])
    unbind(wire, queue, chain[-1])
    for exchange in chain:
        check_gone(ground, exchange)


@chapter.case("2.5-delete-exchange", rabbitmq="its bindings go, in both directions")
def the_bindings_of_a_deleted_exchange(ground: Ground) -> None:
    """The bindings of a deleted exchange do not come back with its name."""
    wire = ground.wire(1)
    source, exchange = ground.exchange(wire, "fanout"), ground.exchange(wire, "fanout")
    (queue,) = fan(ground, wire, exchange, "")
    bind_exchange(wire, exchange, source)
    wire.call(1, Delete(exchange=exchange), DeleteOk)
    wire.call(1, Declare(exchange=exchange, exchange_type="fanout"), DeclareOk)
    publish_all(wire, "", b"1", exchange=exchange)
    bind(wire, queue, exchange)
    publish_all(wire, "", b"2", exchange=source)
    publish_all(wire, "", b"3", exchange=exchange)
    judge(drain(wire, queue), spec=[b"3"])


@chapter.case("2.5-delete-exchange", rabbitmq="its source goes too")
def auto_delete_of_the_source_of_a_deleted_exchange(ground: Ground) -> Seen:
    """An auto-delete exchange goes when the last exchange bound to it is deleted."""
    wire = ground.wire(1)
    source = ground.exchange(wire, "fanout", auto_delete=True)
    exchange = ground.exchange(wire, "fanout")
    bind_exchange(wire, exchange, source)
    wire.call(1, Delete(exchange=exchange), DeleteOk)
    return check_gone(ground, source)


# ---- bindings


@chapter.case("2.5-bindings", rabbitmq="two bindings")
def bindings_that_differ_in_arguments(ground: Ground) -> Seen:
    """Bindings of one key with different arguments are two."""
    wire = ground.wire(1)
    exchange, queue = ground.exchange(wire, "direct"), ground.queue(wire)
    red: FieldTable = {"color": "red"}
    blue: FieldTable = {"color": "blue"}
    for arguments in (red, blue):
        bind(wire, queue, exchange, "k", arguments)
    publish_all(wire, "k", b"1", exchange=exchange)
    unbind(wire, queue, exchange, "k", red)
    publish_all(wire, "k", b"2", exchange=exchange)
    unbind(wire, queue, exchange, "k", red)
    unbind(wire, queue, exchange, "k")
    publish_all(wire, "k", b"3", exchange=exchange)
    unbind(wire, queue, exchange, "k", blue)
    publish_all(wire, "k", b"4", exchange=exchange)
    return judge(drain(wire, queue), spec=[b"1", b"2", b"3"])


@chapter.case("2.5-bindings", rabbitmq="the order does not count")
def bindings_that_differ_in_the_order_of_arguments(ground: Ground) -> Seen:
    """The order of a binding's arguments does not matter."""
    wire = ground.wire(1)
    exchange, queue = ground.exchange(wire, "direct"), ground.queue(wire)
    bind(wire, queue, exchange, "k", {"a": 1, "b": 2})
    bind(wire, queue, exchange, "k", {"b": 2, "a": 1})
    unbind(wire, queue, exchange, "k", {"b": 2, "a": 1})
    publish_all(wire, "k", b"1", exchange=exchange)
    return judge(drain(wire, queue), spec=[])


# ---- arguments and policies


def set_policy(ground: Ground, queue: str, definition: FieldTable) -> None:
    """Put a policy on one queue."""
    vhost = ground.facilities.address.vhost
    body = {"pattern": f"^{queue}$", "definition": definition, "apply-to": "queues"}
    ground.manage("PUT", "policies", vhost, queue, body=body)
    remove(ground, "policies", vhost, queue)


@chapter.case("2.5-policies", rabbitmq="the smaller", needs=MANAGED)
def a_number_of_argument_and_policy(ground: Ground) -> None:
    """Of a limit in the arguments and one in a policy the smaller counts."""
    wire = ground.wire(1)
    for argument, policy in ((2, 3), (3, 2)):
        name = ground.queue_name()
        set_policy(ground, name, {"max-length": policy})
        declare = commands.Queue.Declare(
            queue=name, durable=True, arguments={"x-max-length": argument}
        )
        wire.call(1, declare, commands.Queue.DeclareOk)
        enqueue(wire, name, b"1", b"2", b"3", b"4")
        judge(drain(wire, name), spec=[b"3", b"4"])


@chapter.case("2.5-policies", rabbitmq="the argument", needs=MANAGED)
def a_text_of_argument_and_policy(ground: Ground) -> None:
    """Of a dead-letter key in the arguments and one in a policy the argument counts."""
    wire = ground.wire(1)
    chosen, other = ground.queue(wire), ground.queue(wire)
    name = ground.queue_name()
    set_policy(ground, name, {"dead-letter-exchange": "", "dead-letter-routing-key": other})
    arguments: FieldTable = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": chosen}
    declare = commands.Queue.Declare(queue=name, durable=True, arguments=arguments)
    wire.call(1, declare, commands.Queue.DeclareOk)
    enqueue(wire, name, b"1")
    get(wire, name, no_ack=False)
    wire.send(method(1, commands.Basic.Reject(1, requeue=False)))
    enqueue(wire, chosen, b"2")
    judge((sorted(drain(wire, chosen)), drain(wire, other)), spec=([b"1", b"2"], []))


@chapter.case("2.5-policies", rabbitmq="from then on, and until it is removed", needs=MANAGED)
def a_policy_on_a_queue_that_exists(ground: Ground) -> None:
    """A policy applies to a queue that is there already."""
    wire = ground.wire(1)
    name = ground.queue(wire, durable=True)
    enqueue(wire, name, b"1", b"2", b"3")
    set_policy(ground, name, {"max-length": 2})
    enqueue(wire, name, b"4")
    judge(drain(wire, name), spec=[b"3", b"4"])
    ground.manage("DELETE", "policies", ground.facilities.address.vhost, name)
    enqueue(wire, name, b"5", b"6", b"7")
    judge(drain(wire, name), spec=[b"5", b"6", b"7"])
