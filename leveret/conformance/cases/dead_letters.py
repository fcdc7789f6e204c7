"""Dead letters: which messages become one, where they go, and what they tell (behaviours)."""

import time
from datetime import UTC, datetime

from pamqp import commands
from pamqp.common import FieldTable

from leveret.conformance.case import Chapter, Seen, judge
from leveret.conformance.cases.messages import (
    Taken,
    bodies,
    deliveries,
    delivery,
    fill,
    have_dead,
    hold,
    hold_each,
    reject,
    stay_quiet,
    tell,
    until,
    x,
)
from leveret.conformance.cases.steps import (
    bind,
    cancel,
    consume,
    counts,
    drain,
    properties,
    publish_all,
)
from leveret.conformance.ground import Ground
from leveret.conformance.raw_client import Wire

chapter = Chapter("dead_letters")

Nack, Reject = commands.Basic.Nack, commands.Basic.Reject
FOUR = (b"1", b"2", b"3", b"4")
SHORT_MS = 20


def _told(letter: Taken, which: str) -> tuple[object, ...]:
    """What the headers x-first-death-... or x-last-death-... say."""
    return tuple(
        letter.headers.get(f"x-{which}-death-{of}") for of in ("reason", "queue", "exchange")
    )


def _summary(letter: Taken) -> list[tuple[object, object, object]]:
    return [(death["queue"], death["reason"], death["count"]) for death in letter.deaths]


def _to(exchange: str, key: str | None = None, **more: object) -> FieldTable:
    """Arguments of a queue whose dead letters go to *exchange*, with *key* if there is one."""
    arguments = more | {"dead_letter_exchange": exchange}
    return x(**(arguments if key is None else arguments | {"dead_letter_routing_key": key}))


def _declare(wire: Wire, name: str, arguments: FieldTable) -> None:
    declare = commands.Queue.Declare(queue=name, exclusive=True, arguments=arguments)
    wire.call(1, declare, commands.Queue.DeclareOk)


# ---- which, and where


@chapter.case("2.8-rejected", rabbitmq="reject and nack without requeue, in their order")
def rejected_messages_are_dead_letters(ground: Ground) -> Seen:
    """What is rejected or nacked without requeue becomes a dead letter, and nothing else."""
    wire = ground.wire(1, 2)
    queue, _ = have_dead(ground, wire)
    fill(wire, queue, *FOUR)
    tags = hold_each(wire, queue, 4)
    tell(wire, commands.Basic.Ack(tags[1]), Nack(tags[2], True, False), Reject(tags[3], False))
    return judge(bodies(wire, 3, 2), rabbitmq=[b"1", b"3", b"4"])


@chapter.case("2.8-no-letters", rabbitmq="no dead letters")
def what_is_removed_is_no_dead_letter(ground: Ground) -> Seen:
    """A purge, a delete and the end of an auto-delete queue leave no dead letters."""
    wire = ground.wire(1, 2)
    purged, dead = have_dead(ground, wire)
    target = _to("", dead)
    deleted = ground.queue(wire, arguments=target)
    left = ground.queue(wire, auto_delete=True, arguments=target)
    for queue in (purged, deleted, left):
        fill(wire, queue, b"1", b"2")
    wire.call(1, commands.Queue.Purge(queue=purged), commands.Queue.PurgeOk)
    wire.call(1, commands.Queue.Delete(queue=deleted), commands.Queue.DeleteOk)
    wire.call(1, commands.Basic.Qos(prefetch_count=1), commands.Basic.QosOk)
    tag = consume(wire, left)
    delivery(wire)
    cancel(wire, tag)
    stay_quiet(wire, dead)
    fill(wire, purged, b"3")
    reject(wire, purged)
    return judge(delivery(wire, 2).body, rabbitmq=b"3")


@chapter.case("2.8-missing-exchange", rabbitmq="lost in silence; looked up at the death")
def a_missing_exchange_loses_it(ground: Ground) -> Seen:
    """Without its exchange a dead letter is lost; the exchange may be declared later."""
    wire = ground.wire(1, 2)
    exchange = ground.exchange_name()
    queue = ground.queue(wire, arguments=_to(exchange))
    fill(wire, queue, b"1", b"2")
    reject(wire, queue)
    stay_quiet(wire, queue)
    declare = commands.Exchange.Declare(exchange=exchange, exchange_type="fanout")
    wire.call(1, declare, commands.Exchange.DeclareOk)
    dead = ground.queue(wire)
    bind(wire, dead, exchange)
    consume(wire, dead, 2, no_ack=True)
    reject(wire, queue)
    return judge(delivery(wire, 2).body, rabbitmq=b"2")


@chapter.case("2.8-own-key", rabbitmq="the key it came with")
def without_a_key_it_keeps_its_own(ground: Ground) -> Seen:
    """Without x-dead-letter-routing-key a dead letter keeps the key it was published with."""
    wire = ground.wire(1, 2)
    exchange, target = ground.exchange(wire, "fanout"), ground.exchange(wire, "topic")
    queue, dead = ground.queue(wire, arguments=_to(target)), ground.queue(wire)
    bind(wire, queue, exchange)
    bind(wire, dead, target, "a.*")
    consume(wire, dead, 2, no_ack=True)
    publish_all(wire, "b.c", b"1", exchange=exchange)
    publish_all(wire, "a.b", b"2", exchange=exchange)
    reject(wire, queue)
    reject(wire, queue)
    letter = delivery(wire, 2)
    judge(letter.body, rabbitmq=b"2")
    judge(_told(letter, "first"), rabbitmq=("rejected", queue, exchange))
    return judge((letter.exchange, letter.routing_key), rabbitmq=(target, "a.b"))


@chapter.case("2.8-default-exchange", rabbitmq="back into its queue")
def the_default_exchange_sends_it_back(ground: Ground) -> Seen:
    """With the default exchange and no key a rejected message is back in its own queue."""
    wire = ground.wire(1)
    queue = ground.queue(wire, arguments=_to(""))
    fill(wire, queue, b"1")
    reject(wire, queue)
    until(lambda: counts(wire, queue)[0] == 1)
    again = hold(wire, queue)
    return judge((again.body, again.redelivered), rabbitmq=(b"1", False))


@chapter.case("2.8-dead-letter-values", rabbitmq="a key needs an exchange: 406")
def a_key_without_an_exchange_is_refused(ground: Ground) -> Seen:
    """x-dead-letter-routing-key without x-dead-letter-exchange is refused."""
    wire = ground.wire(1)
    declare = commands.Queue.Declare(
        queue=ground.queue_name(), exclusive=True, arguments=x(dead_letter_routing_key="k")
    )
    return judge(wire.refused(1, declare).code, rabbitmq=406)


# ---- what they tell


@chapter.case("2.8-x-death", rabbitmq="count l, reason S, queue S, time T, exchange S, keys A")
def the_history_to_the_letter(ground: Ground) -> Seen:
    """The entry of a death has its six fields with their types; other properties stay."""
    wire = ground.wire(1, 2)
    queue, _ = have_dead(ground, wire)
    began = int(time.time())
    kept = {
        "content_type": "text/plain",
        "delivery_mode": 2,
        "priority": 4,
        "correlation_id": "c",
        "message_id": "m",
        "app_id": "app",
    }
    sent = properties(headers={"mine": 1}, **kept)
    publish_all(wire, queue, b"1", properties=sent)
    reject(wire, queue)
    letter = delivery(wire, 2)
    judge({name: getattr(letter.properties, name) for name in kept}, rabbitmq=kept)
    (death,) = letter.deaths
    died = death.pop("time")
    is_recent = isinstance(died, datetime) and 0 <= died.astimezone(UTC).timestamp() - began < 60
    judge(is_recent, rabbitmq=True)
    for typed in (b"\x05countl", b"\x06reasonS", b"\x05queueS", b"\x04timeT", b"\x08exchangeS"):
        judge((typed, typed in letter.raw), rabbitmq=(typed, True))
    judge(b"\x0crouting-keysA" in letter.raw and b"\x07x-deathA" in letter.raw, rabbitmq=True)
    expected = {"count": 1, "reason": "rejected", "queue": queue, "exchange": ""}
    return judge(death, rabbitmq=expected | {"routing-keys": [queue]})


@chapter.case("2.8-first-death", rabbitmq="set once; x-last-death-... each time, from 3.13 on")
def the_headers_of_the_first_death(ground: Ground) -> Seen:
    """x-first-death-... tell of the first death, and x-last-death-..., if there, of the last."""
    wire = ground.wire(1, 2)
    second, _ = have_dead(ground, wire)
    first = ground.queue(wire, arguments=_to("", second))
    fill(wire, first, b"1")
    reject(wire, first)
    until(lambda: counts(wire, second)[0] == 1)
    reject(wire, second)
    letter = delivery(wire, 2)
    judge(_told(letter, "first"), rabbitmq=("rejected", first, ""))
    last = _told(letter, "last")
    if last == (None, None, None):
        return Seen(text="no x-last-death-...")
    return judge(last, rabbitmq=("rejected", second, ""))


@chapter.case("2.8-death-count", rabbitmq="counted in one entry, which keeps its first time")
def deaths_of_a_kind_are_counted(ground: Ground) -> Seen:
    """Deaths in one queue for one reason are one entry with their count."""
    wire = ground.wire(1)
    queue = ground.queue(wire, arguments=_to(""))
    fill(wire, queue, b"1")
    times = set[object]()
    for count in range(1, 4):
        reject(wire, queue)
        until(lambda: counts(wire, queue)[0] == 1)
        letter = hold(wire, queue)
        judge(_summary(letter), rabbitmq=[(queue, "rejected", count)])
        times.add(letter.deaths[0]["time"])
        tell(wire, Nack(letter.tag, False, True))
    return judge(len(times), rabbitmq=1)


@chapter.case("2.8-death-order", rabbitmq="an entry of each queue and reason, the last in front")
def entries_stand_newest_first(ground: Ground) -> Seen:
    """Another queue or reason is another entry; that of the last death stands first."""
    wire = ground.wire(1, 2)
    work, wait = ground.queue_name(), ground.queue_name()
    _declare(wire, work, _to("", wait))
    _declare(wire, wait, _to("", work, message_ttl=SHORT_MS))
    consume(wire, work, 2)
    publish_all(wire, work, b"1", properties=properties(expiration="60000"))
    for _ in range(2):
        tell(wire, Reject(delivery(wire, 2).tag, False), channel=2)
    letter = delivery(wire, 2)
    judge(_told(letter, "first"), rabbitmq=("rejected", work, ""))
    keys = [death["routing-keys"] for death in letter.deaths]
    judge(keys, rabbitmq=[[wait], [work]])
    originals = [death.get("original-expiration") for death in letter.deaths]
    judge(originals, rabbitmq=[None, "60000"])
    return judge(_summary(letter), rabbitmq=[(wait, "expired", 2), (work, "rejected", 2)])


@chapter.case("2.8-death-copies", rabbitmq="CC is told and routed; BCC is routed only")
def copies_are_told_and_blind_ones_not(ground: Ground) -> Seen:
    """Without a key of its own the letter goes to the keys of CC and BCC too; x-death lists CC."""
    wire = ground.wire(1, 2)
    exchange = ground.exchange(wire, "direct")
    queue = ground.queue(wire, arguments=_to(exchange))
    for key in (queue, "cc", "bcc"):
        dead = ground.queue(wire)
        bind(wire, dead, exchange, key)
        consume(wire, dead, 2, no_ack=True)
    sent = properties(headers={"CC": ["cc"], "BCC": ["bcc"]})
    publish_all(wire, queue, b"1", properties=sent)
    reject(wire, queue)
    letters = deliveries(wire, 3, 2)
    for letter in letters:
        judge("BCC" in letter.headers, rabbitmq=False)
        judge(letter.headers.get("CC"), rabbitmq=["cc"])
    keys = [letter.deaths[0]["routing-keys"] for letter in letters]
    return judge(keys, rabbitmq=[[queue, "cc"]] * 3)


@chapter.case("2.8-death-key-and-copies", rabbitmq="that key alone, and CC is gone")
def a_key_of_the_queue_replaces_copies(ground: Ground) -> Seen:
    """With x-dead-letter-routing-key the letter goes there alone and has no CC any more."""
    wire = ground.wire(1, 2)
    copy, blind = ground.queue(wire), ground.queue(wire)
    queue, _ = have_dead(ground, wire)
    publish_all(wire, queue, b"1", properties=properties(headers={"CC": [copy], "BCC": [blind]}))
    until(lambda: drain(wire, copy) == [b"1"])
    until(lambda: drain(wire, blind) == [b"1"])
    reject(wire, queue)
    letter = delivery(wire, 2)
    judge("CC" in letter.headers, rabbitmq=False)
    judge((counts(wire, copy)[0], counts(wire, blind)[0]), rabbitmq=(0, 0))
    return judge(letter.deaths[0]["routing-keys"], rabbitmq=[queue, copy])


@chapter.case("2.8-sent-history", rabbitmq="a header like any other from 4.0 on; counted before")
def a_history_that_a_client_sends(ground: Ground) -> Seen:
    """A client may publish a letter again with its x-death; newer brokers start a new history."""
    wire = ground.wire(1, 2)
    queue, _ = have_dead(ground, wire)
    fill(wire, queue, b"1")
    reject(wire, queue)
    letter = delivery(wire, 2)
    publish_all(wire, queue, b"2", properties=letter.raw)
    again = hold(wire, queue)
    judge(again.headers.get("x-death"), rabbitmq=letter.headers["x-death"])
    tell(wire, Reject(again.tag, False))
    ((_, _, count),) = _summary(delivery(wire, 2))
    if count == 2:
        return Seen(text="counted on")
    return judge(count, rabbitmq=1)


# ---- cycles


def _cycle(ground: Ground, wire: Wire, length: int, **arguments: object) -> list[str]:
    """Queues each of which sends its dead letters to the next, the last to the first."""
    names = [ground.queue_name() for _ in range(length)]
    for name, target in zip(names, [*names[1:], names[0]], strict=True):
        _declare(wire, name, _to("", target, **arguments))
    return names


def _ready(wire: Wire, queues: list[str]) -> int:
    return sum(counts(wire, queue)[0] for queue in queues)


@chapter.case("2.8-cycle-of-expiry", rabbitmq="dropped where it died before")
def what_only_expires_goes_round_once(ground: Ground) -> Seen:
    """A message that does nothing but expire is dropped when it comes to a queue it died in."""
    wire = ground.wire(1)
    for length in (1, 2, 3):
        queues = _cycle(ground, wire, length, message_ttl=SHORT_MS)
        fill(wire, queues[0], b"1")
        until(lambda queues=queues: _ready(wire, queues) == 0)  # type: ignore[misc]
        witness = ground.queue(wire)
        fill(wire, witness, b"", properties=properties(expiration=str(2 * SHORT_MS)))
        until(lambda witness=witness: counts(wire, witness)[0] == 0)  # type: ignore[misc]
        judge(_ready(wire, queues), rabbitmq=0)
    return Seen()


@chapter.case("2.8-cycle-of-limits", rabbitmq="dropped where it died before")
def what_only_has_no_room_goes_round_once(ground: Ground) -> Seen:
    """A message that finds no room in a ring of full queues is dropped in the end."""
    wire = ground.wire(1)
    queues = _cycle(ground, wire, 2, max_length=1)
    fill(wire, queues[0], *FOUR)
    until(lambda: _ready(wire, queues) == 2)
    return judge([drain(wire, queue) for queue in queues], rabbitmq=[[b"4"], [b"3"]])


@chapter.case("2.8-cycle-of-rejections", rabbitmq="goes round as long as it is rejected")
def what_is_rejected_goes_round_for_ever(ground: Ground) -> Seen:
    """A rejection breaks no cycle: the message comes back each time."""
    wire = ground.wire(1)
    queues = _cycle(ground, wire, 2)
    fill(wire, queues[0], b"1")
    for _ in range(3):
        for queue in queues:
            until(lambda queue=queue: counts(wire, queue)[0] == 1)  # type: ignore[misc]
            reject(wire, queue)
    until(lambda: counts(wire, queues[0])[0] == 1)
    letter = hold(wire, queues[0])
    expected = [(queue, "rejected", 3) for queue in reversed(queues)]
    return judge(_summary(letter), rabbitmq=expected)


@chapter.case("2.8-cycle-of-retries", rabbitmq="goes on: a rejection is among the deaths")
def retries_through_a_waiting_queue_go_on(ground: Ground) -> Seen:
    """Rejected, kept for a time and back again, as often as one likes."""
    wire = ground.wire(1, 2)
    queue, wait = ground.queue_name(), ground.queue_name()
    _declare(wire, queue, _to("", wait))
    _declare(wire, wait, _to("", queue, message_ttl=5))
    consume(wire, queue, 2)
    publish_all(wire, queue, b"1")
    for _ in range(5):
        tell(wire, Reject(delivery(wire, 2).tag, False), channel=2)
    letter = delivery(wire, 2)
    return judge(_summary(letter), rabbitmq=[(wait, "expired", 5), (queue, "rejected", 5)])


@chapter.case("2.8-cycle-leaves-others", rabbitmq="only that queue is left out")
def a_cycle_leaves_out_one_queue_only(ground: Ground) -> Seen:
    """A letter that would come back to the queue it died in still goes to the others."""
    wire = ground.wire(1, 2)
    exchange = ground.exchange(wire, "fanout")
    queue = ground.queue(wire, arguments=_to(exchange, message_ttl=SHORT_MS))
    other = ground.queue(wire)
    bind(wire, queue, exchange)
    bind(wire, other, exchange)
    consume(wire, other, 2, no_ack=True)
    publish_all(wire, queue, b"1")
    letter = delivery(wire, 2)
    judge(counts(wire, queue)[0], rabbitmq=0)
    return judge(_summary(letter), rabbitmq=[(queue, "expired", 1)])


@chapter.case("2.8-large-letter", rabbitmq="whole")
def a_large_message_dies_whole(ground: Ground) -> Seen:
    """A message of many frames is the same when it is dead."""
    wire = ground.wire(1, 2)
    queue, _ = have_dead(ground, wire)
    body = bytes(range(256)) * 2000
    publish_all(wire, queue, body, properties=properties(headers={"long": "x" * 1000}))
    reject(wire, queue)
    letter = delivery(wire, 2)
    judge(letter.headers["long"], rabbitmq="x" * 1000)
    return judge(letter.body == body, rabbitmq=True)
