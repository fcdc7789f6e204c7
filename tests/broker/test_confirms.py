"""ConfirmTracker: in order, never too early, as few acks as possible."""

from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame

from leveret.broker.confirms import ConfirmTracker
from tests.fakes import FakeCommitter


class Sent:
    """A tracker for channel 5, and what it sends."""

    def __init__(self) -> None:
        self.acks: list[tuple[int, bool]] = []
        self.errors: list[Exception] = []
        self.committer = FakeCommitter()
        self.tracker = ConfirmTracker(5, send=self.send, fail=self.errors.append)

    def send(self, data: bytes) -> None:
        consumed, channel, ack = frame.unmarshal(data)
        assert (consumed, channel) == (len(data), 5)
        assert isinstance(ack, commands.Basic.Ack)
        self.acks.append((ack.delivery_tag or 0, ack.multiple))

    def turn(self, *publishes: tuple[int, bool]) -> None:
        for count, durable in publishes:
            self.tracker.publish(count, durable=durable)
        self.tracker.end_turn(self.committer.wait)


def test_a_lone_confirm_is_not_multiple() -> None:
    sent = Sent()
    sent.turn((1, False))
    sent.turn((1, False))
    assert sent.acks == [(1, False), (2, False)]


def test_a_turn_is_confirmed_at_once() -> None:
    sent = Sent()
    sent.turn((3, False), (2, False))
    assert sent.acks == [(5, True)]


def test_what_must_be_on_disk_waits_for_the_committer() -> None:
    sent = Sent()
    sent.turn((3, False), (2, True))
    assert sent.acks == []
    sent.committer.settle()
    assert sent.acks == [(5, True)]


def test_nothing_overtakes_what_waits() -> None:
    sent = Sent()
    sent.turn((1, True))
    sent.turn((1, False))
    assert sent.acks == []
    sent.committer.settle()
    assert sent.acks == [(1, False)]
    sent.committer.settle()
    assert sent.acks == [(1, False), (2, False)]
    sent.turn((1, False))
    assert sent.acks[-1] == (3, False)


def test_an_error_confirms_nothing() -> None:
    sent = Sent()
    error = OSError()
    sent.turn((1, True))
    sent.committer.settle(error)
    assert sent.acks == []
    assert sent.errors == [error]


def test_a_turn_without_publishes_sends_nothing() -> None:
    sent = Sent()
    sent.turn()
    assert sent.acks == []


publishes = st.tuples(st.integers(1, 5), st.booleans())


@given(st.lists(st.one_of(st.lists(publishes, min_size=1, max_size=3), st.none())))
def test_every_publish_is_confirmed_once_in_order(
    steps: list[list[tuple[int, bool]] | None],
) -> None:
    """A list is a turn, None a sync."""
    sent = Sent()
    published = 0
    waiting: list[int] = []
    allowed = 0
    for step in steps:
        if step is not None:
            published += sum(count for count, _ in step)
            sent.turn(*step)
            if waiting or any(durable for _, durable in step):
                waiting.append(published)
            else:
                allowed = published
        elif waiting:
            allowed = waiting.pop(0)
            sent.committer.settle()
        confirmed = sent.acks[-1][0] if sent.acks else 0
        assert confirmed == allowed
    while waiting:
        sent.committer.settle()
        waiting.pop()
    last = 0
    for tag, multiple in sent.acks:
        assert multiple == (tag - last > 1)
        last = tag
    assert last == published
