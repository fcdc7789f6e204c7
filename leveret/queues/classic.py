"""ClassicQueue: messages leave in the order they came, each to one consumer.

It is composed of a `MessageStore` (where the messages lie), a `ReadyList` (which of them wait) and
a `ConsumerList` (for whom); `QueueRules` are there only if its arguments, or a policy, ask for
something. A message is in exactly one state:

    Ready --deliver--> Delivered --ack--> Acked         Delivered --requeue--> Ready
    Ready --deliver without ack--> Acked                Ready --purge--> Purged
    Ready | Delivered --expire, overflow, reject--> Expired, Dropped, Rejected: behind its dead
                                                    letter

Acked, Purged and so on are all settled. Ready, unacked and settled together are all that was ever
appended; a message whose dead letter, or whose next try, is awaited counts as neither ready nor
unacked.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from leveret.amqp.message import EXPIRES
from leveret.queues.arguments import Overflow, QueueArguments, QueueType
from leveret.queues.consumers import Consumer, ConsumerList
from leveret.queues.death import ENDS, DeathReason
from leveret.queues.declaration import QueueDeclaration
from leveret.queues.expiry import due_ms, live_from, split
from leveret.queues.memory_store import MemoryStore
from leveret.queues.message_ids import IdBudget, MessageIds
from leveret.queues.overflow import QueueLimit
from leveret.queues.priority_ready import PriorityReady, ReadyPick
from leveret.queues.ready import ReadyList, ReadyRange, ranges_of
from leveret.queues.replayed import Replayed
from leveret.queues.rules import QueueKeeper, QueueRules
from leveret.queues.stopped_store import StoppedStore
from leveret.queues.store import MessageStore
from leveret.storage.batch import Batch
from leveret.storage.log import SegmentLog
from leveret.storage.state_log import State

TURN_MESSAGES = 2048
"""Messages handed to one consumer before the others are looked at again."""
TURN_BYTES = 1024 * 1024
TURN_DEATHS = 16 * 1024
"""Messages that die in one turn; others are served in between."""
TURN_DEAD_LETTERS = 4096
"""The same where each becomes a dead letter: more than one chunk of a socket can bring."""

Served = tuple[Batch, Sequence[int]]
"""Messages and the offsets at which they lie."""
Wanted = ReadyRange | ReadyPick
"""What a ready list offers next."""


class ClassicQueue:
    """A queue with competing consumers; durable or transient by its store.

    `id` names its directory and its definition, if it has any; `owner` is the connection that an
    exclusive queue belongs to. `arguments` are those in force: `declared_arguments` and policies.
    *tries* are hand-outs and failures of messages in a recovered log, *replayed* are those of them
    that were settled before. `stopped` says why the queue has stopped; it is empty if it has not.
    `message_ids` is there once somebody has asked for one.
    """

    __slots__ = (
        "_first",
        "_first_due_ms",
        "_may_expire",
        "_new_from",
        "_now_ms",
        "_replayed",
        "_rules",
        "_store",
        "_tries",
        "_withdrawn",
        "arguments",
        "consumers",
        "declaration",
        "declared_arguments",
        "id",
        "message_ids",
        "name",
        "owner",
        "ready",
        "stopped",
        "unacked",
    )

    def __init__(
        self,
        declaration: QueueDeclaration,
        store: MessageStore,
        ready: ReadyList | PriorityReady,
        *,
        queue_id: int = 0,
        owner: object | None = None,
        tries: Mapping[int, tuple[int, int]] | None = None,
        replayed: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.declaration = declaration
        self.name = declaration.name
        self.id = queue_id
        self.owner = owner
        self.arguments = self.declared_arguments = QueueArguments()
        self._rules: QueueRules | None = None
        self._store = store
        self.ready = ready
        self.consumers = ConsumerList()
        self.unacked = 0
        self.stopped = ""
        # Is there perhaps a message with an expiration of its own? What a log brings is not known.
        self._may_expire = ready.count > 0
        # The message that was at the head, and when its time is over.
        self._first = -1
        self._first_due_ms: int | None = None
        self._new_from = ready.end
        self._now_ms = 0
        self._replayed = Replayed(replayed) if replayed else None
        self.message_ids: MessageIds | None = None
        self._tries = tries
        self._withdrawn = 0  # by an operator, and perhaps to be given back

    def configure(self, arguments: QueueArguments, keeper: QueueKeeper, now_ms: int) -> None:
        """Go by *arguments* from now on; *keeper* buries the dead and removes the unused."""
        self.arguments = arguments
        self._first = -1
        if self._store.log is not None:
            self._store.log.retention = arguments.retention
        before = self._rules
        self.consumers.single_active = arguments.single_active_consumer
        self.consumers.by_priority = arguments.queue_type is QueueType.QUORUM
        if arguments.is_plain and (before is None or not before.retry):
            self._rules = None
            return
        self._rules = QueueRules(self, arguments, keeper, before, now_ms)
        if self._rules.counts is not None and self._tries is not None:
            self._rules.counts.restore(self._tries)
            self._tries = None
        if self._rules.looks_back:
            for start, stop in self.ready.ranges():
                for batch in self._store.fetch(start, stop):
                    self._rules.look_back(batch, now_ms)

    def knows(self, offset: int, attributes: int) -> None:
        """The message at *offset* has these *attributes*: it need not be read to be judged.

        For a queue that has just been made, and so has no rules yet.
        """
        if not attributes & EXPIRES:
            self._first, self._first_due_ms = offset, None

    def become(self, made: "ClassicQueue") -> None:
        """Be what *made* is, which is not used any more; nobody has used this one before."""
        for kind in type(self).__mro__:
            for slot in getattr(kind, "__slots__", ()):
                setattr(self, slot, getattr(made, slot))
        log = self._store.log
        if log is not None:
            log.watch()

    # ---- in

    def publish(
        self,
        payloads: list[bytes],
        attributes: int,
        payload_length: int,
        now_ms: int,
        *,
        in_order: bool = False,
    ) -> Sequence[int]:
        """Append *payloads*; they are ready once `flush` has been called in the same turn.

        Answers the places of those that do not fit: to be tried again, or given to `refuse`. With
        *in_order* nothing overtakes one that will fit once there is room.
        """
        if attributes & EXPIRES:
            self._may_expire = True
        rules = self._rules
        refused: Sequence[int] = ()
        if rules is not None and rules.limits_intake:
            waiting = self.ready.count + self._store.next_offset - self.ready.end
            payloads, refused = rules.admit(
                payloads, attributes, waiting, now_ms, in_order=in_order
            )
            if not payloads:
                return refused
            rules.appended(payloads, attributes, self._store.next_offset)
        self._append(payloads, attributes, payload_length, now_ms)
        return refused

    def refuse(self, payloads: list[bytes], attributes: int, now_ms: int) -> None:
        """These do not fit: send them to the dead letter exchange, if it gets such messages."""
        if self._rules is not None:
            self._rules.refuse(self, payloads, attributes, now_ms)

    def _append(
        self, payloads: list[bytes], attributes: int, payload_length: int, now_ms: int
    ) -> None:
        if self.message_ids is not None:
            self.message_ids.add(self._store.next_offset, payloads, attributes)
        self._store.append(payloads, attributes, payload_length, now_ms)

    def flush(self) -> SegmentLog | None:
        """Write what was published in this turn and make it ready.

        Answers the log that must be synced before it is confirmed. Raises the log's errors.
        """
        log = self._store.flush()
        self._new_from = self.ready.end
        self.ready.extend(self._store.next_offset)
        return log

    # ---- out

    def dispatch(self, now_ms: int) -> int | None:
        """Hand ready messages to consumers, and bury those that must not wait any longer.

        Answers when this is to be done again though nothing happens meanwhile.
        """
        self._now_ms = now_ms
        rules = self._rules
        if rules is None:
            self._hand_out()
            return self._expire() if self._may_expire else None
        if rules.retry is not None:
            returned = rules.retry.release(now_ms)
            if returned:
                self._put_back(returned)
                self._may_expire = True  # it was neither ready nor unacked meanwhile
        self._hand_out()
        limit = rules.limit
        drops = limit is not None and limit.overflow is Overflow.DROP_HEAD
        if limit is not None and drops and not self._drop_head(limit):
            return now_ms
        due_ms = self._expire() if self._may_expire or rules.ttl_ms is not None else None
        return rules.next_look_ms(self, due_ms, now_ms)

    def _hand_out(self) -> None:
        """Hand ready messages to the consumers in turn, while any of them has credit."""
        ready = self.ready
        while ready.count:
            turns = self.consumers.in_turn()
            if not turns:
                return
            if len(turns) == 1:
                consumer, credit = turns[0]
                wanted = ready.peek(min(credit, TURN_MESSAGES))
                if wanted is None:
                    return
                self._serve(consumer, wanted)
            else:
                self._serve_round_robin(turns)

    def _serve(self, consumer: Consumer, wanted: Wanted) -> None:
        served = self._read(wanted)
        for batch, offsets in served:
            seen = self._as_seen(batch, offsets, wanted) if wanted.redelivered else batch
            if consumer.no_ack:
                self._discard(offsets)
            else:
                self._store.hold(batch, offsets)
                self.unacked += len(offsets)
            consumer.outlet.deliver(consumer, seen, offsets, redelivered=wanted.redelivered)
        if served:
            self.consumers.served(consumer)

    def _serve_round_robin(self, turns: list[tuple[Consumer, int]]) -> None:
        """One message each in turn, as many rounds as everybody has credit for."""
        rounds = min(credit for _, credit in turns)
        outlets = {consumer.outlet for consumer, _ in turns}
        if len(outlets) < len(turns):
            # Each is sent its share in one piece, but on one channel the order must hold.
            rounds = 1
        if any(outlet.has_shared_limit for outlet in outlets):
            rounds = 1
            turns = turns[:1]
        wanted = self.ready.peek(min(rounds * len(turns), TURN_MESSAGES))
        if wanted is None:
            return
        place = 0
        served = self._read(wanted)
        for batch, offsets in served:
            count = len(batch.payloads)
            if any(not consumer.no_ack for consumer, _ in turns):
                self._store.hold(batch, offsets)
            batch = self._as_seen(batch, offsets, wanted)
            for step in range(min(len(turns), count)):
                consumer = turns[(place + step) % len(turns)][0]
                share_offsets = offsets[step :: len(turns)]
                share = Batch(
                    share_offsets[0],
                    batch.timestamp_ms,
                    batch.attributes,
                    batch.payloads[step :: len(turns)],
                    batch.payload_length,
                )
                if consumer.no_ack:
                    self._settle(list(share_offsets))
                else:
                    self.unacked += len(share_offsets)
                consumer.outlet.deliver(
                    consumer, share, share_offsets, redelivered=wanted.redelivered
                )
            place = (place + count) % len(turns)
        if served:
            self.consumers.served(turns[place - 1][0])

    def get(self, *, no_ack: bool) -> tuple[Batch, bool] | None:
        """Take one message (basic.get): a batch of one and whether it was delivered before."""
        while (wanted := self.ready.peek(1)) is not None:
            for batch, offsets in self._read(wanted):
                seen = self._as_seen(batch, offsets, wanted)
                if no_ack:
                    self._discard(offsets)
                else:
                    self._store.hold(batch, offsets)
                    self.unacked += 1
                return seen, wanted.redelivered
        return None

    def _as_seen(self, batch: Batch, offsets: Sequence[int], wanted: Wanted) -> Batch:
        """*batch* as consumers see it: if it was there before, with a word about that."""
        rules = self._rules
        if not wanted.redelivered:
            return batch
        if self._replayed is not None:
            batch = self._replayed.stamp(batch, offsets)
        return (
            batch if rules is None or rules.counts is None else rules.counts.stamp(batch, offsets)
        )

    def _take(self, wanted: Wanted) -> Sequence[Served]:
        """Take messages that are ready."""
        assert isinstance(wanted, ReadyRange)
        assert isinstance(self.ready, ReadyList)
        batches = self._store.read(wanted, TURN_BYTES)
        self.ready.take(batches[-1].next_offset)
        return [(batch, range(batch.first_offset, batch.next_offset)) for batch in batches]

    def _read(self, wanted: Wanted) -> Sequence[Served]:
        """Take messages that are ready; those whose time is over are buried on the way."""
        rules = self._rules
        if rules is None and not self._may_expire:
            return self._take(wanted)
        served: list[Served] = []
        for batch, offsets in self._take(wanted):
            if rules is not None:
                rules.taken(batch, offsets)
            # What came in this turn may be delivered even if its time to live is nothing.
            if self._may_die(batch) and offsets[0] < self._new_from:
                served += self._living(batch, offsets)
            else:
                served.append((batch, offsets))
        if rules is not None and wanted.redelivered and rules.counts is not None:
            return list(self._within_limit(rules, served))
        return served

    def _within_limit(self, rules: QueueRules, served: list[Served]) -> Iterator[Served]:
        """Bury what failed once too often when the broker went down."""
        for batch, offsets in served:
            for is_over, piece in _pieces(batch, offsets, rules.is_over_limit):
                if is_over:
                    self._bury(*piece, DeathReason.DELIVERY_LIMIT)
                else:
                    yield piece

    def _may_die(self, batch: Batch) -> bool:
        return bool(batch.attributes & EXPIRES) or (
            self._rules is not None and self._rules.ttl_ms is not None
        )

    @property
    def _looks_at_time(self) -> bool:
        return self._may_expire or (self._rules is not None and self._rules.ttl_ms is not None)

    def _living(self, batch: Batch, offsets: Sequence[int]) -> list[Served]:
        """The pieces of *batch* whose time is not over; the others are buried."""
        living: list[Served] = []
        ttl_ms = None if self._rules is None else self._rules.ttl_ms
        for is_replayed, (part, places) in self._by_replay(batch, offsets):
            if is_replayed:
                living.append((part, places))
                continue
            for is_due, start, stop in split(part, ttl_ms, self._now_ms):
                piece = piece_of(part, places, start, stop)
                if is_due:
                    self._bury(*piece, DeathReason.EXPIRED)
                else:
                    living.append(piece)
        return living

    def _by_replay(self, batch: Batch, offsets: Sequence[int]) -> Iterable[tuple[bool, Served]]:
        if self._replayed is None:
            return [(False, (batch, offsets))]
        return _pieces(batch, offsets, self._replayed.__contains__)

    @property
    def length(self) -> int:
        """How many messages it has, those with consumers too."""
        return self.ready.count + self.unacked

    @property
    def can_deliver(self) -> bool:
        """Would a message published now go to a consumer at once?"""
        return not self.ready.count and bool(self.consumers.in_turn())

    # ---- death

    def _expire(self) -> int | None:
        """Bury what is at the head and whose time is over; answers when the next one's is."""
        ttl_ms = None if self._rules is None else self._rules.ttl_ms
        room = self._room_for_deaths
        while (wanted := self.ready.peek(TURN_MESSAGES)) is not None:
            assert isinstance(wanted, ReadyRange)
            if wanted.start == self._first and not _is_over(self._first_due_ms, self._now_ms):
                return self._first_due_ms
            batch = self._store.peek(wanted)
            place = wanted.start - batch.first_offset
            self._first, self._first_due_ms = wanted.start, self._due_ms(batch, place, ttl_ms)
            if not _is_over(self._first_due_ms, self._now_ms):
                return self._first_due_ms
            if room <= 0:
                return self._now_ms
            end = min(batch.next_offset, wanted.stop)
            if self._replayed is not None:
                end = self._replayed.first_in(wanted.start, end)
            stop = end - batch.first_offset
            live = live_from(batch, place, stop, ttl_ms, self._now_ms)
            room -= live - place
            dead = wanted._replace(stop=batch.first_offset + live)
            self._bury_ready(dead, DeathReason.EXPIRED)
        if not self._is_held and self._store.next_offset == self.ready.end:
            self._may_expire = False
        return None

    def _due_ms(self, batch: Batch, place: int, ttl_ms: int | None) -> int | None:
        if self._replayed is not None and batch.first_offset + place in self._replayed:
            return None
        return due_ms(batch, place, ttl_ms)

    def _drop_head(self, limit: QueueLimit) -> bool:
        """Bury the oldest of what is too much; answers whether that is all."""
        room = self._room_for_deaths
        while excess := limit.excess(self.ready.count):
            if room <= 0:
                return False
            wanted = self.ready.peek(min(excess, TURN_MESSAGES))
            assert wanted is not None
            before = self.ready.count
            self._bury_ready(wanted, DeathReason.MAX_LENGTH)
            room -= before - self.ready.count
        return True

    @property
    def _room_for_deaths(self) -> int:
        """How many messages may die in this turn."""
        return TURN_DEAD_LETTERS if self._rules and self._rules.dead_letters else TURN_DEATHS

    def _bury_ready(self, wanted: Wanted, reason: DeathReason) -> None:
        for batch, offsets in self._take(wanted):
            if self._rules is not None:
                self._rules.taken(batch, offsets)
            self._bury(batch, offsets, reason)

    def _bury(self, batch: Batch, offsets: Sequence[int], reason: DeathReason) -> None:
        """*batch*, just read, is dead: to its keeper, if it is to become dead letters."""
        rules = self._rules
        if rules is None or not rules.dead_letters or rules.bury(self, batch, offsets, reason):
            self._discard(offsets, ENDS[reason])
        else:
            self._store.hold(batch, offsets)

    def _bury_delivered(self, offsets: list[int], reason: DeathReason) -> None:
        rules = self._rules
        if rules is None or not rules.dead_letters:
            self._settle(offsets, ENDS[reason])
            return
        for start, stop in ranges_of(offsets):
            for batch in self._store.fetch(start, stop):
                dead = range(batch.first_offset, batch.next_offset)
                if rules.bury(self, batch, dead, reason):
                    self._settle(list(dead), ENDS[reason])

    def buried(self, offsets: list[int], reason: DeathReason) -> None:
        """The dead letters of these messages are safe."""
        self._settle(offsets, ENDS[reason])

    # ---- after delivery

    def settle(self, offsets: list[int]) -> None:
        """These deliveries were acknowledged."""
        self.unacked -= len(offsets)
        self._settle(offsets)

    def reject(self, offsets: list[int]) -> None:
        """These deliveries were refused for good."""
        self.unacked -= len(offsets)
        self._bury_delivered(offsets, DeathReason.REJECTED)

    def requeue(self, offsets: list[int], *, failed: bool, now_ms: int) -> None:
        """These deliveries are ready again, at their old place, or will be after a retry delay.

        *failed*: it counts against the delivery limit.
        """
        self.unacked -= len(offsets)
        if self._rules is not None and self._rules.counts is not None:
            state = State.FAILED if failed else State.RETURNED
            self._store.note(state, offsets)
            offsets, dead = self._rules.returned(offsets, now_ms, failed=failed)
            if dead:
                self._bury_delivered(dead, DeathReason.DELIVERY_LIMIT)
        if offsets:
            self._put_back(offsets)

    def _put_back(self, offsets: list[int]) -> None:
        self.ready.put_back(offsets)
        limit = None if self._rules is None else self._rules.limit
        if limit is None or not limit.counts_bytes:
            return
        unknown = limit.returned(offsets)
        for start, stop in ranges_of(unknown) if unknown else ():
            for batch in self._store.fetch(start, stop):
                limit.added(batch.payloads, batch.attributes)

    def _settle(self, offsets: list[int], state: State = State.ACKED) -> None:
        if self._rules is not None:
            self._rules.settled(offsets)
        self._store.settle(offsets, state)

    def _discard(self, offsets: Sequence[int], state: State = State.ACKED) -> None:
        if self._rules is not None:
            self._rules.settled(offsets)
        self._store.discard(offsets, state)

    def flush_state(self) -> SegmentLog | None:
        """Write down what was delivered and settled in this turn.

        Answers the log whose states wait for a sync. Raises the log's errors.
        """
        if self._replayed is not None and self._is_drained:
            self._replayed = None
        return self._store.flush_state()

    @property
    def _is_drained(self) -> bool:
        """Can no message be handed out any more?"""
        retry = None if self._rules is None else self._rules.retry
        return not (self.ready.count or self._is_held or retry)

    @property
    def _is_held(self) -> bool:
        """Is there something that may become ready again, but for what waits for its next try?"""
        return bool(self.unacked or self._withdrawn)

    def purge(self) -> int:
        """Settle everything that is ready; answers how many messages that were."""
        count = self.ready.count
        ranges = self.ready.clear()
        self._store.settle_ranges(ranges)
        if self._rules is not None:
            self._rules.purged(ranges)
        return count

    # ---- on disk

    @property
    def disk_bytes(self) -> int:
        """Bytes of its files, about; 0 of a queue in memory."""
        return self._store.disk_bytes

    @property
    def retained_bytes(self) -> int:
        """Those of them that are settled messages which `x-retain-...` keeps, about."""
        return 0 if self._store.log is None else self._store.log.retained_bytes

    # ---- what operators do

    @property
    def log(self) -> SegmentLog | None:
        """The log with its messages, settled ones too; None if they are in memory."""
        return self._store.log

    def next_try_ms(self, offset: int) -> int | None:
        """When the message at *offset*, if it is held back after a failure, is ready again."""
        retry = None if self._rules is None else self._rules.retry
        return None if retry is None else retry.due_of(offset)

    def replay(self, batches: Sequence[Batch]) -> None:
        """Settled messages, read from the log, are ready again at their old place."""
        ranges = [(batch.first_offset, batch.next_offset) for batch in batches]
        log = self._store.log
        assert log is not None
        log.mark(State.REPLAYED, ranges)
        if self._replayed is None:
            self._replayed = Replayed()
        self._replayed.add(ranges)
        self._first = -1
        for batch in batches:
            self._put_back(list(range(batch.first_offset, batch.next_offset)))

    def withdraw(self, batch: Batch) -> None:
        """These messages, all of them ready, are on their way to another place."""
        self.ready.withdraw(batch.first_offset, batch.next_offset)
        self._withdrawn += len(batch.payloads)
        if self._rules is not None:
            self._rules.taken(batch, range(batch.first_offset, batch.next_offset))

    def moved(self, offsets: list[int]) -> None:
        """These messages, withdrawn before, are safe in their new place."""
        self._withdrawn -= len(offsets)
        self._settle(offsets, State.MOVED)

    def give_back(self, offsets: list[int]) -> None:
        """These messages, withdrawn before, are ready again: they may not have arrived."""
        self._withdrawn -= len(offsets)
        self._put_back(offsets)

    # ---- end

    def used(self, now_ms: int) -> None:
        """Somebody declared it, or fetched from it: it is not to be removed as unused yet."""
        if self._rules is not None:
            self._rules.used_at_ms = now_ms

    def index_ids(self, budget: IdBudget) -> MessageIds:
        """The index of message ids, from now on kept up; its bytes are of *budget*.

        Raises OSError.
        """
        if self.message_ids is None:
            self.message_ids = MessageIds(budget)
            if self._store.log is not None:
                self.message_ids.load(self._store.log.directory)
        return self.message_ids

    def close(self) -> None:
        """Let go of files; what is durable stays on disk. Raises OSError, the log's errors."""
        log = self._store.log
        self._store.close()
        if log is not None and self.message_ids is not None and log.directory.exists():
            self.message_ids.save(log.directory)
        self._forget_ids()

    def _forget_ids(self) -> None:
        if self.message_ids is not None:
            self.message_ids.clear()
            self.message_ids = None

    def stop(self, reason: str, error: Exception) -> None:
        """Give up a store that cannot be trusted any more; what it left on disk stays.

        Publishing then raises InternalError with *reason*.
        """
        store = self._store
        store.fail(error)
        self._forget_ids()
        self.stopped = reason
        self._rules = None
        self._may_expire = False
        self.ready.clear()
        self._store = StoppedStore(reason, self.ready.end, store.delete)

    def delete(self) -> None:
        """Remove every message."""
        self._store.delete()
        self._forget_ids()
        # What a transaction routed here before may still come, and goes nowhere.
        self._store = MemoryStore()
        self._rules = None
        self.ready = ReadyList(0)


def _pieces(
    batch: Batch, offsets: Sequence[int], key: Callable[[int], bool]
) -> Iterator[tuple[bool, Served]]:
    """*batch* in pieces whose offsets are alike by *key*."""
    start = 0
    for is_it, group in groupby(offsets, key):
        stop = start + sum(1 for _ in group)
        yield is_it, piece_of(batch, offsets, start, stop)
        start = stop


def _is_over(due_ms: int | None, now_ms: int) -> bool:
    return due_ms is not None and due_ms <= now_ms


def piece_of(batch: Batch, offsets: Sequence[int], start: int, stop: int) -> Served:
    """The messages of *batch* from place *start* to *stop*."""
    if stop - start == len(offsets):
        return batch, offsets
    piece = Batch(
        offsets[start],
        batch.timestamp_ms,
        batch.attributes,
        batch.payloads[start:stop],
        batch.payload_length,
    )
    return piece, offsets[start:stop]
