"""Consumers: prefetch, turns, priorities, single active ones, cancellation (behaviours)."""

from pamqp import commands

from leveret.conformance.case import Chapter, Seen, judge
from leveret.conformance.cases.messages import (
    bodies,
    delivery,
    fill,
    hold,
    stay_quiet,
    tell,
    until,
    x,
)
from leveret.conformance.cases.steps import cancel, consume, counts, open_channel, publish_all
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Wire, channel_closed, start_ok

chapter = Chapter("consuming")

SIX = (b"1", b"2", b"3", b"4", b"5", b"6")
Ack, Nack = commands.Basic.Ack, commands.Basic.Nack


def _qos(wire: Wire, count: int, *, is_shared: bool = False) -> None:
    request = commands.Basic.Qos(prefetch_count=count, global_=is_shared)
    wire.call(1, request, commands.Basic.QosOk)


def _tags(wire: Wire, count: int) -> list[str]:
    """The consumers of the next *count* deliveries."""
    tags = []
    for _ in range(count):
        told, _ = wire.expect_delivery(1)
        tags.append(told.consumer_tag or "")
    return tags


# ---- prefetch


@chapter.case("2.6-prefetch", spec="so many, and one more for each settled")
def a_window_of_unacknowledged_messages(ground: Ground) -> Seen:
    """A consumer holds no more than its prefetch count; each ack, nack or reject makes room."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    fill(wire, queue, *SIX)
    _qos(wire, 2)
    consume(wire, queue)
    first, second = delivery(wire), delivery(wire)
    stay_quiet(wire, queue)
    tell(wire, Ack(second.tag))
    third = delivery(wire)
    tell(wire, commands.Basic.Reject(third.tag, False))
    fourth = delivery(wire)
    tell(wire, Nack(fourth.tag, True, False))
    received = [first.body, second.body, third.body, fourth.body, *bodies(wire, 2)]
    return judge(received, spec=list(SIX))


@chapter.case("2.6-prefetch-of-each", spec="the channel's", rabbitmq="each consumer's")
def each_consumer_has_its_window(ground: Ground) -> Seen:
    """A prefetch count that is not global is that of each consumer to come."""
    wire, other = ground.wire(1), ground.wire(1)
    queue = ground.queue(wire, durable=True)
    _qos(wire, 1)
    consume(wire, queue)
    consume(wire, queue)
    fill(other, queue, b"1", b"2", b"3")
    return judge(f"{counts(other, queue)[0]} wait", spec="2 wait", rabbitmq="1 wait")


@chapter.case("2.6-prefetch-later", rabbitmq="of consumers to come only")
def a_change_is_of_consumers_to_come(ground: Ground) -> Seen:
    """A consumer keeps the prefetch count that was set when it came."""
    wire = ground.wire(1)
    first, second = ground.queue(wire), ground.queue(wire)
    _qos(wire, 1)
    consume(wire, first, consumer_tag="one")
    _qos(wire, 3)
    consume(wire, second, consumer_tag="three")
    publish_all(wire, first, *SIX)
    publish_all(wire, second, *SIX)
    tags = _tags(wire, 4)
    stay_quiet(wire, first)
    stay_quiet(wire, second)
    return judge(sorted(tags), rabbitmq=["one", "three", "three", "three"])


@chapter.case("2.6-prefetch-none", spec="no limit")
def no_prefetch_count_is_no_limit(ground: Ground) -> Seen:
    """Prefetch count 0 is no limit."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    _qos(wire, 0)
    publish_all(wire, queue, *[b"x"] * 300)
    consume(wire, queue)
    return judge(len(bodies(wire, 300)), spec=300)


@chapter.case("2.6-prefetch-gets", rabbitmq="gets neither count nor wait")
def gets_are_no_part_of_it(ground: Ground) -> Seen:
    """A get is not limited by prefetch, nor does what it holds count."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    _qos(wire, 1)
    fill(wire, queue, *SIX)
    held = [hold(wire, queue).body, hold(wire, queue).body]
    consume(wire, queue)
    held += [delivery(wire).body, hold(wire, queue).body]
    stay_quiet(wire, queue)
    return judge(held, rabbitmq=[b"1", b"2", b"3", b"4"])


@chapter.case("2.6-prefetch-no-ack", spec="no limit")
def no_ack_has_no_limit(ground: Ground) -> Seen:
    """A consumer that does not acknowledge has no prefetch limit."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    _qos(wire, 1)
    publish_all(wire, queue, *SIX)
    consume(wire, queue, no_ack=True)
    return judge(bodies(wire, 6), spec=list(SIX))


@chapter.case("2.6-prefetch-shared", spec="the connection's", rabbitmq="the channel's, and each's")
def a_global_limit_is_shared(ground: Ground) -> Seen:
    """A global prefetch count limits all consumers of the channel together, beside their own."""
    wire = ground.wire(1)
    queue, other = ground.queue(wire), ground.queue(wire)
    _qos(wire, 2)
    _qos(wire, 3, is_shared=True)
    consume(wire, queue, consumer_tag="a")
    consume(wire, other, consumer_tag="b")
    publish_all(wire, queue, *SIX)
    tags = _tags(wire, 2)
    publish_all(wire, other, *SIX)
    tags += _tags(wire, 1)
    stay_quiet(wire, queue)
    stay_quiet(wire, other)
    return judge(tags, rabbitmq=["a", "a", "b"])


@chapter.case("2.6-prefetch-shared-change", spec="at once")
def a_global_limit_changes_at_once(ground: Ground) -> Seen:
    """A change of the global prefetch count applies to the consumers there are."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    fill(wire, queue, *SIX)
    _qos(wire, 1, is_shared=True)
    consume(wire, queue)
    first = delivery(wire)
    stay_quiet(wire, queue)
    _qos(wire, 3, is_shared=True)
    received = [first.body, *bodies(wire, 2)]
    stay_quiet(wire, queue)
    return judge(received, spec=list(SIX[:3]))


# ---- turns and priorities


@chapter.case("2.6-round-robin", spec="in turn")
def equals_take_turns(ground: Ground) -> Seen:
    """Consumers of one queue get one message each in turn."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    for tag in ("a", "b", "c"):
        consume(wire, queue, consumer_tag=tag)
    publish_all(wire, queue, *SIX)
    tags = _tags(wire, 6)
    judge(tags[:3], spec=tags[3:])
    return judge(sorted(tags), spec=["a", "a", "b", "b", "c", "c"])


@chapter.case("2.6-consumer-priority", rabbitmq="the highest that has room")
def the_highest_takes_all_it_can(ground: Ground) -> Seen:
    """A consumer with a higher x-priority gets everything as long as it has room."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    _qos(wire, 2)
    for tag, priority in (("low", -5), ("high", 10)):
        consume(wire, queue, consumer_tag=tag, arguments=x(priority=priority))
    consume(wire, queue, consumer_tag="none")
    publish_all(wire, queue, *SIX)
    return judge(_tags(wire, 6), rabbitmq=["high"] * 2 + ["none"] * 2 + ["low"] * 2)


@chapter.case("2.9-priority-values", rabbitmq="any integer, nothing else")
def a_priority_is_any_integer(ground: Ground) -> Seen:
    """x-priority is an integer of any size and sign; a string is refused."""
    wire = ground.wire(1)
    queue = ground.queue(wire)
    for value in (0, -1, 2**31, -(2**40), 2**62):
        consume(wire, queue, arguments=x(priority=value))
    request = commands.Basic.Consume(queue=queue, arguments=x(priority="high"))
    return judge(wire.refused(1, request), rabbitmq=channel_closed(406))


# ---- alone


@chapter.case("2.6-get-beside-exclusive", rabbitmq="may get")
def others_may_get_beside_an_exclusive_consumer(ground: Ground) -> Seen:
    """An exclusive consumer keeps other consumers out, and no get."""
    wire, other = ground.wire(1), ground.wire(1)
    queue = ground.queue(wire, durable=True)
    _qos(wire, 1)
    consume(wire, queue, exclusive=True)
    fill(other, queue, b"1")
    delivery(wire)
    fill(other, queue, b"2")
    judge(hold(other, queue).body, rabbitmq=b"2")
    return judge(
        other.refused(1, commands.Basic.Consume(queue=queue)),
        rabbitmq=channel_closed(
            403, f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use"
        ),
    )


def _single(ground: Ground, wire: Wire) -> str:
    return ground.queue(wire, arguments=x(single_active_consumer=True))


@chapter.case("2.6-single-active", rabbitmq="one at a time, in the order they came")
def the_next_takes_over(ground: Ground) -> Seen:
    """The next takes over from a single active consumer that is cancelled or loses its channel."""
    wire = ground.wire(1, 2, 3)
    queue = _single(ground, wire)
    first = consume(wire, queue, 1, no_ack=True)
    consume(wire, queue, 2, no_ack=True)
    consume(wire, queue, 3, no_ack=True)
    publish_all(wire, queue, b"1", b"2")
    received = bodies(wire, 2)
    cancel(wire, first)
    publish_all(wire, queue, b"3", b"4")
    received += bodies(wire, 2, 2)
    wire.call(2, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    publish_all(wire, queue, b"5", b"6")
    received += bodies(wire, 2, 3)
    return judge(received, rabbitmq=list(SIX))


@chapter.case("2.6-single-active-prefetch", rabbitmq="the others wait")
def a_full_window_does_not_move_the_role(ground: Ground) -> Seen:
    """The single active consumer stays so while it has no room."""
    wire = ground.wire(1)
    queue = _single(ground, wire)
    _qos(wire, 1)
    consume(wire, queue, consumer_tag="active")
    consume(wire, queue, consumer_tag="waiting")
    publish_all(wire, queue, b"1", b"2")
    first = wire.expect_delivery(1)[0]
    stay_quiet(wire, queue)
    tell(wire, Ack(first.delivery_tag or 0))
    second = wire.expect_delivery(1)[0]
    return judge([first.consumer_tag, second.consumer_tag], rabbitmq=["active", "active"])


@chapter.case("2.6-single-active-priority", rabbitmq="the highest priority is next")
def the_successor_has_the_highest_priority(ground: Ground) -> Seen:
    """Of those that wait, the consumer of the highest priority becomes the active one."""
    wire = ground.wire(1)
    queue = _single(ground, wire)
    first = consume(wire, queue, no_ack=True)
    consume(wire, queue, consumer_tag="second", no_ack=True)
    consume(wire, queue, consumer_tag="third", no_ack=True, arguments=x(priority=10))
    cancel(wire, first)
    publish_all(wire, queue, b"1")
    return judge(_tags(wire, 1), rabbitmq=["third"])


@chapter.case("2.6-single-active-exclusive", rabbitmq="refused")
def no_exclusive_consumer_of_such_a_queue(ground: Ground) -> Seen:
    """An exclusive consumer of a queue with a single active consumer is refused."""
    wire = ground.wire(1)
    queue = _single(ground, wire)
    request = commands.Basic.Consume(queue=queue, exclusive=True)
    text = f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use"
    return judge(wire.refused(1, request), rabbitmq=channel_closed(403, text))


# ---- cancelled by the broker


@chapter.case("2.6-cancel-notice", rabbitmq="basic.cancel with no-wait; deliveries stay")
def a_deleted_queue_cancels_its_consumers(ground: Ground) -> Seen:
    """Who consumes a queue that is deleted is told, and can still acknowledge what it holds."""
    wire, other = ground.wire(1), ground.wire(1)
    queue = ground.queue(wire, durable=True)
    consume(wire, queue, consumer_tag="mine")
    fill(other, queue, b"1")
    held = delivery(wire)
    other.call(1, commands.Queue.Delete(queue=queue), commands.Queue.DeleteOk)
    told = wire.expect(commands.Basic.Cancel, 1)
    tell(wire, Ack(held.tag))
    again = ground.queue(wire)
    consume(wire, again, consumer_tag="mine")
    return judge((told.consumer_tag, told.nowait), rabbitmq=("mine", True))


@chapter.case("2.6-cancel-notice-unwanted", rabbitmq="nothing is sent")
def who_does_not_know_of_it_is_not_told(ground: Ground) -> Seen:
    """A client without the capability consumer_cancel_notify is not told."""
    wire, other = ground.raw(), ground.wire(1)
    address = ground.facilities.address
    login = start_ok(address.user, address.password)
    login.client_properties = {"capabilities": {"consumer_cancel_notify": False}}
    wire.shake_hands(login)
    wire.call(0, commands.Connection.Open(address.vhost), commands.Connection.OpenOk)
    open_channel(wire, 1)
    queue = ground.queue(wire, durable=True)
    consume(wire, queue)
    other.call(1, commands.Queue.Delete(queue=queue), commands.Queue.DeleteOk)
    later = ground.queue(wire)
    consume(wire, later)
    publish_all(wire, later, b"next")
    return judge(delivery(wire).body, rabbitmq=b"next")


@chapter.case("2.6-no-local", spec="not delivered", rabbitmq="ignored: delivered")
def no_local_is_ignored(ground: Ground) -> Seen:
    """A consumer with no-local does not get what its own connection publishes."""
    wire, other = ground.wire(1), ground.wire(1)
    queue = ground.queue(wire, durable=True)
    fill(wire, queue, b"own")
    fill(other, queue, b"other")
    consume(wire, queue, no_local=True, no_ack=True)
    first = delivery(wire).body
    return judge(first, spec=b"other", rabbitmq=b"own")


@chapter.case("2.6-flow-of-work", rabbitmq="the other gets it")
def a_lost_consumer_leaves_its_messages_to_others(ground: Ground) -> Seen:
    """What a lost connection held goes to the consumers that are left."""
    wire, lost = ground.wire(1), ground.wire(1)
    queue = ground.queue(wire, durable=True)
    consume(lost, queue)
    fill(wire, queue, b"1")
    until(lambda: counts(wire, queue)[0] == 0)
    delivery(lost)
    consume(wire, queue)
    lost.abort()
    again = delivery(wire)
    return judge((again.body, again.redelivered), rabbitmq=(b"1", True))
