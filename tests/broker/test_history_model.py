"""The past of a queue against a small model: rewinds and moves between deliveries and restarts.

Segments are tiny, so that what is done with goes from the disk, or is compacted away, meanwhile.
"""

import tempfile
from pathlib import Path
from typing import Any, ClassVar, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from leveret.amqp.message import encode_message, header_payload, split_content
from leveret.amqp.properties import NO_PROPERTIES, PropertyView
from leveret.amqp.tables import Field, Table
from leveret.broker.commands import run_command
from leveret.broker.commands_replay import AfterLogs
from leveret.queues.classic import ClassicQueue
from leveret.queues.declaration import QueueDeclaration
from tests.broker.world import World


def message(number: int, priority: int) -> tuple[int, bytes]:
    header = NO_PROPERTIES.with_changes(priority=priority, message_id=f"id{number % 7}")
    body = b"%06d" % number + b"." * 200
    header = header[:4] + len(body).to_bytes(8, "big") + header[12:]
    return encode_message("", "source", header, body, 0)


class HistoryModel(RuleBasedStateMachine):
    """The model keeps the state of each offset, and which ones have to be marked as replayed."""

    arguments: ClassVar[Table] = {}
    levels = 1

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        directory = Path(self.temporary.name) / "data"
        directory.mkdir()
        self.world = World(directory)
        for name, arguments in (("source", self.arguments), ("target", {})):
            declaration = QueueDeclaration(name, True, False, False, arguments)
            self.world.vhost.declare_queue(declaration, None)
        self.world.commit()
        self.level_of: list[int] = []
        self.ready: set[int] = set()
        self.out: set[int] = set()
        self.delivered: set[int] = set()
        self.replayed: set[int] = set()
        self.moved: list[int] = []

    def teardown(self) -> None:
        self.world.close()
        self.temporary.cleanup()

    @property
    def queue(self) -> ClassicQueue:
        return self.world.vhost.queues["source"]

    def end_turn(self) -> None:
        self.world.turn.touch(self.queue)
        self.world.run()

    def ask(self, command: str, **arguments: object) -> dict[str, Any]:
        result = run_command(self.world.broker, command, {"queue": "source", **arguments})
        answer = result.answer if isinstance(result, AfterLogs) else result
        self.world.run()
        return cast("dict[str, Any]", answer)

    def on_disk(self) -> dict[int, str]:
        """The state of each message that is on disk."""
        rows = self.ask("browse_queue", limit=10_000, body_bytes=0)
        states = {row["offset"]: row["state"] for row in rows["messages"]}
        while rows["next"] is not None:
            rows = self.ask("browse_queue", start=rows["next"], limit=10_000, body_bytes=0)
            states |= {row["offset"]: row["state"] for row in rows["messages"]}
        return states

    # ---- what clients do

    @rule(priorities=st.lists(st.integers(0, 3), min_size=1, max_size=30))
    def publish(self, priorities: list[int]) -> None:
        for priority in priorities:
            attributes, payload = message(len(self.level_of), priority)
            self.ready.add(len(self.level_of))
            self.level_of.append(min(priority, self.levels - 1))
            self.queue.publish([payload], attributes, 0, self.world.now_ms)
        self.end_turn()

    @rule(count=st.integers(1, 40), no_ack=st.booleans())
    def get(self, count: int, no_ack: bool) -> None:
        for _ in range(count):
            taken = self.queue.get(no_ack=no_ack)
            if taken is None:
                assert not self.ready
                break
            batch, redelivered = taken
            offset = min(self.ready, key=lambda offset: (-self.level_of[offset], offset))
            assert batch.first_offset == offset
            assert redelivered == (offset in self.delivered)
            payload = batch.payloads[0]
            header = header_payload(payload, batch.attributes)
            headers = PropertyView(header, is_checked=True).headers or {}
            assert ("x-replayed" in headers) == (offset in self.replayed)
            assert split_content(payload, batch.attributes & 0xFFFF)[1][:6] == b"%06d" % offset
            self.ready.remove(offset)
            self.delivered.add(offset)
            if not no_ack:
                self.out.add(offset)
        self.end_turn()

    @precondition(lambda self: self.out)
    @rule(data=st.data(), acks=st.booleans())
    def settle(self, data: Any, acks: bool) -> None:
        some = data.draw(st.lists(st.sampled_from(sorted(self.out)), min_size=1, unique=True))
        if acks:
            self.queue.settle(some.copy())
        else:
            self.queue.requeue(some.copy(), failed=True, now_ms=0)
            self.ready.update(some)
        self.out.difference_update(some)
        self.end_turn()

    @rule()
    def purge(self) -> None:
        assert self.queue.purge() == len(self.ready)
        self.ready.clear()
        self.end_turn()

    # ---- what operators do

    @rule(start=st.integers(0, 200), size=st.integers(1, 60))
    def rewind(self, start: int, size: int) -> None:
        settled = {offset for offset, state in self.on_disk().items() if state == "settled"}
        expected = settled.intersection(range(start, start + size))
        found = 0
        following: int | None = start
        while following is not None:
            answer = self.ask("rewind_queue", start=following, stop=start + size)
            found += answer["count"]
            following = answer["next"]
        assert found == len(expected)
        self.ready |= expected
        self.delivered |= expected
        self.replayed |= expected

    @rule(start=st.integers(0, 200), size=st.integers(1, 60), limit=st.integers(1, 40))
    def move(self, start: int, size: int, limit: int) -> None:
        expected = sorted(self.ready.intersection(range(start, start + size)))[:limit]
        found = 0
        following: int | None = start
        while following is not None and found < limit:
            answer = self.ask(
                "move_messages",
                to_queue="target",
                start=following,
                stop=start + size,
                limit=limit - found,
            )
            self.world.commit()
            found += answer["count"]
            following = answer["next"]
        assert found == len(expected)
        self.ready.difference_update(expected)
        self.moved += expected

    @rule(number=st.integers(0, 7))
    def find(self, number: int) -> None:
        offsets: list[int] = []
        following: int | None = 0
        while following is not None:
            answer = self.ask("find_message", message_id=f"id{number}", start=following)
            offsets += answer["offsets"]
            following = answer["next"]
        assert offsets == [offset for offset in self.on_disk() if offset % 7 == number]

    # ---- what becomes of the broker

    @rule(crashes=st.booleans())
    def restart(self, crashes: bool) -> None:
        self.world.commit()
        if crashes:
            self.world.crash()
        else:
            self.world.restart()
        self.ready |= self.out
        self.out.clear()

    @invariant()
    def nothing_is_missing(self) -> None:
        states = self.on_disk()
        assert {offset for offset, state in states.items() if state == "ready"} == self.ready
        # Nobody is connected who could have them.
        assert {offset for offset, state in states.items() if state == "waiting"} == self.out
        assert self.queue.ready.count == len(self.ready)
        assert self.queue.unacked == len(self.out)
        assert self.world.vhost.queues["target"].ready.count == len(self.moved)


class PriorityHistoryModel(HistoryModel):
    """The same with levels."""

    arguments: ClassVar[Table] = {"x-max-priority": Field("I", 2)}
    levels = 3


TestHistoryModel = HistoryModel.TestCase
TestPriorityHistoryModel = PriorityHistoryModel.TestCase
TestHistoryModel.settings = settings(max_examples=25, stateful_step_count=40)
TestPriorityHistoryModel.settings = settings(max_examples=25, stateful_step_count=40)
